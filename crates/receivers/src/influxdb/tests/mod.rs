//! Over real connections, with an engine that keeps what it is given.

mod access;
mod endpoints;
mod streaming;
mod waiting;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use parking_lot::Mutex;
use prost::Message;
use sluice_config::read_text;
use sluice_flow::source::{
    ArrivedBody, Ingress, IngressRoute, MemoryPool, Permit, Receipt, Request,
};
use sluice_flow::{BoxFuture, Refusal};
use sluice_net::auth::client::ClientAuths;
use sluice_net::auth::server::ServerAuth;
use sluice_net::server::ServerResources;
use sluice_otlp::Signal;
use sluice_telemetry::exposition::{Exposition, Naming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::receiver::{ReceiverConfig, Streams};

/// Bytes in use, and the most there ever were.
pub(super) struct Pool {
    limit_bytes: usize,
    pub(super) held: AtomicUsize,
    pub(super) peak: AtomicUsize,
    /// Others want what bodies hold that come slowly.
    pub(super) is_asked_back: AtomicBool,
}

impl Pool {
    fn new(limit_bytes: usize) -> Arc<Pool> {
        let (held, peak, is_asked_back) = Default::default();
        Arc::new(Pool { limit_bytes, held, peak, is_asked_back })
    }
}

impl MemoryPool for Pool {
    fn take(&self, held: usize, bytes: usize) -> Result<(), Refusal> {
        if held + bytes > self.limit_bytes {
            return Err(Refusal::TooLarge { reason: "more than there is".to_owned() });
        }
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

    fn asked_back(&self) -> Option<Refusal> {
        let is_asked_back = self.is_asked_back.load(Ordering::SeqCst);
        is_asked_back.then(|| Refusal::overloaded("others wait"))
    }
}

/// The engine's side.
pub(super) struct Engine {
    pub(super) receiving: Arc<Pool>,
    pub(super) waiting: Arc<Pool>,
    pub(super) taken: Mutex<Vec<(u32, Bytes)>>,
    /// Requests are refused for the moment, before they are read.
    pub(super) is_overloaded: AtomicBool,
    /// The refusals of the next requests that are submitted, the last one first.
    pub(super) refusals: Mutex<Vec<Refusal>>,
    /// The process ends.
    pub(super) closed: tokio_util::sync::CancellationToken,
}

impl Engine {
    pub(super) fn new(limit_bytes: usize) -> Arc<Engine> {
        let (taken, is_overloaded, refusals, closed) = Default::default();
        let (receiving, waiting) = (Pool::new(limit_bytes), Pool::new(limit_bytes));
        Arc::new(Engine { receiving, waiting, taken, is_overloaded, refusals, closed })
    }

    /// Nothing is in use any more.
    pub(super) fn assert_is_free(&self) {
        for pool in [&self.receiving, &self.waiting] {
            assert_eq!(pool.held.load(Ordering::SeqCst), 0);
        }
    }

    /// Points of all requests.
    pub(super) fn points(&self) -> u64 {
        self.taken.lock().iter().map(|(points, _)| u64::from(*points)).sum()
    }

    pub(super) fn requests(&self) -> Vec<ExportMetricsServiceRequest> {
        let taken = self.taken.lock();
        let decode = |(_, bytes): &(u32, Bytes)| {
            ExportMetricsServiceRequest::decode(bytes.clone()).expect("is valid")
        };
        taken.iter().map(decode).collect()
    }

    /// The attributes of the last request's resource.
    pub(super) fn resource(&self) -> Vec<(String, String)> {
        let requests = self.requests();
        let last = requests.last().expect("there is one");
        let resource = last.resource_metrics[0].resource.as_ref().expect("has one");
        let text = |attribute: &opentelemetry_proto::tonic::common::v1::KeyValue| {
            let value = attribute.value.clone().and_then(|value| value.value);
            use opentelemetry_proto::tonic::common::v1::any_value::Value::StringValue;
            let Some(StringValue(value)) = value else { panic!("no text: {value:?}") };
            (attribute.key.clone(), value)
        };
        resource.attributes.iter().map(text).collect()
    }
}

struct Shared(Arc<Engine>);

impl Ingress for Shared {
    fn route(&self, signal: Signal) -> Option<Arc<dyn IngressRoute>> {
        (signal == Signal::Metrics).then(|| Arc::new(Shared(self.0.clone())) as _)
    }

    fn waiting(&self, _: bool) -> Arc<dyn MemoryPool> {
        self.0.waiting.clone()
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.0.closed.clone().cancelled_owned())
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
        if self.0.is_overloaded.load(Ordering::SeqCst) {
            let delay = Duration::from_millis(20);
            return Err(Refusal::Retry { delay, reason: "deliveries are behind".to_owned() });
        }
        Permit::take(self.0.receiving.clone(), bytes)
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
        if let Some(refusal) = self.0.refusals.lock().pop() {
            return Err(refusal);
        }
        let bytes = request.payload.bytes;
        assert_eq!(sluice_otlp::scan(Signal::Metrics, &bytes), Ok(request.items));
        self.0.taken.lock().push((request.items, bytes));
        Ok(Receipt::default())
    }
}

pub(super) async fn start(engine: &Arc<Engine>, options: &str) -> Box<dyn StartedReceiver> {
    start_with(engine, options, HashMap::new()).await
}

pub(super) async fn start_with(
    engine: &Arc<Engine>,
    options: &str,
    authenticators: HashMap<String, Arc<dyn ServerAuth>>,
) -> Box<dyn StartedReceiver> {
    let yaml = format!("{{endpoint: '127.0.0.1:0', {options}}}");
    let (config, diagnostics) = read_text("receivers.influxdb", &yaml, InfluxConfig::read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let context = ReceiverContext {
        ingress: Arc::new(Shared(engine.clone())),
        authenticators,
        client_authenticators: ClientAuths::default(),
        user_agent: "sluice/test",
        resources: ServerResources::unlimited(),
        counters: None,
        streams: Streams::default(),
    };
    let bound = config.bind(BindContext { id: "it", ..BindContext::default() }).await;
    bound.unwrap_or_else(|error| panic!("{error}")).serve(context)
}

pub(super) async fn connect(receiver: &dyn StartedReceiver) -> TcpStream {
    TcpStream::connect(&receiver.addresses()[0].1).await.expect("connects")
}

/// The answer as it came.
pub(super) async fn read(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("reads");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends one request. `head`: its first line up to the version, and headers behind line breaks.
pub(super) async fn send(receiver: &dyn StartedReceiver, head: &str, body: &[u8]) -> String {
    let mut stream = connect(receiver).await;
    let (line, headers) = head.split_once('\n').unwrap_or((head, ""));
    let headers: String = headers.lines().map(|header| format!("{header}\r\n")).collect();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await.expect("writes");
    read(stream).await
}

/// The status and the body of an answer.
pub(super) fn parts(answer: &str) -> (u16, &str) {
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status.unwrap_or(0), body)
}

/// Waits until something holds.
pub(super) async fn until(holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not come");
}

/// The receiver's metrics.
pub(super) fn metrics(receiver: &dyn StartedReceiver) -> String {
    let naming = Naming::default();
    let mut exposition = Exposition::new(&naming);
    receiver.counters().write("it", &mut exposition);
    exposition.render()
}

/// The value of a metric with these words in its line.
pub(super) fn metric(receiver: &dyn StartedReceiver, words: &[&str]) -> f64 {
    let text = metrics(receiver);
    let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
    let mut found = text.lines().filter(|line| !line.starts_with('#')).filter(has_all);
    let line = found.next().unwrap_or_else(|| panic!("no {words:?} in {text}"));
    assert!(found.next().is_none(), "several {words:?} in {text}");
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}
