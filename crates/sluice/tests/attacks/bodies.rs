//! Bodies that are announced and do not come, or come slowly.

use std::time::Duration;

use bytes::Bytes;
use sluice_otlp::Signal;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::peers::{begin, connect, post_head, prefix, status};
use crate::scene::DEAD_LOGS;
use crate::{Target, withstand};

withstand!(
    slow_bodies in DEAD_LOGS.refuses(&[("reason", "overloaded")], 10.0),
    lengths_that_are_only_announced in DEAD_LOGS.refuses(&[("reason", "overloaded")], 10.0),
    trickles_on_ten_connections in DEAD_LOGS.refuses(&[("reason", "overloaded")], 10.0),
    bodies_just_fast_enough in DEAD_LOGS.refuses(&[("reason", "overloaded")], 2.0),
);

const LENGTHS: [usize; 4] = [3 << 20, 256 << 10, 64 << 10, 16 << 10];
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Announces a length, sends all of it but `kept_back`, and then a byte from time to time.
async fn stall_over_grpc(target: Target, length: usize, kept_back: usize) {
    let Some(client) = connect(target.grpc).await else { return };
    while let Some((response, mut stream)) = begin(&client, Signal::Traces, &[]).await {
        let _ = stream.send_data(prefix(0, length), false);
        let _ = stream.send_data(Bytes::from(vec![7; length - kept_back]), false);
        let trickle = async {
            let mut ticks = interval(Duration::from_millis(100));
            while stream.send_data(Bytes::from_static(&[7]), false).is_ok() {
                ticks.tick().await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = status(response) => {}
            () = trickle => {}
        }
        sleep(AGAIN_AFTER).await;
    }
}

async fn stall_over_http(target: Target, length: usize, kept_back: usize) {
    loop {
        let Ok(mut socket) = TcpStream::connect(target.http).await else { return };
        let _ = socket.write_all(post_head(Signal::Traces, "", length).as_bytes()).await;
        let _ = socket.write_all(&vec![7; length - kept_back]).await;
        let mut ticks = interval(Duration::from_millis(100));
        while socket.write_all(&[7]).await.is_ok() {
            ticks.tick().await;
        }
    }
}

async fn stall(target: Target, kept_back: impl Fn(usize) -> usize) {
    let mut attackers = JoinSet::new();
    for length in LENGTHS {
        for _ in 0..8 {
            attackers.spawn(stall_over_grpc(target, length, kept_back(length)));
            attackers.spawn(stall_over_http(target, length, kept_back(length)));
        }
    }
    attackers.join_all().await;
}

/// All but the last thousand bytes come at once.
async fn slow_bodies(target: Target) {
    stall(target, |_| 1_000).await;
}

async fn lengths_that_are_only_announced(target: Target) {
    stall(target, |length| length).await;
}

/// One connection whose streams announce lengths and send as little as counts as progress.
async fn trickle(target: Target, first: usize) {
    const STREAMS: usize = 12;
    const ANNOUNCED: [usize; 8] =
        [20_000_000, 5_000_000, 1_000_000, 250_000, 64_000, 16_000, 4_000, 1_000];
    let Some(client) = connect(target.grpc).await else { return };
    let stream = |index: usize| {
        let client = client.clone();
        async move {
            let mut next = first + index;
            while let Some((response, mut stream)) = begin(&client, Signal::Traces, &[]).await {
                let _ = stream.send_data(prefix(0, ANNOUNCED[next % ANNOUNCED.len()]), false);
                next += 1;
                let trickle = async {
                    let mut ticks = interval(Duration::from_millis(40));
                    loop {
                        ticks.tick().await;
                        stream.reserve_capacity(4_200);
                        if stream.capacity() >= 4_200
                            && stream.send_data(Bytes::from_static(&[10; 4_200]), false).is_err()
                        {
                            std::future::pending::<()>().await;
                        }
                    }
                };
                tokio::select! {
                    _ = status(response) => {}
                    () = trickle => {}
                }
            }
        }
    };
    futures_util::future::join_all((0..STREAMS).map(stream)).await;
}

async fn trickles_on_ten_connections(target: Target) {
    (0..10).map(|first| trickle(target, first)).collect::<JoinSet<_>>().join_all().await;
}

/// Requests that together take all memory for receiving, each so fast that it is not given up.
async fn bodies_just_fast_enough(target: Target) {
    const LENGTH: usize = 4 << 20;
    /// More than a twentieth of it in 500 ms.
    static PIECE: [u8; LENGTH / 80] = [7; LENGTH / 80];
    let attacker = || async move {
        loop {
            let Ok(mut socket) = TcpStream::connect(target.http).await else { return };
            let _ = socket.write_all(post_head(Signal::Traces, "", LENGTH).as_bytes()).await;
            let mut ticks = interval(Duration::from_millis(100));
            while socket.write_all(&PIECE).await.is_ok() {
                ticks.tick().await;
            }
        }
    };
    (0..10).map(|_| attacker()).collect::<JoinSet<_>>().join_all().await;
}
