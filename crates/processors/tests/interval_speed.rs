//! The cost of a point in `interval`, in CPU time. Ignored: it measures.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use prost::Message;
use sluice_config::read_text;
use sluice_flow::Metadata;
use sluice_otlp::Signal;
use sluice_processors::{Emission, PROCESSORS, Processor, ProcessorConfig};

/// The samples of one request of k6.
const METRICS: [&str; 9] = [
    "http_reqs",
    "http_req_duration",
    "http_req_blocked",
    "http_req_connecting",
    "http_req_tls_handshaking",
    "http_req_sending",
    "http_req_waiting",
    "http_req_receiving",
    "http_req_failed",
];
const REQUESTS: usize = 500;
const ROUNDS: usize = 100;
const LIMIT_BYTES: usize = 256 << 10;

fn processor(yaml: &str) -> Box<dyn Processor> {
    let (settings, _) =
        read_text("processors.test", yaml, |fields| PROCESSORS.read("interval", fields));
    let Some(ProcessorConfig::Edits(build)) = settings else { panic!("edits") };
    build(Signal::Metrics).expect("fits metrics").processor
}

fn attribute(key: &str, value: String) -> KeyValue {
    let value = Some(AnyValue { value: Some(Value::StringValue(value)) });
    KeyValue { key: key.to_owned(), value, ..Default::default() }
}

/// The samples of many requests of k6 to 50 addresses, a metric each.
fn request() -> Bytes {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
    let mut metrics = Vec::new();
    for index in 0..REQUESTS {
        for (place, name) in METRICS.iter().enumerate() {
            let tags = [
                ("expected_response", "true".to_owned()),
                ("method", "GET".to_owned()),
                ("name", format!("http://shop/item/{}", index % 50)),
                ("proto", "HTTP/1.1".to_owned()),
                ("scenario", "default".to_owned()),
                ("status", "200".to_owned()),
                ("tls_version", "tls1.3".to_owned()),
            ];
            let value = (index * 7919 % 100_000) as f64 / 1000.0 + place as f64;
            let data_points = vec![NumberDataPoint {
                attributes: tags.into_iter().map(|(key, value)| attribute(key, value)).collect(),
                time_unix_nano: now + index as u64,
                value: Some(Number::AsDouble(value)),
                ..Default::default()
            }];
            let data = match place {
                0 => {
                    let (aggregation_temporality, is_monotonic) = (1, true);
                    Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic })
                }
                _ => Data::Gauge(Gauge { data_points }),
            };
            let name = (*name).to_owned();
            metrics.push(Metric { name, data: Some(data), ..Default::default() });
        }
    }
    let scope_metrics = vec![ScopeMetrics { metrics, ..Default::default() }];
    let resource_metrics = vec![ResourceMetrics { scope_metrics, ..Default::default() }];
    ExportMetricsServiceRequest { resource_metrics }.encode_to_vec().into()
}

/// Nanoseconds of CPU time of this thread.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

#[test]
#[ignore = "measures"]
fn the_samples_a_second_of_one_core() {
    let all = "statistics: [sum, count, min, max, mean], quantiles: [0.5, 0.95, 0.99]";
    let rule = |more: &str| {
        format!("{{interval: 1h, {more}rules: [{{metrics: [.], match_type: regexp, {all}}}]}}")
    };
    for (name, yaml) in [
        ("last points and sums", "interval: 1h".to_owned()),
        ("statistics and exact quantiles", rule("quantile_values: 100000, ")),
        ("statistics and estimates", rule("quantile_values: 0, ")),
    ] {
        let processor = processor(&yaml);
        let (request, metadata) = (request(), Metadata::default());
        let memory = processor.series().expect("remembers");
        let started = cpu_ns();
        for _ in 0..ROUNDS {
            let left = processor.process(Signal::Metrics, &request, &metadata, usize::MAX);
            assert_eq!(left.expect("is valid").expect("fits"), Some(Bytes::new()));
            memory.keep();
        }
        let taken = cpu_ns() - started;
        let usage = memory.usage();
        let (started, mut points) = (cpu_ns(), 0);
        let emitter = processor.emitter().expect("emits");
        while let Some((_, items)) = emitter.emit(Emission::All, LIMIT_BYTES) {
            memory.keep();
            points += items;
        }
        let samples = (ROUNDS * REQUESTS * METRICS.len()) as f64;
        println!(
            "{name}: {:.2} M samples/s in, {:.2} M points/s out ({points}), {} series, {} bytes a \
             series",
            samples * 1e3 / taken as f64,
            f64::from(points) * 1e3 / (cpu_ns() - started) as f64,
            usage.series,
            usage.bytes / usage.series.max(1),
        );
    }
}
