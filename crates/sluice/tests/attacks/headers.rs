//! Headers, which a peer can make large and which wait with their requests.

use std::time::Duration;

use bytes::Bytes;
use sluice_otlp::Signal;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::peers::{begin, connect, log_of, post, post_head, status};
use crate::{Target, withstand};

withstand!(many_streams_with_large_headers, many_streams_with_many_headers, metadata_headers);

/// Of the 16 KiB that are allowed.
const HEADER_BYTES: usize = 12_000;

/// An attacker that came back sooner would only use up the CPU, also that of the other client.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// As many streams as a connection may have, each of which waits for its body.
async fn many_streams_with(target: Target, headers: Vec<(String, String)>) {
    const CONNECTIONS: usize = 48;
    const STREAMS: usize = 250;
    let headers = &headers;
    let attackers = (0..CONNECTIONS).map(|_| async move {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        let Some(client) = connect(target.grpc).await else { return };
        let streams = (0..STREAMS).map(|_| async {
            while let Some((response, _stream)) = begin(&client, Signal::Traces, &headers).await {
                status(response).await;
                sleep(AGAIN_AFTER).await;
            }
        });
        futures_util::future::join_all(streams).await;
    });
    futures_util::future::join_all(attackers).await;
}

async fn many_streams_with_large_headers(target: Target) {
    many_streams_with(target, vec![("x-large".to_owned(), "x".repeat(HEADER_BYTES))]).await;
}

/// Hardly any text in each.
async fn many_streams_with_many_headers(target: Target) {
    let headers = (0..400).map(|index| (format!("x{index}"), String::new()));
    many_streams_with(target, headers.collect()).await;
}

/// Small requests with large headers, which become metadata of data that cannot be delivered.
async fn metadata_headers(target: Target) {
    let header = format!("x-large: {}\r\n", "x".repeat(HEADER_BYTES));
    let body = Bytes::from(log_of(2));
    let head = post_head(Signal::Logs, &header, body.len());
    let attackers = (0..8).map(|_| {
        let (head, body) = (head.clone(), body.clone());
        async move {
            loop {
                post(target.http, &head, &body).await;
            }
        }
    });
    attackers.collect::<JoinSet<()>>().join_all().await;
}
