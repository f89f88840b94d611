//! The wire operations on OTLP. Compiled into the tests of the `otlp` crate too, which replay the
//! corpus on the stable compiler: so this file uses nothing but that crate and its test
//! dependencies.
//!
//! An input is one byte, which chooses the signal and a variant of the check, and then the encoded
//! request.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::Message;
use sluice_otlp::json::{ToJsonError, from_json, to_json};
use sluice_otlp::{
    AnyValue, Attributes, ItemEditor, NewValue, Signal, SplitLimits, View, count, edit_items,
    edit_resources, scan, split,
};

const LIMIT_BYTES: usize = 8 << 20;

/// Reasons for which scan refuses more than prost: the Collector's rules for ids, and bounds on
/// nesting that leave later readers room.
const STRICTER_THAN_PROST: [&str; 4] = [
    "a trace id is neither empty nor 16 bytes long",
    "a span id is neither empty nor 8 bytes long",
    "messages nest too deeply",
    "groups nest too deeply",
];

/// The first byte of an input.
struct Choice {
    signal: Signal,
    variant: u8,
}

fn choose(data: &[u8]) -> Option<(Choice, &[u8])> {
    let (&first, rest) = data.split_first()?;
    let signal = Signal::ALL[usize::from(first) % Signal::ALL.len()];
    Some((Choice { signal, variant: first / Signal::ALL.len() as u8 }, rest))
}

/// Items as prost counts them, if it can decode the request.
fn prost_items(signal: Signal, request: &[u8]) -> Option<usize> {
    match signal {
        Signal::Traces => {
            let request = ExportTraceServiceRequest::decode(request).ok()?;
            Some(
                request
                    .resource_spans
                    .iter()
                    .flat_map(|resource| &resource.scope_spans)
                    .map(|scope| scope.spans.len())
                    .sum(),
            )
        }
        Signal::Logs => {
            let request = ExportLogsServiceRequest::decode(request).ok()?;
            Some(
                request
                    .resource_logs
                    .iter()
                    .flat_map(|resource| &resource.scope_logs)
                    .map(|scope| scope.log_records.len())
                    .sum(),
            )
        }
        Signal::Metrics => {
            let request = ExportMetricsServiceRequest::decode(request).ok()?;
            let scopes =
                request.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
            Some(scopes.flat_map(|scope| &scope.metrics).map(|metric| points(&metric.data)).sum())
        }
    }
}

fn points(data: &Option<Data>) -> usize {
    match data {
        None => 0,
        Some(Data::Gauge(gauge)) => gauge.data_points.len(),
        Some(Data::Sum(sum)) => sum.data_points.len(),
        Some(Data::Histogram(histogram)) => histogram.data_points.len(),
        Some(Data::ExponentialHistogram(histogram)) => histogram.data_points.len(),
        Some(Data::Summary(summary)) => summary.data_points.len(),
    }
}

/// Scan accepts the requests that prost decodes, but for the reasons that it declares, and counts
/// the same items.
pub fn check_scan(data: &[u8]) {
    let Some((Choice { signal, .. }, request)) = choose(data) else { return };
    match (scan(signal, request), prost_items(signal, request)) {
        (Ok(scanned), Some(items)) => {
            assert_eq!(scanned as usize, items, "scan and prost count alike")
        }
        (Ok(_), None) => panic!("scan accepts what prost refuses"),
        (Err(error), Some(_)) => {
            assert!(
                STRICTER_THAN_PROST.contains(&error.reason),
                "scan refuses what prost decodes: {error}"
            );
        }
        (Err(error), None) => {
            assert!(error.offset <= request.len(), "the offset lies within the request")
        }
    }
}

/// The parts of a valid request are valid, contain all its items, and obey the limits where they
/// can be obeyed.
pub fn check_split(data: &[u8]) {
    let Some((Choice { signal, variant }, request)) = choose(data) else { return };
    let request = Bytes::copy_from_slice(request);
    let limits = SplitLimits {
        max_bytes: [usize::MAX, 0, 16, 64, 256, 1024][usize::from(variant) % 6],
        max_items: [usize::MAX, 0, 1, 2, 7][usize::from(variant / 6) % 5],
    };
    let scanned = scan(signal, &request);
    let parts = split(signal, &request, limits);
    let Ok(scanned) = scanned else { return };
    let parts = parts.expect("a valid request can be split");
    let mut items = 0;
    for part in &parts {
        let counted = scan(signal, &part.bytes).expect("a part is a valid request");
        assert_eq!(counted, part.items, "a part holds what it says");
        assert_eq!(count(signal, &part.bytes), Ok(counted), "counting and scanning agree");
        assert!(
            counted as usize <= limits.max_items.max(1),
            "a part has no more items than allowed"
        );
        if part.bytes.len() > limits.max_bytes {
            assert!(counted <= 1, "a part that is too large cannot be cut further");
        }
        items += counted;
    }
    assert_eq!(items, scanned, "no item is lost or doubled");
}

/// Edits of a valid request give a valid request with the same items, in which the edit has nothing
/// left to do.
pub fn check_edit(data: &[u8]) {
    let Some((Choice { signal, .. }, request)) = choose(data) else { return };
    let request = Bytes::copy_from_slice(request);
    let value = AnyValue::String("fuzzed".to_owned()).encoded();
    let on_resources = edit_resources(&request, |attributes| edit(attributes, &value));
    let on_items = edit_items(signal, &request, &mut EditAll { value: &value });
    let Ok(items) = scan(signal, &request) else { return };
    for edited in [on_resources, on_items] {
        if let Some(edited) = edited.expect("a valid request can be edited") {
            assert_eq!(
                scan(signal, &edited),
                Ok(items),
                "an edit leaves a valid request with the same items"
            );
        }
    }
    let once = edit_resources(&request, |attributes| edit(attributes, &value))
        .expect("valid")
        .unwrap_or(request);
    let twice = edit_resources(&once, |attributes| edit(attributes, &value)).expect("valid");
    assert_eq!(twice, None, "the second of two equal edits changes nothing");
}

struct EditAll<'v> {
    value: &'v [u8],
}

impl ItemEditor for EditAll<'_> {
    fn item(&mut self, _item: View<'_>, attributes: &mut Attributes<'_>) {
        edit(attributes, self.value);
    }
}

/// Removes every `a`, sets `fuzzed`.
fn edit(attributes: &mut Attributes<'_>, value: &[u8]) {
    while let Some(index) = attributes.find(b"a") {
        attributes.remove(index);
    }
    match attributes.find(b"fuzzed") {
        Some(index) => attributes.set(index, NewValue::Encoded(value)),
        None => attributes.add(b"fuzzed", NewValue::Encoded(value)),
    }
}

/// A request that is read from JSON is valid and within the limit, and its JSON reads the same.
pub fn check_json_in(data: &[u8]) {
    let Some((Choice { signal, .. }, json)) = choose(data) else { return };
    match from_json(signal, json, LIMIT_BYTES) {
        Ok(request) => {
            assert!(request.len() <= LIMIT_BYTES);
            assert!(scan(signal, &request).is_ok(), "what is read from JSON is valid");
            let written = written(signal, &request);
            let read =
                from_json(signal, &written, LIMIT_BYTES).expect("what is written can be read");
            assert_eq!(
                self::written(signal, &read),
                written,
                "JSON survives the way there and back"
            );
        }
        Err(error) => assert!(error.offset <= json.len(), "the offset lies within the body"),
    }
}

/// Every valid request can be written as JSON, and that JSON reads the same.
pub fn check_json_out(data: &[u8]) {
    let Some((Choice { signal, .. }, request)) = choose(data) else { return };
    let mut json = Vec::new();
    let result = to_json(signal, request, LIMIT_BYTES, &mut json);
    let Ok(items) = scan(signal, request) else { return };
    match result {
        Ok(()) => {
            let read = from_json(signal, &json, LIMIT_BYTES).expect("what is written can be read");
            assert_eq!(scan(signal, &read), Ok(items), "no item is lost or doubled");
            assert_eq!(written(signal, &read), json, "JSON survives the way there and back");
        }
        Err(ToJsonError::TooLarge { .. }) => assert!(json.is_empty()),
        Err(ToJsonError::Malformed(error)) => {
            assert_eq!(
                error.reason, "a singular message comes in too many parts",
                "a valid request can be written"
            );
        }
    }
}

fn written(signal: Signal, request: &[u8]) -> Vec<u8> {
    let mut json = Vec::new();
    to_json(signal, request, 16 * LIMIT_BYTES, &mut json).expect("a valid request can be written");
    json
}
