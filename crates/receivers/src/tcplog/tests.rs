//! Lines over real connections.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use sluice_flow::Refusal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::read;
use crate::netlog::testing::{Engine, attribute, body, busy, config, metric, metric_of, start};

const OPTIONS: &str = "listen_address: '127.0.0.1:0'";

async fn connect(address: std::net::SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.expect("connects")
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await.is_ok()
}

/// The Collector's cases, and lines whose pieces come one by one.
#[tokio::test]
async fn lines_become_records() {
    let engine = Arc::new(Engine::default());
    let (running, address) = start(&engine, read, &format!("{{{OPTIONS}}}")).await;
    let mut stream = connect(address).await;
    stream.write_all(b"message\nmessage\r\n\n  trimmed\t \nund").await.expect("is sent");
    assert_eq!(engine.wait_for(3).await, ["message", "message", "trimmed"]);
    for piece in [&b"\xc3"[..], b"\xa4rend\n", b"last"] {
        stream.write_all(piece).await.expect("is sent");
        sleep(Duration::from_millis(150)).await;
    }
    assert_eq!(engine.wait_for(4).await[3], "undärend");
    drop(stream);
    assert_eq!(engine.wait_for(5).await[4], "last", "the end of a connection ends a line");
    assert!(engine.records().iter().all(|record| record.observed_time_unix_nano > 0));
    running.shutdown().await;
    assert_eq!(engine.used_bytes(), 0);
}

#[tokio::test]
async fn records_have_attributes_and_go_through_operators() {
    let engine = Arc::new(Engine::default());
    let yaml = format!(
        "{{{OPTIONS}, add_attributes: true, attributes: {{env: test}}, resource: {{a: b}}, \
         operators: [{{type: json_parser}}]}}"
    );
    let (running, address) = start(&engine, read, &yaml).await;
    let mut stream = connect(address).await;
    stream.write_all(b"{\"level\":\"warn\"}\nno json\n").await.expect("is sent");
    engine.wait_for(2).await;
    let records = engine.records();
    let port = stream.local_addr().expect("has one").port().to_string();
    for (key, value) in [
        ("level", "warn"),
        ("env", "test"),
        ("net.transport", "IP.TCP"),
        ("net.peer.ip", "127.0.0.1"),
        ("net.peer.port", &port),
        ("net.host.ip", "127.0.0.1"),
        ("net.host.port", &address.port().to_string()),
    ] {
        assert_eq!(attribute(&records[0], key), value, "{key}");
    }
    assert_eq!(metric(&*running, "sluice_receiver_operator_errors", &[]), 1.0);
}

/// Guarantee: a record that is longer than it may be becomes several, also if its end never comes;
/// memory is bounded meanwhile.
#[tokio::test]
async fn long_lines_are_cut() {
    let engine = Arc::new(Engine { limit_bytes: Some(4 << 20), ..Engine::default() });
    let yaml = format!("{{{OPTIONS}, max_log_size: 64KiB}}");
    let (running, address) = start(&engine, read, &yaml).await;
    let mut stream = connect(address).await;
    let long = "0123456789abcdef".repeat(64 << 10);
    stream.write_all(long.as_bytes()).await.expect("is sent");
    let bodies = engine.wait_for(16).await;
    assert!(bodies.iter().all(|body| body.len() == 64 << 10));
    stream.write_all(b"rest\n").await.expect("is sent");
    assert_eq!(engine.wait_for(17).await.concat(), long + "rest");
    assert!(engine.peak_bytes() < 2 << 20);
    assert_eq!(metric(&*running, "sluice_receiver_cut_records", &[]), 16.0);
}

#[tokio::test]
async fn lines_of_a_mebibyte_are_whole_by_default() {
    let engine = Arc::new(Engine::default());
    let (_running, address) = start(&engine, read, &format!("{{{OPTIONS}}}")).await;
    let mut stream = connect(address).await;
    let long = "x".repeat((1 << 20) - 1);
    stream.write_all(format!("{long}\nshort\n").as_bytes()).await.expect("is sent");
    let bodies = engine.wait_for(2).await;
    assert!(bodies[0] == long && bodies[1] == "short");
}

#[tokio::test]
async fn records_may_span_lines() {
    let engine = Arc::new(Engine::default());
    let yaml = format!("{{{OPTIONS}, multiline: {{line_start_pattern: 'LOG'}}}}");
    let (running, address) = start(&engine, read, &yaml).await;
    let mut stream = connect(address).await;
    stream.write_all(b"LOG one\n at a\nLOG two\n at b\n").await.expect("is sent");
    assert_eq!(engine.wait_for(1).await, ["LOG one\n at a"]);
    running.shutdown().await;
    assert_eq!(engine.bodies()[1], "LOG two\n at b", "at the end, what is there is a record");
    let yaml = format!("{{{OPTIONS}, multiline: {{line_end_pattern: ';', omit_pattern: true}}}}");
    let (_running, address) = start(&engine, read, &yaml).await;
    let mut stream = connect(address).await;
    stream.write_all(b"one\ntwo; three;").await.expect("is sent");
    assert_eq!(engine.wait_for(4).await[2..], ["one\ntwo", "three"]);
    let yaml = format!("{{{OPTIONS}, multiline: {{line_start_pattern: '#', omit_pattern: true}}}}");
    let (_running, address) = start(&engine, read, &yaml).await;
    connect(address).await.write_all(b"#five\n#six\n").await.expect("is sent");
    assert_eq!(engine.wait_for(6).await[4..], ["five", "six"], "also at the end");
}

#[tokio::test]
async fn a_whole_connection_may_be_one_record() {
    let engine = Arc::new(Engine::default());
    let yaml = format!("{{{OPTIONS}, one_log_per_packet: true, max_log_size: 64KiB}}");
    let (_running, address) = start(&engine, read, &yaml).await;
    let mut stream = connect(address).await;
    for piece in [" one\n", "two\n"] {
        stream.write_all(piece.as_bytes()).await.expect("is sent");
        sleep(Duration::from_millis(150)).await;
    }
    drop(stream);
    assert_eq!(engine.wait_for(1).await, [" one\ntwo\n"]);
    connect(address).await.write_all(&[b'x'; 100_000]).await.expect("is sent");
    assert_eq!(engine.wait_for(2).await[1].len(), 64 << 10, "the rest is left out");
}

#[tokio::test]
async fn texts_are_decoded() {
    let engine = Arc::new(Engine::default());
    let yaml = format!("{{{OPTIONS}, encoding: utf-16le}}");
    let (_running, address) = start(&engine, read, &yaml).await;
    let text: Vec<u8> = "ä\nb\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    connect(address).await.write_all(&text).await.expect("is sent");
    assert_eq!(engine.wait_for(2).await, ["ä", "b"]);
    let yaml = format!("{{{OPTIONS}, encoding: nop}}");
    let (_running, address) = start(&engine, read, &yaml).await;
    connect(address).await.write_all(b" a\nb ").await.expect("is sent");
    assert_eq!(engine.wait_for(3).await[2], "a\nb", "text that is not cut");
}

/// Scenario: the engine admits nothing. Guarantee: a sender can write only what the kernel and a
/// small buffer hold, and all of it arrives afterwards.
#[tokio::test]
async fn a_sender_waits_while_the_engine_takes_nothing() {
    let engine = Arc::new(Engine::default());
    engine.is_closed.store(true, Ordering::SeqCst);
    let (running, address) = start(&engine, read, &format!("{{{OPTIONS}}}")).await;
    let mut stream = connect(address).await;
    let line = format!("{}\n", "x".repeat(1023));
    let mut sent = 0;
    while timeout(Duration::from_millis(500), stream.write_all(line.as_bytes())).await.is_ok() {
        sent += 1;
        assert!(sent < 100_000, "nothing stops the sender");
    }
    assert!(engine.peak_bytes() <= 128 << 10);
    assert!(metric(&*running, "sluice_receiver_refused_requests", &["overloaded"]) > 0.0);
    engine.is_closed.store(false, Ordering::SeqCst);
    // A part of the last line was written.
    engine.wait_for(sent).await;
}

/// Scenario: 200 senders write as fast as they can, while deliveries are slow at first. Guarantee:
/// the memory in use stays within its limit, and each line arrives once, in its sender's order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_senders_lose_nothing_in_little_memory() {
    const SENDERS: usize = 200;
    const LINES: usize = 300;
    let limit_bytes = Some(4 << 20);
    let engine = Arc::new(Engine { limit_bytes, ..Engine::default() });
    engine.is_slow.store(true, Ordering::SeqCst);
    let (running, address) = start(&engine, read, &format!("{{{OPTIONS}}}")).await;
    let send = |sender: usize| async move {
        let mut stream = connect(address).await;
        for number in 0..LINES {
            let line = format!("{sender} {number} {}\n", "x".repeat(200));
            stream.write_all(line.as_bytes()).await.expect("is sent");
        }
        stream.shutdown().await.expect("is ended");
    };
    let senders: Vec<_> = (0..SENDERS).map(|sender| tokio::spawn(send(sender))).collect();
    sleep(Duration::from_millis(500)).await;
    engine.is_slow.store(false, Ordering::SeqCst);
    for sender in senders {
        sender.await.expect("has sent all");
    }
    let mut next = [0; SENDERS];
    for body in engine.wait_for(SENDERS * LINES).await {
        let mut words = body.split(' ').map(|word| word.parse::<usize>());
        let (sender, number) = (words.next(), words.next());
        let (Some(Ok(sender)), Some(Ok(number))) = (sender, number) else { panic!("{body}") };
        assert_eq!(number, next[sender]);
        next[sender] += 1;
    }
    assert!(engine.peak_bytes() <= 4 << 20);
    running.shutdown().await;
    assert_eq!(engine.used_bytes(), 0);
}

/// Guarantee: of records that came together, the one that is refused for good is counted and left
/// out; refusals for the moment lose nothing.
#[tokio::test]
async fn refused_records_do_not_take_others_with_them() {
    let engine = Arc::new(Engine { poison: Some("poison"), ..Engine::default() });
    *engine.refusals.lock() = vec![busy(), busy(), Refusal::Rejected { reason: "no".to_owned() }];
    let (running, address) = start(&engine, read, &format!("{{{OPTIONS}}}")).await;
    let mut stream = connect(address).await;
    stream.write_all(b"a\nb\npoison\nc\nd\n").await.expect("is sent");
    assert_eq!(engine.wait_for(4).await, ["a", "b", "c", "d"]);
    sleep(Duration::from_millis(50)).await;
    let refused = |reason: &str| metric(&*running, "sluice_receiver_refused_requests", &[reason]);
    assert_eq!((refused("rejected"), refused("overloaded")), (1.0, 2.0));
    assert_eq!(metric(&*running, "otelcol_receiver_refused", &[]), 1.0);
    assert_eq!(metric(&*running, "otelcol_receiver_accepted", &[]), 4.0);
    stream.write_all(b"e\n").await.expect("is sent");
    engine.wait_for(5).await;
}

/// Scenario: at the end, lines wait in the kernel, one is not ended, and an operator holds one.
#[tokio::test]
async fn what_has_come_is_submitted_at_the_end() {
    let engine = Arc::new(Engine::default());
    let recombine = "{type: recombine, combine_field: body, is_first_entry: 'body matches \"^-\"', \
                     force_flush_period: 1h}";
    let yaml = format!("{{{OPTIONS}, operators: [{recombine}]}}");
    let (running, address) = start(&engine, read, &yaml).await;
    let mut stream = connect(address).await;
    stream.write_all(b"- a\nb\n- c\n").await.expect("is sent");
    assert_eq!(engine.wait_for(1).await, ["- a\nb"]);
    stream.write_all(b"d\nnot ended").await.expect("is sent");
    running.shutdown().await;
    assert_eq!(engine.bodies(), ["- a\nb", "- c\nd\nnot ended"]);
    assert!(is_closed(&mut stream).await);
}

/// Guarantee: a record that an operator holds leaves after its time, also if nothing else comes.
#[tokio::test]
async fn held_records_leave_after_their_time() {
    let engine = Arc::new(Engine::default());
    let recombine = "{type: recombine, combine_field: body, is_first_entry: 'body matches \"^-\"', \
                     force_flush_period: 300ms}";
    let yaml = format!("{{{OPTIONS}, operators: [{recombine}]}}");
    let (running, address) = start(&engine, read, &yaml).await;
    let began = Instant::now();
    connect(address).await.write_all(b"- a\nb\n").await.expect("is sent");
    assert_eq!(engine.wait_for(1).await, ["- a\nb"]);
    assert!(began.elapsed() >= Duration::from_millis(300));
    running.shutdown().await;
    assert_eq!(engine.used_bytes(), 0);
}

/// Scenario: the receiver ends while the engine takes nothing, and the engine is closed then.
/// Guarantee: the receiver ends at once, and each record that is lost is counted: those that were
/// read, and one that an operator held.
#[tokio::test]
async fn what_is_cut_off_is_counted() {
    let recombine = "{type: recombine, combine_field: body, is_first_entry: 'body matches \"^-\"', \
                     force_flush_period: 1h}";
    let yaml = format!("{{{OPTIONS}, operators: [{recombine}]}}");
    let engine = Arc::new(Engine::default());
    let (running, address) = start(&engine, read, &yaml).await;
    let mut stream = connect(address).await;
    stream.write_all(b"- a\n- b\n").await.expect("is sent");
    engine.wait_for(1).await;
    engine.is_closed.store(true, Ordering::SeqCst);
    stream.write_all(b"- c\nd\n- e\nnot ended").await.expect("is sent");
    sleep(Duration::from_millis(200)).await;
    let counters = running.counters();
    let ending = tokio::spawn(running.shutdown());
    sleep(Duration::from_millis(100)).await;
    assert!(!ending.is_finished(), "the engine may open again");
    engine.has_ended.cancel();
    timeout(Duration::from_secs(2), ending).await.expect("ends at once").expect("ends");
    assert_eq!(metric_of(&*counters, "otelcol_receiver_refused", &[]), 5.0);
    assert!(metric_of(&*counters, "sluice_receiver_refused_requests", &["cut_off"]) > 0.0);
    assert_eq!(engine.used_bytes(), 0);
}

/// Scenario: a receipt says that records may not be safe, though they are in the log. Guarantee:
/// they are not submitted again.
#[tokio::test]
async fn records_that_the_log_has_are_not_doubled() {
    let engine = Arc::new(Engine::default());
    *engine.answers.lock() = vec![Refusal::unconfirmed("the disk is in trouble"); 2];
    let (running, address) = start(&engine, read, &format!("{{{OPTIONS}}}")).await;
    let mut stream = connect(address).await;
    stream.write_all(b"a\nb\n").await.expect("is sent");
    engine.wait_for(2).await;
    sleep(Duration::from_millis(100)).await;
    stream.write_all(b"c\n").await.expect("is sent");
    assert_eq!(engine.wait_for(3).await, ["a", "b", "c"]);
    running.shutdown().await;
    assert_eq!(engine.bodies().len(), 3);
}

/// Scenario: the only backend refuses records for the moment, so that the log does not have them.
/// Guarantee: they are submitted again, once.
#[tokio::test]
async fn records_that_the_log_does_not_have_are_not_lost() {
    let engine = Arc::new(Engine::default());
    *engine.answers.lock() = vec![busy(), busy()];
    let (running, address) = start(&engine, read, &format!("{{{OPTIONS}}}")).await;
    let mut stream = connect(address).await;
    stream.write_all(b"a\nb\n").await.expect("is sent");
    assert_eq!(engine.wait_for(2).await, ["a", "b"]);
    running.shutdown().await;
    assert_eq!(engine.bodies().len(), 2);
}

#[tokio::test]
async fn idle_connections_are_closed_if_that_is_wanted() {
    let engine = Arc::new(Engine::default());
    let yaml = format!("{{{OPTIONS}, connection_idle_timeout: 300ms}}");
    let (running, address) = start(&engine, read, &yaml).await;
    let mut stream = connect(address).await;
    for _ in 0..3 {
        stream.write_all(b"a\n").await.expect("is sent");
        sleep(Duration::from_millis(200)).await;
    }
    stream.write_all(b"b").await.expect("is sent");
    assert!(is_closed(&mut stream).await);
    assert_eq!(engine.wait_for(4).await[3], "b");
    assert_eq!(metric(&*running, "sluice_receiver_connections", &["idled"]), 1.0);
}

/// Scenario: one peer sends a byte now and then and never ends its line, another sends lines.
/// Guarantee: the first one is idle.
#[tokio::test]
async fn a_peer_that_trickles_is_idle() {
    let engine = Arc::new(Engine::default());
    let yaml = format!("{{{OPTIONS}, connection_idle_timeout: 500ms}}");
    let (running, address) = start(&engine, read, &yaml).await;
    let (mut trickling, mut busy) = (connect(address).await, connect(address).await);
    let mut has_ended = false;
    for _ in 0..30 {
        has_ended |= trickling.write_all(b"x").await.is_err();
        busy.write_all(b"line\n").await.expect("is not idle");
        sleep(Duration::from_millis(100)).await;
    }
    assert!(has_ended, "it stays for ever");
    assert_eq!(metric(&*running, "sluice_receiver_connections", &["idled"]), 1.0);
}

/// Guarantee: a record that an operator makes of several lines has lines of one peer only, and its
/// attributes.
#[tokio::test]
async fn operators_keep_peers_apart() {
    let engine = Arc::new(Engine::default());
    let recombine =
        "{type: recombine, combine_field: body, is_last_entry: 'body matches \"end$\"'}";
    let yaml = format!("{{{OPTIONS}, add_attributes: true, operators: [{recombine}]}}");
    let (_running, address) = start(&engine, read, &yaml).await;
    // More of them than chains.
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(connect(address).await);
    }
    for word in ["first", "next", "end"] {
        for (number, stream) in streams.iter_mut().enumerate() {
            let line = format!("{number} {word}\n");
            stream.write_all(line.as_bytes()).await.expect("is sent");
        }
        sleep(Duration::from_millis(150)).await;
    }
    engine.wait_for(10).await;
    for record in engine.records() {
        let text = body(&record);
        let number: usize = text[..1].parse().expect("is a number");
        assert_eq!(text, format!("{number} first\n{number} next\n{number} end"));
        let port = streams[number].local_addr().expect("has one").port();
        assert_eq!(attribute(&record, "net.peer.port"), port.to_string());
    }
}

#[tokio::test]
async fn records_without_operators_have_attributes_too() {
    let engine = Arc::new(Engine::default());
    let yaml = format!("{{{OPTIONS}, attributes: {{env: test}}, resource: {{a: b}}}}");
    let (_running, address) = start(&engine, read, &yaml).await;
    connect(address).await.write_all(b"one\ntwo\n\xff\n").await.expect("is sent");
    assert_eq!(engine.wait_for(3).await, ["one", "two", "\u{fffd}"]);
    assert!(engine.records().iter().all(|record| attribute(record, "env") == "test"));
    let requests = engine.requests.lock();
    let has_resource = |bytes: &[u8]| bytes.windows(4).any(|window| window == b"\x0a\x01a\x12");
    assert!(requests.iter().all(|request| has_resource(&request.payload.bytes)));
}

/// Scenario: 100,000 records in an encoding that has to be decoded. Guarantee: each byte is decoded
/// and searched about once: otherwise this takes a minute.
#[tokio::test]
async fn many_records_in_another_encoding_take_no_longer() {
    const RECORDS: usize = 100_000;
    let engine = Arc::new(Engine::default());
    let multiline = "multiline: {line_end_pattern: ';', omit_pattern: true}";
    let yaml = format!("{{{OPTIONS}, encoding: big5, {multiline}}}");
    let (_running, address) = start(&engine, read, &yaml).await;
    let mut stream = connect(address).await;
    let began = Instant::now();
    stream.write_all(&b"\xa4\xa4;".repeat(RECORDS)).await.expect("is sent");
    assert!(engine.wait_for(RECORDS).await.iter().all(|body| body == "中"));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// Scenario: a record of half a mebibyte ends with a few bytes that come much later. Guarantee: it
/// is whole, though its end is searched less often while it grows.
#[tokio::test]
async fn the_end_of_a_long_record_is_found() {
    let engine = Arc::new(Engine::default());
    let yaml = format!("{{{OPTIONS}, multiline: {{line_end_pattern: ';'}}}}");
    let (_running, address) = start(&engine, read, &yaml).await;
    let mut stream = connect(address).await;
    let long = "0123456789abcdef".repeat(32 << 10);
    stream.write_all(long.as_bytes()).await.expect("is sent");
    for _ in 0..5 {
        sleep(Duration::from_millis(150)).await;
        stream.write_all(b"x").await.expect("is sent");
    }
    stream.write_all(b";").await.expect("is sent");
    let bodies = timeout(Duration::from_secs(3), engine.wait_for(1)).await.expect("is found");
    assert!(bodies[0] == long + "xxxxx;");
}

/// Scenario: the options allow for longer lines than the memory of the engine. Guarantee: they are
/// cut, and none of their bytes is lost.
#[tokio::test]
async fn lines_that_do_not_fit_into_memory_are_cut() {
    let limit_bytes = Some(1 << 20);
    let engine = Arc::new(Engine { limit_bytes, ..Engine::default() });
    let (_running, address) = start(&engine, read, &format!("{{{OPTIONS}}}")).await;
    let mut stream = connect(address).await;
    let long = "0123456789abcdeä".repeat(60_000);
    stream.write_all(format!("{long}\nnext\n").as_bytes()).await.expect("is sent");
    for _ in 0..1000 {
        if engine.bodies().last().is_some_and(|body| body == "next") {
            break;
        }
        sleep(Duration::from_millis(10)).await;
    }
    let bodies = engine.bodies();
    assert!(bodies.len() > 2 && bodies.concat() == long + "next", "{}", bodies.len());
    assert!(engine.peak_bytes() <= 1 << 20);
}

#[tokio::test]
async fn lines_come_over_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("is made");
    let (certificate, key) = (folder.path().join("c.pem"), folder.path().join("k.pem"));
    std::fs::write(&certificate, own.cert.pem()).expect("is written");
    std::fs::write(&key, own.signing_key.serialize_pem()).expect("is written");
    let engine = Arc::new(Engine::default());
    let yaml = format!(
        "{{{OPTIONS}, add_attributes: true, tls: {{cert_file: {}, key_file: {}}}}}",
        certificate.display(),
        key.display()
    );
    let (running, address) = start(&engine, read, &yaml).await;
    let mut trusted = rustls::RootCertStore::empty();
    trusted.add(own.cert.der().clone()).expect("is one");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("are there");
    let client = builder.with_root_certificates(trusted).with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
    let name = ServerName::try_from("localhost").expect("is a name");
    let connected = connector.connect(name, connect(address).await).await;
    let mut stream = connected.expect("shakes hands");
    stream.write_all(b"message\r\n").await.expect("is sent");
    stream.flush().await.expect("is sent");
    assert_eq!(engine.wait_for(1).await, ["message"]);
    assert_eq!(attribute(&engine.records()[0], "net.host.ip"), "127.0.0.1");
    let mut plain = connect(address).await;
    plain.write_all(b"not encrypted\n").await.expect("is sent");
    assert!(is_closed(&mut plain).await);
    assert_eq!(metric(&*running, "sluice_receiver_connections", &["tls_failure"]), 1.0);
}

#[test]
fn wrong_options_are_errors() {
    for (yaml, why) in [
        ("{}", "listen_address"),
        ("{listen_address: localhost}", "host:port"),
        ("{listen_address: ':1', max_log_size: 1KiB}", "64KiB"),
        ("{listen_address: ':1', max_log_size: -1}", "max_log_size"),
        ("{listen_address: ':1', max_connections: -1}", "max_connections"),
        ("{listen_address: ':1', encoding: utf-9}", "encoding"),
        ("{listen_address: ':1', multiline: {line_start_pattern: '('}}", "line_start_pattern"),
        ("{listen_address: ':1', encoding: nop, multiline: {line_end_pattern: a}}", "nop"),
        ("{listen_address: ':1', operators: [{type: nothing}]}", "nothing"),
    ] {
        let said = config(read, yaml).map(|_| ()).expect_err(yaml);
        assert!(said.contains(why), "{yaml}: {said}");
    }
    // The Collector's own test data.
    let all = "{listen_address: '10.0.0.1:9000', max_log_size: 1MB, add_attributes: true, \
               encoding: utf-8, max_connections: 5, connection_idle_timeout: 30s, \
               multiline: {line_start_pattern: ABC}, tls: {cert_file: foo, key_file: foo2, \
               ca_file: foo3, client_ca_file: foo4}}";
    config(read, all).map(|_| ()).expect("is right");
}
