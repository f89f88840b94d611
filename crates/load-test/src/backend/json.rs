//! The same for requests in OTLP's JSON form.

use serde_json::Value;
use sluice_otlp::Signal;

use super::scan::{Item, RequestStamp};
use crate::identity::REQUEST_ATTRIBUTE;
use crate::wire::Malformed;

/// Appends the items of a JSON request to `items`, in order.
pub(crate) fn scan(signal: Signal, message: &[u8], items: &mut Vec<Item>) -> Result<(), Malformed> {
    let (resources, scopes, entries) = match signal {
        Signal::Traces => ("resourceSpans", "scopeSpans", "spans"),
        Signal::Metrics => ("resourceMetrics", "scopeMetrics", "metrics"),
        Signal::Logs => ("resourceLogs", "scopeLogs", "logRecords"),
    };
    let request: Value = serde_json::from_slice(message).map_err(|_| Malformed)?;
    for resource in list(&request, resources) {
        let stamp = find_stamp(&resource["resource"]);
        for entry in list(resource, scopes).flat_map(|scope| list(scope, entries)) {
            if signal == Signal::Metrics {
                items.extend(points(entry).map(|point| read(stamp, point["asInt"].as_str().and_then(parse_point))));
            } else {
                let id = entry["spanId"].as_str().and_then(|id| u64::from_str_radix(id, 16).ok());
                items.push(read(stamp, id));
            }
        }
    }
    Ok(())
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().into_iter().flatten()
}

fn points(metric: &Value) -> impl Iterator<Item = &Value> {
    const KINDS: [&str; 5] = ["gauge", "sum", "histogram", "exponentialHistogram", "summary"];
    KINDS.into_iter().flat_map(|kind| list(&metric[kind], "dataPoints"))
}

/// 64-bit integers are strings in OTLP's JSON; the identity is the integer's bits.
fn parse_point(text: &str) -> Option<u64> {
    text.parse::<i64>().ok().map(i64::cast_unsigned)
}

fn find_stamp(resource: &Value) -> Option<RequestStamp> {
    let attribute = list(resource, "attributes").find(|attribute| attribute["key"] == REQUEST_ATTRIBUTE)?;
    RequestStamp::parse(attribute["value"]["stringValue"].as_str()?.as_bytes())
}

fn read(stamp: Option<RequestStamp>, raw: Option<u64>) -> Item {
    match (stamp, raw) {
        (Some(stamp), Some(raw)) => stamp.item(raw),
        _ => Item { identity: None, sent_unix_ns: 0 },
    }
}
