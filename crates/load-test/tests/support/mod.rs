//! A mock of a pipeline engine that behaves in a known way: a relay that forwards requests to a
//! backend, some of them late, never or twice.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use tokio::net::{TcpListener, TcpStream};

const PREFIX_LEN: usize = 5;
const OK: &str = "0";
const UNAVAILABLE: &str = "14";

/// The action for request number n (from 0).
pub(crate) type Behaviour = Arc<dyn Fn(u64) -> Action + Send + Sync>;

#[allow(dead_code, reason = "each test file uses some of them")]
pub(crate) enum Action {
    /// Forwarded this many times after a delay, then answered as the backend did (0 times: answered
    /// OK).
    Forward { times: u32, after: Duration },
    /// Answered OK at once, and forwarded after a delay.
    ForwardLater { after: Duration },
    /// Forwarded. Then spans whose number, counted over all requests of `request_spans` spans, is a
    /// multiple of `every` are forwarded once more.
    RepeatSpans { every: u64, request_spans: u64 },
    /// Forwarded after the relay has used this much CPU time.
    Burn { cpu: Duration },
    /// Answered UNAVAILABLE.
    Refuse,
}

#[allow(dead_code, reason = "each test file uses one of the two")]
pub(crate) async fn start_relay(backend: SocketAddr, behaviour: Behaviour) -> SocketAddr {
    start_relay_on("127.0.0.1:0".parse().unwrap(), backend, behaviour).await
}

pub(crate) async fn start_relay_on(
    listen: SocketAddr,
    backend: SocketAddr,
    behaviour: Behaviour,
) -> SocketAddr {
    let listener = TcpListener::bind(listen).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let number = Arc::new(AtomicU64::new(0));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, backend, Arc::clone(&behaviour), Arc::clone(&number)));
        }
    });
    addr
}

async fn serve(
    stream: TcpStream,
    backend: SocketAddr,
    behaviour: Behaviour,
    number: Arc<AtomicU64>,
) {
    // A connection that only probed the port says nothing.
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let (behaviour, number) = (Arc::clone(&behaviour), Arc::clone(&number));
        tokio::spawn(async move {
            let (head, body) = request.into_parts();
            // A sender that is stopped in the middle says no more.
            let Ok(frame) = read(body).await else { return };
            let number = number.fetch_add(1, Ordering::Relaxed);
            let status = act(behaviour(number), number, backend, &head, frame).await;
            if let Ok(stream) = respond.send_response(Response::new(()), false) {
                answer(stream, status);
            }
        });
    }
}

async fn act(
    action: Action,
    number: u64,
    backend: SocketAddr,
    head: &http::request::Parts,
    frame: Bytes,
) -> HeaderValue {
    let mut status = HeaderValue::from_static(OK);
    match action {
        Action::Forward { times, after } => {
            tokio::time::sleep(after).await;
            for _ in 0..times {
                status = forward(backend, head, frame.clone()).await;
            }
        }
        Action::ForwardLater { after } => {
            let head = head.clone();
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                forward(backend, &head, frame).await;
            });
        }
        Action::RepeatSpans { every, request_spans } => {
            let repeated = every_so_many(&frame, every, number * request_spans);
            status = forward(backend, head, frame).await;
            forward(backend, head, repeated).await;
        }
        Action::Burn { cpu } => {
            burn(cpu);
            status = forward(backend, head, frame).await;
        }
        Action::Refuse => status = HeaderValue::from_static(UNAVAILABLE),
    }
    status
}

/// The spans of the request whose number is a multiple of `every`; the first has number `first`.
fn every_so_many(frame: &Bytes, every: u64, first: u64) -> Bytes {
    let mut request = ExportTraceServiceRequest::decode(&frame[PREFIX_LEN..]).unwrap();
    let mut number = first;
    for scope in request.resource_spans.iter_mut().flat_map(|resource| &mut resource.scope_spans) {
        scope.spans.retain(|_| {
            number += 1;
            (number - 1).is_multiple_of(every)
        });
    }
    let message = request.encode_to_vec();
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(&message);
    frame.into()
}

/// Uses up this thread's CPU time, not just time.
fn burn(cpu: Duration) {
    let used = || {
        // Nanoseconds on a CPU, then two other numbers.
        let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(line.split(' ').next().unwrap().parse().unwrap())
    };
    let began = used();
    while used() - began < cpu {
        std::hint::spin_loop();
    }
}

fn answer(mut stream: SendStream<Bytes>, status: HeaderValue) {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status);
    // Errors mean that the sender has gone.
    let _ = stream
        .send_data(Bytes::from_static(&[0; PREFIX_LEN]), false)
        .and_then(|()| stream.send_trailers(trailers));
}

async fn read(mut body: RecvStream) -> Result<Bytes, h2::Error> {
    let mut frame = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        frame.extend_from_slice(&chunk);
    }
    Ok(frame.into())
}

/// The backend's status; UNAVAILABLE where it has none.
async fn forward(backend: SocketAddr, head: &http::request::Parts, frame: Bytes) -> HeaderValue {
    exchange(backend, head, frame).await.unwrap_or(HeaderValue::from_static(UNAVAILABLE))
}

async fn exchange(
    backend: SocketAddr,
    head: &http::request::Parts,
    frame: Bytes,
) -> Option<HeaderValue> {
    let stream = TcpStream::connect(backend).await.ok()?;
    let (sender, connection) = h2::client::handshake(stream).await.ok()?;
    tokio::spawn(connection);
    let request = Request::from_parts(head.clone(), ());
    let (response, mut body) = sender.ready().await.ok()?.send_request(request, false).ok()?;
    body.send_data(frame, true).ok()?;
    let response = response.await.ok()?;
    if let Some(status) = response.headers().get("grpc-status") {
        return Some(status.clone());
    }
    let mut answer = response.into_body();
    while let Some(chunk) = answer.data().await {
        chunk.ok()?;
    }
    answer.trailers().await.ok()??.get("grpc-status").cloned()
}
