//! A mock of the engine, and receivers that run before it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use parking_lot::Mutex;
use prost::Message as _;
use sluice_config::{Fields, read_text};
use sluice_flow::source::{
    ArrivedBody, Ingress, IngressRoute, MemoryPool, Permit, Receipt, Request,
};
use sluice_flow::{BoxFuture, Refusal};
use sluice_net::auth::client::ClientAuths;
use sluice_net::server::ServerResources;
use sluice_otlp::{Encoding, Signal};
use sluice_telemetry::exposition::{Exposition, Naming};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::NetlogConfig;
use crate::receiver::{
    BindContext, ReceiverConfig as _, ReceiverContext, ReceiverCounters, StartedReceiver, Streams,
};

#[derive(Default)]
pub(crate) struct Engine {
    pub(crate) requests: Mutex<Vec<Request>>,
    /// Refusals that `submit` gives first.
    pub(crate) refusals: Mutex<Vec<Refusal>>,
    /// A request with a record of this body is refused for good.
    pub(crate) poison: Option<&'static str>,
    /// Nothing is admitted.
    pub(crate) is_closed: AtomicBool,
    /// Answers that receipts give first.
    pub(crate) answers: Mutex<Vec<Refusal>>,
    /// It takes nothing more.
    pub(crate) has_ended: CancellationToken,
    /// Submitted requests are not accepted yet.
    pub(crate) is_slow: AtomicBool,
    /// Of requests, and of what waits. Each has the limit.
    pub(crate) used_bytes: [AtomicUsize; 2],
    /// The most that each has been.
    pub(crate) peak_bytes: AtomicUsize,
    pub(crate) limit_bytes: Option<usize>,
}

/// The memory of an engine, for requests or for what waits.
struct Pool(Arc<Engine>, usize);

impl MemoryPool for Pool {
    fn take(&self, held: usize, bytes: usize) -> Result<(), Refusal> {
        let limit = self.0.limit_bytes.unwrap_or(usize::MAX);
        if held.saturating_add(bytes) > limit {
            return Err(Refusal::TooLarge { reason: "it can never fit".to_owned() });
        }
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        let taken =
            self.0.used_bytes[self.1].fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        let before = taken.map_err(|_| busy())?;
        self.0.peak_bytes.fetch_max(before + bytes, Ordering::SeqCst);
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.0.used_bytes[self.1].fetch_sub(bytes, Ordering::SeqCst);
    }

    fn asked_back(&self) -> Option<Refusal> {
        self.0.is_closed.load(Ordering::SeqCst).then(busy)
    }
}

pub(crate) fn busy() -> Refusal {
    Refusal::Retry { delay: Duration::from_millis(10), reason: "busy".to_owned() }
}

struct Door(Arc<Engine>);

impl Ingress for Door {
    fn route(&self, signal: Signal) -> Option<Arc<dyn IngressRoute>> {
        (signal == Signal::Logs).then(|| Arc::new(Door(Arc::clone(&self.0))) as _)
    }

    fn waiting(&self, _: bool) -> Arc<dyn MemoryPool> {
        Arc::new(Pool(Arc::clone(&self.0), 1))
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.0.has_ended.clone().cancelled_owned())
    }
}

impl IngressRoute for Door {
    fn admit<'a>(
        &'a self,
        bytes: usize,
        _: &'a ArrivedBody,
    ) -> BoxFuture<'a, Result<Permit, Refusal>> {
        Box::pin(async move { self.admit_at_once(bytes) })
    }

    fn admit_at_once(&self, bytes: usize) -> Result<Permit, Refusal> {
        if self.0.is_closed.load(Ordering::SeqCst) {
            return Err(busy());
        }
        Permit::take(Arc::new(Pool(Arc::clone(&self.0), 0)), bytes)
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

    fn submit(self: Arc<Self>, request: Request, permit: Permit) -> Result<Receipt, Refusal> {
        assert!(permit.bytes() >= request.payload.bytes.len(), "it was admitted");
        if let Some(refusal) = self.0.refusals.lock().pop() {
            return Err(refusal);
        }
        let is_poison = |record: &LogRecord| self.0.poison.is_some_and(|it| body(record) == it);
        if records(&request).iter().any(is_poison) {
            return Err(Refusal::Invalid { reason: "poison".to_owned() });
        }
        let answer = self.0.answers.lock().pop();
        // A request that a receipt refuses with `Retry` is not in the log.
        if !matches!(answer, Some(Refusal::Retry { .. })) {
            self.0.requests.lock().push(request);
        }
        let pace: BoxFuture<'static, ()> = Box::pin(async move {
            while self.0.is_slow.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(5)).await;
            }
        });
        let answer = answer
            .map(|refusal| -> BoxFuture<'static, _> { Box::pin(std::future::ready(Err(refusal))) });
        Ok(Receipt { pace: Some(pace), answer })
    }
}

fn records(request: &Request) -> Vec<LogRecord> {
    let bytes = &request.payload.bytes;
    assert_eq!(sluice_otlp::scan(Signal::Logs, bytes).ok(), Some(request.items));
    let request = ExportLogsServiceRequest::decode(&bytes[..]).expect("is a request");
    let scopes = request.resource_logs.into_iter().flat_map(|resource| resource.scope_logs);
    scopes.flat_map(|scope| scope.log_records).collect()
}

pub(crate) fn body(record: &LogRecord) -> String {
    match record.body.as_ref().and_then(|body| body.value.clone()) {
        Some(Value::StringValue(text)) => text,
        other => format!("{other:?}"),
    }
}

/// A record's attribute: texts as they are.
pub(crate) fn attribute(record: &LogRecord, key: &str) -> String {
    let found = record.attributes.iter().find(|pair| pair.key == key);
    match found.and_then(|pair| pair.value.as_ref()?.value.clone()) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

impl Engine {
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.iter().map(|used| used.load(Ordering::SeqCst)).sum()
    }

    pub(crate) fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Ordering::SeqCst)
    }

    pub(crate) fn records(&self) -> Vec<LogRecord> {
        self.requests.lock().iter().flat_map(records).collect()
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.records().iter().map(body).collect()
    }

    /// Waits until that many records have come, and returns their bodies.
    pub(crate) async fn wait_for(&self, count: usize) -> Vec<String> {
        for _ in 0..2000 {
            let came: u32 = self.requests.lock().iter().map(|it| it.items).sum();
            if came as usize >= count {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        let bodies = self.bodies();
        assert_eq!(bodies.len(), count, "{:?}", &bodies[..bodies.len().min(20)]);
        bodies
    }
}

/// A receiver with these options, without the address.
pub(crate) fn config(
    read: fn(&mut Fields<'_>) -> NetlogConfig,
    yaml: &str,
) -> Result<NetlogConfig, String> {
    let (config, diagnostics) = read_text("receivers.it", yaml, read);
    if diagnostics.has_errors() { Err(diagnostics.render(false)) } else { Ok(config) }
}

/// Starts a receiver, and says where it listens.
pub(crate) async fn start(
    engine: &Arc<Engine>,
    read: fn(&mut Fields<'_>) -> NetlogConfig,
    yaml: &str,
) -> (Box<dyn StartedReceiver>, SocketAddr) {
    let config = config(read, yaml).unwrap_or_else(|said| panic!("{said}"));
    let context = ReceiverContext {
        ingress: Arc::new(Door(Arc::clone(engine))),
        authenticators: Default::default(),
        client_authenticators: ClientAuths::default(),
        user_agent: "sluice/test",
        resources: ServerResources::unlimited(),
        counters: None,
        streams: Streams::default(),
    };
    let bound = config.bind(BindContext { id: "it", ..BindContext::default() }).await;
    let running = bound.unwrap_or_else(|error| panic!("{error}")).serve(context);
    let address = running.addresses()[0].1.parse().expect("is an address");
    (running, address)
}

/// The value of a receiver's metric: the sum of the series with all of these texts.
pub(crate) fn metric(running: &dyn StartedReceiver, name: &str, labels: &[&str]) -> f64 {
    metric_of(&*running.counters(), name, labels)
}

/// The same of a receiver that may have ended.
pub(crate) fn metric_of(counters: &dyn ReceiverCounters, name: &str, labels: &[&str]) -> f64 {
    let naming = Naming::default();
    let mut exposition = Exposition::new(&naming);
    counters.write("it", &mut exposition);
    let text = exposition.render();
    let lines = text
        .lines()
        .filter(|line| line.starts_with(name) && labels.iter().all(|label| line.contains(label)));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}
