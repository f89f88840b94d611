//! The HTTP side of a backend: OTLP as protobuf and JSON, and log lines as others post them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::{Body as HttpBody, Frame, Incoming as HyperBody};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use sluice_otlp::{Encoding, Signal};
use thiserror::Error;
use tokio::net::TcpStream;

use super::Shared;
use super::judge::{Body, Form, Incoming, Reply, judge};
use crate::status::{Code, encode_status};
use crate::wire::{put_bytes, put_unsigned};

/// The connection is to break.
#[derive(Debug, Error)]
#[error("reset by an injected fault")]
struct Broken;

/// A body whose first byte comes and nothing more: the connection breaks in the middle of the answer.
#[derive(Default)]
struct BrokenOff {
    is_begun: bool,
}

impl HttpBody for BrokenOff {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let frame = if self.is_begun { Err(Broken) } else { Ok(Frame::data(Bytes::from_static(b"{"))) };
        self.is_begun = true;
        Poll::Ready(Some(frame))
    }
}

pub(crate) async fn serve(shared: Arc<Shared>, stream: TcpStream) {
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move {
            Ok::<_, Infallible>(match answer(&shared, request).await {
                Ok(response) => response.map(Either::Left),
                Err(Broken) => Response::new(Either::Right(BrokenOff::default())),
            })
        }
    });
    // How a connection ends is the client's affair.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(shared: &Shared, request: Request<HyperBody>) -> Result<Response<Full<Bytes>>, Broken> {
    let (head, body) = request.into_parts();
    let signal = Signal::ALL.into_iter().find(|signal| signal.http_path() == head.uri.path());
    let Some((encoding, form)) = read_head(&head.headers, signal) else {
        return Ok(respond(StatusCode::UNSUPPORTED_MEDIA_TYPE, "text/plain", Bytes::new()));
    };
    let body = match Limited::new(body, shared.options.message_limit_bytes).collect().await {
        Ok(body) => Body::Whole(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            return Ok(respond(StatusCode::PAYLOAD_TOO_LARGE, "text/plain", Bytes::new()));
        }
        Err(_) => return Err(Broken),
    };
    if let (Some(rate), Body::Whole(body)) = (shared.faults.current().read_bytes_per_s, &body) {
        tokio::time::sleep(Duration::from_secs_f64(body.len() as f64 / rate.max(1) as f64)).await;
    }
    let is_json = form != Form::Protobuf;
    let incoming = Incoming { signal: signal.unwrap_or(Signal::Logs), encoding, form, headers: head.headers, body };
    match judge(shared, incoming).await {
        Reply::Taken { rejected } => Ok(taken(is_json, rejected)),
        Reply::Status { code, message, retry_delay } => Ok(refused(is_json, code, &message, retry_delay)),
        Reply::Reset => Err(Broken),
    }
}

/// How the body is to be read; `None` for what a backend does not know. On a path that is not OTLP's (`signal` is none) come
/// log lines.
fn read_head(headers: &HeaderMap, signal: Option<Signal>) -> Option<(Encoding, Form)> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let media_type = text("content-type").and_then(|value| value.split(';').next()).map(str::trim);
    let form = match (media_type, signal) {
        (Some("application/x-protobuf"), Some(_)) => Form::Protobuf,
        (Some("application/json"), Some(_)) => Form::Json,
        (Some("application/json" | "application/x-ndjson"), None) => Form::Lines,
        _ => return None,
    };
    Encoding::from_name(text("content-encoding").unwrap_or("identity")).map(|encoding| (encoding, form))
}

fn respond(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
    response
}

fn taken(is_json: bool, rejected: Option<(u64, String)>) -> Response<Full<Bytes>> {
    if is_json {
        let body = match rejected {
            // The field is called differently for each signal; a generic reader looks for the count only.
            Some((items, reason)) => serde_json::json!({"partialSuccess": {
                "rejectedSpans": items.to_string(), "errorMessage": reason,
            }}),
            None => serde_json::json!({}),
        };
        return respond(StatusCode::OK, "application/json", body.to_string().into());
    }
    let mut message = Vec::new();
    if let Some((items, reason)) = rejected {
        let mut partial = Vec::new();
        put_unsigned(&mut partial, 1, items);
        put_bytes(&mut partial, 2, reason.as_bytes());
        put_bytes(&mut message, 1, &partial);
    }
    respond(StatusCode::OK, "application/x-protobuf", message.into())
}

fn refused(is_json: bool, code: Code, message: &str, retry_delay: Option<Duration>) -> Response<Full<Bytes>> {
    let status = match message.starts_with("grpc: received message larger") {
        true => StatusCode::PAYLOAD_TOO_LARGE,
        false => StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    };
    let mut response = match is_json {
        true => {
            let body = serde_json::json!({"code": code.0, "message": message}).to_string();
            respond(status, "application/json", body.into())
        }
        false => respond(status, "application/x-protobuf", encode_status(code, message, None).into()),
    };
    if let Some(delay) = retry_delay {
        let seconds = delay.as_secs_f64().ceil() as u64;
        response.headers_mut().insert("retry-after", HeaderValue::from(seconds));
    }
    response
}
