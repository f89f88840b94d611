//! The cost of a sample out and in, in CPU time. Ignored: it measures.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use sluice_prometheus::inward::{Memory, read};
use sluice_prometheus::{Settings, Version, write};

const POINTS: usize = 5000;
const ROUNDS: usize = 40;

fn text(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

/// Counters of 50 points with 10 attributes each.
fn request() -> Vec<u8> {
    let point = |number: usize| {
        let attribute =
            |key: usize| text(&format!("some.key_{key}"), &format!("value-{key}-{}", number % 50));
        NumberDataPoint {
            attributes: (0..10).map(attribute).collect(),
            start_time_unix_nano: 1_700_000_000_000_000_000,
            time_unix_nano: 1_700_000_060_000_000_000,
            value: Some(number_data_point::Value::AsDouble(number as f64)),
            ..NumberDataPoint::default()
        }
    };
    let metrics = (0..POINTS / 50).map(|number| Metric {
        name: format!("http.server.requests.{number}"),
        unit: "By".to_owned(),
        data: Some(metric::Data::Sum(Sum {
            data_points: (0..50).map(point).collect(),
            aggregation_temporality: 2,
            is_monotonic: true,
        })),
        ..Metric::default()
    });
    let scope_metrics = vec![ScopeMetrics { metrics: metrics.collect(), ..Default::default() }];
    let attributes = vec![text("service.name", "shop"), text("service.instance.id", "a:80")];
    let resource = Some(Resource { attributes, ..Resource::default() });
    let resource_metrics =
        vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
    ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()
}

/// Nanoseconds of CPU time of this thread.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// CPU seconds for a million points.
fn measure(mut work: impl FnMut()) -> f64 {
    work();
    let started = cpu_ns();
    (0..ROUNDS).for_each(|_| work());
    (cpu_ns() - started) as f64 / 1e3 / (ROUNDS * POINTS) as f64
}

#[test]
#[ignore = "measures"]
fn the_cost_of_a_million_points() {
    let request = request();
    for version in [Version::V1, Version::V2] {
        let settings = Settings { version, limit_bytes: 64 << 20, ..Settings::default() };
        let message = write(&settings, &request).expect("is written").parts.concat();
        let out = measure(|| {
            write(&settings, &request).expect("is written");
        });
        let memory = Memory::default();
        let back = measure(|| {
            read(version, &message, &memory, 64 << 20).expect("is read");
        });
        println!("{version:?}: {out:.2} s out, {back:.2} s in, {} bytes", message.len() / POINTS);
    }
}
