//! Against real listeners: healthy, refusing, broken and hostile backends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use parking_lot::Mutex;
use sluice_flow::hop::OVERLAP;
use sluice_flow::{Exporter, Outcome};
use sluice_net::auth::client::ClientAuths;
use sluice_net::grpc::{Code, Status};
use tokio::net::TcpStream;

use super::Grpc;
use super::config::OtlpConfig;
use crate::Files;
use crate::network::NetworkExporter;
use crate::tests::{Backend, Moving, context, kind, packed, read, send};

/// The reaction of an h2 backend to a request.
#[derive(Clone)]
enum Act {
    /// Trailers-only with this status.
    Status(Status),
    /// OK with this message.
    Message(Vec<u8>),
    /// Headers, then RST_STREAM.
    ResetMidAnswer,
    /// RST_STREAM REFUSED_STREAM for the first request, OK for later ones.
    RefuseFirst,
    /// OK with this many bytes of message.
    Enormous(usize),
    /// An HTTP status without gRPC.
    Http(u16),
    Silence,
    /// OK after this time.
    Late(Duration),
}

async fn serve(stream: TcpStream, act: Act) {
    serve_then(stream, act, usize::MAX).await;
}

/// Says GOAWAY after this many requests.
async fn serve_then(stream: TcpStream, act: Act, goaway_after: usize) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    if goaway_after == 0 {
        connection.graceful_shutdown();
    }
    let mut seen = 0;
    let mut held = Vec::new();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        seen += 1;
        let mut body = request.into_body();
        tokio::spawn(async move {
            while let Some(Ok(chunk)) = body.data().await {
                let _ = body.flow_control().release_capacity(chunk.len());
            }
        });
        let head = |code: u16| {
            let builder = Response::builder().status(code);
            if code == 200 { builder.header("content-type", "application/grpc") } else { builder }
                .body(())
                .expect("a head")
        };
        let finish = |respond: &mut h2::server::SendResponse<Bytes>, message: &[u8]| {
            let mut stream = respond.send_response(head(200), false).expect("sends");
            let mut framed = vec![0];
            framed.extend_from_slice(&u32::try_from(message.len()).expect("fits").to_be_bytes());
            framed.extend_from_slice(message);
            let _ = stream.send_data(framed.into(), false);
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            let _ = stream.send_trailers(trailers);
        };
        match &act {
            Act::Status(status) => {
                let mut head = head(200);
                status.write_to(head.headers_mut());
                let _ = respond.send_response(head, true);
            }
            Act::Message(message) => finish(&mut respond, message),
            Act::Enormous(len_bytes) => finish(&mut respond, &vec![7; *len_bytes]),
            Act::ResetMidAnswer => {
                let mut stream = respond.send_response(head(200), false).expect("sends");
                stream.send_reset(h2::Reason::INTERNAL_ERROR);
            }
            Act::RefuseFirst if seen == 1 => respond.send_reset(h2::Reason::REFUSED_STREAM),
            Act::RefuseFirst => finish(&mut respond, b""),
            Act::Http(code) => {
                let _ = respond.send_response(head(*code), true);
            }
            Act::Silence => held.push(respond),
            Act::Late(delay) => {
                tokio::time::sleep(*delay).await;
                finish(&mut respond, b"");
            }
        }
        if seen >= goaway_after {
            connection.graceful_shutdown();
        }
    }
}

pub(super) fn built(config: &OtlpConfig) -> NetworkExporter<Grpc> {
    let (authenticators, files) = (ClientAuths::new(), Files::default());
    super::exporter(config, &context(&authenticators, &files)).expect("builds")
}

/// Its backend is found under this name.
pub(super) fn named(
    text: &str,
    name: &Arc<Moving>,
    resolve_interval: Duration,
) -> NetworkExporter<Grpc> {
    let mut config = read(text, OtlpConfig::read);
    config.channel.connect.resolver = name.clone();
    config.channel.resolve_interval = resolve_interval;
    built(&config)
}

pub(super) const NEVER: Duration = Duration::from_secs(3600);

fn plain(address: SocketAddr, more: &str) -> NetworkExporter<Grpc> {
    built(&read(&format!("endpoint: http://{address}\n{more}"), OtlpConfig::read))
}

/// No connection and no task outlives the exporter.
async fn leaves_nothing(exporter: NetworkExporter<Grpc>, backend: &Backend) {
    exporter.shutdown();
    let deadline = Instant::now() + Duration::from_secs(10);
    while exporter.protocol.channel.tasks() > 0 {
        assert!(Instant::now() < deadline, "{} tasks stay", exporter.protocol.channel.tasks());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    backend.all_closed().await;
}

/// Scenario: a backend gives each kind of answer. Guarantee: the outcome that the specification
/// asks for, over one connection.
#[tokio::test]
async fn every_answer_has_its_outcome() {
    let too_large = "grpc: received message larger than max (5242895 vs. 4194304)";
    let delayed = Status {
        retry_delay: Some(Duration::from_millis(1500)),
        ..Status::new(Code::Unavailable, "busy")
    };
    let quota = Status {
        retry_delay: Some(Duration::from_secs(2)),
        ..Status::new(Code::ResourceExhausted, "busy")
    };
    for (act, expected) in [
        (Act::Message(Vec::new()), "delivered"),
        (Act::Message(vec![0x0a, 0x00]), "delivered"),
        (Act::Message(b"\x0a\x07\x08\x02\x12\x03bad".to_vec()), "partly"),
        (Act::Status(delayed), "retry"),
        (Act::Status(quota), "retry"),
        (Act::Status(Status::new(Code::ResourceExhausted, too_large)), "large"),
        (Act::Status(Status::new(Code::Unauthenticated, "who")), "misconfigured"),
        (Act::Status(Status::new(Code::PermissionDenied, "no")), "misconfigured"),
        (Act::Status(Status::new(Code::Unimplemented, "no")), "misconfigured"),
        (Act::Status(Status::new(Code::InvalidArgument, "bad")), "rejected"),
        (Act::Status(Status::new(Code::AlreadyExists, OVERLAP)), "overlaps"),
        (Act::Status(Status::new(Code::AlreadyExists, "other")), "rejected"),
        (Act::Http(401), "misconfigured"),
        (Act::Http(403), "misconfigured"),
        (Act::Http(413), "large"),
        (Act::Http(503), "retry"),
        (Act::ResetMidAnswer, "retry"),
        (Act::Enormous(8 << 20), "retry"),
        (Act::RefuseFirst, "delivered"),
    ] {
        let backend = Backend::start(move |stream, _| serve(stream, act.clone())).await;
        let exporter = plain(backend.address, "");
        for _ in 0..3 {
            let outcome = send(&exporter).await;
            assert_eq!(kind(&outcome), expected, "{outcome:?}");
            if let Outcome::RetryAfter { delay: Some(delay), .. } = outcome {
                assert!([Duration::from_millis(1500), Duration::from_secs(2)].contains(&delay));
            }
        }
        assert_eq!(backend.accepted(), 1, "{expected}");
        leaves_nothing(exporter, &backend).await;
    }
}

/// Scenario: tonic's own server, with the official types, in each compression. Guarantee: it reads
/// the requests that were sent; a message above its limit is known as too large.
#[tokio::test]
async fn a_tonic_server_understands_us() {
    use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
        TraceService, TraceServiceServer,
    };
    use opentelemetry_proto::tonic::collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
    };
    use tonic::codec::CompressionEncoding;

    #[derive(Clone, Default)]
    struct Collected(Arc<Mutex<Vec<String>>>);
    #[tonic::async_trait]
    impl TraceService for Collected {
        async fn export(
            &self,
            request: tonic::Request<ExportTraceServiceRequest>,
        ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
            let agent = request
                .metadata()
                .get("user-agent")
                .expect("a user agent")
                .to_str()
                .expect("ASCII")
                .to_owned();
            let spans = request
                .into_inner()
                .resource_spans
                .into_iter()
                .flat_map(|resource| resource.scope_spans);
            let names =
                spans.flat_map(|scope| scope.spans).map(|span| format!("{agent}: {}", span.name));
            self.0.lock().extend(names);
            Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
        }
    }

    let collected = Collected::default();
    let service = TraceServiceServer::new(collected.clone())
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Zstd)
        .send_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(70);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("has an address");
    drop(listener);
    let server =
        tokio::spawn(tonic::transport::Server::builder().add_service(service).serve(address));
    for compression in ["none", "gzip", "zstd"] {
        let exporter = plain(address, &format!("compression: {compression}\nwait_for_ready: true"));
        assert_eq!(send(&exporter).await, Outcome::Delivered, "{compression}");
        let chunks = vec![crate::tests::one_span(); 4];
        let large = packed(&exporter, sluice_otlp::Signal::Traces, chunks);
        assert_eq!(kind(&exporter.send(&large).await), "large", "{compression}");
    }
    assert_eq!(*collected.0.lock(), vec!["sluice/test: work"; 3]);
    server.abort();
}

/// Scenario: the backend accepts and never answers; requests run into their deadlines. Guarantee:
/// each gets a retry; the connections stay few, and nothing is left behind.
#[tokio::test]
async fn a_silent_backend_holds_nothing() {
    let backend = Backend::start(|stream, _| serve(stream, Act::Silence)).await;
    let exporter = plain(backend.address, "timeout: 100ms");
    for _ in 0..5 {
        assert_eq!(kind(&send(&exporter).await), "retry");
    }
    assert!(backend.accepted() <= 2, "{}", backend.accepted());
    leaves_nothing(exporter, &backend).await;
}

/// Scenario: the peer is gone without a word and reads nothing any more. Requests time out one
/// after the other. Guarantee: the connection is probed and given up, and a new one is made.
#[tokio::test]
async fn a_dead_connection_is_given_up() {
    let backend = Backend::start(|stream, number| async move {
        match number {
            0 => std::future::pending::<()>().await,
            _ => serve(stream, Act::Message(Vec::new())).await,
        }
    })
    .await;
    let exporter = plain(backend.address, "timeout: 200ms");
    let deadline = Instant::now() + Duration::from_secs(30);
    while send(&exporter).await != Outcome::Delivered {
        assert!(Instant::now() < deadline, "the dead connection was never given up");
    }
    assert!(backend.accepted() >= 2);
}

/// Scenario: the backend accepts and closes, says GOAWAY at once, or sends garbage, on every
/// connection, while a delivery tries as fast as it can. Guarantee: every try has a retryable
/// outcome, and the backend sees few connections.
#[tokio::test]
async fn broken_backends_are_not_hammered() {
    use tokio::io::AsyncWriteExt;
    for way in ["close", "goaway", "garbage", "web"] {
        let backend = Backend::start(move |mut stream, _| async move {
            match way {
                "close" => drop(stream),
                "goaway" => serve_then(stream, Act::Silence, 0).await,
                "garbage" => drop(stream.write_all(&[0xff; 4096]).await),
                _ => drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await),
            }
        })
        .await;
        let exporter = plain(backend.address, "timeout: 1s");
        let (start, mut tries) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_secs(2) {
            let outcome = send(&exporter).await;
            assert_eq!(kind(&outcome), "retry", "{way}: {outcome:?}");
            tries += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(tries > 10, "{way}: {tries}");
        assert!(
            (2..=10).contains(&backend.accepted()),
            "{way}: {} connections in 2 s",
            backend.accepted()
        );
        leaves_nothing(exporter, &backend).await;
    }
}

/// Scenario: the backend ends each connection after five requests with GOAWAY, as servers with a
/// connection age do. Guarantee: every request is delivered.
#[tokio::test]
async fn goaway_loses_nothing() {
    let backend = Backend::start(|stream, _| serve_then(stream, Act::Message(Vec::new()), 5)).await;
    let exporter = Arc::new(plain(backend.address, ""));
    for _ in 0..30 {
        assert_eq!(send(&*exporter).await, Outcome::Delivered);
    }
    assert!((2..=31).contains(&backend.accepted()), "{}", backend.accepted());
}

/// Scenario: the backend moves: its name stands for another address, and the old one says goodbye.
/// Guarantee: both balancers follow; a name that is gone is an error that names it.
#[tokio::test]
async fn a_moved_name_is_followed() {
    for balancer in ["pick_first", "round_robin"] {
        let first =
            Backend::start(|stream, _| serve_then(stream, Act::Message(Vec::new()), 2)).await;
        let second = Backend::start(|stream, _| serve(stream, Act::Message(Vec::new()))).await;
        let name = Moving::at([first.address]);
        let text = format!(
            "endpoint: http://backend:4317\nbalancer_name: {balancer}\nwait_for_ready: true"
        );
        let exporter = named(&text, &name, NEVER);
        assert_eq!(send(&exporter).await, Outcome::Delivered, "{balancer}");
        assert_eq!((first.accepted(), second.accepted()), (1, 0));
        name.to(second.address);
        let deadline = Instant::now() + Duration::from_secs(10);
        while second.accepted() == 0 {
            assert!(Instant::now() < deadline, "{balancer}: the new address was never used");
            assert_eq!(send(&exporter).await, Outcome::Delivered, "{balancer}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        leaves_nothing(exporter, &second).await;
    }
    let outcome = send(&named("endpoint: http://backend:4317", &Moving::at([]), NEVER)).await;
    assert!(
        matches!(&outcome, Outcome::RetryAfter { reason, .. } if reason.contains("backend")),
        "{outcome:?}"
    );
}

/// Scenario: the backend's name moves while the old address serves on, and a request is under way
/// there. Guarantee: both balancers follow once the name has been looked up again, that request is
/// delivered, and the old connection is closed.
#[tokio::test]
async fn a_moved_name_is_followed_away_from_a_healthy_backend() {
    for balancer in ["pick_first", "round_robin"] {
        let first =
            Backend::start(|stream, _| serve(stream, Act::Late(Duration::from_millis(300)))).await;
        let second = Backend::start(|stream, _| serve(stream, Act::Message(Vec::new()))).await;
        let name = Moving::at([first.address]);
        let text =
            format!("endpoint: http://backend:4317\nbalancer_name: {balancer}\ntimeout: 30s");
        let exporter = Arc::new(named(&text, &name, Duration::from_millis(50)));
        assert_eq!(send(&*exporter).await, Outcome::Delivered, "{balancer}");
        let under_way = tokio::spawn({
            let exporter = exporter.clone();
            async move { send(&*exporter).await }
        });
        name.to(second.address);
        let deadline = Instant::now() + Duration::from_secs(10);
        while second.accepted() == 0 {
            assert!(Instant::now() < deadline, "{balancer}: the new address was never used");
            assert_eq!(send(&*exporter).await, Outcome::Delivered, "{balancer}");
        }
        assert_eq!(under_way.await.expect("ends"), Outcome::Delivered, "{balancer}");
        first.all_closed().await;
        assert_eq!((first.accepted(), second.accepted()), (1, 1), "{balancer}");
    }
}

/// Types and flags of HTTP/2 frames.
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("fits").to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Answers the first request with headers, or with trailers, that never end.
async fn serve_endless(mut stream: TcpStream, trailers: bool) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let _ = stream.write_all(&frame(SETTINGS, 0, 0, &[])).await;
    // The preface, then frames up to the request's headers.
    let mut head = [0; 24];
    let _ = stream.read_exact(&mut head).await;
    let mut head = [0; 9];
    while head[3] != HEADERS {
        if stream.read_exact(&mut head).await.is_err() {
            return;
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let _ = stream.read_exact(&mut vec![0; length as usize]).await;
    }
    // `:status: 200` of HPACK's table, then a header `x` of 100 bytes again and again.
    let status = [0x88];
    let field = [&[0, 1, b'x', 100][..], &[b'x'; 100]].concat();
    if trailers {
        let _ = stream.write_all(&frame(HEADERS, END_HEADERS, 1, &status)).await;
        let _ = stream.write_all(&frame(HEADERS, END_STREAM, 1, &field)).await;
    } else {
        let _ = stream.write_all(&frame(HEADERS, 0, 1, &status)).await;
    }
    let more = frame(CONTINUATION, 0, 1, &field.repeat(100));
    while stream.write_all(&more).await.is_ok() {}
}

/// Scenario: answers whose headers or trailers never end, or whose message is enormous. Guarantee:
/// each is cut off at its limit, long before the deadline, and the outcome is a retry.
#[tokio::test]
async fn enormous_answers_are_cut_off() {
    for (way, expected) in [
        ("headers", "too_many_continuations"),
        ("trailers", "too_many_continuations"),
        ("message", "the peer's answer exceeds 4194304 bytes"),
    ] {
        let backend = Backend::start(move |stream, _| async move {
            match way {
                "message" => serve(stream, Act::Enormous(8 << 20)).await,
                way => serve_endless(stream, way == "trailers").await,
            }
        })
        .await;
        let exporter = plain(backend.address, "timeout: 30s");
        let start = Instant::now();
        let outcome = send(&exporter).await;
        assert!(
            matches!(&outcome, Outcome::RetryAfter { reason, .. } if reason.contains(expected)),
            "{way}: {outcome:?}"
        );
        assert!(start.elapsed() < Duration::from_secs(5), "{way}: {:?}", start.elapsed());
        leaves_nothing(exporter, &backend).await;
    }
}

/// Scenario: a name with three addresses, one of them dead. Guarantee: `round_robin` uses the two
/// that work, and nothing fails.
#[tokio::test]
async fn round_robin_uses_all_that_work() {
    let first = Backend::start(|stream, _| serve(stream, Act::Message(Vec::new()))).await;
    let second = Backend::start(|stream, _| serve(stream, Act::Message(Vec::new()))).await;
    let dead = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("binds")
        .local_addr()
        .expect("has an address");
    let name = Moving::at([dead, first.address, second.address]);
    let exporter = named("endpoint: http://backend:4317\nbalancer_name: round_robin", &name, NEVER);
    for _ in 0..50 {
        assert_eq!(send(&exporter).await, Outcome::Delivered);
    }
    assert_eq!((first.accepted(), second.accepted()), (1, 1));
    leaves_nothing(exporter, &first).await;
}

/// Scenario: nothing listens. Guarantee: the answer comes at once and says to try again; with
/// `wait_for_ready` the request waits and is delivered when the backend comes.
#[tokio::test]
async fn an_absent_backend() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("has an address");
    drop(listener);
    let exporter = plain(address, "timeout: 10s");
    let outcome =
        tokio::time::timeout(Duration::from_secs(5), send(&exporter)).await.expect("at once");
    assert_eq!(kind(&outcome), "retry");

    let waiting = plain(address, "timeout: 20s\nwait_for_ready: true");
    let sending = tokio::spawn(async move { send(&waiting).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let listener = tokio::net::TcpListener::bind(address).await.expect("binds again");
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Act::Message(Vec::new())));
        }
    });
    assert_eq!(sending.await.expect("ends"), Outcome::Delivered);
    server.abort();
}

/// Scenario: backends that answer with the headers that they got, in a status or in place of one,
/// and in a partial success. Guarantee: no outcome has their secrets.
#[tokio::test]
async fn a_backend_that_answers_with_the_headers_shows_no_secret() {
    let text = "authorization: Bearer eyJhbGciOi.x, x-api-key: key-4711";
    let partial = [&b"\x0a\x3b\x08\x02\x12\x37"[..], text.as_bytes()].concat();
    let status = |code| Act::Status(Status::new(code, text));
    let acts = [status(Code::Unauthenticated), status(Code::ResourceExhausted)];
    for act in acts.into_iter().chain([Act::Message(partial)]) {
        let backend = Backend::start(move |stream, _| serve(stream, act.clone())).await;
        let headers = "headers: {authorization: Bearer eyJhbGciOi.x, x-api-key: key-4711}";
        let exporter = plain(backend.address, headers);
        let said = format!("{:?}", send(&exporter).await);
        assert_eq!(said.matches("[redacted]").count(), 2, "{said}");
        assert!(!said.contains("eyJ") && !said.contains("key-4711"), "{said}");
        leaves_nothing(exporter, &backend).await;
    }
}
