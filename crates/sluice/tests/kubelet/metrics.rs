//! Requests as lines, one a point, which do not depend on the time of a scrape.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    Metric, NumberDataPoint, ResourceMetrics, metric, number_data_point,
};
use prost::Message as _;
use sluice_load_test::backend::Received;

/// The Collector's nanoseconds of a start that the kubelet does not tell: those of the year 1,
/// which do not fit. Here such points have no start.
const START_OF_GO: u64 = 11_651_379_494_838_206_464;
/// A scrape takes less.
const TOLERANCE_NS: u64 = 10_000_000_000;

/// The points of each scrape of each case.
pub(crate) struct Scrapes(BTreeMap<(String, u64), Vec<String>>);

impl Scrapes {
    pub(crate) fn of(requests: &[Received]) -> Scrapes {
        let mut scrapes = BTreeMap::<_, Vec<String>>::new();
        for request in requests {
            let request =
                ExportMetricsServiceRequest::decode(request.body.clone()).expect("metrics");
            for resource in &request.resource_metrics {
                for (key, line) in lines(resource) {
                    scrapes.entry(key).or_default().push(line);
                }
            }
        }
        scrapes.values_mut().for_each(|lines| lines.sort());
        Scrapes(scrapes)
    }

    pub(crate) fn count(&self, case: &str) -> usize {
        self.0.keys().filter(|(of, _)| of == case).count()
    }

    /// The points of the last scrape but one, which is there as a whole.
    pub(crate) fn last(&self, case: &str) -> Vec<String> {
        let of_case = self.0.iter().rev().filter(|((of, _), _)| of == case);
        of_case.skip(1).map(|(_, lines)| lines.clone()).next().unwrap_or_default()
    }
}

fn text(attributes: &[KeyValue]) -> String {
    let pair = |it: &KeyValue| match it.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(value)) => format!("{}={value:?}", it.key),
        other => format!("{}={other:?}", it.key),
    };
    let mut pairs: Vec<String> = attributes.iter().map(pair).collect();
    pairs.sort();
    pairs.join(",")
}

fn lines(resource: &ResourceMetrics) -> Vec<((String, u64), String)> {
    let attributes = &resource.resource.as_ref().expect("a resource").attributes;
    let of = text(attributes);
    // `pod="case-name"`: each case has names of its own.
    let case = ["k8s.node.name=\"", "k8s.pod.name=\""].iter().find_map(|key| {
        let (_, name) = of.split_once(key)?;
        name.split('-').next()
    });
    let case = case.expect("the name of a node or pod").to_owned();
    let is_volume = of.contains("k8s.volume.name=");
    let mut lines = Vec::new();
    for scope in &resource.scope_metrics {
        let about = scope.scope.as_ref().expect("a scope");
        // The version is that of the program.
        let about = format!("{} {}", about.name, scope.schema_url);
        for metric in &scope.metrics {
            let (shape, points) = points(metric);
            for point in points {
                let line = format!(
                    "{of} [{about}] {} {} {:?} {shape} {}",
                    metric.name,
                    metric.unit,
                    metric.description,
                    point_text(metric, point, is_volume)
                );
                lines.push(((case.clone(), point.time_unix_nano), line));
            }
        }
    }
    lines
}

fn points(metric: &Metric) -> (String, &[NumberDataPoint]) {
    match metric.data.as_ref().expect("has data") {
        metric::Data::Gauge(gauge) => ("gauge".to_owned(), &gauge.data_points),
        metric::Data::Sum(sum) => {
            let shape = format!("sum {} {}", sum.aggregation_temporality, sum.is_monotonic);
            (shape, &sum.data_points)
        }
        other => panic!("{other:?}"),
    }
}

fn point_text(metric: &Metric, point: &NumberDataPoint, is_volume: bool) -> String {
    let time_ns = point.time_unix_nano;
    let mut start = match point.start_time_unix_nano {
        START_OF_GO => 0,
        start_ns => start_ns,
    };
    let value = match point.value.as_ref().expect("a value") {
        number_data_point::Value::AsInt(value) if metric.name.ends_with(".uptime") => {
            let passed_ns = time_ns - start;
            assert!(passed_ns.abs_diff(*value as u64 * 1_000_000_000) < TOLERANCE_NS, "{value}");
            "since its start".to_owned()
        }
        number_data_point::Value::AsInt(value) => format!("int {value}"),
        number_data_point::Value::AsDouble(value) => format!("double {value:?}"),
    };
    if is_volume {
        // The start of the receiver.
        assert!(time_ns.abs_diff(start) < 600_000_000_000, "{start}");
        start = 1;
    }
    let rest = (point.exemplars.len(), point.flags);
    format!("{{{}}} {value} since {start} {rest:?}", text(&point.attributes))
}
