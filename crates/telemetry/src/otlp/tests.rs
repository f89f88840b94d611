use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint};
use prost::Message as _;
use sluice_config::document::Temporality;
use sluice_otlp::AnyValue;

use super::Resource;
use super::metrics::{Report, Reports};
use crate::exposition::{Exposition, Families, Naming};
use crate::row;
use crate::table::Table;

/// The values of one moment.
struct Sample {
    sent: u64,
    cpu_seconds: f64,
    /// A receiver that is there or not.
    receiver: Option<u64>,
}

const TABLE: Table<Sample> = Table {
    title: "",
    labels: &["exporter"],
    metrics: &[
        row!(Counter "otelcol_exporter_sent" by [],
            |it: &Sample, series| series.add_items("spans", &[], it.sent as f64), "Sent.")
        .by_items(),
        row!(Counter "otelcol_process_cpu_seconds", |it: &Sample| it.cpu_seconds, "CPU."),
        row!(Gauge "sluice_delivery_backlog" in "bytes", |_| 7.0, "Backlog."),
        row!(UpDownCounter "otelcol_exporter_in_flight_requests", |_| 3.0, "In flight."),
        row!(Gauge "target_info", |_| 1.0, "Attributes."),
        row!(Counter "accepted" by ["transport"], |it: &Sample, series| {
            if let Some(count) = it.receiver {
                series.add(&["grpc"], count as f64);
            }
        }, "Accepted."),
    ],
};

fn families(sent: u64, cpu_seconds: f64, receiver: Option<u64>) -> Families {
    let naming = Naming::of_otlp();
    let mut exposition = Exposition::new(&naming);
    exposition.write(&TABLE, &["otlp"], &Sample { sent, cpu_seconds, receiver });
    exposition.families()
}

fn resource() -> Resource {
    let attributes = [
        ("service.name".to_owned(), AnyValue::String("sluice".to_owned())),
        ("replica".to_owned(), AnyValue::Int(2)),
    ];
    Resource::new(&attributes, Some("https://schema"), "1.2.3")
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

fn reports(temporality: Temporality) -> Reports {
    Reports::new(resource(), temporality, at(0))
}

fn decode(report: &Report) -> ExportMetricsServiceRequest {
    ExportMetricsServiceRequest::decode(report.request.as_slice()).expect("is OTLP")
}

fn metric(report: &Report, name: &str) -> Metric {
    let request = decode(report);
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    let found = metrics.iter().find(|metric| metric.name == name);
    found.unwrap_or_else(|| panic!("no {name}")).clone()
}

/// Temporality, whether it is monotonic, and the points.
fn sum(report: &Report, name: &str) -> (i32, bool, Vec<NumberDataPoint>) {
    match metric(report, name).data {
        Some(Data::Sum(sum)) => (sum.aggregation_temporality, sum.is_monotonic, sum.data_points),
        other => panic!("{name}: {other:?}"),
    }
}

/// Seconds from which a counter's only point counts, and its value.
fn counted(report: &Report, name: &str) -> (u64, f64) {
    let (_, _, points) = sum(report, name);
    assert_eq!(points.len(), 1, "{points:?}");
    let value = match points[0].value.expect("a value") {
        Value::AsInt(value) => value as f64,
        Value::AsDouble(value) => value,
    };
    (points[0].start_time_unix_nano / 1_000_000_000 - 1_000_000, value)
}

/// Guarantee: kinds, units, types of numbers and names are those of the Collector's own metrics,
/// and the resource is said once.
#[test]
fn a_report_is_otlp() {
    let report = reports(Temporality::Cumulative).next(&families(5, 0.25, None), at(60));
    let request = decode(&report);
    assert_eq!(report.points, 4, "target_info is the resource, and a metric may have no series");
    let of_resource = &request.resource_metrics[0];
    assert_eq!(of_resource.schema_url, "https://schema");
    let attributes = &of_resource.resource.as_ref().expect("a resource").attributes;
    let names: Vec<_> = attributes.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(names, ["service.name", "replica"]);
    let scope = of_resource.scope_metrics[0].scope.as_ref().expect("a scope");
    assert_eq!((scope.name.as_str(), scope.version.as_str()), ("sluice", "1.2.3"));
    let (temporality, is_monotonic, points) = sum(&report, "otelcol_exporter_sent_spans");
    assert_eq!((temporality, is_monotonic), (2, true));
    assert_eq!(points[0].value, Some(Value::AsInt(5)));
    assert_eq!(points[0].time_unix_nano, 1_000_060_000_000_000);
    assert_eq!(points[0].attributes[0].key, "exporter");
    assert_eq!(metric(&report, "otelcol_exporter_sent_spans").unit, "{span}");
    let cpu = metric(&report, "otelcol_process_cpu_seconds");
    assert_eq!((cpu.unit.as_str(), cpu.description.as_str()), ("s", "CPU."));
    assert_eq!(counted(&report, "otelcol_process_cpu_seconds"), (0, 0.25));
    let gauge = metric(&report, "sluice_delivery_backlog_bytes");
    assert_eq!(gauge.unit, "By");
    assert!(matches!(gauge.data, Some(Data::Gauge(_))), "{gauge:?}");
    let (_, is_monotonic, points) = sum(&report, "otelcol_exporter_in_flight_requests");
    assert_eq!((is_monotonic, points[0].value), (false, Some(Value::AsInt(3))));
}

/// Scenario: reports in which a counter grows, is replaced by a new one, goes and comes back.
/// Guarantee: a cumulative value always counts from a moment at which it was zero.
#[test]
fn cumulative_counters_that_begin_again_say_so() {
    let mut reports = reports(Temporality::Cumulative);
    let name = "otelcol_exporter_sent_spans";
    let seen = [5, 9, 2, 3].into_iter().enumerate().map(|(index, sent)| {
        let report = reports.next(&families(sent, 0.0, None), at(60 * (index as u64 + 1)));
        counted(&report, name)
    });
    assert_eq!(seen.collect::<Vec<_>>(), [(0, 5.0), (0, 9.0), (120, 2.0), (120, 3.0)]);
    let seen = [Some(4), None, Some(1)].into_iter().enumerate().map(|(index, receiver)| {
        let report = reports.next(&families(3, 0.0, receiver), at(300 + 60 * index as u64));
        (report.points > 4).then(|| counted(&report, "accepted"))
    });
    assert_eq!(seen.collect::<Vec<_>>(), [Some((240, 4.0)), None, Some((360, 1.0))]);
}

/// Guarantee: deltas add up to the counter, also over a reset; only counters have them, and with
/// `lowmemory` not those of the process.
#[test]
fn deltas_add_up() {
    for temporality in [Temporality::Delta, Temporality::LowMemory] {
        let mut reports = reports(temporality);
        let mut all = 0.0;
        for (index, sent) in [5, 9, 2, 2].into_iter().enumerate() {
            let seconds = 60 * (index as u64 + 1);
            let report = reports.next(&families(sent, seconds as f64, None), at(seconds));
            let (since, value) = counted(&report, "otelcol_exporter_sent_spans");
            assert_eq!(since, seconds - 60);
            assert_eq!(sum(&report, "otelcol_exporter_sent_spans").0, 1);
            all += value;
            let (kind, expected) = match temporality {
                Temporality::Delta => (1, (seconds - 60, 60.0)),
                _ => (2, (0, seconds as f64)),
            };
            assert_eq!(sum(&report, "otelcol_process_cpu_seconds").0, kind);
            assert_eq!(counted(&report, "otelcol_process_cpu_seconds"), expected);
            assert_eq!(sum(&report, "otelcol_exporter_in_flight_requests").0, 2);
        }
        assert_eq!(all, 11.0, "9, and 2 after the reset");
    }
}

/// Scenario: series that come and go. Guarantee: no memory is kept for those that are gone.
#[test]
fn series_that_are_gone_are_forgotten() {
    let mut reports = reports(Temporality::Delta);
    reports.next(&families(1, 0.0, Some(1)), at(60));
    assert_eq!(reports.series_kept(), 3);
    reports.next(&families(1, 0.0, None), at(120));
    assert_eq!(reports.series_kept(), 2);
}
