//! Connections that are many, that never read, or whose requests are all refused.

use std::time::Duration;

use bytes::Bytes;
use sluice_otlp::Signal;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::peers::{begin, connect, prefix, status};
use crate::{Target, withstand};

withstand!(many_connections, pipelining_without_reading, rapid_refusals, answers_without_a_window);

/// Each shakes hands, and then does nothing.
async fn many_connections(target: Target) {
    const CONNECTIONS: usize = 2_000;
    let mut held = Vec::new();
    for index in 0..CONNECTIONS {
        let address = if index % 2 == 0 { target.grpc } else { target.http };
        held.extend(connect(address).await);
    }
    std::future::pending::<()>().await;
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
        futures_util::future::join_all(streams).await;
        panic!("the connection was ended for its refusals");
    });
    attackers.collect::<JoinSet<_>>().join_all().await;
}

/// Streams whose answers flow control has no room for.
async fn answers_without_a_window(target: Target) {
    const CONNECTIONS: usize = 64;
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
