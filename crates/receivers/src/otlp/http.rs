//! OTLP over HTTP.

use std::future::ready;
use std::net::SocketAddr;

use futures_util::FutureExt;
use futures_util::future::Either;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use sluice_net::compress::Packing;
use sluice_net::server::{Handler, ReplyBody, RequestBody, reply};
use sluice_otlp::{Encoding, Signal};

use super::config::HttpConfig;
use super::counters::Transport;
use super::ingest::{Form, Format, Incoming, Ingest, media_type};
use super::refusal::{Refused, RefusedReason};
use super::senders::Sender;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub(super) struct HttpHandler {
    ingest: Ingest,
    config: HttpConfig,
    accepted_encodings: HeaderValue,
}

impl HttpHandler {
    pub(super) fn new(ingest: Ingest, config: HttpConfig) -> Self {
        let names: Vec<&str> = config.encodings.iter().map(|(name, _)| *name).collect();
        let accepted_encodings =
            names.join(", ").parse().unwrap_or(HeaderValue::from_static("identity"));
        HttpHandler { ingest, config, accepted_encodings }
    }

    fn incoming<'a>(
        &self,
        sender: &'a Sender,
        request: Request<RequestBody>,
    ) -> Result<Incoming<'a>, Box<Response<ReplyBody>>> {
        if let Some(response) = self.preflight(&request) {
            return Err(Box::new(response));
        }
        let Some(signal) = self.signal_of(&request) else {
            let path: String = request.uri().path().chars().take(200).collect();
            self.ingest.refuse_unknown(sender, &format!("there is no path {path}"));
            return Err(Box::new(reply(StatusCode::NOT_FOUND, TEXT, "404 page not found\n")));
        };
        if request.method() != Method::POST {
            self.ingest.refuse_unknown(sender, "its HTTP method is not POST");
            let message = "405 method not allowed, supported: [POST]\n";
            let mut response = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, message);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return Err(Box::new(response));
        }
        let refuse = |reason, message: &str| {
            let refused = Refused::new(reason, message.trim_end());
            self.ingest.refuse(Some(sender), signal, Transport::Http, &refused, 0);
        };
        let Some(format) = format_of(request.headers()) else {
            let message = "415 unsupported media type, supported: \
                           [application/json, application/x-protobuf]\n";
            refuse(RefusedReason::UnsupportedMediaType, message);
            return Err(Box::new(reply(StatusCode::UNSUPPORTED_MEDIA_TYPE, TEXT, message)));
        };
        if request.version() == Version::HTTP_10 && !request.headers().contains_key(CONTENT_LENGTH)
        {
            // Such a body ends with the connection: one that broke off looks whole.
            let message = "411 length required: a body of HTTP/1.0 needs a content-length\n";
            refuse(RefusedReason::Invalid, message);
            return Err(Box::new(reply(StatusCode::LENGTH_REQUIRED, TEXT, message)));
        }
        let form = Form::Otlp(format);
        Ok(Incoming { transport: Transport::Http, signal, form, sender, request })
    }

    fn preflight(&self, request: &Request<RequestBody>) -> Option<Response<ReplyBody>> {
        self.config.cors.as_ref()?.preflight(request.method(), request.headers())
    }

    fn signal_of(&self, request: &Request<RequestBody>) -> Option<Signal> {
        let path = request.uri().path();
        Signal::ALL.into_iter().find(|signal| self.config.url_paths[*signal as usize] == path)
    }

    fn packing_of(&self, headers: &HeaderMap) -> Result<Packing, Refused> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = values.next() else { return Ok(Packing::Known(Encoding::Identity)) };
        let name = String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase();
        match self.config.encodings.iter().find(|(own, _)| *own == name) {
            // No OTLP client sends several codings on top of each other.
            Some((_, packing)) if values.next().is_none() => Ok(*packing),
            _ if name.is_empty() => Ok(Packing::Known(Encoding::Identity)),
            _ => {
                let name: String = name.chars().take(40).collect();
                let message = format!("content-encoding `{name}` is not supported");
                Err(Refused::new(RefusedReason::UnsupportedEncoding, message))
            }
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
        let mut response = reply(refused.http_status(), content_type, body);
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

    /// Adds the headers that browsers and the configuration want of every answer.
    fn finish<'a>(
        &'a self,
        request: &Request<RequestBody>,
    ) -> impl FnOnce(Response<ReplyBody>) -> Response<ReplyBody> + use<'a> {
        let origin = request.headers().get(ORIGIN).cloned();
        let is_http1 = request.version() < http::Version::HTTP_2;
        let is_preflight = request.method() == Method::OPTIONS;
        move |mut response| {
            let headers = response.headers_mut();
            if let Some(cors) = self.config.cors.as_ref().filter(|_| !is_preflight) {
                cors.apply(origin.as_ref(), headers);
            }
            let configured = self.config.response_headers.iter();
            headers.extend(configured.map(|(name, value)| (name.clone(), value.clone())));
            if is_http1 && !self.config.keep_alive {
                headers.insert(http::header::CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
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
        let finish = self.finish(&request);
        let format = format_of(request.headers()).unwrap_or(Format::Protobuf);
        match self.incoming(sender, request) {
            Ok(incoming) => {
                let receiving = self.ingest.receive(incoming, |headers| self.packing_of(headers));
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
        let response = self.preflight(&request).unwrap_or_else(|| {
            let refused = Refused::without_memory();
            if let Some(signal) = self.signal_of(&request) {
                self.ingest.refuse(None, signal, Transport::Http, &refused, 0);
            }
            self.refuse(format_of(request.headers()).unwrap_or(Format::Protobuf), &refused)
        });
        self.finish(&request)(response)
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
