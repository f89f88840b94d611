//! Requests as the official generated types see them, and comparisons of two encoded requests.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::{DecodeError, Message as _};
use sluice_otlp::Signal;

use super::schema::{Kind, Message};
use super::wire::{Record, records};

/// A request decoded into the official generated types (which drop unknown fields).
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    Traces(ExportTraceServiceRequest),
    Metrics(ExportMetricsServiceRequest),
    Logs(ExportLogsServiceRequest),
}

impl Decoded {
    pub fn decode(signal: Signal, bytes: &[u8]) -> Result<Decoded, DecodeError> {
        Ok(match signal {
            Signal::Traces => Decoded::Traces(ExportTraceServiceRequest::decode(bytes)?),
            Signal::Metrics => Decoded::Metrics(ExportMetricsServiceRequest::decode(bytes)?),
            Signal::Logs => Decoded::Logs(ExportLogsServiceRequest::decode(bytes)?),
        })
    }

    /// The canonical wire form. Two requests are equal if this is (unlike `==`, which NaN values
    /// defeat).
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Decoded::Traces(request) => request.encode_to_vec(),
            Decoded::Metrics(request) => request.encode_to_vec(),
            Decoded::Logs(request) => request.encode_to_vec(),
        }
    }

    /// Spans, metric points or log records.
    pub fn items(&self) -> usize {
        match self {
            Decoded::Traces(request) => request
                .resource_spans
                .iter()
                .flat_map(|resource| &resource.scope_spans)
                .map(|scope| scope.spans.len())
                .sum(),
            Decoded::Metrics(request) => request
                .resource_metrics
                .iter()
                .flat_map(|resource| &resource.scope_metrics)
                .flat_map(|scope| &scope.metrics)
                .map(|metric| match &metric.data {
                    None => 0,
                    Some(Data::Gauge(gauge)) => gauge.data_points.len(),
                    Some(Data::Sum(sum)) => sum.data_points.len(),
                    Some(Data::Histogram(histogram)) => histogram.data_points.len(),
                    Some(Data::ExponentialHistogram(histogram)) => histogram.data_points.len(),
                    Some(Data::Summary(summary)) => summary.data_points.len(),
                })
                .sum(),
            Decoded::Logs(request) => request
                .resource_logs
                .iter()
                .flat_map(|resource| &resource.scope_logs)
                .map(|scope| scope.log_records.len())
                .sum(),
        }
    }
}

/// Asserts that two encoded requests are the same to a reader that knows the schema. Unknown fields
/// are not compared: see [`unknown_fields`].
#[track_caller]
pub fn assert_equivalent(signal: Signal, expected: &[u8], actual: &[u8]) {
    let expected = Decoded::decode(signal, expected).expect("the expected request decodes");
    let actual = match Decoded::decode(signal, actual) {
        Ok(decoded) => decoded,
        Err(error) => {
            panic!(
                "the request does not decode: {error}\nexpected: {expected:#?}\nactual bytes: {actual:02x?}"
            )
        }
    };
    if expected.encode() != actual.encode() {
        panic!("the requests differ\nexpected: {expected:#?}\nactual: {actual:#?}");
    }
}

/// The path of a message (field names, no indices: `resourceSpans.scopeSpans.spans`; the request
/// itself is the empty path) and an unknown field in it.
pub type UnknownField = (String, Record);

/// Every field of the request that the schema does not know, with how often it occurs. Elements of
/// repeated fields share their path, so merging and splitting requests only add up or divide the
/// counts.
pub fn unknown_fields(signal: Signal, encoded: &[u8]) -> BTreeMap<UnknownField, usize> {
    let mut found = BTreeMap::new();
    collect_unknown(super::request(signal), "", encoded, &mut found);
    found
}

fn collect_unknown(
    message: &Message,
    path: &str,
    encoded: &[u8],
    found: &mut BTreeMap<UnknownField, usize>,
) {
    for record in records(encoded) {
        match super::field(message, record.number) {
            None => *found.entry((path.to_owned(), record)).or_default() += 1,
            Some(field) => {
                if let Kind::Message(child) = field.kind {
                    let separator = if path.is_empty() { "" } else { "." };
                    collect_unknown(
                        child,
                        &format!("{path}{separator}{}", field.name),
                        &record.value,
                        found,
                    );
                }
            }
        }
    }
}
