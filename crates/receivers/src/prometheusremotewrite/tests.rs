//! Over a real connection, with an engine that keeps what it is given.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_config::read_text;
use sluice_flow::Refusal;
use sluice_flow::source::{
    ArrivedBody, Ingress, IngressRoute, MemoryPool, Permit, Receipt, Request,
};
use sluice_net::auth::client::ClientAuths;
use sluice_net::compress::{compress, compress_snappy_block};
use sluice_net::server::ServerResources;
use sluice_otlp::wire::write_len_field;
use sluice_telemetry::exposition::{Exposition, Naming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::receiver::Streams;

mod prometheus;

/// The engine's side.
struct Intake {
    limit_bytes: usize,
    held: AtomicUsize,
    peak: AtomicUsize,
    taken: Mutex<Vec<(u32, Bytes)>>,
}

impl Intake {
    fn new(limit_bytes: usize) -> Arc<Intake> {
        let (held, peak, taken) = Default::default();
        Arc::new(Intake { limit_bytes, held, peak, taken })
    }
}

struct Shared(Arc<Intake>);

impl MemoryPool for Intake {
    fn take(&self, _: usize, bytes: usize) -> Result<(), Refusal> {
        let held = self.held.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if held > self.limit_bytes {
            self.held.fetch_sub(bytes, Ordering::SeqCst);
            return Err(Refusal::overloaded("memory is short"));
        }
        self.peak.fetch_max(held, Ordering::SeqCst);
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::SeqCst);
    }
}

impl Ingress for Shared {
    fn route(&self, signal: Signal) -> Option<Arc<dyn IngressRoute>> {
        (signal == Signal::Metrics).then(|| Arc::new(Shared(self.0.clone())) as _)
    }

    fn waiting(&self, _: bool) -> Arc<dyn MemoryPool> {
        self.0.clone()
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
        Permit::take(self.0.clone(), bytes)
    }

    fn judge_again(&self, _: &Permit) -> Result<(), Refusal> {
        Ok(())
    }

    fn keeps_compressed(&self, _: sluice_otlp::Encoding, _: usize) -> bool {
        true
    }

    fn metadata_keys(&self) -> &[String] {
        &[]
    }

    fn submit(self: Arc<Self>, request: Request, permit: Permit) -> Result<Receipt, Refusal> {
        assert!(permit.bytes() >= request.payload.bytes.len());
        assert!(request.ranges.is_none(), "remote write has none");
        self.0.taken.lock().push((request.items, request.payload.bytes));
        Ok(Receipt::default())
    }
}

async fn start(intake: &Arc<Intake>, options: &str) -> Box<dyn StartedReceiver> {
    let yaml = format!("{{endpoint: '127.0.0.1:0', {options}}}");
    let (config, diagnostics) =
        read_text("receivers.prometheusremotewrite", &yaml, RemoteWriteConfig::read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let context = ReceiverContext {
        ingress: Arc::new(Shared(intake.clone())),
        authenticators: Default::default(),
        client_authenticators: ClientAuths::default(),
        user_agent: "sluice/test",
        resources: ServerResources::unlimited(),
        counters: None,
        streams: Streams::default(),
    };
    let bound = config.bind(BindContext { id: "it", ..BindContext::default() }).await;
    bound.unwrap_or_else(|error| panic!("{error}")).serve(context)
}

/// Sends one request; the answer in lower case.
async fn post(receiver: &dyn StartedReceiver, head: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(&receiver.addresses()[0].1).await.expect("connects");
    let head =
        format!("{head}\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat()).await.expect("writes");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("reads");
    String::from_utf8_lossy(&answer).to_lowercase()
}

const V1: &str = "POST /api/v1/write HTTP/1.1\r\ncontent-type: application/x-protobuf";
const V2: &str = "POST /api/v1/write HTTP/1.1\r\ncontent-type: \
                  application/x-protobuf;proto=io.prometheus.write.v2.Request";

fn message(fields: &[(u32, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, content) in fields {
        write_len_field(&mut out, *number, content);
    }
    out
}

/// One sample of 1.0 with these labels.
fn v1(labels: &[(&str, &str)]) -> Vec<u8> {
    let mut series = Vec::new();
    for (name, value) in labels {
        let label = message(&[(1, name.as_bytes()), (2, value.as_bytes())]);
        write_len_field(&mut series, 1, &label);
    }
    write_len_field(&mut series, 2, &[0x10, 5]);
    message(&[(1, &series)])
}

fn snappy(message: &[u8]) -> Bytes {
    compress_snappy_block(&[Bytes::copy_from_slice(message)]).expect("compresses")
}

#[tokio::test]
async fn both_versions_and_their_compressions_are_taken() {
    let intake = Intake::new(1 << 20);
    let receiver = start(&intake, "").await;
    let plain = v1(&[("__name__", "up")]);
    let zstd = compress(sluice_otlp::Encoding::Zstd, &[plain.clone().into()], None);
    let zstd = zstd.expect("compresses");
    for (encoding, body) in [("snappy", &*snappy(&plain)), ("zstd", &zstd), ("identity", &plain)] {
        let encoding = if encoding == "identity" {
            String::new()
        } else {
            format!("\r\ncontent-encoding: {encoding}")
        };
        let answer = post(&*receiver, &format!("{V1}{encoding}"), body).await;
        assert!(answer.starts_with("http/1.1 204"), "{encoding} {answer}");
        assert!(!answer.contains("-written"), "{answer}");
    }
    let two =
        [message(&[(1, &[1, 2]), (2, &[0x10, 5])]), message(&[(1, &[1, 9]), (2, &[0x10, 5])])];
    let mut body = message(&[(4, b""), (4, b"__name__"), (4, b"up"), (5, &two[0])]);
    let answer = post(&*receiver, V2, &body).await;
    assert!(answer.starts_with("http/1.1 204"), "{answer}");
    for (what, number) in [("samples", 1), ("histograms", 0), ("exemplars", 0)] {
        let line = format!("x-prometheus-remote-write-{what}-written: {number}\r\n");
        assert!(answer.contains(&line), "{answer}");
    }
    // The second of two series is at fault: the first one is taken.
    write_len_field(&mut body, 5, &two[1]);
    let answer = post(&*receiver, V2, &body).await;
    assert!(answer.starts_with("http/1.1 400"), "{answer}");
    assert!(answer.contains("samples-written: 1\r\n") && answer.contains("no symbol"), "{answer}");
    let taken = intake.taken.lock().clone();
    assert_eq!(taken.len(), 5);
    for (items, payload) in taken {
        assert_eq!(sluice_otlp::scan(Signal::Metrics, &payload), Ok(items));
        assert_eq!(items, 1);
    }
    receiver.shutdown().await;
    assert_eq!(intake.held.load(Ordering::SeqCst), 0);
}

/// Scenario: a request has the header by which a Sluice names over OTLP what it may send twice.
/// Guarantee: it is taken as without: no document of remote write knows the header.
#[tokio::test]
async fn ranges_are_none_of_remote_write() {
    let intake = Intake::new(1 << 20);
    let receiver = start(&intake, "").await;
    let head = format!("{V1}\r\nsluice-range: 1;00000000000000000000000000000001:9+4");
    let answer = post(&*receiver, &head, &v1(&[("__name__", "up")])).await;
    assert!(answer.starts_with("http/1.1 204"), "{answer}");
    assert_eq!(intake.taken.lock().len(), 1);
}

#[tokio::test]
async fn what_is_no_remote_write_is_refused() {
    let intake = Intake::new(1 << 20);
    let receiver = start(&intake, "max_request_body_size: 1000").await;
    let good = v1(&[("__name__", "up")]);
    let large = v1(&[("__name__", &"x".repeat(2000))]);
    let with = |more: &str| format!("{V1}\r\n{more}");
    let get = "GET /api/v1/write HTTP/1.1".to_owned();
    let elsewhere = "POST /v1/metrics HTTP/1.1".to_owned();
    let json = "POST /api/v1/write HTTP/1.1\r\ncontent-type: application/json".to_owned();
    for (head, body, status) in [
        (get, &good[..], 405),
        (elsewhere, &good, 404),
        (json, &good, 415),
        (format!("{V1};proto=prometheus.WriteRequestV3"), &good, 415),
        (with("content-encoding: br"), &good, 415),
        (with("content-encoding: snappy"), b"\xff\xff\xff\xff\x0fno block", 400),
        (with("content-encoding: snappy"), &snappy(&large), 413),
        (V1.to_owned(), &large, 413),
        (V1.to_owned(), b"\x0a\xff", 400),
        (V1.to_owned(), &v1(&[("no", "name")]), 400),
    ] {
        let answer = post(&*receiver, &head, body).await;
        assert!(answer.starts_with(&format!("http/1.1 {status}")), "{head} {answer}");
    }
    assert!(intake.taken.lock().is_empty());
    let naming = Naming::default();
    let mut exposition = Exposition::new(&naming);
    receiver.counters().write("it", &mut exposition);
    let text = exposition.render();
    for line in ["reason=\"invalid\"", "signal=\"metrics\"", "transport=\"http\""] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains("grpc") && !text.contains("traces"), "{text}");
}

/// Scenario: small bodies that inflate, or become OTLP, beyond the memory for receiving. Guarantee:
/// they are refused before that memory is used, and senders may come back.
#[tokio::test]
async fn memory_is_asked_for_before_it_is_used() {
    let intake = Intake::new(200_000);
    let receiver = start(&intake, "").await;
    let zeros = v1(&[("__name__", &"x".repeat(1 << 20))]);
    let long = "x".repeat(2000);
    let mut labels = message(&[(1, b"__name__"), (2, b"up")]);
    labels = message(&[(1, &labels), (1, &message(&[(1, b"a"), (2, long.as_bytes())]))]);
    for _ in 0..1000 {
        write_len_field(&mut labels, 2, &[0x10, 5]);
    }
    let many_samples = message(&[(1, &labels)]);
    for body in [&zeros, &many_samples] {
        let head = format!("{V1}\r\ncontent-encoding: snappy");
        let answer = post(&*receiver, &head, &snappy(body)).await;
        assert!(answer.starts_with("http/1.1 503") && answer.contains("retry-after"), "{answer}");
    }
    assert!(intake.peak.load(Ordering::SeqCst) <= 200_000);
    receiver.shutdown().await;
    assert_eq!(intake.held.load(Ordering::SeqCst), 0);
}
