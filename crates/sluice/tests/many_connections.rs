//! Many connections at once: their memory is part of the memory limit, and all that are let in can
//! send.

mod doors;
mod gateway;
mod streams;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway::{Gateway, SOON, alone, eventually, fan_out, faulty_backend};
use h2::client::{ResponseFuture, SendRequest};
use sluice_load_test::{Backend, Faults};
use sluice_otlp::Signal;
use streams::{begin, status};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

const LIMIT_MIB: u64 = 128;
/// More connections than there is memory for.
const TOO_MANY: usize = 4_000;
/// Connections that send at the same time.
const SENDERS: usize = 400;
const SPANS: usize = 200;
/// Connections that stay open where there is more memory.
const TEN_THOUSAND: usize = 10_000;
const MANY_LIMIT_MIB: u64 = 512;

/// An HTTP/2 connection, as far as its handshake.
async fn shake_hands(address: SocketAddr) -> Option<SendRequest<Bytes>> {
    let socket = TcpStream::connect(address).await.ok()?;
    // Or a body waits for the acknowledgement of its headers, 40 ms that hide the gateway's delay.
    socket.set_nodelay(true).ok()?;
    let (client, connection) = h2::client::handshake(socket).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}

/// Opens connections, some hundred at a time. The gateway may close some of them again.
async fn connect_many(address: SocketAddr, count: usize) -> Vec<SendRequest<Bytes>> {
    const AT_ONCE: usize = 200;
    let mut clients = Vec::with_capacity(count);
    while clients.len() < count {
        let connecting = (0..AT_ONCE.min(count - clients.len())).map(|_| shake_hands(address));
        let connected = connecting.collect::<JoinSet<_>>().join_all().await;
        assert!(
            connected.iter().all(Option::is_some),
            "the handshake ends before the connection does"
        );
        clients.extend(connected.into_iter().flatten());
    }
    clients
}

/// The connections that the gateway has not closed.
async fn open(clients: Vec<SendRequest<Bytes>>) -> Vec<SendRequest<Bytes>> {
    let ready: JoinSet<_> =
        clients.into_iter().map(|client| async move { client.ready().await.ok() }).collect();
    ready.join_all().await.into_iter().flatten().collect()
}

async fn open_connections(gateway: &Gateway) -> usize {
    gateway
        .metric("sluice_receiver_open_connections", &[("receiver", "otlp"), ("transport", "grpc")])
        .await as usize
}

async fn event(gateway: &Gateway, event: &str) -> usize {
    let labels = [("receiver", "otlp"), ("transport", "grpc"), ("event", event)];
    gateway.metric("sluice_receiver_connections", &labels).await as usize
}

/// A request of 200 kB, as gRPC frames it.
fn request() -> Bytes {
    let mut request = doors::spans(SPANS as u8);
    for span in &mut request.resource_spans[0].scope_spans[0].spans {
        span.name = "n".repeat(1_000);
    }
    let message = prost::Message::encode_to_vec(&request);
    let length = u32::try_from(message.len()).expect("is short").to_be_bytes();
    Bytes::from([&[0], &length[..], &message].concat())
}

/// Sends a request as far as the windows allow it, and leaves the rest to the connection's task.
async fn send(client: SendRequest<Bytes>, body: Bytes) -> ResponseFuture {
    let (response, mut stream) = begin(client).await;
    // A request that is refused at once takes no body.
    let _ = stream.send_data(body, true);
    response
}

/// Lets all clients send at once, and those that got a retryable refusal again.
async fn send_until_accepted(mut left: Vec<SendRequest<Bytes>>, body: &Bytes) -> usize {
    let mut accepted = 0;
    for _ in 0..60 {
        let sending = left.drain(..).map(|client| {
            let body = body.clone();
            async move { (status(send(client.clone(), body).await).await, client) }
        });
        for (status, client) in sending.collect::<JoinSet<_>>().join_all().await {
            match status.as_deref() {
                Some("0") => accepted += 1,
                // No answer: the stream was refused for want of memory.
                Some("14") | None => left.push(client),
                other => panic!("answered {other:?}"),
            }
        }
        if left.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    accepted
}

/// Scenario: more connections than memory allows; then many that were let in send a request at
/// once, through the smallest windows. Guarantee: memory stays within the limit, every request is
/// delivered, closed connections are counted and warned of once, and room comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_are_let_in_as_there_is_memory_for_and_all_can_send() {
    let _alone = alone().await;
    let backend = Backend::healthy().await.expect("a backend");
    let gateway =
        Gateway::start(&fan_out(Signal::Traces, LIMIT_MIB, &[("backend", &backend)])).await;
    let clients = connect_many(gateway.grpc, TOO_MANY).await;
    let is_settled = async || {
        let gone = event(&gateway, "refused").await + event(&gateway, "evicted").await;
        gone > 0 && open_connections(&gateway).await + gone == TOO_MANY
    };
    assert!(eventually(SOON, is_settled).await, "{}", gateway.output());
    let warnings = gateway.output().matches("connections were closed because").count();
    assert_eq!(warnings, 1, "{}", gateway.output());
    let mut clients = open(clients).await;
    assert!((1_000..TOO_MANY).contains(&clients.len()), "{} were let in", clients.len());

    let body = request();
    let senders = clients.split_off(clients.len() - SENDERS);
    assert_eq!(send_until_accepted(senders.clone(), &body).await, SENDERS, "{}", gateway.output());
    let all = (SENDERS * SPANS) as u64;
    assert!(
        eventually(SOON, async || backend.counts().items == all).await,
        "{:?}",
        backend.counts()
    );
    gateway.assert_memory_within(LIMIT_MIB);
    let evicted = event(&gateway, "evicted").await;
    drop((clients, senders));
    assert!(
        eventually(SOON, async || open_connections(&gateway).await == 0).await,
        "{}",
        gateway.output()
    );
    assert_eq!(send_until_accepted(connect_many(gateway.grpc, 1).await, &body).await, 1);
    assert_eq!(event(&gateway, "evicted").await, evicted, "there is room");
}

/// A request of one span, as gRPC frames it.
fn small_request() -> Bytes {
    let message = doors::encoded(1);
    Bytes::from([&[0, 0, 0, 0, message.len() as u8][..], &message].concat())
}

/// Opens 10,000 gRPC connections at a limit of 512 MiB, each of which sends something.
async fn open_ten_thousand(gateway: &Gateway) -> Vec<SendRequest<Bytes>> {
    let clients = connect_many(gateway.grpc, TEN_THOUSAND).await;
    for some in clients.chunks(100) {
        assert_eq!(send_until_accepted(some.to_vec(), &small_request()).await, some.len());
    }
    clients
}

/// Scenario: 10,000 connections; some of them send again. Guarantee: all stay open, each request is
/// accepted, memory stays within the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_connections_are_open_at_512_mib() {
    let _alone = alone().await;
    let backend = Backend::healthy().await.expect("a backend");
    let gateway =
        Gateway::start(&fan_out(Signal::Traces, MANY_LIMIT_MIB, &[("backend", &backend)])).await;
    let clients = open_ten_thousand(&gateway).await;
    for some in clients.chunks(100).step_by(10) {
        assert_eq!(send_until_accepted(some.to_vec(), &small_request()).await, some.len());
    }
    assert_eq!(open_connections(&gateway).await, TEN_THOUSAND);
    assert_eq!((event(&gateway, "refused").await, event(&gateway, "evicted").await), (0, 0));
    gateway.assert_memory_within(MANY_LIMIT_MIB);
}

/// The 99th percentile of the answers to requests that come one by one, each on another of these
/// connections.
async fn p99_one_by_one(clients: &[SendRequest<Bytes>]) -> Duration {
    const REQUESTS: usize = 1_000;
    let mut latencies = Vec::with_capacity(REQUESTS);
    for client in clients.iter().step_by((clients.len() / REQUESTS).max(1)).cycle().take(REQUESTS) {
        let began = Instant::now();
        let answer = send(client.clone(), small_request()).await;
        assert_eq!(status(answer).await.as_deref(), Some("0"));
        latencies.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    latencies.sort_unstable();
    latencies[REQUESTS * 99 / 100]
}

/// Guarantee: over 10,000 connections, nearly all of them idle, requests are answered as soon as
/// over ten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "compares latencies, which needs a machine with nothing else to do"]
async fn torture_a_light_load_over_ten_thousand_connections_is_answered_as_soon() {
    const LATER_AT_MOST: Duration = Duration::from_millis(2);
    let _alone = alone().await;
    let backend = Backend::healthy().await.expect("a backend");
    let gateway =
        Gateway::start(&fan_out(Signal::Traces, MANY_LIMIT_MIB, &[("backend", &backend)])).await;
    let few = p99_one_by_one(&connect_many(gateway.grpc, 10).await).await;
    let many = p99_one_by_one(&open_ten_thousand(&gateway).await).await;
    println!("p99 over 10 connections {few:?}, over {TEN_THOUSAND} {many:?}");
    assert!(many <= few + LATER_AT_MOST, "{many:?}, {few:?} over ten");
}

/// Scenario: the backend is dead and its memory full; then every connection sends at once as much
/// as its windows allow. Guarantee: memory within the limit, and each request that waits for an
/// answer gets a retryable one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_data_is_within_the_limit_too() {
    let _alone = alone().await;
    let dead = faulty_backend(Faults::dead()).await;
    let gateway = Gateway::start(&fan_out(Signal::Traces, LIMIT_MIB, &[("dead", &dead)])).await;
    let full = gateway
        .load(Signal::Traces)
        .rate(40_000.0)
        .duration(Duration::from_secs(3))
        .concurrency(2, 64);
    assert!(full.run().await.expect("a load").refused > 0, "the memory is full");
    let clients = connect_many(gateway.grpc, SENDERS).await;
    let body = request();
    let sending = clients.into_iter().map(|client| {
        let body = body.clone();
        async move {
            timeout(SOON, async { status(send(client, body).await).await })
                .await
                .expect("is answered")
        }
    });
    let answers = sending.collect::<JoinSet<_>>().join_all().await;
    // UNAVAILABLE, or a stream that was refused.
    let retryable =
        answers.iter().filter(|status| matches!(status.as_deref(), Some("14") | None)).count();
    assert_eq!(retryable, SENDERS, "{answers:?}");
    gateway.assert_memory_within(LIMIT_MIB);
}
