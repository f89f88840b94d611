//! Against a listener that speaks the protocol with the codec's other side.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_config::Secret;
use sluice_flow::{Exporter, Outcome, Packed};
use sluice_net::compress::decompress;
use sluice_net::forward::handshake::{Server, SharedSecret, User};
use sluice_net::forward::message::{EventReader, Events, Message, write_ack};
use sluice_net::forward::msgpack::{Item, Scanner, Write as _};
use sluice_otlp::{Encoding, Signal};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::FluentForwardConfig;
use crate::fluent::tests::{request, text};
use crate::tests::{Backend, authority, exporter, kind, packed};

/// Tags and texts of the records that came.
type Seen = Arc<Mutex<Vec<(String, String)>>>;

/// The behaviour of a receiver.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Ack,
    /// It closes the connection after this many acknowledgements.
    AckThenClose(usize),
    /// With much beside the id. The next message is read once the peer has taken it.
    LongAck,
    Silence,
    WrongAck,
    /// A message with this tag ends the connection.
    NotTaken(&'static str),
}

/// More in an acknowledgement than an id.
const PADDING: [u8; 12 << 10] = [b'x'; 12 << 10];

async fn value(stream: &mut (impl AsyncRead + Unpin), held: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut scanner = Scanner::default();
    loop {
        if let Some(end) = scanner.scan(held).ok()? {
            let rest = held.split_off(end);
            return Some(std::mem::replace(held, rest));
        }
        if stream.read_buf(held).await.ok()? == 0 {
            return None;
        }
    }
}

fn note(message: &Message<'_>, seen: &Seen) {
    let Events::Packed(packed) = message.events else { panic!("events are packed") };
    let encoding = message.compressed.map_or(Encoding::Identity, |_| Encoding::Gzip);
    let plain = decompress(encoding, packed, 1 << 20).expect("unpacks");
    let mut events = EventReader::new(Events::Packed(&plain)).expect("are events");
    while let Some(head) = events.next_head().expect("is an event") {
        assert_eq!(head.time_ns, 1_500_000_001);
        let mut record = events.reader;
        events.reader.skip().expect("is a record");
        let Ok(Item::Map(pairs)) = record.item() else { panic!("is a map") };
        for _ in 0..pairs {
            let (Ok(Item::Str(key)), Ok(Item::Str(text))) = (record.item(), record.item()) else {
                panic!("are strings")
            };
            assert_eq!(key, b"log");
            let utf8 = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("is text");
            seen.lock().push((utf8(message.tag), utf8(text)));
        }
    }
}

type Security = Option<(&'static str, &'static str)>;

/// One connection.
async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: Answer,
    security: Security,
    seen: Seen,
) {
    let mut held = Vec::new();
    if let Some((key, password)) = security {
        let secret = SharedSecret { key: Secret::new(key), hostname: "server".to_owned() };
        let users = [User { name: "u".to_owned(), password: Secret::new(password) }];
        let server = Server::new(&secret, &users).expect("there is randomness");
        stream.write_all(&server.hello()).await.expect("is sent");
        let Some(ping) = value(&mut stream, &mut held).await else { return };
        let (pong, refused) = server.answer(&ping).expect("is a PING");
        stream.write_all(&pong).await.expect("is sent");
        if refused.is_some() {
            return;
        }
    }
    let mut acks = 0;
    while let Some(message) = value(&mut stream, &mut held).await {
        let message = Message::read(&message).expect("is one").expect("is no heartbeat");
        note(&message, &seen);
        let chunk = match answer {
            Answer::Silence => continue,
            Answer::AckThenClose(most) if acks >= most => return,
            Answer::NotTaken(tag) if message.tag == tag.as_bytes() => return,
            Answer::WrongAck => Some(&b"other"[..]),
            _ => message.chunk,
        };
        let Some(chunk) = chunk else { continue };
        let mut out = Vec::new();
        write_ack(&mut out, chunk);
        if answer == Answer::LongAck {
            // One more entry stands before the id.
            let ack = out.split_off(1);
            out.clear();
            out.write_map(2);
            out.write_str("more");
            out.write_bin(&PADDING);
            out.extend_from_slice(&ack);
        }
        stream.write_all(&out).await.expect("is sent");
        acks += 1;
    }
}

async fn receiver(answer: Answer, security: Security) -> (Backend, Seen) {
    let seen = Seen::default();
    let taken = seen.clone();
    let serve = move |stream: TcpStream, _| serve(stream, answer, security, taken.clone());
    (Backend::start(serve).await, seen)
}

fn made(backend: &Backend, options: &str) -> Arc<dyn Exporter> {
    exporter("fluentforward", &format!("{{endpoint: '{}', {options}}}", backend.address))
}

fn logs(exporter: &dyn Exporter, bodies: &[&str]) -> Packed {
    let bodies: Vec<_> = bodies.iter().map(|body| text(body)).collect();
    packed(exporter, Signal::Logs, vec![request(&[], &[], &bodies)])
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(tag, text)| ((*tag).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn requests_are_delivered_when_they_are_acknowledged() {
    for options in ["", "compress: gzip", "disable_keep_alives: true"] {
        let (backend, seen) = receiver(Answer::Ack, None).await;
        let exporter = made(&backend, options);
        for _ in 0..2 {
            let request = logs(&*exporter, &["one", "two"]);
            assert_eq!(exporter.send(&request).await, Outcome::Delivered);
        }
        let twice = [("sluice", "one"), ("sluice", "two"), ("sluice", "one"), ("sluice", "two")];
        assert_eq!(*seen.lock(), pairs(&twice), "{options}");
        let connections = if options.starts_with("disable") { 2 } else { 1 };
        assert_eq!(backend.accepted(), connections, "{options}");
    }
}

#[tokio::test]
async fn a_request_without_its_acknowledgement_is_sent_again() {
    for answer in [Answer::AckThenClose(0), Answer::WrongAck] {
        let (backend, _) = receiver(answer, None).await;
        let exporter = made(&backend, "");
        assert_eq!(kind(&exporter.send(&logs(&*exporter, &["one"])).await), "retry");
    }
    let (backend, _) = receiver(Answer::Silence, None).await;
    let exporter = made(&backend, "");
    let request = logs(&*exporter, &["one"]);
    let waits = tokio::time::timeout(Duration::from_millis(200), exporter.send(&request)).await;
    assert!(waits.is_err(), "it is not delivered before it is acknowledged");
    let trusting = made(&backend, "require_ack: false");
    let sent = trusting.send(&logs(&*trusting, &["one"])).await;
    assert_eq!(sent, Outcome::Delivered, "it is when it is written");
}

/// Scenario: a receiver takes all messages of a request but the one in the middle. Guarantee: its
/// neighbours arrive once, and in the end it is taken for the one at fault.
#[tokio::test]
async fn a_message_that_is_never_acknowledged_does_not_repeat_its_neighbours() {
    let (backend, seen) = receiver(Answer::NotTaken("bad"), None).await;
    let exporter = made(&backend, "tag_from: tag");
    let record = |tag: &str| request(&[], &[("tag", text(tag))], &[text("x")]);
    let chunks = ["a", "bad", "b"].map(record).to_vec();
    let request = packed(&*exporter, Signal::Logs, chunks);
    let other = packed(&*exporter, Signal::Logs, vec![record("other")]);
    let mut attempts = 0;
    while kind(&exporter.send(&request).await) == "retry" {
        attempts += 1;
        assert!(attempts < 100, "it goes on for ever");
        assert_eq!(exporter.send(&other).await, Outcome::Delivered);
    }
    assert_eq!(attempts, 8);
    let count = |tag: &str| seen.lock().iter().filter(|(its, _)| its == tag).count();
    assert_eq!((count("a"), count("other")), (1, 8));
    assert!(count("bad") >= 8);
}

/// Guarantee: a connection that the peer has closed meanwhile costs no request.
#[tokio::test]
async fn a_kept_connection_may_have_been_closed() {
    let (backend, seen) = receiver(Answer::AckThenClose(1), None).await;
    let exporter = made(&backend, "");
    for number in ["1", "2", "3"] {
        assert_eq!(exporter.send(&logs(&*exporter, &[number])).await, Outcome::Delivered);
    }
    assert!(seen.lock().len() >= 3 && backend.accepted() == 3);
}

#[tokio::test]
async fn tags_are_taken_from_a_field() {
    let (backend, seen) = receiver(Answer::Ack, None).await;
    let exporter = made(&backend, "tag: other, tag_from: fluent.tag");
    let record = |tag: Option<&str>, body: &str| -> Bytes {
        let tag = tag.map(|tag| ("fluent.tag", text(tag)));
        request(&[], tag.as_slice(), &[text(body)])
    };
    let chunks = [(Some("a"), "1"), (Some("b"), "2"), (Some("a"), "3"), (None, "4")];
    let chunks = chunks.map(|(tag, body)| record(tag, body)).to_vec();
    let request = packed(&*exporter, Signal::Logs, chunks);
    assert_eq!(exporter.send(&request).await, Outcome::Delivered);
    assert_eq!(*seen.lock(), pairs(&[("a", "1"), ("a", "3"), ("b", "2"), ("other", "4")]));
}

/// Scenario: a message for each of many tags, and a receiver that does not read while the answers
/// that it has written find no room. Guarantee: neither waits for the other for ever.
#[tokio::test]
async fn acknowledgements_are_read_while_messages_are_written() {
    const TAGS: usize = 2_000;
    let (backend, seen) = receiver(Answer::LongAck, None).await;
    let exporter = made(&backend, "tag_from: tag, max_request_bytes: 64MiB");
    let body = "y".repeat(16 << 10);
    let record = |tag: usize| request(&[], &[("tag", text(&tag.to_string()))], &[text(&body)]);
    let request = packed(&*exporter, Signal::Logs, (0..TAGS).map(record).collect());
    assert_eq!(request.chunks.len(), TAGS, "more than fits into the buffers of a connection");
    let sent = tokio::time::timeout(Duration::from_secs(30), exporter.send(&request)).await;
    assert_eq!(sent.expect("ends"), Outcome::Delivered);
    assert_eq!(seen.lock().len(), TAGS);
}

#[tokio::test]
async fn both_sides_have_to_know_the_key() {
    let (backend, seen) = receiver(Answer::Ack, Some(("key", "right"))).await;
    let outcome = async |security: &str| {
        let exporter = made(&backend, security);
        exporter.send(&logs(&*exporter, &["one"])).await
    };
    let right = "security: {shared_key: key, username: u, password: right}";
    assert_eq!(outcome(right).await, Outcome::Delivered);
    for wrong in [
        "security: {shared_key: other, username: u, password: right}",
        "security: {shared_key: key, username: u, password: wrong}",
        "security: {shared_key: key}",
        "security: {shared_key: key, self_hostname: server, username: u, password: right}",
    ] {
        assert_eq!(kind(&outcome(wrong).await), "misconfigured", "{wrong}");
    }
    assert_eq!(seen.lock().len(), 1);
}

/// Scenario: a receiver behind TLS, with a shared key. Guarantee: it is sent to if its certificate
/// is trusted, and told of otherwise: the configuration is at fault.
#[tokio::test]
async fn receivers_are_spoken_to_over_tls() {
    let (pem, config) = authority(&[]);
    let seen = Seen::default();
    let (acceptor, taken) = (TlsAcceptor::from(config), seen.clone());
    let backend = Backend::start(move |stream, _| {
        let (acceptor, seen) = (acceptor.clone(), taken.clone());
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            serve(stream, Answer::Ack, Some(("key", "right")), seen).await;
        }
    })
    .await;
    let outcome = async |key: &str, tls: &str| {
        let security = format!("security: {{shared_key: {key}, username: u, password: right}}");
        let exporter = made(&backend, &format!("{security}, {tls}"));
        exporter.send(&logs(&*exporter, &["one"])).await
    };
    let trusted = format!("tls: {{ca_pem: {pem:?}}}");
    assert_eq!(outcome("key", &trusted).await, Outcome::Delivered);
    assert_eq!(outcome("key", "tls: {insecure_skip_verify: true}").await, Outcome::Delivered);
    assert_eq!(seen.lock().len(), 2);
    for (key, tls, why) in [
        ("other", &*trusted, "shared_key mismatch"),
        ("key", "tls: {}", "certificate"),
        ("key", &format!("tls: {{ca_pem: {:?}}}", authority(&[]).0), "certificate"),
        ("key", &format!("tls: {{ca_pem: {pem:?}, server_name_override: b.example}}"), "b.example"),
    ] {
        let refused = outcome(key, tls).await;
        let Outcome::Misconfigured { reason } = refused else { panic!("{tls}: {refused:?}") };
        assert!(reason.contains(why), "{tls}: {reason}");
    }
    // It says nothing that a client without TLS understands.
    let plain = made(&backend, "timeout: 2s");
    let request = logs(&*plain, &["one"]);
    let sent = tokio::time::timeout(Duration::from_secs(5), plain.send(&request)).await;
    assert!(!matches!(sent, Ok(Outcome::Delivered)), "{sent:?}");
    assert_eq!(seen.lock().len(), 2);
}

#[test]
fn wrong_options_are_errors() {
    for (text, why) in [
        ("{}", "endpoint"),
        ("{endpoint: 'https://a:1'}", "without a scheme"),
        ("{endpoint: 'a:1', security: {username: u}}", "shared_key"),
        ("{endpoint: 'a:1', security: {shared_key: k, password: p}}", "username"),
        ("{endpoint: 'a:1', headers: {a: b}}", "headers"),
        ("{endpoint: 'a:1', tag_from: ''}", "must be the name of a field"),
    ] {
        let (_, diagnostics) =
            sluice_config::read_text("exporters.test", text, FluentForwardConfig::read);
        let said = diagnostics.render(false);
        assert!(diagnostics.has_errors() && said.contains(why), "{text}: {said}");
    }
}
