//! The client side of a unary call: headers out, status and message back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use sluice_otlp::Encoding;

use super::frame::{MessageReader, Prefix};
use super::status::{Code, Status};
use super::timeout;
use crate::client::{Answer, Channel, ChunkedBuf, Result, TransportError, peer_text};
use crate::compress;

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// One unary call. The message is the chunks' concatenation, encoded as `encoding` says.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// From `Channel::uri`.
    pub uri: &'a Uri,
    /// From `call_headers`, with all other headers that the call needs.
    pub headers: &'a HeaderMap,
    pub encoding: Encoding,
    pub chunks: &'a Arc<[Bytes]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: Status,
    /// The answer's message, uncompressed. Empty if there was none, or if it could not be read
    /// after an OK: the call has succeeded.
    pub message: Bytes,
    /// The HTTP status behind the gRPC status, if a server or proxy answered without gRPC.
    pub http_status: Option<StatusCode>,
}

/// The headers that every call needs. Made once, used for all calls of an encoding.
pub fn call_headers(
    encoding: Encoding,
    user_agent: &HeaderValue,
    deadline: Option<Duration>,
) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    if encoding != Encoding::Identity {
        headers.insert(GRPC_ENCODING, HeaderValue::from_static(encoding.as_str()));
    }
    headers.insert(http::header::USER_AGENT, user_agent.clone());
    if let Some(Ok(value)) = deadline.map(timeout::format).map(HeaderValue::try_from) {
        headers.insert(GRPC_TIMEOUT, value);
    }
    headers
}

/// Makes the call. The caller bounds the time by dropping the future, which resets the stream.
///
/// `answer_limit_bytes` bounds the answer's message after decompression.
pub async fn call(channel: &Channel, call: Call<'_>, answer_limit_bytes: usize) -> Result<Reply> {
    let len_bytes = call.chunks.iter().map(Bytes::len).sum();
    let prefix = Prefix { compressed: call.encoding != Encoding::Identity, len_bytes };
    let prefix = prefix.encode().ok_or_else(|| TransportError::RequestTooLarge {
        reason: format!("a message of {len_bytes} bytes does not fit into gRPC's 32-bit length"),
    })?;
    let body = ChunkedBuf::new(Some(prefix), call.chunks.clone());
    let answer = channel.send(call.uri, call.headers, body).await?;
    read(&answer, answer_limit_bytes)
}

fn read(answer: &Answer, limit_bytes: usize) -> Result<Reply> {
    // A trailers-only answer has its status in the headers.
    let status = answer
        .trailers
        .as_ref()
        .and_then(Status::read_from)
        .or_else(|| Status::read_from(&answer.headers));
    if let Some(status) = status {
        let message = if status.is_ok() { message(answer, limit_bytes) } else { Ok(Bytes::new()) };
        let message = message.unwrap_or_else(|error| {
            tracing::debug!(%error, "the message of a successful answer cannot be read");
            Bytes::new()
        });
        return Ok(Reply { status, message, http_status: None });
    }
    if answer.status != StatusCode::OK {
        return Ok(from_http(answer));
    }
    let content_type =
        answer.headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let reason = match content_type {
        Some(content_type) if content_type.starts_with("application/grpc") => {
            let reason = "an answer without grpc-status".to_owned();
            return Err(TransportError::Garbage { reason });
        }
        Some(content_type) => format!("content-type {:?}", peer_text(&content_type)),
        None => "no content-type".to_owned(),
    };
    Err(TransportError::NotGrpc { reason })
}

/// An HTTP error in place of a gRPC status: from a proxy, or from something that is no gRPC server.
fn from_http(answer: &Answer) -> Reply {
    let code = Code::from_http_status(answer.status);
    let text = peer_text(&String::from_utf8_lossy(&answer.body[..answer.body.len().min(4096)]));
    let mut status =
        Status::new(code, format!("HTTP status {} {text}", answer.status.as_u16()).trim_end());
    if code == Code::Unavailable {
        status.retry_delay = crate::client::retry_after(&answer.headers);
    }
    Reply { status, message: Bytes::new(), http_status: Some(answer.status) }
}

/// The answer's message. Servers may compress it the way the request was compressed.
fn message(answer: &Answer, limit_bytes: usize) -> Result<Bytes, String> {
    let mut reader = MessageReader::new(limit_bytes);
    let message = reader.feed(answer.body.clone()).and_then(|()| reader.finish());
    let message = message.map_err(|error| error.to_string())?;
    if !message.compressed {
        return Ok(message.bytes);
    }
    let name = answer.headers.get(GRPC_ENCODING).and_then(|value| value.to_str().ok());
    let encoding = name.and_then(Encoding::from_name).ok_or("its encoding is not known")?;
    compress::decompress(encoding, &message.bytes, limit_bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &'static str)], body: &[u8]) -> Answer {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        Answer {
            status: StatusCode::from_u16(status).expect("a status"),
            headers: headers.collect(),
            body: Bytes::copy_from_slice(body),
            trailers: None,
        }
    }

    /// Scenario: proxies answer in a server's place. Guarantee: the codes of gRPC's mapping, and
    /// the delay they ask for.
    #[test]
    fn http_errors_become_grpc_codes() {
        for (status, code) in [
            (400, Code::Internal),
            (401, Code::Unauthenticated),
            (403, Code::PermissionDenied),
            (404, Code::Unimplemented),
            (429, Code::Unavailable),
            (502, Code::Unavailable),
            (503, Code::Unavailable),
            (504, Code::Unavailable),
            (500, Code::Unknown),
            (302, Code::Unknown),
        ] {
            let reply =
                read(&answer(status, &[("retry-after", "7")], b"sorry\n"), 100).expect("a reply");
            assert_eq!(reply.status.code, code, "{status}");
            assert_eq!(reply.http_status.map(|status| status.as_u16()), Some(status));
            let delay = (code == Code::Unavailable).then_some(Duration::from_secs(7));
            assert_eq!(reply.status.retry_delay, delay, "{status}");
            assert!(reply.status.message.contains("sorry"));
        }
    }

    /// Scenario: an answer of a web server, and one of a gRPC server that forgot its status.
    /// Guarantee: the first is a matter of configuration, the second is not.
    #[test]
    fn what_is_not_grpc_is_told() {
        let page = read(&answer(200, &[("content-type", "text/html")], b"<html>"), 100)
            .expect_err("no gRPC");
        assert!(page.is_configuration());
        let no_status = read(&answer(200, &[("content-type", "application/grpc")], b""), 100)
            .expect_err("no status");
        assert!(matches!(no_status, TransportError::Garbage { .. }));
    }

    /// Scenario: OK with a message, with a compressed one, and with garbage in its place.
    /// Guarantee: the message is read where it can be; OK stays OK.
    #[test]
    fn messages_are_read() {
        let packed = compress::compress(Encoding::Gzip, &[Bytes::from_static(b"hello")], None)
            .expect("packs");
        let mut framed = vec![1, 0, 0, 0, u8::try_from(packed.len()).expect("short")];
        framed.extend_from_slice(&packed);
        let headers = [("grpc-status", "0"), ("grpc-encoding", "gzip")];
        for (body, expected) in [
            (&b"\0\0\0\0\x05hello"[..], &b"hello"[..]),
            (&framed, b"hello"),
            (b"garbage", b""),
            (b"", b""),
        ] {
            let reply = read(&answer(200, &headers, body), 100).expect("a reply");
            assert!(reply.status.is_ok());
            assert_eq!(reply.message, expected);
        }
    }
}
