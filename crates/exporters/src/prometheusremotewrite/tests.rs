//! Against a real listener.

use std::sync::Arc;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use parking_lot::Mutex;
use prost::Message;
use sluice_flow::{Metadata, Outcome, PackError, Packed};
use sluice_net::compress::decompress;
use sluice_otlp::{Encoding, Signal};
use sluice_prometheus::Version;

use super::config::RemoteWriteConfig;
use crate::tests::{HttpRequest, exporter, http_backend, kind, packed, read};

/// An attribute.
pub(crate) fn text(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

fn point(time_ns: u64, value: f64) -> NumberDataPoint {
    NumberDataPoint {
        attributes: vec![text("zone", "a")],
        time_unix_nano: time_ns,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn request(metrics: Vec<Metric>) -> Bytes {
    let attributes = vec![text("service.name", "shop"), text("host.name", "h1")];
    let resource = Some(Resource { attributes, ..Resource::default() });
    let scope_metrics = vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }];
    let resource_metrics =
        vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
    ExportMetricsServiceRequest { resource_metrics }.encode_to_vec().into()
}

fn gauge(points: Vec<NumberDataPoint>) -> Metric {
    let data = Some(metric::Data::Gauge(Gauge { data_points: points }));
    Metric { name: "load".to_owned(), unit: "s".to_owned(), data, ..Metric::default() }
}

fn one_gauge() -> Bytes {
    request(vec![gauge(vec![point(2_000_000_000, 1.5)])])
}

/// Sends a request to a backend with this answer: the outcome, and the head and the unpacked body
/// that it got.
async fn sent(
    options: &str,
    request: Bytes,
    metadata: Metadata,
    answer: (&'static str, &'static str),
) -> (Outcome, Option<(String, Bytes)>) {
    let seen = Arc::new(Mutex::new(None));
    let taken = seen.clone();
    let backend = http_backend(move |request: &HttpRequest| {
        let body = decompress(Encoding::Snappy, &request.body, 1 << 20).expect("is a block");
        *taken.lock() = Some((request.head.clone(), body));
        (answer.0.to_owned(), answer.1.to_owned(), Vec::new())
    })
    .await;
    let options = format!("{{endpoint: 'http://{}/api/v1/write?a=b', {options}}}", backend.address);
    let exporter = exporter("prometheusremotewrite", &options);
    let (chunks, encoding) = exporter.pack(Signal::Metrics, vec![request]).expect("packs");
    let request = Packed::new(Signal::Metrics, 1, chunks, encoding, Arc::new(metadata));
    let outcome = exporter.send(&request).await;
    let seen = seen.lock().take();
    (outcome, seen)
}

const NO_CONTENT: (&str, &str) = ("204 No Content", "");

#[tokio::test]
async fn requests_have_the_headers_of_their_version() {
    let metadata = Metadata {
        headers: vec![("x-tenant".to_owned(), b"blue".to_vec()), ("other".to_owned(), vec![1])],
        ..Metadata::default()
    };
    let headers = "{X-Scope-OrgID: t1, X-Prometheus-Remote-Write-Version: '9'}";
    let options = format!(
        "headers: {headers}, external_labels: {{cluster.name: c}}, \
         include_metadata_keys: [X-Tenant], send_metadata: true"
    );
    let (outcome, seen) = sent(&options, one_gauge(), metadata, NO_CONTENT).await;
    assert_eq!(outcome, Outcome::Delivered);
    let (head, body) = seen.expect("a request");
    for line in [
        "post /api/v1/write?a=b http/1.1\r\n",
        "content-type: application/x-protobuf\r\n",
        "content-encoding: snappy\r\n",
        "x-prometheus-remote-write-version: 0.1.0\r\n",
        "user-agent: sluice/test\r\n",
        "x-scope-orgid: t1\r\n",
        "x-tenant: blue\r\n",
    ] {
        assert!(head.contains(line), "{line} {head}");
    }
    assert!(!head.contains("other") && !head.contains("version: 9"), "{head}");
    for text in ["load_seconds", "cluster_name", "job", "shop", "target_info", "host_name"] {
        assert!(body.windows(text.len()).any(|window| window == text.as_bytes()), "{text}");
    }

    let taken = ("200 OK", "x-prometheus-remote-write-samples-written: 2\r\n");
    let options = "protobuf_message: io.prometheus.write.v2.Request";
    let (outcome, seen) = sent(options, one_gauge(), Metadata::default(), taken).await;
    assert_eq!(outcome, Outcome::Delivered);
    let (head, _) = seen.expect("a request");
    for line in [
        "content-type: application/x-protobuf;proto=io.prometheus.write.v2.request\r\n",
        "x-prometheus-remote-write-version: 2.0.0\r\n",
    ] {
        assert!(head.contains(line), "{line} {head}");
    }
    let (outcome, _) = sent(options, one_gauge(), Metadata::default(), NO_CONTENT).await;
    assert_eq!(kind(&outcome), "misconfigured");
}

/// Guarantee: points that are not cumulative are counted; nothing is sent if there are no others.
#[tokio::test]
async fn points_that_are_not_cumulative_are_rejected() {
    let delta = Sum {
        data_points: vec![point(1_000_000, 1.0), point(1_000_000, 2.0)],
        aggregation_temporality: 1,
        is_monotonic: true,
    };
    let data = Some(metric::Data::Sum(delta));
    let delta = Metric { name: "d".to_owned(), data, ..Metric::default() };
    for (metrics, is_sent) in
        [(vec![delta.clone()], false), (vec![delta, gauge(vec![point(1_000_000, 1.0)])], true)]
    {
        let metrics = request(metrics);
        let options = "target_info: {enabled: false}";
        let (outcome, seen) = sent(options, metrics, Metadata::default(), NO_CONTENT).await;
        let Outcome::PartlyRejected { items: 2, reason } = outcome else { panic!("{outcome:?}") };
        assert!(reason.contains("not cumulative"), "{reason}");
        assert_eq!(seen.is_some(), is_sent);
    }
}

#[test]
fn a_request_that_is_too_large_as_remote_write_is_split() {
    let options = "{endpoint: 'http://localhost:1', max_batch_size_bytes: 1KiB}";
    let exporter = exporter("prometheusremotewrite", options);
    let points = (0..100).map(|index| point(index * 1_000_000, 1.0)).collect();
    let error = exporter.pack(Signal::Metrics, vec![request(vec![gauge(points)])]);
    assert!(matches!(error, Err(PackError::TooLarge(_))), "{error:?}");
    packed(&*exporter, Signal::Metrics, vec![one_gauge()]);
}

fn diagnosed(options: &str) -> (usize, String) {
    let options = format!("{{endpoint: 'http://localhost:1', {options}}}");
    let (_, diagnostics) =
        sluice_config::read_text("exporters.test", &options, RemoteWriteConfig::read);
    (diagnostics.errors().count(), diagnostics.render(false))
}

#[test]
fn options_that_contradict_each_other_are_errors() {
    for wrong in [
        "translation_strategy: NoTranslation",
        "external_labels: {'': a}",
        "external_labels: {a: ''}",
        "resource_constant_labels: {included: ['*']}, resource_to_telemetry_conversion: {enabled: true}",
        "include_metadata_keys: [Content-Type]",
        "compression: gzip",
        "http: {timeout: 1s}",
        "protobuf_message: v3",
        "sending_queue: {}",
    ] {
        assert_eq!(diagnosed(wrong).0, 1, "{wrong}: {}", diagnosed(wrong).1);
    }
    let utf8 =
        "translation_strategy: NoTranslation, protobuf_message: io.prometheus.write.v2.Request";
    assert_eq!(diagnosed(utf8), (0, String::new()));
}

#[test]
fn options_without_effect_cause_a_warning() {
    for (options, warned) in [
        ("wal: {directory: /x}", "wal"),
        ("remote_write_queue: {queue_size: 5}", "queue_size"),
        ("remote_write_queue: {num_consumers: 5}", "num_consumers"),
        ("max_batch_request_parallelism: 5", "max_batch_request_parallelism"),
        ("keep_classic_histograms: true", "keep_classic_histograms"),
        ("export_created_metric: {enabled: true}", "export_created_metric"),
        ("http: {endpoint: 'http://other:1'}", "endpoint"),
    ] {
        let (errors, said) = diagnosed(options);
        assert!(errors == 0 && said.contains("warning") && said.contains(warned), "{said}");
    }
    assert_eq!(diagnosed("in_order: false, remote_write_queue: {num_consumers: 5}").1, "");
}

#[test]
fn options_may_stand_below_http() {
    let of = |text: &str| read(text, RemoteWriteConfig::read);
    let nested = of("{http: {endpoint: 'http://a:1/w', timeout: 3s}, timeout: 9s}");
    assert_eq!((&*nested.url, nested.client.timeout.as_secs()), ("http://a:1/w", 3));
    assert!(nested.client.sending.in_order);
    let flat = of("{endpoint: 'http://a:1', protobuf_message: io.prometheus.write.v2.Request}");
    assert_eq!(flat.client.timeout.as_secs(), 5);
    assert_eq!(flat.settings.version, Version::V2);
    let apart = "{endpoint: 'http://a:1', in_order: false, remote_write_queue: {num_consumers: 3}}";
    assert_eq!(of(apart).client.sending.queue.num_consumers, Some(3));
}
