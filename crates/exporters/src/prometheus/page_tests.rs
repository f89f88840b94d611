//! Pages are read back by the scraper's parsers, which know nothing of how they are written.

use std::collections::BTreeMap;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram, HistogramDataPoint,
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, number_data_point,
};
use proptest::prelude::*;
use prost::Message;
use sluice_prometheus::exposed::{Exposed, ExposedLimits, Page, PageFormat};
use sluice_prometheus::{Settings, Strategy as Naming};
use sluice_scrape::{Format, Scraper, Target};

use crate::prometheusremotewrite::tests::text;

const TIME_NS: u64 = 5_000_000_000;
const NOW: Duration = Duration::from_secs(100);

/// Values of series by name and labels.
type Values = BTreeMap<(String, Vec<(String, String)>), String>;

fn encoded(metrics: Vec<Metric>) -> Vec<u8> {
    let scope_metrics = vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }];
    let resource_metrics = vec![ResourceMetrics { scope_metrics, ..ResourceMetrics::default() }];
    ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()
}

fn labels(attributes: &[KeyValue]) -> Vec<(String, String)> {
    let one = |attribute: &KeyValue| {
        let value = attribute.value.as_ref().and_then(|it| it.value.as_ref())?;
        let any_value::Value::StringValue(value) = value else { return None };
        let is_label = !value.is_empty() && !attribute.key.starts_with("otel_scope");
        is_label.then(|| (attribute.key.clone(), value.clone()))
    };
    let mut labels: Vec<_> = attributes.iter().filter_map(one).collect();
    labels.sort();
    labels
}

fn shown(point: &NumberDataPoint) -> String {
    match point.value {
        Some(number_data_point::Value::AsDouble(value)) => format!("{value:?}"),
        ref other => format!("{other:?}"),
    }
}

/// `knows_native`: the page has the buckets of exponential histograms.
fn values(request: &[u8], knows_native: bool) -> Values {
    let request = ExportMetricsServiceRequest::decode(request).expect("decodes");
    let metrics = request.resource_metrics.into_iter().flat_map(|it| it.scope_metrics);
    let mut values = Values::new();
    for metric in metrics.flat_map(|it| it.metrics) {
        let name = metric.name;
        let numbers = |points: Vec<NumberDataPoint>| {
            let one = |it: NumberDataPoint| (labels(&it.attributes), shown(&it));
            points.into_iter().map(one).collect::<Vec<_>>()
        };
        let found = match metric.data.expect("has data") {
            Data::Gauge(gauge) => numbers(gauge.data_points),
            Data::Sum(sum) => numbers(sum.data_points),
            Data::Histogram(histogram) => {
                let one = |it: &HistogramDataPoint| {
                    let (bounds, counts) = (&it.explicit_bounds, &it.bucket_counts);
                    let value = format!("{} {:?} {bounds:?} {counts:?}", it.count, it.sum);
                    (labels(&it.attributes), value)
                };
                histogram.data_points.iter().map(one).collect()
            }
            Data::ExponentialHistogram(native) => {
                let one = |it: &ExponentialHistogramDataPoint| {
                    let value = match knows_native {
                        true => format!("{} {:?} {} {:?}", it.count, it.sum, it.scale, it.positive),
                        // As a histogram without bounds.
                        false => format!("{} {:?} [] [{}]", it.count, it.sum, it.count),
                    };
                    (labels(&it.attributes), value)
                };
                native.data_points.iter().map(one).collect()
            }
            Data::Summary(_) => unreachable!("there is none"),
        };
        let own = !name.starts_with("scrape_") && name != "up";
        values.extend(
            found.into_iter().filter(|_| own).map(|(labels, it)| ((name.clone(), labels), it)),
        );
    }
    values
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>().prop_filter("compares", |it| !it.is_nan()),
        (-1000_i32..1000).prop_map(f64::from),
        Just(0.0),
    ]
    // A page of text has no sign of zero, as the Collector's.
    .prop_map(|value| value + 0.0)
}

/// Text with everything that a page has to escape.
fn value() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,8}", "[\\\\\"\n{}=,# a字\u{0}\r\t]{1,12}", "\\PC{1,20}"]
}

fn attributes() -> impl Strategy<Value = Vec<KeyValue>> {
    proptest::collection::btree_map("k[a-z]{1,3}", value(), 0..4)
        .prop_map(|labels| labels.iter().map(|(name, value)| text(name, value)).collect())
}

fn metric(index: usize) -> impl Strategy<Value = Metric> {
    let help = "[a\\\\\"\n字 ]{0,9}";
    (0..4, attributes(), number(), proptest::collection::vec(0..1000_u64, 4), help).prop_map(
        move |(kind, attributes, value, counts, description)| {
            let count: u64 = counts.iter().sum();
            let sum = Some(value);
            let number = NumberDataPoint {
                attributes: attributes.clone(),
                time_unix_nano: TIME_NS,
                value: Some(number_data_point::Value::AsDouble(value)),
                ..NumberDataPoint::default()
            };
            let aggregation_temporality = 2;
            let (suffix, data) = match kind {
                0 => ("", Data::Gauge(Gauge { data_points: vec![number] })),
                1 => {
                    let data_points = vec![number];
                    let is_monotonic = true;
                    let sum = Sum { data_points, aggregation_temporality, is_monotonic };
                    ("_total", Data::Sum(sum))
                }
                2 => {
                    let point = HistogramDataPoint {
                        attributes,
                        time_unix_nano: TIME_NS,
                        count,
                        sum,
                        bucket_counts: counts,
                        explicit_bounds: vec![-2.5, 10.0, 3e7],
                        ..HistogramDataPoint::default()
                    };
                    let data_points = vec![point];
                    ("", Data::Histogram(Histogram { data_points, aggregation_temporality }))
                }
                _ => {
                    // The first and the last bucket are not empty: a reader cuts others off.
                    let bucket_counts: Vec<u64> = counts.iter().map(|count| count + 1).collect();
                    let count = bucket_counts.iter().sum();
                    let point = ExponentialHistogramDataPoint {
                        attributes,
                        time_unix_nano: TIME_NS,
                        count,
                        sum,
                        scale: 3,
                        positive: Some(Buckets { offset: -2, bucket_counts }),
                        ..ExponentialHistogramDataPoint::default()
                    };
                    let data_points = vec![point];
                    let native = ExponentialHistogram { data_points, aggregation_temporality };
                    ("", Data::ExponentialHistogram(native))
                }
            };
            let name = format!("metric_{index}{suffix}");
            Metric { name, description, data: Some(data), ..Metric::default() }
        },
    )
}

fn metrics() -> impl Strategy<Value = Vec<Metric>> {
    (metric(0), metric(1), metric(2), metric(3)).prop_map(|(a, b, c, d)| vec![a, b, c, d])
}

fn read_back(body: &[u8], format: Format) -> Vec<u8> {
    let target = Target { native_histograms: true, honor_timestamps: true, ..Target::default() };
    let mut scraper = Scraper::new(target);
    let page = sluice_scrape::Page { body, format, time_ms: 5000 };
    let outcome = scraper.scrape(page, &mut |_| true);
    assert_eq!(outcome.result, Ok(()), "{}", String::from_utf8_lossy(body));
    scraper.finish(&sluice_scrape::Report::default()).bytes
}

proptest! {
    /// Guarantee: whatever stands in values and descriptions, a page of each format has the values
    /// that came, and no others.
    #[test]
    fn a_page_has_the_values_that_came(metrics in metrics(), timestamps: bool, escapes: bool) {
        let limits =
            ExposedLimits { expiration: Duration::MAX, series: 100, bytes: 1 << 20 };
        let settings = Settings { strategy: Naming::default(), ..Settings::default() };
        let mut exposed = Exposed::new(settings, limits);
        let request = encoded(metrics);
        let added = exposed.add(&request, NOW).expect("is valid");
        prop_assert_eq!(added.refused, 0);
        for (written, read) in [
            (PageFormat::Text, Format::Text),
            (PageFormat::OpenMetrics, Format::OpenMetrics),
            (PageFormat::Protobuf, Format::Protobuf),
        ] {
            let page = exposed.page(Page { format: written, timestamps, escapes }, NOW);
            let knows_native = read == Format::Protobuf;
            let expected = values(&request, knows_native);
            prop_assert_eq!(values(&read_back(&page, read), knows_native), expected);
        }
    }
}
