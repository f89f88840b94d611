//! The ports of metrics and health, which need no credentials.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use crate::gateway::get;
use crate::scene::{DEAD_LOGS, hit};
use crate::{Target, withstand};

withstand!(
    unfinished_heads_for_probes in DEAD_LOGS.hits(100.0),
    unread_metrics in DEAD_LOGS.hits(30.0),
);

/// As in the attacks with headers: an earlier return would only use up the CPU.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// The timeout of a kubelet's probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const PROBES: usize = 3;

/// Asks as an orchestrator and a scraper do, which act after three failures.
async fn probe(target: Target) {
    loop {
        for (port, path) in [(target.health, "/"), (target.metrics, "/metrics")] {
            let mut answers = Vec::new();
            while answers.last() != Some(&Some(200)) {
                assert!(answers.len() < PROBES, "{path}: {answers:?}");
                let answer = timeout(PROBE_TIMEOUT, get(port, path)).await;
                answers.push(answer.ok().flatten().map(|(status, _)| status));
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Half of the connections send far more than the limit of a head, half less; then all wait.
async fn unfinished_heads_for_probes(target: Target) {
    const CONNECTIONS: usize = 600;
    let attack = async |port: SocketAddr, length: usize| {
        let head = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}", "x".repeat(length));
        loop {
            let Ok(mut socket) = TcpStream::connect(port).await else { return };
            let _ = socket.write_all(head.as_bytes()).await;
            hit();
            while socket.read(&mut [0; 100]).await.is_ok_and(|length| length > 0) {}
            sleep(AGAIN_AFTER).await;
        }
    };
    let attackers = (0..CONNECTIONS).map(|index| {
        let port = [target.health, target.metrics][index % 2];
        attack(port, [15_000, 390_000][index / 2 % 2])
    });
    tokio::join!(join_all(attackers), probe(target));
}

/// More answers than a socket takes, one connection after the other: all at once would only use up
/// the CPU.
async fn unread_metrics(target: Target) {
    const CONNECTIONS: u32 = 64;
    const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let attackers = (0..CONNECTIONS).map(|index| async move {
        sleep(index * Duration::from_millis(30)).await;
        loop {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.set_recv_buffer_size(4 << 10).expect("is set");
            let Ok(mut socket) = socket.connect(target.metrics).await else { return };
            let _ = socket.write_all(&REQUEST.repeat(100)).await;
            hit();
            sleep(Duration::from_secs(10)).await;
        }
    });
    tokio::join!(join_all(attackers), probe(target));
}
