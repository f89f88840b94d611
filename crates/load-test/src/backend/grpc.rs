//! The gRPC side of a backend, on h2 itself.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use sluice_otlp::{Encoding, Signal};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::judge::{Body, Form, Incoming, Reply, estimate_items, judge};
use super::skim::Skimmer;
use super::{Counting, Shared};
use crate::status::{Code, retry_details};
use crate::wire::{put_bytes, put_unsigned};

const PREFIX_LEN: usize = 5;
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// Serves one connection until it ends; its streams end with it.
pub(crate) async fn serve(shared: Arc<Shared>, stream: TcpStream) {
    let handshake = h2::server::Builder::new()
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(1024)
        .handshake::<_, Bytes>(stream);
    let Ok(mut connection) = handshake.await else { return };
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            accepted = connection.accept() => match accepted {
                Some(Ok((request, respond))) => {
                    streams.spawn(serve_stream(Arc::clone(&shared), request, respond));
                }
                _ => return,
            },
            Some(_) = streams.join_next() => {}
        }
    }
}

async fn serve_stream(shared: Arc<Shared>, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let (head, body) = request.into_parts();
    let Some(signal) = Signal::from_grpc_path(head.uri.path()) else {
        send_status(&mut respond, Code::UNIMPLEMENTED, "unknown service or method", None);
        return;
    };
    let encoding = head.headers.get("grpc-encoding").and_then(|value| value.to_str().ok()).unwrap_or("identity");
    let Some(encoding) = Encoding::from_name(encoding) else {
        send_status(&mut respond, Code::UNIMPLEMENTED, "unknown grpc-encoding", None);
        return;
    };
    let Some((body, encoding)) = read(&shared, signal, encoding, body).await else {
        return;
    };
    let incoming = Incoming { signal, encoding, form: Form::Protobuf, headers: head.headers, body };
    let reply = tokio::select! {
        reply = judge(&shared, incoming) => reply,
        // The client has given up: a backend would not go on either.
        _ = poll_fn(|context| respond.poll_reset(context)) => return,
    };
    match reply {
        Reply::Taken { rejected } => send_taken(&mut respond, rejected),
        Reply::Status { code, message, retry_delay } => send_status(&mut respond, code, &message, retry_delay),
        Reply::Reset => reset(&mut respond).await,
    }
}

/// Breaks off in the middle of the answer: its head goes out, its end never.
async fn reset(respond: &mut SendResponse<Bytes>) {
    let mut response = Response::new(());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    // Errors mean that the client has gone.
    let Ok(mut stream) = respond.send_response(response, false) else { return };
    // A reset overtakes what has not been written yet.
    tokio::time::sleep(Duration::from_millis(1)).await;
    stream.send_reset(Reason::INTERNAL_ERROR);
}

/// Reads the one message of a request. `None` where the stream broke or has no whole message.
async fn read(shared: &Shared, signal: Signal, encoding: Encoding, mut body: RecvStream) -> Option<(Body, Encoding)> {
    let mut reader = Reader::new(shared, signal);
    while let Some(chunk) = body.data().await {
        let chunk = chunk.ok()?;
        reader.feed(&chunk);
        if let Some(rate) = shared.faults.current().read_bytes_per_s {
            tokio::time::sleep(Duration::from_secs_f64(chunk.len() as f64 / rate.max(1) as f64)).await;
        }
        body.flow_control().release_capacity(chunk.len()).ok()?;
    }
    reader.finish(encoding)
}

/// Takes a message in as it comes: kept where it will be verified, else only counted.
struct Reader {
    limit_bytes: usize,
    counting: Counting,
    prefix: Vec<u8>,
    received: u64,
    kept: BytesMut,
    first: Option<Bytes>,
    skimmer: Skimmer,
    last: [u8; 4],
}

impl Reader {
    fn new(shared: &Shared, signal: Signal) -> Self {
        Reader {
            limit_bytes: shared.options.message_limit_bytes,
            counting: shared.options.counting,
            prefix: Vec::with_capacity(PREFIX_LEN),
            received: 0,
            kept: BytesMut::new(),
            first: None,
            skimmer: Skimmer::new(signal),
            last: [0; 4],
        }
    }

    fn is_compressed(&self) -> bool {
        self.prefix[0] == 1
    }

    fn declared(&self) -> u64 {
        u64::from(u32::from_be_bytes([self.prefix[1], self.prefix[2], self.prefix[3], self.prefix[4]]))
    }

    fn feed(&mut self, chunk: &Bytes) {
        let missing = (PREFIX_LEN - self.prefix.len()).min(chunk.len());
        self.prefix.extend_from_slice(&chunk[..missing]);
        let chunk = chunk.slice(missing..);
        if self.prefix.len() < PREFIX_LEN || chunk.is_empty() {
            return;
        }
        self.received += chunk.len() as u64;
        if self.declared() > self.limit_bytes as u64 {
            return;
        }
        match self.counting {
            Counting::Verify => self.keep(&chunk),
            Counting::Light { .. } if self.is_compressed() => {
                let mut last = self.last.to_vec();
                last.extend_from_slice(&chunk[chunk.len().saturating_sub(4)..]);
                self.last.copy_from_slice(&last[last.len() - 4..]);
            }
            Counting::Light { .. } => self.skimmer.feed(&chunk),
        }
    }

    /// A message in one chunk is not copied; one in several is put together, in memory bounded by the limit.
    fn keep(&mut self, chunk: &Bytes) {
        if self.received == self.declared() && self.kept.is_empty() {
            self.first = Some(chunk.clone());
        } else if self.received <= self.declared() {
            self.kept.reserve(self.declared() as usize - self.kept.len());
            self.kept.extend_from_slice(chunk);
        }
    }

    fn finish(self, encoding: Encoding) -> Option<(Body, Encoding)> {
        if self.prefix.len() < PREFIX_LEN {
            return None;
        }
        let encoding = if self.is_compressed() { encoding } else { Encoding::Identity };
        let (declared, received) = (self.declared(), self.received);
        if declared > self.limit_bytes as u64 {
            return Some((Body::TooLarge { bytes: declared }, encoding));
        }
        if received != declared {
            return Some((Body::Counted { items: None, bytes: received }, encoding));
        }
        let body = match self.counting {
            Counting::Verify => Body::Whole(self.first.unwrap_or_else(|| self.kept.freeze())),
            Counting::Light { bytes_per_item } if encoding == Encoding::Gzip => {
                Body::Counted { items: Some(estimate_items(self.last, bytes_per_item)), bytes: received }
            }
            // What cannot be counted without inflating counts by the bytes alone.
            Counting::Light { .. } if encoding != Encoding::Identity => {
                Body::Counted { items: Some(0), bytes: received }
            }
            Counting::Light { .. } => Body::Counted { items: self.skimmer.finish(), bytes: received },
        };
        Some((body, encoding))
    }
}

fn send_taken(respond: &mut SendResponse<Bytes>, rejected: Option<(u64, String)>) {
    let mut response = Response::new(());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    let Ok(mut stream) = respond.send_response(response, false) else { return };
    let mut message = Vec::new();
    if let Some((items, reason)) = rejected {
        let mut partial = Vec::new();
        put_unsigned(&mut partial, 1, items);
        put_bytes(&mut partial, 2, reason.as_bytes());
        put_bytes(&mut message, 1, &partial);
    }
    let mut frame = vec![0];
    frame.extend_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend_from_slice(&message);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    // Errors mean that the client has gone.
    let _ = stream.send_data(frame.into(), false).and_then(|()| stream.send_trailers(trailers));
}

fn send_status(respond: &mut SendResponse<Bytes>, code: Code, message: &str, retry_delay: Option<Duration>) {
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(code.0));
    if let Ok(message) = HeaderValue::from_str(message) {
        headers.insert("grpc-message", message);
    }
    if let Some(delay) = retry_delay
        && let Ok(details) = HeaderValue::from_str(&retry_details(code, message, delay))
    {
        headers.insert("grpc-status-details-bin", details);
    }
    // An error means that the client has gone.
    let _ = respond.send_response(response, true);
}
