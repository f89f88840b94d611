//! A low limit on open files: connections leave the log, backends and probes as many as they need.

#[path = "../../log/tests/support/mounted.rs"]
mod mounted;

mod disk;
mod doors;
mod gateway;
mod streams;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use bytes::Bytes;
use disk::dead_backend;
use disk::place::Place;
use gateway::{Gateway, Options, SOON, alone, eventually, get};
use h2::client::SendRequest;
use sluice_load_test::Backend;
use streams::{begin, connect, status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

/// The limit of the gateway, hard and soft.
const FILES: usize = 256;
/// Peers that connect again as soon as they are closed: far more than there are files.
const PEERS: usize = 600;
/// Requests of 200 kB while all connections are taken.
const REQUESTS: u64 = 60;
const SPANS: u8 = 200;

/// The begin of an HTTP/2 connection: the preface, and settings that change nothing.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Opens a connection again and again, and holds it until the gateway closes it.
async fn hold_connections(address: SocketAddr) {
    loop {
        if let Ok(mut socket) = TcpStream::connect(address).await
            && socket.write_all(PREFACE).await.is_ok()
        {
            let mut end = [0; 256];
            // Frames of the gateway are read, and none is answered.
            while matches!(socket.read(&mut end).await, Ok(1..)) {}
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A request of 200 kB, as gRPC frames it.
fn request() -> Bytes {
    let mut request = doors::spans(SPANS);
    for span in &mut request.resource_spans[0].scope_spans[0].spans {
        span.name = "n".repeat(1_000);
    }
    let message = prost::Message::encode_to_vec(&request);
    let length = u32::try_from(message.len()).expect("is short").to_be_bytes();
    Bytes::from([&[0], &length[..], &message].concat())
}

/// Sends requests on a connection that is open, and counts them. Ends if one is not accepted.
async fn send_on(client: SendRequest<Bytes>, accepted: Arc<AtomicU64>) {
    let body = request();
    loop {
        let (response, mut stream) = begin(client.clone()).await;
        // A request that is refused at once takes no body.
        let _ = stream.send_data(body.clone(), true);
        assert_eq!(status(response).await.as_deref(), Some("0"));
        accepted.fetch_add(1, Relaxed);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Segment files in the folder of a log.
fn segments(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder).expect("a folder").flatten();
    files.filter(|file| file.path().extension().is_some_and(|it| it == "seg")).count()
}

/// Descriptors that a process has open.
fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map(Iterator::count).unwrap_or_default()
}

/// Scenario: few files; hundreds of peers take all connections that they get, and close none.
/// Guarantee: a client that was there before has each request accepted as durable, and delivered;
/// new segments are made; probes are answered; no file is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_leave_files_to_everything_else() {
    let _alone = alone().await;
    let place = Place::folder();
    let healthy = Backend::healthy().await.expect("a backend");
    let dead = dead_backend().await;
    let backends = [("healthy", &healthy), ("dead", &dead)];
    let buffer = "  memory:\n    limit_mib: 128\n  disk:\n    limit_mib: 512\n    segment_mib: 1\n";
    let config = disk::config(&place.directory(), "durable", &backends, buffer);
    let options = Options { open_files: Some(FILES as u64), ..Options::default() };
    let gateway = Gateway::start_with(&config, options).await;
    let client = connect(gateway.grpc).await.expect("is taken");
    let sent = Arc::new(AtomicU64::new(0));
    // Two at a time: a connection that has a request does not have to make room.
    let senders: Vec<_> =
        (0..2).map(|_| tokio::spawn(send_on(client.clone(), Arc::clone(&sent)))).collect();
    // From its first accepted request on it is not the one that is idle longest.
    assert!(eventually(SOON, async || sent.load(Relaxed) >= 4).await, "{}", gateway.output());

    let mut peers = JoinSet::new();
    let doors = [gateway.grpc, gateway.http, gateway.grpc, gateway.metrics, gateway.health];
    for address in doors.into_iter().cycle().take(PEERS) {
        peers.spawn(hold_connections(address));
    }
    let crowded = async || gateway.output().contains("connections were closed because");
    assert!(eventually(SOON, crowded).await, "{}", gateway.output());
    let segments = || segments(&place.directory().join("traces"));
    let (before, most) = (segments(), AtomicUsize::new(0));
    let enough = sent.load(Relaxed) + REQUESTS;
    let are_sent = async || {
        most.fetch_max(descriptors(gateway.pid()), Relaxed);
        sent.load(Relaxed) >= enough || senders.iter().any(JoinHandle::is_finished)
    };
    assert!(eventually(4 * SOON, are_sent).await, "{}", gateway.output());
    assert!(sent.load(Relaxed) >= enough, "not accepted: {}", gateway.output());
    // A probe takes the place of another connection, and may itself lose it to a third.
    let is_healthy = async || get(gateway.health, "/").await.is_some_and(|it| it.0 == 200);
    assert!(eventually(SOON, is_healthy).await, "{}", gateway.output());
    let (after, most, output) = (segments(), most.into_inner(), gateway.output());
    let facts = format!("{before} segments, then {after}; {most} files at most; {output}");
    assert!(after >= before + 4, "{facts}");
    assert!(!output.contains("Too many open files") && most < FILES, "{facts}");
    for said in ["the limit on open files is low", "the limit on open files allows 64: raise it"] {
        assert!(output.contains(said), "{said}: {output}");
    }
    senders.iter().for_each(JoinHandle::abort);
    let all = sent.load(Relaxed) * u64::from(SPANS);
    let arrived = async || healthy.counts().items >= all;
    assert!(eventually(SOON, arrived).await, "{:?}", healthy.counts());
}

/// Scenario: few files may be open, and more logs are there than that. Guarantee: all lines arrive,
/// and metrics are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_that_are_read_leave_files_to_everything_else() {
    let _alone = alone().await;
    let logs = tempfile::tempdir().expect("a folder");
    for index in 0..2 * FILES {
        std::fs::write(logs.path().join(format!("{index}.log")), "line\n").expect("is written");
    }
    let backend = Backend::healthy().await.expect("a backend");
    let config = format!(
        "receivers:\n  file_log:\n    include: ['{}/*.log']\n    start_at: beginning\n\
         exporters:\n{}service:\n  pipelines:\n    logs:\n      receivers: [otlp, file_log]\n      \
         exporters: [otlp/backend]\n",
        logs.path().display(),
        gateway::exporter("backend", &backend),
    );
    let options = Options { open_files: Some(FILES as u64), ..Options::default() };
    let gateway = Gateway::start_with(&config, options).await;
    let all = async || backend.items() == 2 * FILES as u64;
    assert!(
        eventually(SOON, all).await,
        "{} of {}: {}",
        backend.items(),
        2 * FILES,
        gateway.output()
    );
    let metrics = get(gateway.metrics, "/metrics").await;
    assert!(metrics.is_some_and(|it| it.1.contains("sluice_")), "{}", gateway.output());
    let most = descriptors(gateway.pid());
    assert!(most < FILES * 9 / 10, "{most} of {FILES} files are open");
}
