//! Handling of requests over HTTP that is the same for OTLP and remote write: paths, methods,
//! lengths, and the headers of refusals.

use http::header::{ACCEPT_ENCODING, ALLOW, CONTENT_LENGTH, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use sluice_net::server::{ReplyBody, RequestBody, reply};
use sluice_otlp::Signal;

use super::config::HttpConfig;
use super::counters::Transport;
use super::ingest::Ingest;
use super::refusal::{Refused, RefusedReason};
use super::senders::Sender;

pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The state that handlers of HTTP share.
pub(crate) struct Front {
    pub(crate) ingest: Ingest,
    pub(crate) config: HttpConfig,
    accepted_encodings: HeaderValue,
}

impl Front {
    pub(crate) fn new(ingest: Ingest, config: HttpConfig) -> Self {
        let names: Vec<&str> = config.encodings.iter().map(|(name, _)| *name).collect();
        let accepted_encodings =
            names.join(", ").parse().unwrap_or(HeaderValue::from_static("identity"));
        Front { ingest, config, accepted_encodings }
    }

    /// The answer to a request to no known path.
    pub(crate) fn not_found(
        &self,
        sender: &Sender,
        request: &Request<RequestBody>,
    ) -> Box<Response<ReplyBody>> {
        let path: String = request.uri().path().chars().take(200).collect();
        self.ingest.refuse_unknown(sender, &format!("there is no path {path}"));
        Box::new(reply(StatusCode::NOT_FOUND, TEXT, "404 page not found\n"))
    }

    /// # Errors
    /// The answer to a request that is no POST.
    pub(crate) fn check_method(
        &self,
        sender: &Sender,
        request: &Request<RequestBody>,
    ) -> Result<(), Box<Response<ReplyBody>>> {
        if request.method() == Method::POST {
            return Ok(());
        }
        self.ingest.refuse_unknown(sender, "its HTTP method is not POST");
        let message = "405 method not allowed, supported: [POST]\n";
        let mut response = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, message);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        Err(Box::new(response))
    }

    /// # Errors
    /// The answer to a request of which nothing tells where it ends.
    pub(crate) fn check_length(
        &self,
        sender: &Sender,
        signal: Signal,
        request: &Request<RequestBody>,
    ) -> Result<(), Box<Response<ReplyBody>>> {
        if request.version() != Version::HTTP_10 || request.headers().contains_key(CONTENT_LENGTH) {
            return Ok(());
        }
        // Such a body ends with the connection: one that broke off looks whole.
        let message = "411 length required: a body of HTTP/1.0 needs a content-length\n";
        let reason = RefusedReason::Invalid;
        Err(self.refuse_plain(sender, signal, reason, StatusCode::LENGTH_REQUIRED, message))
    }

    /// Refuses a request before its body is read, in plain text.
    pub(crate) fn refuse_plain(
        &self,
        sender: &Sender,
        signal: Signal,
        reason: RefusedReason,
        status: StatusCode,
        message: &'static str,
    ) -> Box<Response<ReplyBody>> {
        let refused = Refused::new(reason, message.trim_end());
        self.ingest.refuse(Some(sender), signal, Transport::Http, &refused, 0);
        Box::new(reply(status, TEXT, message))
    }

    /// Adds to a refusal the headers that say what to do about it.
    pub(crate) fn with_remedies(
        &self,
        mut response: Response<ReplyBody>,
        refused: &Refused,
    ) -> Response<ReplyBody> {
        let headers = response.headers_mut();
        if let Some(delay) = refused.delay {
            // The header has whole seconds: rounded up, so that no client comes too early.
            let seconds = delay.as_millis().div_ceil(1000).max(1) as u64;
            headers.insert(RETRY_AFTER, seconds.into());
        }
        match refused.reason {
            RefusedReason::Unauthenticated => {
                let authenticator = self.ingest.authenticator.as_deref();
                headers.extend(authenticator.map(|it| (WWW_AUTHENTICATE, it.challenge().clone())));
            }
            RefusedReason::UnsupportedEncoding => {
                headers.insert(ACCEPT_ENCODING, self.accepted_encodings.clone());
            }
            _ => {}
        }
        response
    }
}

/// The refusal of a coding that is not known.
pub(crate) fn unsupported_encoding(name: &str) -> Refused {
    let name: String = name.chars().take(40).collect();
    let message = format!("content-encoding `{name}` is not supported");
    Refused::new(RefusedReason::UnsupportedEncoding, message)
}
