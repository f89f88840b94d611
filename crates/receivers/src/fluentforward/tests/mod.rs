//! The engine's side of the receiver, and messages for it.

mod conversations;
mod records;
mod refusals;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
use sluice_net::forward::handshake::{Client, SharedSecret, User};
use sluice_net::forward::message::{read_ack, write_event_time, write_packed};
use sluice_net::forward::msgpack::{Scanner, Write as _};
use sluice_net::server::ServerResources;
use sluice_otlp::{Encoding, Signal};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::batch::{Batch, Piece};
use super::config::FluentForwardConfig;
use super::refused::Reason;
use crate::receiver::{
    BindContext, ReceiverConfig as _, ReceiverContext, StartedReceiver, Streams,
};

/// The engine's side: what it took, and refusals that it gives first.
#[derive(Default)]
struct Intake {
    taken: Mutex<Vec<Request>>,
    refusals: Mutex<Vec<Refusal>>,
    /// Of requests that ask for memory.
    admissions: Mutex<Vec<Refusal>>,
    used_bytes: AtomicUsize,
    limit_bytes: Option<usize>,
    is_mute: bool,
    /// Answers that receipts give first.
    answers: Mutex<Vec<Refusal>>,
    /// The memory for requests that wait.
    waiting: Arc<Waiting>,
    /// Requests with records of this text are refused for good.
    poison: Option<&'static str>,
    /// Time that submitting takes, and how many did at a time.
    submitting_takes: Duration,
    submitting: AtomicUsize,
    most_submitting: AtomicUsize,
    /// Reloads that took the routes of before away.
    reloads: AtomicUsize,
    /// It takes nothing more: for now, and once `has_ended`.
    is_closed: AtomicBool,
    has_ended: CancellationToken,
}

#[derive(Default)]
struct Waiting {
    used_bytes: AtomicUsize,
    limit_bytes: Option<usize>,
}

impl MemoryPool for Waiting {
    fn take(&self, _: usize, bytes: usize) -> Result<(), Refusal> {
        let used = self.used_bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if self.limit_bytes.is_some_and(|limit| used > limit) {
            self.give_back(bytes);
            return Err(overloaded());
        }
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::SeqCst);
    }
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

/// The intake, and the reloads that there were when the route was asked for.
struct Shared(Arc<Intake>, usize);

impl Ingress for Shared {
    fn route(&self, signal: Signal) -> Option<Arc<dyn IngressRoute>> {
        let reloads = self.0.reloads.load(Ordering::SeqCst);
        (signal == Signal::Logs).then(|| Arc::new(Shared(Arc::clone(&self.0), reloads)) as _)
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.0.has_ended.clone().cancelled_owned())
    }

    fn waiting(&self, _: bool) -> Arc<dyn MemoryPool> {
        Arc::clone(&self.0.waiting) as _
    }
}

impl IngressRoute for Shared {
    fn admit<'a>(
        &'a self,
        bytes: usize,
        _: &'a ArrivedBody,
    ) -> BoxFuture<'a, Result<Permit, Refusal>> {
        let refusal = self.0.admissions.lock().pop();
        Box::pin(async move { refusal.map_or_else(|| self.admit_at_once(bytes), Err) })
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
        let is_gone = self.0.reloads.load(Ordering::SeqCst) > self.1;
        if is_gone || self.0.is_closed.load(Ordering::SeqCst) {
            return Err(overloaded());
        }
        let at_a_time = self.0.submitting.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most_submitting.fetch_max(at_a_time, Ordering::SeqCst);
        std::thread::sleep(self.0.submitting_takes);
        self.0.submitting.fetch_sub(1, Ordering::SeqCst);
        let is_poison = |record: &LogRecord| body(record) == self.0.poison.and_then(text);
        if self.0.poison.is_some() && records(&request.payload.bytes).iter().any(is_poison) {
            return Err(Refusal::Rejected { reason: "poison".to_owned() });
        }
        let refusal = self.0.answers.lock().pop();
        // A request that a receipt refuses with `Retry` is not in the log.
        if !matches!(refusal, Some(Refusal::Retry { .. })) {
            self.0.taken.lock().push(request);
        }
        let answer: Option<BoxFuture<'static, _>> = match refusal {
            Some(refusal) => Some(Box::pin(std::future::ready(Err(refusal)))),
            None if self.0.is_mute => Some(Box::pin(std::future::pending())),
            None => None,
        };
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

/// Converts messages with as much memory as they take.
fn converted(messages: &[&[u8]], limit_bytes: usize) -> Vec<Piece> {
    let bytes = Bytes::from(messages.concat());
    let ends = messages.iter().scan(0, |end, message| {
        *end += message.len();
        Some(*end)
    });
    let batch = Batch::new(bytes, ends.collect());
    let intake = Arc::new(Intake::default());
    let mut permit = Permit::take(Arc::clone(&intake) as _, batch.bytes.len()).expect("fits");
    let (mut pieces, mut from) = (Vec::<Piece>::new(), 0);
    while from < batch.len() {
        permit.shrink_to(batch.bytes.len());
        let piece = batch.convert(from..batch.len(), &mut permit, limit_bytes);
        let piece = piece.unwrap_or_else(|refused| panic!("{refused:?}"));
        assert!(permit.bytes() >= batch.bytes.len() + piece.payload.len());
        assert_eq!(records(&piece.payload).len(), piece.items as usize);
        from += piece.len();
        pieces.push(piece);
    }
    pieces
}

/// The records of all messages, or why one is refused.
fn convert(messages: &[&[u8]], limit_bytes: usize) -> Result<Vec<LogRecord>, Reason> {
    let mut all = Vec::new();
    for piece in converted(messages, limit_bytes) {
        if let Some(refused) = piece.refused {
            return Err(refused.why.reason);
        }
        all.extend(records(&piece.payload));
    }
    Ok(all)
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

async fn start(intake: &Arc<Intake>, options: &str) -> (Box<dyn StartedReceiver>, TcpStream) {
    let yaml = format!("{{endpoint: '127.0.0.1:0', {options}}}");
    let (config, diagnostics) =
        read_text("receivers.fluentforward", &yaml, FluentForwardConfig::read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let context = ReceiverContext {
        ingress: Arc::new(Shared(Arc::clone(intake), 0)),
        authenticators: Default::default(),
        client_authenticators: ClientAuths::default(),
        user_agent: "sluice/test",
        resources: ServerResources::unlimited(),
        counters: None,
        streams: Streams::default(),
    };
    let bound = config.bind(BindContext { id: "fluentforward", ..BindContext::default() }).await;
    let running = bound.unwrap_or_else(|error| panic!("{error}")).serve(context);
    let address = &running.addresses()[0].1;
    let stream = TcpStream::connect(address).await.expect("connects");
    (running, stream)
}

/// The next value, or nothing if the connection ends.
async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
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
