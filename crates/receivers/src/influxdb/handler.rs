//! The paths of InfluxDB's APIs.

use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use sluice_flow::source::Permit;
use sluice_net::auth::server::ServerAuth;
use sluice_net::server::{BodyReader, Handler, ReplyBody, RequestBody};

use super::answers::{self, json_reply};
use super::body::{Body, Next, is_gzip};
use super::counters::add;
use super::credentials;
use super::query::Databases;
use super::refused::Refused;
use super::request::{Api, Parameters, Target};
use super::write::{Outcome, Writer};
use crate::otlp::senders::Sender;

/// The longest form that is read for its query.
const FORM_BYTES: usize = 16 << 10;

pub(super) struct InfluxHandler {
    writer: Writer,
    authenticator: Option<Arc<dyn ServerAuth>>,
    databases: Databases,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Write(Api),
    Query,
    Ping,
    Health,
}

impl Endpoint {
    fn of(path: &str) -> Option<Endpoint> {
        Some(match path {
            "/write" => Endpoint::Write(Api::V1),
            "/api/v2/write" => Endpoint::Write(Api::V2),
            "/api/v3/write_lp" => Endpoint::Write(Api::V3),
            "/query" => Endpoint::Query,
            "/ping" | "/status" => Endpoint::Ping,
            "/health" | "/api/v2/health" => Endpoint::Health,
            _ => return None,
        })
    }

    /// The methods that it takes, as `allow` has them.
    fn allowed(self) -> &'static str {
        match self {
            Endpoint::Write(_) => "POST, OPTIONS",
            Endpoint::Query => "GET, POST, OPTIONS",
            Endpoint::Ping | Endpoint::Health => "GET, HEAD, OPTIONS",
        }
    }

    fn api(self) -> Api {
        if let Endpoint::Write(api) = self { api } else { Api::V1 }
    }
}

impl InfluxHandler {
    pub(super) fn new(writer: Writer, authenticator: Option<Arc<dyn ServerAuth>>) -> Self {
        InfluxHandler { writer, authenticator, databases: Databases::default() }
    }

    async fn answer(&self, sender: &Sender, request: Request<RequestBody>) -> Response<ReplyBody> {
        if let Some(response) = self.writer.config.answers.preflight(&request) {
            return response;
        }
        let Some(endpoint) = Endpoint::of(request.uri().path()) else {
            let path: String = request.uri().path().chars().take(200).collect();
            self.refuse_unknown(sender, &format!("there is no path {path}"));
            return answers::not_found();
        };
        let allowed = endpoint.allowed();
        if !allowed.split(", ").any(|method| method == request.method().as_str()) {
            self.refuse_unknown(sender, &format!("its HTTP method is none of {allowed}"));
            return answers::wrong_method(allowed);
        }
        if request.method() == Method::OPTIONS {
            return answers::options(allowed);
        }
        let (head, body) = request.into_parts();
        let parameters = Parameters::parse(head.uri.query().unwrap_or_default().as_bytes());
        let answered = match endpoint {
            Endpoint::Ping => Ok(answers::ping(parameters.of("verbose"))),
            Endpoint::Health => Ok(answers::health()),
            Endpoint::Query => self.query(&head, &parameters, body).await,
            Endpoint::Write(api) => {
                let written = self.write(api, sender, &head, &parameters, body).await;
                written.map(|outcome| {
                    self.count(sender, &outcome);
                    answers::written(api, &outcome)
                })
            }
        };
        answered.unwrap_or_else(|refused| {
            self.refuse(Some(sender), &refused);
            self.refused(endpoint.api(), &refused)
        })
    }

    async fn write(
        &self,
        api: Api,
        sender: &Sender,
        head: &Parts,
        parameters: &Parameters,
        body: RequestBody,
    ) -> Result<Outcome, Refused> {
        self.check_sender(head, parameters).await?;
        if head.version == Version::HTTP_10 && !head.headers.contains_key(CONTENT_LENGTH) {
            // Such a body ends with the connection: one that broke off looks whole.
            return Err(Refused::invalid("a body of HTTP/1.0 needs a content-length"));
        }
        let target = Target::read(api, parameters).map_err(Refused::invalid)?;
        let is_gzip = is_gzip(&head.headers)?;
        let body = BodyReader::new(body, self.writer.config.shared.body_timeouts);
        self.writer.write(&target, (sender, head), body, is_gzip).await
    }

    async fn query(
        &self,
        head: &Parts,
        parameters: &Parameters,
        body: RequestBody,
    ) -> Result<Response<ReplyBody>, Refused> {
        let form = if head.method == Method::POST && parameters.of("q").is_empty() {
            self.form(head, body).await?
        } else {
            Parameters::parse(b"")
        };
        let of = |name| match parameters.of(name) {
            "" => form.of(name),
            value => value,
        };
        // Users of a form may stand in it, too.
        let user = if parameters.of("u").is_empty() { &form } else { parameters };
        self.check_sender(head, user).await?;
        Ok(match of("q") {
            "" => {
                let message = "missing required parameter \"q\"";
                answers::error(Api::V1, StatusCode::BAD_REQUEST, message)
            }
            query => match self.databases.answer(query) {
                Ok(body) => json_reply(StatusCode::OK, &body),
                Err(message) => answers::error(Api::V1, StatusCode::BAD_REQUEST, &message),
            },
        })
    }

    /// The parameters of a form, which is small.
    async fn form(&self, head: &Parts, body: RequestBody) -> Result<Parameters, Refused> {
        let content_type = head.headers.get(CONTENT_TYPE).map_or(&b""[..], |it| it.as_bytes());
        if !content_type.starts_with(b"application/x-www-form-urlencoded") {
            return Ok(Parameters::parse(b""));
        }
        let _memory = Permit::take(self.writer.ingress.waiting(false), FORM_BYTES)?;
        let body = BodyReader::new(body, self.writer.config.shared.body_timeouts);
        let (mut body, mut bytes) = (Body::new(body, Some(FORM_BYTES as u64)), Vec::new());
        loop {
            match body.next().await? {
                Next::Piece(piece) => bytes.extend_from_slice(&piece),
                Next::End => return Ok(Parameters::parse(&bytes)),
                Next::LookAgain => {
                    body.is_slow(0);
                }
            }
        }
    }

    async fn check_sender(&self, head: &Parts, parameters: &Parameters) -> Result<(), Refused> {
        let Some(authenticator) = &self.authenticator else { return Ok(()) };
        Ok(credentials::check(authenticator, &head.headers, parameters).await?)
    }

    fn count(&self, sender: &Sender, outcome: &Outcome) {
        match &outcome.refused {
            None => add(&self.writer.counters.accepted_requests, 1),
            Some(refused) => self.refuse(Some(sender), refused),
        }
    }

    fn refuse(&self, sender: Option<&Sender>, refused: &Refused) {
        let Writer { counters, receiver, .. } = &self.writer;
        counters.refuse(receiver, sender.and_then(Sender::peer), refused);
    }

    fn refuse_unknown(&self, sender: &Sender, what: &str) {
        let Writer { counters, receiver, .. } = &self.writer;
        counters.refuse_unknown(receiver, sender.peer(), what);
    }

    fn refused(&self, api: Api, refused: &Refused) -> Response<ReplyBody> {
        let challenge = self.authenticator.as_deref().map(ServerAuth::challenge);
        answers::refused(api, refused, challenge)
    }
}

impl Handler for InfluxHandler {
    type Connection = Sender;

    fn connected(&self, peer: Option<SocketAddr>) -> Sender {
        Sender::new(peer)
    }

    fn handle(
        &self,
        sender: &Sender,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<ReplyBody>> + Send {
        let finish = self.writer.config.answers.finish(&request);
        async move { finish(answers::with_version(self.answer(sender, request).await)) }
    }

    fn refuse_for_memory(&self, request: Request<RequestBody>) -> Response<ReplyBody> {
        let answers = &self.writer.config.answers;
        let response = answers.preflight(&request).unwrap_or_else(|| {
            let refused = Refused::without_memory();
            self.refuse(None, &refused);
            let api = Endpoint::of(request.uri().path()).map_or(Api::V1, Endpoint::api);
            self.refused(api, &refused)
        });
        answers.finish(&request)(answers::with_version(response))
    }
}
