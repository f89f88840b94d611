//! The same for requests in OTLP's JSON form.

use serde_json::Value;
use sluice_otlp::Signal;

use super::scan::{Item, RequestStamp};
use super::text;
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
                items.extend(points(entry).map(|point| read_point(stamp, point)));
            } else {
                items.push(read_entry(signal, stamp, entry));
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

fn read_point(stamp: Option<RequestStamp>, point: &Value) -> Item {
    let raw = point["asInt"].as_str().and_then(parse_point);
    let of_sample = || {
        let time = point["timeUnixNano"].as_str().and_then(|time| time.parse().ok());
        Item::of_sample(point["asDouble"].as_f64()?, time.unwrap_or(0))
    };
    stamped(stamp, raw).or_else(of_sample).unwrap_or(Item::UNKNOWN)
}

fn read_entry(signal: Signal, stamp: Option<RequestStamp>, entry: &Value) -> Item {
    let raw = entry["spanId"].as_str().and_then(|id| u64::from_str_radix(id, 16).ok());
    let of_line = || if signal == Signal::Logs { text::identify(entry.to_string().as_bytes()) } else { None };
    stamped(stamp, raw).or_else(of_line).unwrap_or(Item::UNKNOWN)
}

fn stamped(stamp: Option<RequestStamp>, raw: Option<u64>) -> Option<Item> {
    Some(stamp?.item(raw?))
}
