//! Requests of remote write and their answers.

use std::future::ready;
use std::net::SocketAddr;

use futures_util::FutureExt;
use futures_util::future::Either;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, ORIGIN, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use sluice_net::compress::Packing;
use sluice_net::server::{Handler, ReplyBody, RequestBody, reply};
use sluice_otlp::{Encoding, Signal};
use sluice_prometheus::Version;
use sluice_prometheus::inward::WrittenCounts;

use crate::otlp::ingest::{Form, Incoming, Ingest, Told, media_type};
use crate::otlp::senders::Sender;
use crate::otlp::{HttpConfig, Refused, RefusedReason, Transport};

/// Where Prometheus and the Collector take requests.
const PATH: &str = "/api/v1/write";

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Numbers of what was taken, which senders of 2.0 want.
const WRITTEN: [HeaderName; 3] = [
    HeaderName::from_static("x-prometheus-remote-write-samples-written"),
    HeaderName::from_static("x-prometheus-remote-write-histograms-written"),
    HeaderName::from_static("x-prometheus-remote-write-exemplars-written"),
];

pub(super) struct RemoteWriteHandler {
    pub(super) ingest: Ingest,
    pub(super) config: HttpConfig,
}

/// The message of a request, from its content type. Senders of 1.0 need not name it.
fn version_of(headers: &HeaderMap) -> Option<Version> {
    if !media_type(headers)?.eq_ignore_ascii_case(b"application/x-protobuf") {
        return None;
    }
    let whole = headers.get(http::header::CONTENT_TYPE)?.to_str().ok()?;
    let parameters = whole.split(';').skip(1).filter_map(|it| it.split_once('='));
    let mut named = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("proto"));
    match named.next().map(|(_, value)| value.trim().trim_matches('"')) {
        None | Some("prometheus.WriteRequest") => Some(Version::V1),
        Some("io.prometheus.write.v2.Request") => Some(Version::V2),
        Some(_) => None,
    }
}

fn with_written(response: &mut Response<ReplyBody>, written: WrittenCounts) {
    let WrittenCounts { samples, histograms, exemplars } = written;
    let numbers = [samples, histograms, exemplars];
    for (name, number) in WRITTEN.into_iter().zip(numbers) {
        response.headers_mut().insert(name, number.into());
    }
}

impl RemoteWriteHandler {
    fn incoming<'a>(
        &self,
        sender: &'a Sender,
        request: Request<RequestBody>,
    ) -> Result<(Incoming<'a>, Version), Box<Response<ReplyBody>>> {
        if let Some(response) = self.preflight(&request) {
            return Err(Box::new(response));
        }
        if request.uri().path() != PATH {
            let path: String = request.uri().path().chars().take(200).collect();
            self.ingest.refuse_unknown(sender, &format!("there is no path {path}"));
            return Err(Box::new(reply(StatusCode::NOT_FOUND, TEXT, "404 page not found\n")));
        }
        if request.method() != Method::POST {
            self.ingest.refuse_unknown(sender, "its HTTP method is not POST");
            let message = "405 method not allowed, supported: [POST]\n";
            let mut response = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, message);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return Err(Box::new(response));
        }
        let (transport, signal) = (Transport::Http, Signal::Metrics);
        let Some(version) = version_of(request.headers()) else {
            let message = "415 unsupported media type, supported: [application/x-protobuf with \
                           proto=prometheus.WriteRequest or \
                           proto=io.prometheus.write.v2.Request]\n";
            let refused = Refused::new(RefusedReason::UnsupportedMediaType, message.trim_end());
            self.ingest.refuse(Some(sender), signal, transport, &refused, 0);
            return Err(Box::new(reply(StatusCode::UNSUPPORTED_MEDIA_TYPE, TEXT, message)));
        };
        if request.version() == http::Version::HTTP_10
            && !request.headers().contains_key(CONTENT_LENGTH)
        {
            // Such a body ends with the connection: one that broke off looks whole.
            let message = "411 length required: a body of HTTP/1.0 needs a content-length\n";
            let refused = Refused::new(RefusedReason::Invalid, message.trim_end());
            self.ingest.refuse(Some(sender), signal, transport, &refused, 0);
            return Err(Box::new(reply(StatusCode::LENGTH_REQUIRED, TEXT, message)));
        }
        let form = Form::RemoteWrite(version);
        Ok((Incoming { transport, signal, form, sender, request }, version))
    }

    fn preflight(&self, request: &Request<RequestBody>) -> Option<Response<ReplyBody>> {
        self.config.cors.as_ref()?.preflight(request.method(), request.headers())
    }

    fn packing_of(&self, headers: &HeaderMap) -> Result<Packing, Refused> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = values.next() else { return Ok(Packing::Known(Encoding::Identity)) };
        let name = String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase();
        let known = self.config.encodings.iter().find(|(own, _)| *own == name);
        match known.filter(|_| values.next().is_none()) {
            Some((_, packing)) => Ok(*packing),
            None => {
                let name: String = name.chars().take(40).collect();
                let message = format!("content-encoding `{name}` is not supported");
                Err(Refused::new(RefusedReason::UnsupportedEncoding, message))
            }
        }
    }

    fn answer(
        &self,
        version: Version,
        received: Result<Option<Box<Told>>, Refused>,
    ) -> Response<ReplyBody> {
        let (mut response, written) = match received {
            Ok(told) => match told.map_or_else(Told::default, |told| *told) {
                Told { written, invalid: 0, .. } => {
                    (reply(StatusCode::NO_CONTENT, TEXT, ""), written)
                }
                Told { written, invalid, reason } => {
                    let reason = reason.unwrap_or_default();
                    let message = format!("{invalid} series or samples are left out: {reason}\n");
                    (reply(StatusCode::BAD_REQUEST, TEXT, message), written)
                }
            },
            Err(refused) => (self.refuse(&refused), WrittenCounts::default()),
        };
        if version == Version::V2 {
            with_written(&mut response, written);
        }
        response
    }

    fn refuse(&self, refused: &Refused) -> Response<ReplyBody> {
        let mut response = reply(refused.http_status(), TEXT, format!("{}\n", refused.message));
        let headers = response.headers_mut();
        if let Some(delay) = refused.delay {
            let seconds = delay.as_millis().div_ceil(1000).max(1) as u64;
            headers.insert(RETRY_AFTER, seconds.into());
        }
        match refused.reason {
            RefusedReason::Unauthenticated => {
                let authenticator = self.ingest.authenticator.as_deref();
                headers.extend(authenticator.map(|it| (WWW_AUTHENTICATE, it.challenge().clone())));
            }
            RefusedReason::UnsupportedEncoding => {
                let names: Vec<&str> = self.config.encodings.iter().map(|(it, _)| *it).collect();
                headers.extend(names.join(", ").parse().map(|names| (ACCEPT_ENCODING, names)));
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
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    }
}

impl Handler for RemoteWriteHandler {
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
        match self.incoming(sender, request) {
            Ok((incoming, version)) => {
                let receiving = self.ingest.receive(incoming, |headers| self.packing_of(headers));
                Either::Left(receiving.map(move |told| finish(self.answer(version, told))))
            }
            Err(response) => Either::Right(ready(finish(*response))),
        }
    }

    fn refuse_for_memory(&self, request: Request<RequestBody>) -> Response<ReplyBody> {
        let response = self.preflight(&request).unwrap_or_else(|| {
            let refused = Refused::without_memory();
            self.ingest.refuse(None, Signal::Metrics, Transport::Http, &refused, 0);
            self.refuse(&refused)
        });
        self.finish(&request)(response)
    }
}
