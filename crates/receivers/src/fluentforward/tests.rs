//! Conversion of records as the Collector's receiver does it, and whole conversations.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use parking_lot::Mutex;
use prost::Message as _;
use sluice_config::{Secret, read_text};
use sluice_flow::source::{
    ArrivedBody, Ingress, IngressRoute, MemoryPool, Permit, Receipt, Request,
};
use sluice_flow::{BoxFuture, Refusal};
use sluice_net::auth::client::ClientAuths;
use sluice_net::compress::compress;
use sluice_net::forward::handshake::{Client, SharedSecret, User};
use sluice_net::forward::message::{read_ack, write_event_time, write_packed};
use sluice_net::forward::msgpack::{Scanner, Write as _};
use sluice_net::server::ServerResources;
use sluice_otlp::{Encoding, Signal};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::config::FluentForwardConfig;
use super::records::Batch;
use super::refused::Reason;
use crate::receiver::{
    BindContext, ReceiverConfig as _, ReceiverContext, StartedReceiver, Streams,
};

/// The engine's side: what it took, and refusals that it gives first.
#[derive(Default)]
struct Intake {
    taken: Mutex<Vec<Request>>,
    refusals: Mutex<Vec<Refusal>>,
    used_bytes: AtomicUsize,
    limit_bytes: Option<usize>,
    is_mute: bool,
    /// Of the memory for requests that wait.
    waiting_limit_bytes: Option<usize>,
}

impl MemoryPool for Intake {
    fn take(&self, _: usize, bytes: usize) -> Result<(), Refusal> {
        let used = self.used_bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if self.limit_bytes.is_some_and(|limit| used > limit) {
            self.give_back(bytes);
            return Err(Refusal::TooLarge { reason: "it can never fit".to_owned() });
        }
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::SeqCst);
    }
}

struct Shared(Arc<Intake>);

impl Ingress for Shared {
    fn route(&self, signal: Signal) -> Option<Arc<dyn IngressRoute>> {
        (signal == Signal::Logs).then(|| Arc::new(Shared(Arc::clone(&self.0))) as _)
    }

    fn waiting(&self, _: bool) -> Arc<dyn MemoryPool> {
        Arc::new(Intake { limit_bytes: self.0.waiting_limit_bytes, ..Intake::default() })
    }
}

impl IngressRoute for Shared {
    fn admit<'a>(
        &'a self,
        bytes: usize,
        _: &'a ArrivedBody,
    ) -> BoxFuture<'a, Result<Permit, Refusal>> {
        Box::pin(async move { self.admit_at_once(bytes) })
    }

    fn admit_at_once(&self, bytes: usize) -> Result<Permit, Refusal> {
        Permit::take(Arc::clone(&self.0) as _, bytes)
    }

    fn judge_again(&self, _: &Permit) -> Result<(), Refusal> {
        Ok(())
    }

    fn keeps_compressed(&self, _: Encoding, _: usize) -> bool {
        false
    }

    fn metadata_keys(&self) -> &[String] {
        &[]
    }

    fn submit(self: Arc<Self>, request: Request, _: Permit) -> Result<Receipt, Refusal> {
        if let Some(refusal) = self.0.refusals.lock().pop() {
            return Err(refusal);
        }
        self.0.taken.lock().push(request);
        let answer: BoxFuture<'static, _> = Box::pin(std::future::pending());
        let answer = self.0.is_mute.then_some(answer);
        Ok(Receipt { answer, ..Receipt::default() })
    }
}

fn overloaded() -> Refusal {
    Refusal::Retry { delay: Duration::from_millis(20), reason: "busy".to_owned() }
}

impl Intake {
    fn records(&self) -> Vec<LogRecord> {
        let taken = self.taken.lock();
        let records = taken.iter().flat_map(|request| {
            let records = records(&request.payload.bytes);
            assert_eq!(records.len(), request.items as usize);
            records
        });
        records.collect()
    }
}

fn records(payload: &[u8]) -> Vec<LogRecord> {
    let counted = sluice_otlp::scan(Signal::Logs, payload).expect("is valid");
    let request = ExportLogsServiceRequest::decode(payload).expect("is a request");
    let scopes = request.resource_logs.into_iter().flat_map(|resource| resource.scope_logs);
    let records: Vec<_> = scopes.flat_map(|scope| scope.log_records).collect();
    assert_eq!(records.len(), counted as usize);
    records
}

/// Converts messages with as much memory as they take, and says how much was in use at most.
fn convert(messages: &[&[u8]], limit_bytes: usize) -> Result<Vec<LogRecord>, Reason> {
    let bytes = Bytes::from(messages.concat());
    let ends = messages.iter().scan(0, |end, message| {
        *end += message.len();
        Some(*end)
    });
    let batch = Batch::new(bytes, ends.collect()).map_err(|refused| refused.reason)?;
    let intake = Arc::new(Intake::default());
    let mut permit = Permit::take(Arc::clone(&intake) as _, batch.bytes.len()).expect("fits");
    let converted = batch.convert(&mut permit, limit_bytes).map_err(|refused| refused.reason)?;
    assert!(permit.bytes() >= converted.payload.len());
    let records = records(&converted.payload);
    assert_eq!(records.len(), converted.items as usize);
    Ok(records)
}

/// `[tag, time, record]` or the entries of a list.
fn single(tag: &str, record: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    out.write_array(3);
    out.write_str(tag);
    out.write_int(5000);
    record(&mut out);
    out
}

/// Events of which each has its number as its text.
fn events(numbers: std::ops::Range<i64>) -> Vec<u8> {
    let mut out = Vec::new();
    for number in numbers {
        out.write_array(2);
        write_event_time(&mut out, number as u64);
        out.write_map(1);
        out.write_str("log");
        out.write_str(&number.to_string());
    }
    out
}

fn packed(numbers: std::ops::Range<i64>, chunk: Option<&str>) -> Vec<u8> {
    let mut out = Vec::new();
    write_packed(&mut out, "t", &events(numbers), 0, chunk, false);
    out
}

fn text(value: &str) -> Option<Value> {
    Some(Value::StringValue(value.to_owned()))
}

fn pair(key: &str, value: Option<Value>) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value }), ..KeyValue::default() }
}

fn body(record: &LogRecord) -> Option<Value> {
    record.body.clone().and_then(|body| body.value)
}

/// The Collector's own test of attribute types.
#[test]
fn values_of_all_types_become_attributes_as_in_the_collector() {
    let message = single("my-tag", |out| {
        out.write_map(12);
        let values: [(&str, &[u8]); 7] = [
            ("a", &[0xcb, 0x40, 0x14, 0, 0, 0, 0, 0, 0]),
            ("b", &[0xca, 0x40, 0xc0, 0, 0]),
            ("c", &[0xc3]),
            ("d", &[0xd0, 0xff]),
            ("k", &[0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            ("m", &[0xc4, 3, 1, 0x65, 2]),
            ("x", &[0xd4, 9, 7]),
        ];
        for (key, value) in values {
            out.write_str(key);
            out.extend_from_slice(value);
        }
        // A name may be a binary.
        out.write_bin(b"n");
        out.write_array(2);
        out.write_str("first");
        out.write_nil();
        out.write_str("o");
        out.write_map(1);
        out.write_str("p");
        out.write_int(24);
        out.write_str("p");
        out.write_nil();
        out.write_str("message");
        out.write_str("earlier");
        out.write_str("log");
        out.write_str("later");
    });
    let records = convert(&[&message], 1 << 20).expect("is taken");
    let array = ArrayValue { values: vec![AnyValue { value: text("first") }, AnyValue::default()] };
    let map = KeyValueList { values: vec![pair("p", Some(Value::IntValue(24)))] };
    let expected = vec![
        pair("fluent.tag", text("my-tag")),
        pair("a", Some(Value::DoubleValue(5.0))),
        pair("b", Some(Value::DoubleValue(6.0))),
        pair("c", Some(Value::BoolValue(true))),
        pair("d", Some(Value::IntValue(-1))),
        pair("k", text("18446744073709551615")),
        pair("m", text("\u{1}e\u{2}")),
        pair("x", Some(Value::BytesValue(vec![7]))),
        pair("n", Some(Value::ArrayValue(array))),
        pair("o", Some(Value::KvlistValue(map))),
        pair("p", None),
    ];
    assert_eq!(records[0].attributes, expected);
    assert_eq!(records[0].time_unix_nano, 5_000_000_000_000);
    assert_eq!((body(&records[0]), records[0].observed_time_unix_nano), (text("later"), 0));
}

/// Guarantee: of fields with the same name the last one counts. The tag of a single event is the
/// first field, that of others the last.
#[test]
fn the_last_of_several_fields_counts() {
    let record = |out: &mut Vec<u8>| {
        out.write_map(5);
        for (key, value) in [("a", "1"), ("fluent.tag", "mine"), ("b", "2"), ("a", "3")] {
            out.write_str(key);
            out.write_str(value);
        }
        out.write_str("log");
        out.write_map(0);
    };
    let alone = single("t", record);
    let mut listed = Vec::new();
    listed.write_array(2);
    listed.write_str("t");
    listed.write_array(1);
    listed.write_array(2);
    listed.write_int(1);
    record(&mut listed);
    let records = convert(&[&alone, &listed], 1 << 20).expect("are taken");
    let pairs = |record: &LogRecord| record.attributes.clone();
    let [mine, b, a] =
        [("fluent.tag", "mine"), ("b", "2"), ("a", "3")].map(|(key, value)| pair(key, text(value)));
    assert_eq!(pairs(&records[0]), [mine, b.clone(), a.clone()]);
    assert_eq!(pairs(&records[1]), [b, a, pair("fluent.tag", text("t"))]);
    assert_eq!(body(&records[0]), Some(Value::KvlistValue(KeyValueList::default())));
}

#[test]
fn strings_that_are_not_utf8_are_repaired_and_long_ones_kept() {
    let long = "ä".repeat(100_000);
    let message = single("t", |out| {
        out.write_map(2);
        out.write_str("log");
        out.write_str(&long);
        out.write_bin(b"a\xff\xfe");
        out.write_bin(b"\xc3");
    });
    let records = convert(&[&message], 1 << 20).expect("is taken");
    assert_eq!(body(&records[0]), text(&long));
    assert_eq!(records[0].attributes[1], pair("a??", text("?")));
}

#[test]
fn compressed_events_are_unpacked_and_limited() {
    let plain = Bytes::from(events(0..5000));
    for (name, encoding) in [("gzip", Encoding::Gzip), ("zstd", Encoding::Zstd)] {
        let half = plain.len() / 2;
        // Concatenated members are one stream.
        let members = [plain.slice(..half), plain.slice(half..)];
        let members = members.map(|it| compress(encoding, &[it], None).expect("is compressed"));
        let mut message = Vec::new();
        write_packed(&mut message, "t", &members.concat(), 5000, None, true);
        let at = message.len() - 4;
        message[at..].copy_from_slice(name.as_bytes());
        let records = convert(&[&message], 1 << 20).expect("is taken");
        assert_eq!(records.len(), 5000);
        assert_eq!(body(&records[4999]), text("4999"));
        assert_eq!(convert(&[&message], plain.len() - 1), Err(Reason::TooLarge));
        // It inflates to no more than is allowed, and becomes too large as OTLP.
        assert_eq!(convert(&[&message], plain.len()), Err(Reason::TooLarge));
        message[at..].copy_from_slice(b"lzma");
        assert_eq!(convert(&[&message], 1 << 20), Err(Reason::Invalid));
    }
}

#[test]
fn hostile_records_are_refused() {
    let nested = |levels: usize| {
        single("t", |out| {
            out.write_map(1);
            out.write_str("a");
            for _ in 0..levels {
                out.write_map(1);
                out.write_str("a");
            }
            out.write_nil();
        })
    };
    assert!(convert(&[&nested(30)], 1 << 20).is_ok());
    assert_eq!(convert(&[&nested(31)], 1 << 20), Err(Reason::Invalid));
    let numbers = single("t", |out| {
        out.write_map(1);
        out.write_str("a");
        out.write_array(10_000);
        out.extend_from_slice(&[0xff; 10_000]);
    });
    assert!(convert(&[&numbers], 1 << 20).is_ok());
    assert_eq!(convert(&[&numbers], 20_000), Err(Reason::TooLarge));
    let many = single("t", |out| {
        out.write_map(20_000);
        (0..20_000).for_each(|number| {
            out.write_str(&number.to_string());
            out.write_nil();
        });
    });
    assert_eq!(convert(&[&many], 8 << 20), Err(Reason::Invalid));
    // A long tag is repeated in each record.
    let mut tags = Vec::new();
    write_packed(&mut tags, &"t".repeat(60_000), &events(0..5000), 0, None, false);
    assert_eq!(convert(&[&tags], 4 << 20), Err(Reason::TooLarge));
    for bad in [&[0x93, 0xa1, b't', 1, 0x90][..], &[0x93, 0xa1, b't', 1, 0x81, 1, 1]] {
        assert_eq!(convert(&[bad], 1 << 20), Err(Reason::Invalid));
    }
}

async fn start(intake: &Arc<Intake>, options: &str) -> (Box<dyn StartedReceiver>, TcpStream) {
    let yaml = format!("{{endpoint: '127.0.0.1:0', {options}}}");
    let (config, diagnostics) =
        read_text("receivers.fluentforward", &yaml, FluentForwardConfig::read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let context = ReceiverContext {
        ingress: Arc::new(Shared(Arc::clone(intake))),
        authenticators: Default::default(),
        client_authenticators: ClientAuths::default(),
        user_agent: "sluice/test",
        resources: ServerResources::unlimited(),
        counters: None,
        streams: Streams::default(),
    };
    let bound = config.bind(BindContext { id: "fluentforward", held: &[], checkpoint: None }).await;
    let running = bound.unwrap_or_else(|error| panic!("{error}")).serve(context);
    let address = &running.addresses()[0].1;
    let stream = TcpStream::connect(address).await.expect("connects");
    (running, stream)
}

/// The next value, or nothing if the connection ends.
async fn answer(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        // One byte: what comes next is for the next call.
        let came = timeout(Duration::from_secs(10), stream.read_u8()).await;
        bytes.push(came.expect("in time").ok()?);
        if Scanner::default().scan(&bytes).expect("is MessagePack").is_some() {
            return Some(bytes);
        }
    }
}

#[tokio::test]
async fn chunks_are_acknowledged_once_they_are_accepted() {
    let intake = Arc::new(Intake::default());
    let (running, mut stream) = start(&intake, "").await;
    // In pieces, and larger than is read without being admitted.
    let message = packed(0..5000, Some("id-1"));
    for piece in message.chunks(10_000) {
        stream.write_all(piece).await.expect("is sent");
        tokio::task::yield_now().await;
    }
    let ack = answer(&mut stream).await.expect("is acknowledged");
    assert_eq!(read_ack(&ack), Ok(&b"id-1"[..]));
    assert_eq!(intake.records().len(), 5000);
    // A heartbeat, two messages without a chunk, and one with.
    let several = [&[0xc0], &*packed(0..1, None), &packed(1..2, None), &packed(2..3, Some("2"))];
    stream.write_all(&several.concat()).await.expect("is sent");
    let ack = answer(&mut stream).await.expect("is acknowledged");
    assert_eq!(read_ack(&ack), Ok(&b"2"[..]));
    assert_eq!(intake.records().len(), 5003);
    assert_eq!(intake.taken.lock().len(), 2, "what arrives together is one request");
    drop(stream);
    running.shutdown().await;
    assert_eq!(intake.used_bytes.load(Ordering::SeqCst), 0);
}

/// Guarantee: refused chunks are not acknowledged, the connection ends, and the sender can send
/// them again.
#[tokio::test]
async fn a_refused_chunk_is_not_acknowledged() {
    let intake = Arc::new(Intake::default());
    for refusal in [overloaded(), Refusal::Rejected { reason: "poison".to_owned() }] {
        intake.refusals.lock().push(refusal);
        let (_running, mut stream) = start(&intake, "").await;
        stream.write_all(&packed(0..1, Some("id"))).await.expect("is sent");
        assert_eq!(answer(&mut stream).await, None);
        assert_eq!(intake.records().len(), 0);
    }
}

/// Guarantee: messages whose sender keeps nothing are tried until they are accepted.
#[tokio::test]
async fn messages_without_a_chunk_are_kept_while_they_are_refused() {
    let intake = Arc::new(Intake::default());
    *intake.refusals.lock() = vec![overloaded(); 3];
    let (_running, mut stream) = start(&intake, "").await;
    stream.write_all(&packed(0..1, None)).await.expect("is sent");
    stream.write_all(&packed(1..2, Some("id"))).await.expect("is sent");
    assert!(answer(&mut stream).await.is_some());
    assert_eq!(intake.records().len(), 2);
}

/// Guarantee: while the backend has not taken a chunk, its sender waits.
/// Scenario: a message without a chunk is refused for the moment, and no memory is left in which it
/// could wait. Guarantee: it is not kept, and the next one is taken.
#[tokio::test]
async fn messages_without_a_chunk_are_kept_only_in_memory_for_requests_that_wait() {
    let refusals = Mutex::new(vec![overloaded()]);
    let waiting_limit_bytes = Some(0);
    let intake = Arc::new(Intake { refusals, waiting_limit_bytes, ..Intake::default() });
    let (running, mut stream) = start(&intake, "").await;
    stream.write_all(&packed(0..3, None)).await.expect("is sent");
    while !intake.refusals.lock().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stream.write_all(&packed(3..4, Some("id"))).await.expect("is sent");
    assert!(answer(&mut stream).await.is_some());
    assert_eq!(intake.records().len(), 1);
    running.shutdown().await;
}

#[tokio::test]
async fn a_chunk_that_is_not_accepted_yet_is_not_acknowledged() {
    let intake = Arc::new(Intake { is_mute: true, ..Intake::default() });
    let (_running, mut stream) = start(&intake, "").await;
    stream.write_all(&packed(0..1, Some("id"))).await.expect("is sent");
    let mut byte = [0];
    let answered = timeout(Duration::from_millis(300), stream.read(&mut byte)).await;
    assert!(answered.is_err() && intake.records().len() == 1);
}

/// Scenario: a length that is above the limit, and one that memory cannot have. Guarantee: both are
/// refused by their first bytes, with nothing kept for them.
#[tokio::test]
async fn announced_lengths_are_refused_before_anything_comes() {
    let intake = Arc::new(Intake { limit_bytes: Some(1 << 20), ..Intake::default() });
    for len in [u32::MAX, 2 << 20] {
        let (_running, mut stream) = start(&intake, "").await;
        let mut head = vec![0x92, 0xa1, b't', 0xc6];
        head.extend_from_slice(&len.to_be_bytes());
        stream.write_all(&head).await.expect("is sent");
        assert_eq!(answer(&mut stream).await, None);
        assert_eq!(intake.used_bytes.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn senders_have_to_know_the_key_and_a_user() {
    let intake = Arc::new(Intake::default());
    let options = "security: {shared_key: key, users: [{username: u, password: p}]}";
    for (key, password, is_taken) in
        [("key", "p", true), ("other", "p", false), ("key", "q", false)]
    {
        let (_running, mut stream) = start(&intake, options).await;
        let secret = SharedSecret { key: Secret::new(key), hostname: "sender".to_owned() };
        let user = User { name: "u".to_owned(), password: Secret::new(password) };
        let hello = answer(&mut stream).await.expect("a HELO");
        let greeted = Client::greet(&secret, Some(&user), &hello, [1; 16]);
        let (client, ping) = greeted.expect("is a HELO");
        // A message that comes with the PING is taken once that is answered.
        let all = [&*ping, &packed(0..1, Some("id"))].concat();
        stream.write_all(&all).await.expect("is sent");
        let pong = answer(&mut stream).await.expect("a PONG");
        assert_eq!(client.verdict(&pong).expect("is a PONG").is_ok(), is_taken);
        assert_eq!(answer(&mut stream).await.is_some(), is_taken);
    }
    assert_eq!(intake.records().len(), 1);
    let (_running, mut stream) = start(&intake, options).await;
    answer(&mut stream).await.expect("a HELO");
    stream.write_all(&packed(0..1, Some("id"))).await.expect("is sent");
    assert_eq!(answer(&mut stream).await, None, "without a PING nothing is taken");
}

#[test]
fn wrong_options_are_errors() {
    for (yaml, why) in [
        ("{}", "endpoint"),
        ("{endpoint: 'localhost'}", "host:port"),
        ("{endpoint: 'localhost:1', security: {users: []}}", "shared_key"),
        (
            "{endpoint: 'localhost:1', security: {shared_key: k, users: [{username: u}]}}",
            "password",
        ),
    ] {
        let (_, diagnostics) =
            read_text("receivers.fluentforward", yaml, FluentForwardConfig::read);
        let text = diagnostics.render(false);
        assert!(diagnostics.has_errors() && text.contains(why), "{yaml}: {text}");
    }
    let (config, diagnostics) = read_text(
        "receivers.fluentforward",
        "{endpoint: 'unix:///run/fluent.sock'}",
        FluentForwardConfig::read,
    );
    assert!(!diagnostics.has_errors());
    assert_eq!(config.address.to_string(), "unix:/run/fluent.sock");
}
