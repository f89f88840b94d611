//! OTLP over HTTP.

use std::future::ready;
use std::net::SocketAddr;

use futures_util::FutureExt;
use futures_util::future::Either;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use sluice_net::compress::Packing;
use sluice_net::server::{Handler, ReplyBody, RequestBody, reply};
use sluice_otlp::{Encoding, Signal};

use super::config::HttpConfig;
use super::counters::Transport;
use super::front::{Front, unsupported_encoding};
use super::ingest::{Form, Format, Incoming, Ingest, media_type};
use super::refusal::{Refused, RefusedReason};
use super::senders::Sender;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(super) struct HttpHandler(Front);

impl HttpHandler {
    pub(super) fn new(ingest: Ingest, config: HttpConfig) -> Self {
        HttpHandler(Front::new(ingest, config))
    }

    fn incoming<'a>(
        &self,
        sender: &'a Sender,
        request: Request<RequestBody>,
    ) -> Result<Incoming<'a>, Box<Response<ReplyBody>>> {
        let front = &self.0;
        if let Some(response) = front.config.answers.preflight(&request) {
            return Err(Box::new(response));
        }
        let Some(signal) = self.signal_of(&request) else {
            return Err(front.not_found(sender, &request));
        };
        front.check_method(sender, &request)?;
        let Some(format) = format_of(request.headers()) else {
            let message = "415 unsupported media type, supported: \
                           [application/json, application/x-protobuf]\n";
            let (reason, status) =
                (RefusedReason::UnsupportedMediaType, StatusCode::UNSUPPORTED_MEDIA_TYPE);
            return Err(front.refuse_plain(sender, signal, reason, status, message));
        };
        front.check_length(sender, signal, &request)?;
        let form = Form::Otlp(format);
        Ok(Incoming { transport: Transport::Http, signal, form, sender, request })
    }

    fn signal_of(&self, request: &Request<RequestBody>) -> Option<Signal> {
        let path = request.uri().path();
        Signal::ALL.into_iter().find(|signal| self.0.config.url_paths[*signal as usize] == path)
    }

    fn packing_of(&self, headers: &HeaderMap) -> Result<Packing, Refused> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = values.next() else { return Ok(Packing::Known(Encoding::Identity)) };
        let name = String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase();
        match self.0.config.encodings.iter().find(|(own, _)| *own == name) {
            // No OTLP client sends several codings on top of each other.
            Some((_, packing)) if values.next().is_none() => Ok(*packing),
            _ if name.is_empty() => Ok(Packing::Known(Encoding::Identity)),
            _ => Err(unsupported_encoding(&name)),
        }
    }

    fn refuse(&self, format: Format, refused: &Refused) -> Response<ReplyBody> {
        let status = refused.to_status();
        let (content_type, body) = match format {
            Format::Protobuf => (PROTOBUF, status.encode_details()),
            Format::Json => {
                let body =
                    serde_json::json!({ "code": status.code.number(), "message": status.message });
                (JSON, body.to_string().into_bytes())
            }
        };
        self.0.with_remedies(reply(refused.http_status(), content_type, body), refused)
    }
}

impl Handler for HttpHandler {
    type Connection = Sender;

    fn connected(&self, peer: Option<SocketAddr>) -> Sender {
        Sender::new(peer)
    }

    fn handle(
        &self,
        sender: &Sender,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<ReplyBody>> + Send {
        let finish = self.0.config.answers.finish(&request);
        let format = format_of(request.headers()).unwrap_or(Format::Protobuf);
        match self.incoming(sender, request) {
            Ok(incoming) => {
                let receiving = self.0.ingest.receive(incoming, |headers| self.packing_of(headers));
                Either::Left(receiving.map(move |received| {
                    finish(match received {
                        Ok(_) => success(format),
                        Err(refused) => self.refuse(format, &refused),
                    })
                }))
            }
            Err(response) => Either::Right(ready(finish(*response))),
        }
    }

    fn refuse_for_memory(&self, request: Request<RequestBody>) -> Response<ReplyBody> {
        let response = self.0.config.answers.preflight(&request).unwrap_or_else(|| {
            let refused = Refused::without_memory();
            if let Some(signal) = self.signal_of(&request) {
                self.0.ingest.refuse(None, signal, Transport::Http, &refused, 0);
            }
            self.refuse(format_of(request.headers()).unwrap_or(Format::Protobuf), &refused)
        });
        self.0.config.answers.finish(&request)(response)
    }
}

fn format_of(headers: &HeaderMap) -> Option<Format> {
    let known: [(&[u8], Format); 2] =
        [(b"application/x-protobuf", Format::Protobuf), (b"application/json", Format::Json)];
    let media_type = media_type(headers)?;
    let found = known.iter().find(|(name, _)| media_type.eq_ignore_ascii_case(name));
    found.map(|(_, format)| *format)
}

/// The empty response message in either format: nothing was rejected.
fn success(format: Format) -> Response<ReplyBody> {
    match format {
        Format::Protobuf => reply(StatusCode::OK, PROTOBUF, ""),
        Format::Json => reply(StatusCode::OK, JSON, "{}"),
    }
}
