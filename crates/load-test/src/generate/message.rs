//! An encoded export request of a load's shape, and where in it the bytes are that vary from request to request. It is written
//! as OTLP's JSON and translated, so that no field number stands here.

use serde_json::{Value, json};
use sluice_otlp::Signal;
use sluice_otlp::json::from_json;

use super::template::Shape;
use crate::identity::{Identity, MARK_ATTRIBUTE, ORDINARY_MARK, REQUEST_ATTRIBUTE};

/// Length of the value of [`REQUEST_ATTRIBUTE`]: identity and time in hexadecimal.
pub(super) const STAMP_LEN: usize = 32;
/// A span lasts this long, so that every one is sound.
pub(super) const SPAN_LASTS_NS: u64 = 1_000_000;
/// Points of one metric in a request.
const POINTS_PER_METRIC: usize = 10;

/// Where an item's variable bytes are, from a place on that is the same in each item.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layout {
    pub(super) trace_id_at: Option<usize>,
    pub(super) identity_at: usize,
    pub(super) time_at: usize,
    pub(super) end_time_at: Option<usize>,
    pub(super) mark_at: usize,
}

/// An encoded export request and the places in it.
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    pub(super) stamp_at: usize,
    pub(super) items_at: Vec<usize>,
    pub(super) layout: Layout,
}

impl Message {
    pub(super) fn build(shape: &Shape) -> Self {
        assert!(shape.attributes >= 1 && shape.items_per_request >= 1, "an item has its mark, a request an item");
        let mut text = Text::new();
        let time_unix_ns = crate::unix_ns();
        let trace_ids: Vec<u128> = (0..shape.items_per_request).map(|_| text.trace_id()).collect();
        let items = trace_ids.iter().zip(0..).map(|(&trace_id, index)| {
            let item = ItemFields { trace_id, identity: Identity::relative(index).0, time_unix_ns };
            item.to_json(shape, &mut text)
        });
        let request = request(shape.signal, items.collect()).to_string();
        let bytes = from_json(shape.signal, request.as_bytes(), usize::MAX).expect("a sound request");
        let stamp_at = find(&bytes, &[b'0'; STAMP_LEN]);
        let (items_at, layout) = locate(shape, &bytes, trace_ids[0], time_unix_ns);
        Message { bytes, stamp_at, items_at, layout }
    }
}

/// The fields of an item that are found again in the encoded request.
struct ItemFields {
    trace_id: u128,
    identity: u64,
    time_unix_ns: u64,
}

impl ItemFields {
    /// Members in ascending order of their fields, as SDKs write them. All items of a shape have the same length and layout.
    fn to_json(&self, shape: &Shape, text: &mut Text) -> Value {
        let (trace_id, span_id) = (format!("{:032x}", self.trace_id), format!("{:016x}", self.identity));
        let (time, end_time) = (self.time_unix_ns, self.time_unix_ns + SPAN_LASTS_NS);
        match shape.signal {
            Signal::Traces => json!({
                "traceId": trace_id, "spanId": span_id, "name": "load-test-operation", "kind": 2,
                "startTimeUnixNano": time, "endTimeUnixNano": end_time, "attributes": attributes(shape, text),
            }),
            Signal::Metrics => json!({
                "timeUnixNano": time, "asInt": self.identity.cast_signed(), "attributes": attributes(shape, text),
            }),
            Signal::Logs => json!({
                "timeUnixNano": time, "severityNumber": 9, "severityText": "INFO",
                "body": {"stringValue": text.body(shape.body_bytes)}, "attributes": attributes(shape, text),
                "traceId": trace_id, "spanId": span_id,
            }),
        }
    }
}

fn request(signal: Signal, items: Vec<Value>) -> Value {
    let resource = json!({"attributes": [
        attribute(REQUEST_ATTRIBUTE, "0".repeat(STAMP_LEN)),
        attribute("service.name", "load-test"),
        attribute("service.version", "1.0.0"),
        attribute("k8s.namespace.name", "load-test"),
        attribute("k8s.pod.name", "load-generator-7d9c5b8f4-x2x7q"),
    ]});
    let scope = json!({"name": "sluice-load-test"});
    match signal {
        Signal::Traces => {
            json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": items}]}]})
        }
        Signal::Metrics => {
            let metrics: Vec<Value> = items.chunks(POINTS_PER_METRIC).zip(0..).map(metric).collect();
            json!({"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"scope": scope, "metrics": metrics}]}]})
        }
        Signal::Logs => {
            json!({"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": scope, "logRecords": items}]}]})
        }
    }
}

fn metric((points, index): (&[Value], u32)) -> Value {
    json!({"name": format!("load_test.metric.{index:03}"), "gauge": {"dataPoints": points}})
}

fn attribute(key: &str, value: impl Into<String>) -> Value {
    json!({"key": key, "value": {"stringValue": value.into()}})
}

/// The attributes of an item, the mark first. Every second value is the same in all items and the rest is random, which
/// compresses to about a quarter, as real telemetry does.
fn attributes(shape: &Shape, text: &mut Text) -> Vec<Value> {
    let value_bytes = shape.attribute_value_bytes;
    let others = (1..shape.attributes).map(|index| {
        let value = if index % 2 == 0 { text.random(value_bytes) } else { text.constant(index, value_bytes) };
        attribute(&format!("attribute{index:02}"), value)
    });
    std::iter::once(attribute(MARK_ATTRIBUTE, ORDINARY_MARK)).chain(others).collect()
}

/// Where items begin, and the layout that they share. An item counts from the first of its places.
fn locate(shape: &Shape, request: &[u8], first_trace_id: u128, time_unix_ns: u64) -> (Vec<usize>, Layout) {
    let identity = |index| match shape.signal {
        Signal::Metrics => Identity::relative(index).0.to_le_bytes(),
        Signal::Traces | Signal::Logs => Identity::relative(index).0.to_be_bytes(),
    };
    let time_at = find(request, &time_unix_ns.to_le_bytes());
    let mark_at = find(request, ORDINARY_MARK.as_bytes());
    let identity_at = find(request, &identity(0));
    let trace_id_at = (shape.signal != Signal::Metrics).then(|| find(request, &first_trace_id.to_be_bytes()));
    let end_time = (time_unix_ns + SPAN_LASTS_NS).to_le_bytes();
    let end_time_at = (shape.signal == Signal::Traces).then(|| find(request, &end_time));
    let first_at = [time_at, mark_at, identity_at].into_iter().chain(trace_id_at).min().unwrap_or_default();
    let layout = Layout {
        trace_id_at: trace_id_at.map(|at| at - first_at),
        identity_at: identity_at - first_at,
        time_at: time_at - first_at,
        end_time_at: end_time_at.map(|at| at - first_at),
        mark_at: mark_at - first_at,
    };
    let mut searched = 0;
    let items_at = (0..shape.items_per_request).map(|index| {
        searched += find(&request[searched..], &identity(index));
        searched - layout.identity_at
    });
    (items_at.collect(), layout)
}

fn find(haystack: &[u8], needle: &[u8]) -> usize {
    memchr::memmem::find(haystack, needle).expect("the request has just been built with this in it")
}

/// Text that is the same in every run: a run is to be repeatable.
struct Text {
    random: fastrand::Rng,
}

impl Text {
    fn new() -> Self {
        Text { random: fastrand::Rng::with_seed(0x51_1c_e5) }
    }

    fn trace_id(&mut self) -> u128 {
        self.random.u128(1..)
    }

    fn random(&mut self, len: usize) -> String {
        (0..len).map(|_| self.random.alphanumeric()).collect()
    }

    fn constant(&self, index: u32, len: usize) -> String {
        let mut random = fastrand::Rng::with_seed(u64::from(index));
        (0..len).map(|_| random.alphanumeric()).collect()
    }

    fn body(&mut self, len: usize) -> String {
        const WORDS: &str = "request served from cache upstream latency user session order created with status retry \
                             after timeout connection closed by peer GET POST 200 503 payment";
        let words: Vec<&str> = WORDS.split(' ').collect();
        let mut body = String::with_capacity(len + 16);
        while body.len() < len {
            body.push_str(words[self.random.usize(..words.len())]);
            body.push(' ');
            if self.random.u8(..) < 48 {
                body.push_str(&format!("{:08x} ", self.random.u32(..)));
            }
        }
        body.truncate(len);
        body
    }
}
