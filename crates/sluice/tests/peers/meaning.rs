//! Requests by their meaning: the order of attributes does not count, and an empty message equals
//! an absent one.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{Exemplar, metric::Data};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use sluice_load_test::backend::Received;
use sluice_otlp::Signal;

#[derive(Debug, PartialEq)]
pub(crate) enum Meaning {
    Traces(ExportTraceServiceRequest),
    Metrics(ExportMetricsServiceRequest),
    Logs(ExportLogsServiceRequest),
}

pub(crate) fn meaning(request: &Received) -> Meaning {
    let body = request.body.clone();
    match request.signal {
        Signal::Traces => traces(ExportTraceServiceRequest::decode(body).expect("traces")),
        Signal::Metrics => metrics(ExportMetricsServiceRequest::decode(body).expect("metrics")),
        Signal::Logs => logs(ExportLogsServiceRequest::decode(body).expect("logs")),
    }
}

pub(crate) fn traces(mut request: ExportTraceServiceRequest) -> Meaning {
    for group in &mut request.resource_spans {
        level_resource(&mut group.resource);
        for scope in &mut group.scope_spans {
            level_scope(&mut scope.scope);
            for span in &mut scope.spans {
                level(&mut span.attributes);
                span.events.iter_mut().for_each(|event| level(&mut event.attributes));
                span.links.iter_mut().for_each(|link| level(&mut link.attributes));
                span.status.get_or_insert_default();
            }
        }
    }
    Meaning::Traces(request)
}

pub(crate) fn logs(mut request: ExportLogsServiceRequest) -> Meaning {
    for group in &mut request.resource_logs {
        level_resource(&mut group.resource);
        for scope in &mut group.scope_logs {
            level_scope(&mut scope.scope);
            for record in &mut scope.log_records {
                level(&mut record.attributes);
                record.body.get_or_insert_default();
            }
        }
    }
    Meaning::Logs(request)
}

pub(crate) fn metrics(mut request: ExportMetricsServiceRequest) -> Meaning {
    for group in &mut request.resource_metrics {
        level_resource(&mut group.resource);
        for scope in &mut group.scope_metrics {
            level_scope(&mut scope.scope);
            for metric in &mut scope.metrics {
                level(&mut metric.metadata);
                metric.data.iter_mut().for_each(level_points);
            }
        }
    }
    Meaning::Metrics(request)
}

fn level_points(data: &mut Data) {
    let mut numbers = Vec::new();
    match data {
        Data::Gauge(gauge) => numbers.extend(&mut gauge.data_points),
        Data::Sum(sum) => numbers.extend(&mut sum.data_points),
        Data::Histogram(histogram) => {
            for point in &mut histogram.data_points {
                level(&mut point.attributes);
                level_exemplars(&mut point.exemplars);
            }
        }
        Data::ExponentialHistogram(histogram) => {
            for point in &mut histogram.data_points {
                level(&mut point.attributes);
                level_exemplars(&mut point.exemplars);
                point.positive.get_or_insert_default();
                point.negative.get_or_insert_default();
            }
        }
        Data::Summary(summary) => {
            summary.data_points.iter_mut().for_each(|point| level(&mut point.attributes))
        }
    }
    for point in numbers {
        level(&mut point.attributes);
        level_exemplars(&mut point.exemplars);
    }
}

fn level_exemplars(exemplars: &mut [Exemplar]) {
    exemplars.iter_mut().for_each(|exemplar| level(&mut exemplar.filtered_attributes));
}

fn level_resource(resource: &mut Option<Resource>) {
    level(&mut resource.get_or_insert_default().attributes);
}

fn level_scope(scope: &mut Option<InstrumentationScope>) {
    level(&mut scope.get_or_insert_default().attributes);
}

fn level(attributes: &mut [KeyValue]) {
    attributes.iter_mut().for_each(|attribute| {
        attribute.value.get_or_insert_default();
    });
    // The Collector moves the last attribute to where it deletes one, and so the second of two that
    // share a key before the first.
    let value = |attribute: &KeyValue| format!("{:?}", attribute.value);
    attributes
        .sort_by(|one, other| one.key.cmp(&other.key).then_with(|| value(one).cmp(&value(other))));
}
