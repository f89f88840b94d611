//! Senders whose bodies do not arrive: other senders get the memory that these were admitted for as
//! soon as they need it.

mod gateway;
mod streams;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use gateway::{Gateway, alone, fan_out};
use sluice_load_test::{Backend, Retry};
use sluice_otlp::Signal;
use streams::{begin, connect, status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A fifth of its share for payloads is for receiving: 16 MiB.
const LIMIT_MIB: u64 = 128;
/// Announced lengths and their numbers: three times the memory for receiving. The smaller ones fill
/// the space that the larger ones leave.
const ANNOUNCED: [(usize, usize); 3] = [(3 << 20, 16), (256 << 10, 16), (16 << 10, 32)];
const INTERVAL: Duration = Duration::from_millis(100);

/// Announces a message, sends this much of it, then a byte at a time. Returns the `grpc-status`.
async fn stalls_over_grpc(address: SocketAddr, length: usize, sent: usize) -> Option<String> {
    let client = connect(address).await.expect("is let in");
    let (response, mut stream) = begin(client).await;
    let announced = u32::try_from(length).expect("is short").to_be_bytes();
    let mut body = [&[0], &announced[..]].concat();
    body.resize(body.len() + sent, 7);
    stream.send_data(Bytes::from(body), false).expect("is taken");
    let trickle = async {
        loop {
            tokio::time::sleep(INTERVAL).await;
            if stream.send_data(Bytes::from_static(&[7]), false).is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        status = status(response) => status,
        () = trickle => unreachable!("it does not end"),
    }
}

/// As [`stalls_over_grpc`] over HTTP/1. Returns the status.
async fn stalls_over_http(address: SocketAddr, length: usize, sent: usize) -> Option<String> {
    let mut socket = TcpStream::connect(address).await.expect("connects");
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf\r\ncontent-length: {length}\r\n\r\n",
        Signal::Traces.http_path()
    );
    socket.write_all(head.as_bytes()).await.expect("is sent");
    let (mut answer, mut body) = socket.split();
    let trickle = async {
        let _ = body.write_all(&vec![7; sent]).await;
        loop {
            tokio::time::sleep(INTERVAL).await;
            if body.write_all(&[7]).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let mut text = [0; 12];
    tokio::select! {
        read = answer.read_exact(&mut text) => read.ok().map(|_| String::from_utf8_lossy(&text[9..]).into_owned()),
        () = trickle => unreachable!("it does not end"),
    }
}

#[derive(Clone, Copy, Debug)]
enum Sends {
    /// Nothing but the length.
    Nothing,
    /// All but a thousand bytes.
    Nearly,
}

impl Sends {
    fn of(self, length: usize) -> usize {
        match self {
            Sends::Nothing => 0,
            Sends::Nearly => length - 1000,
        }
    }
}

/// Scenario: senders announce more than the memory for receiving, send nothing or nearly all of it,
/// then a byte now and then; another sender sends as usual. Guarantee: it waits a moment at most,
/// the slow ones get a retryable refusal, and memory stays within its limit.
async fn others_get_in(sends: Sends) {
    let _alone = alone().await;
    let backend = Backend::healthy().await.expect("a backend");
    let gateway =
        Gateway::start(&fan_out(Signal::Traces, LIMIT_MIB, &[("backend", &backend)])).await;
    let mut slow = JoinSet::new();
    for (length, count) in ANNOUNCED {
        for index in 0..count {
            if index % 2 == 0 {
                slow.spawn(stalls_over_grpc(gateway.grpc, length, sends.of(length)));
            } else {
                slow.spawn(stalls_over_http(gateway.http, length, sends.of(length)));
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
    let retry = Retry::Backoff {
        initial: Duration::from_millis(200),
        max: Duration::from_millis(500),
        give_up_after: Duration::from_secs(6),
    };
    let load = gateway
        .load(Signal::Traces)
        .rate(5_000.0)
        .duration(Duration::from_secs(3))
        .concurrency(4, 8)
        .retry(retry);
    let report = load.run().await.expect("a load");
    assert_eq!((report.accepted, report.never_sent), (report.offered, 0), "{sends:?}: {report:?}");
    // The last ones may stay: their memory is no longer needed.
    let mut answers = Vec::new();
    while let Some(answer) = slow.try_join_next() {
        answers.push(answer.expect("ends"));
    }
    let come_back = |answer: &Option<String>| matches!(answer.as_deref(), Some("14" | "503"));
    assert!(!answers.is_empty() && answers.iter().all(come_back), "{sends:?}: {answers:?}");
    gateway.assert_memory_within(LIMIT_MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_lengths_that_are_only_announced_others_get_in() {
    others_get_in(Sends::Nothing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_bodies_that_stop_before_their_end_others_get_in() {
    others_get_in(Sends::Nearly).await;
}
