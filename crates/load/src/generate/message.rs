//! An encoded export request of a load's shape, with the offsets of its variable bytes. It is
//! written as OTLP's JSON and translated, so that no field number stands here.

use fastrand::Rng;
use serde_json::{Value, json};
use sluice_otlp::Signal;
use sluice_otlp::json::from_json;

use super::template::{Shape, identity_bytes};
use crate::identity::{Identity, MARK_ATTRIBUTE, ORDINARY_MARK, REQUEST_ATTRIBUTE, Stamp};

/// Duration of every span: a sound span ends after it begins.
pub(super) const SPAN_LASTS_NS: u64 = 1_000_000;
const ATTRIBUTE_VALUE_BYTES: usize = 27;
/// Points of one metric in a request.
const POINTS_PER_METRIC: usize = 10;

/// Offsets of an item's variable bytes from its identity, the same in all items.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) trace_id: Option<isize>,
    pub(super) time: isize,
    pub(super) end_time: Option<isize>,
    pub(super) mark: isize,
}

/// An encoded export request and the places in it.
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    pub(super) stamp_at: usize,
    /// Offset of each item's identity.
    pub(super) identities_at: Vec<usize>,
    pub(super) layout: Layout,
}

impl Message {
    pub(super) fn build(shape: &Shape) -> Self {
        let signal = shape.signal;
        // The text is the same in every run: a run is to be repeatable.
        let mut random = Rng::with_seed(0x51_1c_e5);
        let time_unix_ns = crate::unix_ns();
        let indices = 0..shape.items_per_request;
        let trace_ids: Vec<u128> = indices.clone().map(|_| random.u128(1..)).collect();
        let items = trace_ids.iter().zip(indices.clone()).map(|(&trace_id, index)| {
            item(shape, trace_id, Identity::relative(index), time_unix_ns, &mut random)
        });
        let request = request(signal, items.collect()).to_string();
        let bytes = from_json(signal, request.as_bytes(), usize::MAX).expect("a sound request");
        let mut searched = 0;
        let identities_at = indices.map(|index| {
            let identity = identity_bytes(signal, Identity::relative(index));
            searched += find(&bytes[searched..], &identity);
            searched
        });
        let identities_at: Vec<usize> = identities_at.collect();
        let offset =
            |needle: &[u8]| find(&bytes, needle).cast_signed() - identities_at[0].cast_signed();
        let end_time = (time_unix_ns + SPAN_LASTS_NS).to_le_bytes();
        let has_trace_id = signal != Signal::Metrics;
        let layout = Layout {
            trace_id: has_trace_id.then(|| offset(&trace_ids[0].to_be_bytes())),
            time: offset(&time_unix_ns.to_le_bytes()),
            end_time: (signal == Signal::Traces).then(|| offset(&end_time)),
            mark: offset(ORDINARY_MARK.as_bytes()),
        };
        Message { stamp_at: find(&bytes, &[b'0'; Stamp::LEN]), identities_at, layout, bytes }
    }
}

/// Fields in ascending order, as SDKs write them. All items of a shape have the same layout.
fn item(shape: &Shape, trace_id: u128, identity: Identity, time: u64, random: &mut Rng) -> Value {
    let (trace_id, span_id) = (format!("{trace_id:032x}"), format!("{:016x}", identity.0));
    let body = (shape.signal == Signal::Logs).then(|| log_body(shape.body_bytes, random));
    let attributes = attributes(shape, random);
    match shape.signal {
        Signal::Traces => json!({
            "traceId": trace_id, "spanId": span_id, "name": "load-test-operation", "kind": 2,
            "startTimeUnixNano": time, "endTimeUnixNano": time + SPAN_LASTS_NS,
            "attributes": attributes,
        }),
        Signal::Metrics => json!({
            "timeUnixNano": time, "asInt": identity.0.cast_signed(), "attributes": attributes,
        }),
        Signal::Logs => json!({
            "timeUnixNano": time, "severityNumber": 9, "severityText": "INFO",
            "body": {"stringValue": body}, "attributes": attributes,
            "traceId": trace_id, "spanId": span_id,
        }),
    }
}

fn request(signal: Signal, items: Vec<Value>) -> Value {
    let resource = json!({"attributes": [
        attribute(REQUEST_ATTRIBUTE, "0".repeat(Stamp::LEN)),
        attribute("service.name", "load-test"),
        attribute("service.version", "1.0.0"),
        attribute("k8s.namespace.name", "load-test"),
        attribute("k8s.pod.name", "load-generator-7d9c5b8f4-x2x7q"),
    ]});
    let (resources, scopes, name, entries) = match signal {
        Signal::Traces => ("resourceSpans", "scopeSpans", "spans", items),
        Signal::Metrics => {
            let metrics = items.chunks(POINTS_PER_METRIC).zip(0..).map(metric).collect();
            ("resourceMetrics", "scopeMetrics", "metrics", metrics)
        }
        Signal::Logs => ("resourceLogs", "scopeLogs", "logRecords", items),
    };
    let scope = json!({"scope": {"name": "sluice-load-test"}, name: entries});
    json!({resources: [{"resource": resource, scopes: [scope]}]})
}

fn metric((points, index): (&[Value], u32)) -> Value {
    json!({"name": format!("load_test.metric.{index:03}"), "gauge": {"dataPoints": points}})
}

fn attribute(key: &str, value: impl Into<String>) -> Value {
    json!({"key": key, "value": {"stringValue": value.into()}})
}

/// The attributes of an item, the mark first. Every second value is the same in all items and the
/// rest is random, which compresses to about a quarter, as real telemetry does.
fn attributes(shape: &Shape, random: &mut Rng) -> Vec<Value> {
    let value = |random: &mut Rng| -> String {
        (0..ATTRIBUTE_VALUE_BYTES).map(|_| random.alphanumeric()).collect()
    };
    let others = (1..shape.attributes).map(|index| {
        let is_random = index % 2 == 0;
        let value =
            if is_random { value(random) } else { value(&mut Rng::with_seed(index.into())) };
        attribute(&format!("attribute{index:02}"), value)
    });
    std::iter::once(attribute(MARK_ATTRIBUTE, ORDINARY_MARK)).chain(others).collect()
}

fn log_body(len: usize, random: &mut Rng) -> String {
    const WORDS: &str = "request served from cache upstream latency user session order created \
                         with status retry after timeout connection closed by peer GET POST 200 \
                         503 payment";
    let words: Vec<&str> = WORDS.split(' ').collect();
    let mut body = String::with_capacity(len + 16);
    while body.len() < len {
        body.push_str(words[random.usize(..words.len())]);
        body.push(' ');
        if random.u8(..) < 48 {
            body.push_str(&format!("{:08x} ", random.u32(..)));
        }
    }
    body.truncate(len);
    body
}

fn find(haystack: &[u8], needle: &[u8]) -> usize {
    memchr::memmem::find(haystack, needle).expect("the request has just been built with this in it")
}
