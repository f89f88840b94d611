//! Options, and requests to a real listener.

use std::sync::Arc;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use parking_lot::Mutex;
use prost::Message as _;
use sluice_flow::{Outcome, PackError};
use sluice_net::compress::decompress;
use sluice_otlp::{Encoding, Signal};

use super::config::InfluxConfig;
use crate::tests::{HttpRequest, config, exporter, http_backend, kind, packed, read};

fn point(time_unix_nano: u64, value: f64) -> NumberDataPoint {
    let value = Some(number_data_point::Value::AsDouble(value));
    NumberDataPoint { time_unix_nano, value, ..NumberDataPoint::default() }
}

/// A sum of deltas.
fn request(data_points: Vec<NumberDataPoint>) -> Bytes {
    let sum = Sum { data_points, aggregation_temporality: 1, is_monotonic: true };
    let data = Some(metric::Data::Sum(sum));
    let metrics = vec![Metric { name: "calls".to_owned(), data, ..Metric::default() }];
    let scope_metrics = vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }];
    let resource_metrics = vec![ResourceMetrics { scope_metrics, ..ResourceMetrics::default() }];
    ExportMetricsServiceRequest { resource_metrics }.encode_to_vec().into()
}

/// Sends points, and returns the outcome, the head and the unpacked body, if there was a request.
async fn sent(options: &str, points: Vec<NumberDataPoint>) -> (Outcome, Option<(String, String)>) {
    let seen = Arc::new(Mutex::new(None));
    let taken = seen.clone();
    let backend = http_backend(move |request: &HttpRequest| {
        let body = match request.head.contains("content-encoding: gzip\r\n") {
            true => decompress(Encoding::Gzip, &request.body, 1 << 20).expect("is gzip"),
            false => Bytes::from(request.body.clone()),
        };
        let body = String::from_utf8(body.to_vec()).expect("text");
        *taken.lock() = Some((request.head.clone(), body));
        ("204 No Content".to_owned(), String::new(), Vec::new())
    })
    .await;
    let options = format!("{{endpoint: 'http://{}', {options}}}", backend.address);
    let exporter = exporter("influxdb", &options);
    let outcome = exporter.send(&packed(&*exporter, Signal::Metrics, vec![request(points)])).await;
    let seen = seen.lock().take();
    (outcome, seen)
}

#[tokio::test]
async fn requests_are_lines_with_the_credentials_of_their_api() {
    let v1 = "v1_compatibility: {enabled: true, db: k6, rp: week, username: me, password: secret}";
    for (options, line, authorization) in [
        (v1, "post /write?db=k6&rp=week&precision=n http/1.1\r\n", "basic bwu6c2vjcmv0"),
        (
            "v1_compatibility: {enabled: true, db: k6}, token: 'me:secret'",
            "post /write?db=k6&precision=n http/1.1\r\n",
            "token me:secret",
        ),
        (
            "org: o, bucket: b, token: t0ken",
            "post /api/v2/write?org=o&bucket=b&precision=ns http/1.1\r\n",
            "token t0ken",
        ),
        (
            "api: v3, bucket: b, token: t0ken",
            "post /api/v3/write_lp?db=b&precision=nanosecond http/1.1\r\n",
            "bearer t0ken",
        ),
    ] {
        let points = vec![point(5, 1.5), point(6, 2.0)];
        let (outcome, seen) = sent(options, points).await;
        assert_eq!(outcome, Outcome::Delivered);
        let (head, body) = seen.expect("a request");
        assert!(head.starts_with(line), "{head}");
        for header in [
            &*format!("authorization: {authorization}\r\n"),
            "content-type: text/plain; charset=utf-8\r\n",
            "content-encoding: gzip\r\n",
            "user-agent: sluice/test\r\n",
        ] {
            assert!(head.contains(header), "{header} {head}");
        }
        assert_eq!(body, "calls value=1.5 5\ncalls value=2 6\n");
    }
    let options = "org: o, bucket: b, compression: none, precision: us";
    let (_, seen) = sent(options, vec![point(5_999, 1.0)]).await;
    let (head, body) = seen.expect("a request");
    assert!(!head.contains("content-encoding") && head.contains("precision=us"), "{head}");
    assert_eq!(body, "calls value=1 5\n");
}

/// Guarantee: nothing is sent where no point has a line, and these points are counted.
#[tokio::test]
async fn a_request_without_lines_is_not_sent() {
    let (outcome, seen) = sent("org: o, bucket: b", vec![point(5, f64::NAN), point(0, 1.0)]).await;
    assert!(matches!(outcome, Outcome::PartlyRejected { items: 2, .. }), "{outcome:?}");
    assert!(seen.is_none());
    let mut end = point(5, 1.0);
    end.flags = 1;
    let (outcome, seen) = sent("org: o, bucket: b", vec![end]).await;
    assert_eq!((outcome, seen), (Outcome::Delivered, None), "the end of a series is no loss");
}

#[test]
fn a_request_with_too_many_bytes_is_split() {
    let options = "{endpoint: 'http://a', org: o, bucket: b, payload_max_bytes: 1024}";
    let exporter = exporter("influxdb", options);
    let points = (0..200).map(|at| point(1_700_000_000_000_000_000 + at, 1.0)).collect();
    let error = exporter.pack(Signal::Metrics, vec![request(points)]);
    assert!(matches!(error, Err(PackError::TooLarge(_))), "{error:?}");
    packed(&*exporter, Signal::Metrics, vec![request(vec![point(5, 1.0)])]);
}

/// Guarantee: memory for packing is at least the memory of lines, whose tags stand once in OTLP.
#[test]
fn the_memory_of_lines_is_known_before() {
    let options = "{endpoint: 'http://a', org: o, bucket: b}";
    let exporter = exporter("influxdb", options);
    let points: Vec<_> = (0..500).map(|at| point(1_700_000_000_000_000_000 + at, 1.0)).collect();
    let request = request(points);
    let known = exporter.packing_bytes(request.len(), 500);
    let packed = packed(&*exporter, Signal::Metrics, vec![request]);
    assert!(packed.len_bytes <= known, "{} {known}", packed.len_bytes);
    assert!(exporter.packing_bytes(1 << 20, 5_000) < 16 << 20);
}

#[test]
fn batches_are_counted_in_lines() {
    let of = |options: &str| {
        let options = format!("{{endpoint: 'http://a', org: o, bucket: b, {options}}}");
        let items = config("influxdb", &options).batch_items().expect("sizes");
        (items.full, items.most, items.least)
    };
    assert_eq!(of(""), (5_000, 10_000, 100));
    assert_eq!(of("payload_max_lines: 700"), (700, 700, 100));
    assert_eq!(of("payload_max_lines: 7"), (7, 7, 7));
}

/// Guarantee: increments of one time are moved unless that is switched off, and two configurations
/// with different effects are told apart.
#[test]
fn collisions_are_an_option() {
    let step = |options: &str| {
        let options = format!("{{endpoint: 'http://a', org: o, bucket: b, {options}}}");
        config("influxdb", &options).last_step()
    };
    assert!(step("collisions: overwrite").is_none());
    let mut fingerprints = Vec::new();
    for options in ["", "collisions: shift_all", "precision: ms"] {
        let step = step(options).expect("a step");
        let same = request(vec![point(5_000_000, 1.0), point(5_000_000, 2.0)]);
        let changed = step.change(Signal::Metrics, &same, 1 << 20).expect("valid").expect("room");
        let changed = changed.expect("is changed");
        assert_eq!(changed.len(), same.len(), "{options}");
        fingerprints.push(step.fingerprint());
    }
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), 3);
}

fn diagnosed(options: &str) -> (usize, String) {
    let (_, diagnostics) =
        sluice_config::read_text("exporters.influxdb", options, InfluxConfig::read);
    (diagnostics.errors().count(), diagnostics.render(false))
}

#[test]
fn options_that_contradict_each_other_are_errors() {
    let v1 = "v1_compatibility: {enabled: true, db: k6}";
    for (wrong, named) in [
        ("{org: o, bucket: b}".to_owned(), "endpoint"),
        ("{endpoint: 'http://a', org: o}".to_owned(), "bucket"),
        ("{endpoint: 'http://a', bucket: b}".to_owned(), "org"),
        ("{endpoint: 'http://a', v1_compatibility: {enabled: true}}".to_owned(), "db"),
        (format!("{{endpoint: 'http://a', {v1}, bucket: b}}"), "bucket"),
        (format!("{{endpoint: 'http://a', {v1}, api: v3}}"), "api"),
        (
            "{endpoint: 'http://a', token: t, v1_compatibility: {enabled: true, db: a, username: \
             u}}"
            .to_owned(),
            "token",
        ),
        (
            "{endpoint: 'http://a', v1_compatibility: {enabled: true, db: a, password: p}}"
                .to_owned(),
            "password",
        ),
        (format!("{{endpoint: 'http://a', {v1}, metrics_schema: otel-v1}}"), "metrics_schema"),
        (format!("{{endpoint: 'http://a', {v1}, span_dimensions: [a]}}"), "span_dimensions"),
        (
            format!("{{endpoint: 'http://a', {v1}, log_record_dimensions: [a]}}"),
            "log_record_dimensions",
        ),
        (format!("{{endpoint: 'http://a', {v1}, precision: m}}"), "precision"),
        (format!("{{endpoint: 'http://a', {v1}, collisions: add}}"), "collisions"),
        (format!("{{endpoint: 'a:8086', {v1}}}"), "endpoint"),
        (
            "{endpoint: 'http://a/x', v1_compatibility: {enabled: true, db: a, create_database: \
             true}}"
                .to_owned(),
            "create_database",
        ),
        (format!("{{endpoint: 'http://me:hunter2@a', {v1}}}"), "endpoint"),
        (format!("{{endpoint: 'http://a', {v1}, payload_max_lines: 0}}"), "payload_max_lines"),
        (
            format!("{{endpoint: 'http://a', {v1}, token: t, headers: {{Authorization: x}}}}"),
            "token",
        ),
        (
            format!("{{endpoint: 'http://a', {v1}, token: t, auth: {{authenticator: oauth2}}}}"),
            "token",
        ),
        (format!("{{endpoint: 'http://a', {v1}, token: \"a\\nb\"}}"), "token"),
    ] {
        let (errors, said) = diagnosed(&wrong);
        assert!(errors == 1 && said.contains(named), "{wrong}: {errors} {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    for right in [
        format!("{{endpoint: 'http://a', {v1}}}"),
        "{endpoint: 'http://a', api: v3, bucket: b}".to_owned(),
        "{endpoint: 'http://a', org: o, bucket: b, v1_compatibility: {enabled: false}}".to_owned(),
    ] {
        assert_eq!(diagnosed(&right), (0, String::new()), "{right}");
    }
}

#[test]
fn options_without_effect_cause_a_warning() {
    for (options, warned) in [
        ("api: v3, org: o", "org"),
        ("org: o, v1_compatibility: {db: x}", "db"),
        ("org: o, v1_compatibility: {username: x}", "username"),
        ("org: o, v1_compatibility: {create_database: true}", "create_database"),
        ("org: o, read_buffer_size: 5", "read_buffer_size"),
    ] {
        let options = format!("{{endpoint: 'http://a', bucket: b, {options}}}");
        let (errors, said) = diagnosed(&options);
        assert!(errors == 0 && said.contains("warning") && said.contains(warned), "{said}");
    }
}

/// Guarantee: credentials are never shown, and the places of data are.
#[test]
fn credentials_are_secrets() {
    let options = "{endpoint: 'http://a:1/x?key=hunter2', org: o, bucket: b, token: hunter2}";
    let config = read(options, InfluxConfig::read);
    assert!(config.client.headers[AUTHORIZATION].is_sensitive());
    assert_eq!(config.own_query.as_deref(), Some("key=hunter2"));
    let shown = &super::ExporterConfig::destinations(&config)[0];
    assert!(shown.text.starts_with("http://a:1/x") && !shown.text.contains("hunter2"));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_tried_again() {
    let options = "{endpoint: 'http://127.0.0.1:1', org: o, bucket: b}";
    let exporter = exporter("influxdb", options);
    let request = packed(&*exporter, Signal::Metrics, vec![request(vec![point(5, 1.0)])]);
    assert_eq!(kind(&exporter.send(&request).await), "retry");
}
