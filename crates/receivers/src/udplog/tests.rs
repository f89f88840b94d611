//! Datagrams over real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

use super::read;
use crate::netlog::testing::{Engine, attribute, body, config, metric, metric_of, start};

async fn send(to: SocketAddr, datagrams: &[&[u8]]) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("is bound");
    for datagram in datagrams {
        socket.send_to(datagram, to).await.expect("is sent");
    }
    socket.local_addr().expect("has one")
}

fn options(more: &str) -> String {
    format!("{{listen_address: '127.0.0.1:0'{more}}}")
}

/// The Collector's cases.
#[tokio::test]
async fn datagrams_become_records() {
    let long = [b'x'; 65_000];
    for (more, datagrams, expected) in [
        (
            "",
            &[&b"message1"[..], b"message1\r\n\0", b"a\nb\n", b"\n", b"  c "][..],
            vec!["message1", "message1", "a\nb", "c"],
        ),
        (", one_log_per_packet: true", &[b" a\nb \n", b"\0"], vec![" a\nb "]),
        (
            ", multiline: {line_start_pattern: ABC, line_end_pattern: ''}",
            &[b"ABC1\nABC2", b"d"],
            vec!["ABC1", "ABC2", "d"],
        ),
        (", multiline: {line_end_pattern: '\\n'}", &[b"a\nb"], vec!["a", "b"]),
        (", multiline: {line_start_pattern: '#', omit_pattern: true}", &[b"#a#b"], vec!["a", "b"]),
        (", encoding: nop", &[b"a\nb"], vec!["a\nb"]),
        (", encoding: latin-1", &[b"\xe4"], vec!["ä"]),
        (", encoding: utf-16le", &[b"a\0b\0\n\0"], vec!["ab"]),
        (", async: {readers: 2}", &[&long], vec![str::from_utf8(&long).expect("is text")]),
    ] {
        let engine = Arc::new(Engine::default());
        let (running, address) = start(&engine, read, &options(more)).await;
        send(address, datagrams).await;
        assert_eq!(engine.wait_for(expected.len()).await, expected, "{more}");
        running.shutdown().await;
        assert_eq!(engine.used_bytes(), 0);
        assert_eq!(engine.requests.lock().len(), 1, "what comes together is one request");
    }
}

#[tokio::test]
async fn records_say_where_they_came_from() {
    let engine = Arc::new(Engine::default());
    let (_running, address) = start(&engine, read, &options(", add_attributes: true")).await;
    let senders = [send(address, &[b"a", b"a"]).await, send(address, &[b"b"]).await];
    engine.wait_for(3).await;
    for (record, sender) in engine.records().iter().zip([0, 0, 1]) {
        for (key, value) in [
            ("net.transport", "IP.UDP"),
            ("net.peer.ip", "127.0.0.1"),
            ("net.peer.port", &senders[sender].port().to_string()),
            ("net.host.port", &address.port().to_string()),
        ] {
            assert_eq!(attribute(record, key), value, "{key}");
        }
    }
}

/// Scenario: the engine admits nothing, and datagrams go on coming. Guarantee: as many as there is
/// memory for wait; the others are counted, by the receiver or by the kernel; then it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_without_room_are_counted() {
    const COUNT: usize = 4000;
    let engine = Arc::new(Engine { limit_bytes: Some(1 << 20), ..Engine::default() });
    engine.is_closed.store(true, Ordering::SeqCst);
    let (running, address) = start(&engine, read, &options("")).await;
    let text = [b'x'; 1000];
    for _ in 0..COUNT / 10 {
        send(address, &[&text[..]; 10]).await;
        sleep(Duration::from_millis(1)).await;
    }
    sleep(Duration::from_millis(300)).await;
    let lost = metric(&*running, "sluice_receiver_dropped_datagrams", &[]) as usize;
    assert!(lost > COUNT / 2, "{lost} are lost");
    assert!(engine.peak_bytes() <= 1 << 20);
    engine.is_closed.store(false, Ordering::SeqCst);
    engine.wait_for(COUNT - lost).await;
    send(address, &[b"next"]).await;
    engine.wait_for(COUNT - lost + 1).await;
}

/// Guarantee: a record that an operator makes of several datagrams has those of one peer only, and
/// its attributes.
#[tokio::test]
async fn operators_keep_peers_apart() {
    let engine = Arc::new(Engine::default());
    let recombine =
        "{type: recombine, combine_field: body, is_last_entry: 'body matches \"end$\"'}";
    let more = format!(", add_attributes: true, operators: [{recombine}]");
    let (_running, address) = start(&engine, read, &options(&more)).await;
    let mut sockets = Vec::new();
    for _ in 0..3 {
        sockets.push(UdpSocket::bind("127.0.0.1:0").await.expect("is bound"));
    }
    for word in ["first", "next", "end"] {
        for (number, socket) in sockets.iter().enumerate() {
            let text = format!("{number} {word}");
            socket.send_to(text.as_bytes(), address).await.expect("is sent");
        }
    }
    engine.wait_for(3).await;
    for record in engine.records() {
        let text = body(&record);
        let number: usize = text[..1].parse().expect("is a number");
        assert_eq!(text, format!("{number} first\n{number} next\n{number} end"));
        let port = sockets[number].local_addr().expect("has one").port();
        assert_eq!(attribute(&record, "net.peer.port"), port.to_string());
    }
}

/// Guarantee: each byte of a datagram is decoded once, however many records it has.
#[tokio::test]
async fn many_records_of_a_datagram_take_no_longer() {
    let engine = Arc::new(Engine::default());
    let more = ", encoding: big5, multiline: {line_end_pattern: ';', omit_pattern: true}";
    let (_running, address) = start(&engine, read, &options(more)).await;
    let began = Instant::now();
    send(address, &[&b"\xa4\xa4;".repeat(20_000)]).await;
    assert!(engine.wait_for(20_000).await.iter().all(|body| body == "中"));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// Scenario: the receiver ends while the engine takes nothing, and the engine is closed then.
/// Guarantee: the receiver ends at once, and each record that is lost is counted.
#[tokio::test]
async fn what_is_cut_off_is_counted() {
    let engine = Arc::new(Engine::default());
    engine.is_closed.store(true, Ordering::SeqCst);
    let more = ", multiline: {line_end_pattern: ';'}";
    let (running, address) = start(&engine, read, &options(more)).await;
    send(address, &[b"a;b;c", b"d"]).await;
    sleep(Duration::from_millis(300)).await;
    send(address, &[b"e;f"]).await;
    let counters = running.counters();
    let ending = tokio::spawn(running.shutdown());
    sleep(Duration::from_millis(100)).await;
    engine.has_ended.cancel();
    timeout(Duration::from_secs(2), ending).await.expect("ends at once").expect("ends");
    // A request on its way is dropped with its task.
    for _ in 0..100 {
        if metric_of(&*counters, "otelcol_receiver_refused", &[]) >= 6.0 {
            break;
        }
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(metric_of(&*counters, "otelcol_receiver_refused", &[]), 6.0);
    assert_eq!(engine.used_bytes(), 0);
}

/// Guarantee: what waits in the kernel when the receiver ends is submitted.
#[tokio::test]
async fn what_has_come_is_submitted_at_the_end() {
    let engine = Arc::new(Engine::default());
    let (running, address) = start(&engine, read, &options("")).await;
    send(address, &[&b"x"[..]; 100]).await;
    running.shutdown().await;
    engine.wait_for(100).await;
    assert_eq!(engine.used_bytes(), 0);
}

#[test]
fn wrong_options_are_errors() {
    for (yaml, why) in [
        ("{}", "listen_address"),
        ("{listen_address: 'udp://:1'}", "scheme"),
        ("{listen_address: ':1', max_log_size: 1MiB}", "max_log_size"),
        ("{listen_address: ':1', tls: {}}", "tls"),
    ] {
        let said = config(read, yaml).map(|_| ()).expect_err(yaml);
        assert!(said.contains(why), "{yaml}: {said}");
    }
}
