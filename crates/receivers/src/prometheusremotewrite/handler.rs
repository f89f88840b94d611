//! Requests of remote write and their answers.

use std::future::ready;
use std::net::SocketAddr;

use futures_util::FutureExt;
use futures_util::future::Either;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use sluice_net::compress::Packing;
use sluice_net::server::{Handler, ReplyBody, RequestBody, reply};
use sluice_otlp::{Encoding, Signal};
use sluice_prometheus::Version;
use sluice_prometheus::inward::WrittenCounts;

use crate::otlp::front::{Front, TEXT, unsupported_encoding};
use crate::otlp::ingest::{Form, Incoming, Told, media_type};
use crate::otlp::senders::Sender;
use crate::otlp::{Refused, RefusedReason, Transport};

/// Where Prometheus and the Collector take requests.
const PATH: &str = "/api/v1/write";

/// Numbers of what was taken, which senders of 2.0 want.
const WRITTEN: [HeaderName; 3] = [
    HeaderName::from_static("x-prometheus-remote-write-samples-written"),
    HeaderName::from_static("x-prometheus-remote-write-histograms-written"),
    HeaderName::from_static("x-prometheus-remote-write-exemplars-written"),
];

pub(super) struct RemoteWriteHandler(pub(super) Front);

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
        let front = &self.0;
        if let Some(response) = front.config.answers.preflight(&request) {
            return Err(Box::new(response));
        }
        if request.uri().path() != PATH {
            return Err(front.not_found(sender, &request));
        }
        front.check_method(sender, &request)?;
        let (transport, signal) = (Transport::Http, Signal::Metrics);
        let Some(version) = version_of(request.headers()) else {
            let message = "415 unsupported media type, supported: [application/x-protobuf with \
                           proto=prometheus.WriteRequest or \
                           proto=io.prometheus.write.v2.Request]\n";
            let (reason, status) =
                (RefusedReason::UnsupportedMediaType, StatusCode::UNSUPPORTED_MEDIA_TYPE);
            return Err(front.refuse_plain(sender, signal, reason, status, message));
        };
        front.check_length(sender, signal, &request)?;
        let form = Form::RemoteWrite(version);
        Ok((Incoming { transport, signal, form, sender, request }, version))
    }

    fn packing_of(&self, headers: &HeaderMap) -> Result<Packing, Refused> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = values.next() else { return Ok(Packing::Known(Encoding::Identity)) };
        let name = String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase();
        let known = self.0.config.encodings.iter().find(|(own, _)| *own == name);
        match known.filter(|_| values.next().is_none()) {
            Some((_, packing)) => Ok(*packing),
            None => Err(unsupported_encoding(&name)),
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
        let message = format!("{}\n", refused.message);
        self.0.with_remedies(reply(refused.http_status(), TEXT, message), refused)
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
        let finish = self.0.config.answers.finish(&request);
        match self.incoming(sender, request) {
            Ok((incoming, version)) => {
                let receiving = self.0.ingest.receive(incoming, |headers| self.packing_of(headers));
                Either::Left(receiving.map(move |told| finish(self.answer(version, told))))
            }
            Err(response) => Either::Right(ready(finish(*response))),
        }
    }

    fn refuse_for_memory(&self, request: Request<RequestBody>) -> Response<ReplyBody> {
        let response = self.0.config.answers.preflight(&request).unwrap_or_else(|| {
            let refused = Refused::without_memory();
            self.0.ingest.refuse(None, Signal::Metrics, Transport::Http, &refused, 0);
            self.refuse(&refused)
        });
        self.0.config.answers.finish(&request)(response)
    }
}
