//! A target in a test, and its requests as plain values.

#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, metric, number_data_point};
use prost::Message as _;
use sluice_scrape::{Format, Outcome, Page, Report, Request, Scraper, Target};

/// The time of the first scrape.
pub const START_MS: i64 = 1_700_000_000_000;

pub fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A target of the job `test`.
pub fn target() -> Target {
    Target {
        labels: owned(&[("job", "test"), ("instance", "example.com:80")]),
        scheme: "http".to_owned(),
        scope: ("receiver".to_owned(), "1.0".to_owned()),
        honor_timestamps: true,
        native_histograms: true,
        ..Target::default()
    }
}

pub fn take(scraper: &mut Scraper, body: &[u8], format: Format, time_ms: i64) -> Outcome {
    scraper.scrape(Page { body, format, time_ms }, &mut |_| true)
}

pub fn decode(request: &Request) -> ExportMetricsServiceRequest {
    let scanned = sluice_otlp::scan(sluice_otlp::Signal::Metrics, &request.bytes);
    assert_eq!(scanned, Ok(request.items));
    ExportMetricsServiceRequest::decode(&*request.bytes).expect("is a request")
}

/// The request of one page, without the report.
pub fn convert(body: &str, format: Format) -> Vec<ResourceMetrics> {
    let mut scraper = Scraper::new(target());
    let outcome = take(&mut scraper, body.as_bytes(), format, START_MS);
    assert_eq!(outcome.result, Ok(()), "{body}");
    decode(&scraper.finish(&Report::default())).resource_metrics
}

/// All metrics of a request but the report's.
pub fn metrics(resources: &[ResourceMetrics]) -> Vec<Metric> {
    let scopes = resources.iter().flat_map(|resource| &resource.scope_metrics);
    let all = scopes.flat_map(|scope| &scope.metrics);
    let is_report = |name: &str| name == "up" || name.starts_with("scrape_");
    all.filter(|metric| !is_report(&metric.name)).cloned().collect()
}

pub fn text(attributes: &[KeyValue]) -> String {
    let texts = attributes.iter().map(|attribute| {
        let value = attribute.value.as_ref().and_then(|value| value.value.as_ref());
        match value {
            Some(any_value::Value::StringValue(value)) => format!("{}={value}", attribute.key),
            other => panic!("{}: {other:?}", attribute.key),
        }
    });
    texts.collect::<Vec<_>>().join(",")
}

/// Numbers by `name{attributes}`; `None` is a point without a value. None is there twice.
pub fn numbers(metrics: &[Metric]) -> BTreeMap<String, Option<f64>> {
    let mut numbers = BTreeMap::new();
    for (key, value) in all_numbers(metrics) {
        assert!(numbers.insert(key.clone(), value).is_none(), "{key} twice");
    }
    numbers
}

/// The same, sorted. A series is there twice if its name has got a type between two samples.
pub fn all_numbers(metrics: &[Metric]) -> Vec<(String, Option<f64>)> {
    let mut numbers = Vec::new();
    for metric in metrics {
        let points = match metric.data.as_ref().expect("has data") {
            metric::Data::Gauge(gauge) => &gauge.data_points,
            metric::Data::Sum(sum) => &sum.data_points,
            _ => continue,
        };
        for point in points {
            let value = point.value.map(|value| match value {
                number_data_point::Value::AsDouble(value) => value,
                number_data_point::Value::AsInt(_) => panic!("an integer"),
            });
            assert_eq!(point.flags, u32::from(value.is_none()));
            let key = format!("{}{{{}}}", metric.name, text(&point.attributes));
            numbers.push((key, value));
        }
    }
    numbers.sort_by_cached_key(|(key, value)| (key.clone(), value.map(f64::to_bits)));
    numbers
}

/// The numbers of a page that has only such.
pub fn numbers_of(body: &str, format: Format) -> BTreeMap<String, Option<f64>> {
    numbers(&metrics(&convert(body, format)))
}
