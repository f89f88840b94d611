//! A mock of the engine: keeps the points that it takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use parking_lot::Mutex;
use prost::Message as _;
use sluice_flow::source::{
    ArrivedBody, Ingress, IngressRoute, MemoryPool, Permit, Receipt, Request,
};
use sluice_flow::{BoxFuture, Refusal};
use sluice_otlp::{Encoding, Signal};

#[derive(Default)]
pub(crate) struct Engine {
    pub(crate) points: Mutex<Vec<Point>>,
    /// The scopes and the resources of requests.
    pub(crate) resources: Mutex<Vec<String>>,
    /// Requests are not admitted.
    pub(crate) is_closed: AtomicBool,
    /// Requests that are admitted are refused.
    pub(crate) refuses: AtomicBool,
    /// Deliveries are behind: those that submit have to wait.
    pub(crate) is_behind: AtomicBool,
    /// The most memory of all requests, if it has a limit.
    pub(crate) most_bytes: Option<usize>,
    pub(crate) used_bytes: AtomicUsize,
    pub(crate) peak_bytes: AtomicUsize,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    /// `name{label=value,…}`, and the job in front.
    pub(crate) series: String,
    /// None: the series has ended.
    pub(crate) value: Option<f64>,
    pub(crate) time_ms: u64,
}

impl Engine {
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::SeqCst)
    }

    /// The points of a series, in their order.
    pub(crate) fn of(&self, series: &str) -> Vec<Point> {
        let points = self.points.lock();
        points.iter().filter(|point| point.series == series).cloned().collect()
    }

    pub(crate) fn values(&self, series: &str) -> Vec<Option<f64>> {
        self.of(series).into_iter().map(|point| point.value).collect()
    }

    pub(crate) fn last(&self, series: &str) -> Option<Option<f64>> {
        self.values(series).last().copied()
    }
}

fn text(attributes: &[KeyValue], only: Option<&str>) -> String {
    let of = |it: &KeyValue| match it.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(value)) => value.clone(),
        other => format!("{other:?}"),
    };
    if let Some(only) = only {
        return attributes.iter().find(|it| it.key == only).map(of).unwrap_or_default();
    }
    let all: Vec<String> = attributes.iter().map(|it| format!("{}={}", it.key, of(it))).collect();
    all.join(",")
}

fn points_of(job: &str, metric: &Metric) -> Vec<Point> {
    let points = match metric.data.as_ref().expect("has data") {
        metric::Data::Gauge(gauge) => &gauge.data_points,
        metric::Data::Sum(sum) => &sum.data_points,
        _ => return Vec::new(),
    };
    let point = |point: &opentelemetry_proto::tonic::metrics::v1::NumberDataPoint| Point {
        series: format!("{job} {}{{{}}}", metric.name, text(&point.attributes, None)),
        value: point.value.map(|value| match value {
            number_data_point::Value::AsDouble(value) => value,
            number_data_point::Value::AsInt(value) => value as f64,
        }),
        time_ms: point.time_unix_nano / 1_000_000,
    };
    points.iter().map(point).collect()
}

impl MemoryPool for Engine {
    fn take(&self, _: usize, bytes: usize) -> Result<(), Refusal> {
        let most = self.most_bytes.unwrap_or(usize::MAX);
        let add = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= most);
        match self.used_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add) {
            Ok(before) => {
                self.peak_bytes.fetch_max(before + bytes, Ordering::SeqCst);
                Ok(())
            }
            Err(_) => Err(Refusal::overloaded("the memory is spent")),
        }
    }

    fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::SeqCst);
    }
}

pub(crate) struct Door(pub(crate) Arc<Engine>);

impl Ingress for Door {
    fn route(&self, signal: Signal) -> Option<Arc<dyn IngressRoute>> {
        (signal == Signal::Metrics).then(|| Arc::new(Door(Arc::clone(&self.0))) as _)
    }

    fn waiting(&self, _: bool) -> Arc<dyn MemoryPool> {
        Arc::clone(&self.0) as _
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
            return Err(Refusal::overloaded("it is closed"));
        }
        Permit::take(Arc::clone(&self.0) as Arc<dyn MemoryPool>, bytes)
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
        let engine = &self.0;
        assert!(permit.bytes() >= request.payload.bytes.len(), "memory was asked for");
        if engine.refuses.load(Ordering::SeqCst) {
            return Err(Refusal::overloaded("at submission"));
        }
        let scanned = sluice_otlp::scan(Signal::Metrics, &request.payload.bytes);
        assert_eq!(scanned, Ok(request.items));
        let decoded = ExportMetricsServiceRequest::decode(request.payload.bytes).expect("is OTLP");
        for resource in decoded.resource_metrics {
            let attributes = resource.resource.map(|it| it.attributes).unwrap_or_default();
            let job = text(&attributes, Some("service.name"));
            for scope in resource.scope_metrics {
                let name = scope.scope.map(|scope| scope.name).unwrap_or_default();
                engine.resources.lock().push(format!("{name} {}", text(&attributes, None)));
                let found = scope.metrics.iter().flat_map(|metric| points_of(&job, metric));
                engine.points.lock().extend(found);
            }
        }
        let pace = engine.is_behind.load(Ordering::SeqCst).then(|| {
            let engine = Arc::clone(engine);
            Box::pin(async move {
                while engine.is_behind.load(Ordering::SeqCst) {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            }) as BoxFuture<'static, ()>
        });
        Ok(Receipt { pace, answer: None })
    }
}
