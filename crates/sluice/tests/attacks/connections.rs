//! Connections that are many, that never read, or whose requests are all refused.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use sluice_otlp::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::peers::{
    PREFACE, begin, begin_call, connect, log_of, post, post_head, prefix, status, unknown_frame,
};
use crate::scene::{CONNECTIONS_TOTAL, DEAD_LOGS, hit};
use crate::{Target, withstand};

withstand!(
    many_connections in DEAD_LOGS.reaches(CONNECTIONS_TOTAL, &[("event", "accepted")], 500.0),
    unfinished_frames in DEAD_LOGS.reaches(CONNECTIONS_TOTAL, &[("event", "accepted")], 500.0),
    empty_frames in DEAD_LOGS.hits(20.0),
    pipelining_without_reading in DEAD_LOGS
        .reaches("sluice_receiver_unknown_requests_total", &[], 300.0),
    rapid_refusals in DEAD_LOGS.refuses(&[("reason", "unrouted")], 300.0),
    // Beside the hundred requests of the well-behaved client.
    answers_without_a_window in DEAD_LOGS
        .reaches("sluice_receiver_accepted_requests_total", &[("signal", "traces")], 500.0),
    refused_streams_without_bodies in DEAD_LOGS.refuses(&[("reason", "unrouted")], 300.0),
    unknown_methods_without_bodies in DEAD_LOGS
        .reaches("sluice_receiver_unknown_requests_total", &[], 300.0),
    streams_without_progress in DEAD_LOGS.refuses(&[("reason", "overloaded")], 500.0),
);

/// Each connection shakes hands, and then does nothing.
async fn many_connections(target: Target) {
    const CONNECTIONS: usize = 2_000;
    let mut held = Vec::new();
    for index in 0..CONNECTIONS {
        let address = if index % 2 == 0 { target.grpc } else { target.http };
        held.extend(connect(address).await);
    }
    std::future::pending::<()>().await;
}

/// Each sends a frame without its last byte: first one longer than the protocol's default, and if
/// that is refused, one that is not.
async fn unfinished_frames(target: Target) {
    const CONNECTIONS: usize = 2_404;
    let attackers = (0..CONNECTIONS).map(|_| async move {
        for length in [65_000, 16_384] {
            let mut socket = TcpStream::connect(target.grpc).await.ok()?;
            let sent = [unknown_frame(length), vec![7; usize::from(length) - 1]].concat();
            let _ = socket.write_all(&sent).await;
            while socket.read(&mut [0; 100]).await.is_ok_and(|length| length > 0) {}
        }
        Some(())
    });
    attackers.collect::<JoinSet<_>>().join_all().await;
}

/// Each sends frames that bring nothing, as fast as they are taken.
async fn empty_frames(target: Target) {
    const WINDOW_UPDATE: &[u8] = &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    let flood = (0..12).map(|index| async move {
        let frames = [WINDOW_UPDATE, PING, SETTINGS][index % 3].repeat(4_000);
        loop {
            let Ok(mut socket) = TcpStream::connect(target.grpc).await else { return };
            let begun = socket.write_all(&[PREFACE, SETTINGS].concat()).await;
            if begun.is_ok() {
                while socket.write_all(&frames).await.is_ok() {}
                // The gateway ended it.
                hit();
            }
        }
    });
    flood.collect::<JoinSet<_>>().join_all().await;
}

async fn pipelining_without_reading(target: Target) {
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let flood = (0..64).map(|_| async move {
        let requests = REQUEST.repeat(1_000);
        loop {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.set_recv_buffer_size(4 << 10).expect("is set");
            let Ok(mut socket) = socket.connect(target.http).await else { return };
            while socket.write_all(&requests).await.is_ok() {}
        }
    });
    flood.collect::<JoinSet<_>>().join_all().await;
}

/// Bodies of requests that no pipeline takes: they come when the answer is there already.
async fn rapid_refusals(target: Target) {
    const CONNECTIONS: usize = 8;
    const STREAMS: usize = 32;
    let attackers = (0..CONNECTIONS).map(|_| async move {
        let Some(client) = connect(target.grpc).await else { return };
        let streams = (0..STREAMS).map(|_| async {
            while let Some((response, mut stream)) = begin(&client, Signal::Metrics, &[]).await {
                status(response).await;
                let _ = stream.send_data(prefix(0, 64 << 10), false);
                let _ = stream.send_data(Bytes::from(vec![7; 64 << 10]), true);
                sleep(Duration::from_millis(5)).await;
            }
        });
        join_all(streams).await;
        panic!("the connection was ended for its refusals");
    });
    attackers.collect::<JoinSet<_>>().join_all().await;
}

/// Streams whose flow-control windows have no room for the answers.
async fn answers_without_a_window(target: Target) {
    const CONNECTIONS: usize = 150;
    let attackers = (0..CONNECTIONS).map(|_| async move {
        let socket = TcpStream::connect(target.grpc).await.ok()?;
        let builder = h2::client::Builder::new().initial_window_size(0).clone();
        let (client, connection) = builder.handshake::<_, Bytes>(socket).await.ok()?;
        tokio::spawn(connection);
        let mut answers = Vec::new();
        while let Some((response, mut stream)) = begin(&client, Signal::Traces, &[]).await {
            let _ = stream.send_data(prefix(0, 0), true);
            match response.await {
                Ok(answer) => answers.push(answer),
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
        Some(())
    });
    attackers.collect::<JoinSet<_>>().join_all().await;
}

/// As many streams as each connection may have. They are answered at once, and their bodies are
/// then waited for.
async fn streams_without_bodies(target: Target, connections: usize, path: &str) {
    const STREAMS: usize = 250;
    let attackers = (0..connections).map(|_| async {
        let Some(client) = connect(target.grpc).await else { return };
        let streams = (0..STREAMS).map(|_| async {
            while let Some((response, mut stream)) = begin_call(&client, path, &[]).await {
                status(response).await;
                let _ = poll_fn(|context| stream.poll_reset(context)).await;
            }
        });
        join_all(streams).await;
    });
    join_all(attackers).await;
}

async fn refused_streams_without_bodies(target: Target) {
    streams_without_bodies(target, 150, Signal::Metrics.grpc_path()).await;
}

async fn unknown_methods_without_bodies(target: Target) {
    streams_without_bodies(target, 1_000, "/no.such.Service/Export").await;
}

/// More connections than there is memory for, each with one stream that holds its place as long as
/// it may. Memory that could be borrowed is filled before with data that cannot be delivered.
async fn streams_without_progress(target: Target) {
    const CONNECTIONS: usize = 512;
    const FULL_AFTER: Duration = Duration::from_millis(300);
    const AGAIN_AFTER: Duration = Duration::from_millis(20);
    let body = log_of(1 << 20);
    let head = post_head(Signal::Logs, "", body.len());
    // The first one that finds no room waits for a second.
    while timeout(FULL_AFTER, post(target.http, &head, &body)).await == Ok(Some(200)) {}
    let attackers = (0..CONNECTIONS).map(|index| async move {
        let Some(client) = connect(target.grpc).await else { return };
        while let Some((response, mut stream)) = begin(&client, Signal::Traces, &[]).await {
            if index % 2 == 0 {
                let _ = stream.send_data(Bytes::from_static(&[0]), false);
            }
            status(response).await;
            sleep(AGAIN_AFTER).await;
        }
    });
    join_all(attackers).await;
}
