//! Many connections at once: what they hold is part of the memory limit, and all that are let in can send.

mod doors;
mod gateway;
mod streams;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use gateway::{Gateway, SOON, alone, eventually, fan_out};
use h2::client::{ResponseFuture, SendRequest};
use sluice_load_test::{Backend, BackendOptions, Faults};
use sluice_otlp::Signal;
use streams::{begin, connect, status};
use tokio::task::JoinSet;

const LIMIT_MIB: u64 = 128;
/// An eighth of the limit, by 36 KiB.
const LET_IN: usize = 455;
const SPANS: usize = 200;

async fn connect_many(address: SocketAddr, count: usize) -> Vec<SendRequest<Bytes>> {
    let connecting: JoinSet<_> = (0..count).map(|_| connect(address)).collect();
    connecting.join_all().await.into_iter().flatten().collect()
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
    stream.send_data(body, true).expect("is taken");
    response
}

/// Scenario: more connections than there is memory for; then each that was let in sends a request, all at the same time, the
/// last ones through the smallest windows. Guarantee: memory within the limit, every request is accepted and delivered, those that
/// were not let in were told at once and counted, and there is room again when others go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_are_let_in_as_there_is_memory_for_and_all_can_send() {
    let _alone = alone().await;
    let backend = Backend::healthy().await.expect("a backend");
    let gateway = Gateway::start(&fan_out(Signal::Traces, LIMIT_MIB, &[("backend", &backend)])).await;
    let clients = connect_many(gateway.grpc, LET_IN + 100).await;
    assert_eq!(clients.len(), LET_IN);
    let refused = [("receiver", "otlp"), ("transport", "grpc"), ("event", "refused")];
    assert_eq!(gateway.metric("sluice_receiver_connections", &refused).await, 100.0);
    assert!(gateway.output().contains("memory limit allows"), "{}", gateway.output());
    assert_eq!(connect_many(gateway.http, 1).await.len(), 0, "all ports share the memory");

    let body = request();
    let mut left = clients.clone();
    let mut accepted = 0;
    // Those that are refused for want of memory come again, as clients do.
    for _ in 0..60 {
        let sending: JoinSet<_> = left
            .drain(..)
            .map(|client| {
                let body = body.clone();
                async move { (status(send(client.clone(), body).await).await, client) }
            })
            .collect();
        for (status, client) in sending.join_all().await {
            match status.as_deref() {
                Some("0") => accepted += 1,
                Some("14") => left.push(client),
                other => panic!("answered {other:?}: {}", gateway.output()),
            }
        }
        if left.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!((accepted, left.len()), (LET_IN, 0));
    let all = (LET_IN * SPANS) as u64;
    assert!(eventually(SOON, async || backend.counts().items == all).await, "{:?}", backend.counts());
    gateway.assert_memory_within(LIMIT_MIB);
    drop((clients, left));
    let has_room = async || connect_many(gateway.grpc, 1).await.len() == 1;
    assert!(eventually(SOON, has_room).await, "{}", gateway.output());
}

/// Scenario: the backend is dead and its memory full; then every connection sends at once what its windows allow.
/// Guarantee: memory within the limit, and whoever waits for an answer gets a retryable one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_reads_is_within_the_limit_too() {
    let _alone = alone().await;
    let dead = Backend::start(BackendOptions::default().faults(Faults::dead())).await.expect("a backend");
    let gateway = Gateway::start(&fan_out(Signal::Traces, LIMIT_MIB, &[("dead", &dead)])).await;
    let full = gateway.load(Signal::Traces).rate(40_000.0).duration(Duration::from_secs(3)).concurrency(2, 64);
    assert!(full.run().await.expect("a load").refused > 0, "the memory is full");
    // The load had two.
    let clients = connect_many(gateway.grpc, LET_IN - 2).await;
    assert!(clients.len() > LET_IN - 10, "{} were let in", clients.len());
    let body = request();
    let count = clients.len();
    let sending: JoinSet<_> = clients
        .into_iter()
        .map(|client| {
            let body = body.clone();
            async move { status(send(client, body).await).await }
        })
        .collect();
    let answers = sending.join_all().await;
    let retryable = answers.iter().filter(|status| status.as_deref() == Some("14")).count();
    assert_eq!(retryable, count, "{answers:?}");
    gateway.assert_memory_within(LIMIT_MIB);
}
