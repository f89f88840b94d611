//! A request that is encoded once and then only stamped: the places of identities and times are known, so that sending
//! costs no encoding and no allocation an item.

use sluice_otlp::{Encoding, Signal};

use super::packed::{GzipTail, pack};
use crate::identity::{Identity, MARK_ATTRIBUTE, ORDINARY_MARK, POISON_MARK, REQUEST_ATTRIBUTE};
use crate::wire::{put_attribute, put_bytes, put_fixed64, put_unsigned};

/// Length of the gRPC message prefix: a flag byte and four bytes of length.
pub(crate) const PREFIX_LEN: usize = 5;
/// Length of the value of [`REQUEST_ATTRIBUTE`]: identity and time in hexadecimal.
const STAMP_LEN: usize = 32;
/// A span lasts this long, so that every one is sound.
const SPAN_LASTS_NS: u64 = 1_000_000;
/// Points of one metric in a request.
const POINTS_PER_METRIC: u32 = 10;

/// What generated items look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub signal: Signal,
    pub items_per_request: u32,
    /// Attributes an item, one of which is the mark. At least 1.
    pub attributes: u32,
    /// Length of each attribute's value in bytes.
    pub attribute_value_bytes: usize,
    /// Length of a log record's body in bytes. Ignored for the other signals, which have no body.
    pub body_bytes: usize,
}

impl Shape {
    /// The items of the Kyma telemetry load test: spans of 40 attributes (about 1.9 kB), metric points of 10 (about
    /// 0.5 kB), log records with bodies of 2,000 bytes (about 2.5 kB); 100 items a request.
    pub fn of(signal: Signal) -> Self {
        let attributes = if signal == Signal::Traces { 40 } else { 10 };
        Shape { signal, items_per_request: 100, attributes, attribute_value_bytes: 27, body_bytes: 2000 }
    }

    /// Length of one item in an uncompressed request, with its share of the request's frame.
    pub fn bytes_per_item(&self) -> f64 {
        Message::build(self).bytes.len() as f64 / f64::from(self.items_per_request)
    }
}

/// Where an item's variable bytes are, from the item's first byte on.
#[derive(Clone, Copy, Debug, Default)]
struct Layout {
    trace_id_at: Option<usize>,
    identity_at: usize,
    time_at: usize,
    end_time_at: Option<usize>,
    mark_at: usize,
}

/// A ready request in the form in which it goes over the wire, gRPC prefix included.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    signal: Signal,
    items: u32,
    frame: Vec<u8>,
    /// Where the request attribute's value is in `frame`.
    stamp_at: usize,
    /// Where each item begins in `frame`. Empty where the items are compressed: then the request's stamp alone varies.
    items_at: Vec<usize>,
    layout: Layout,
    gzip: Option<GzipTail>,
}

/// What one request is stamped with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) first: Identity,
    pub(crate) time_unix_ns: u64,
    /// Every item whose sequence number is a multiple of this is marked as poison.
    pub(crate) poison_every: Option<u64>,
}

impl Template {
    /// Builds the request. `Encoding::Snappy` is not an encoding of OTLP senders and is refused by the caller.
    pub(crate) fn new(shape: &Shape, encoding: Encoding) -> Self {
        let message = Message::build(shape);
        // The constant part follows the last varying byte that the head has: head = everything up to the stamp's end.
        let head_len = message.stamp_at + STAMP_LEN;
        let packed = pack(&message.bytes, head_len, encoding);
        let mut frame = Vec::with_capacity(PREFIX_LEN + packed.bytes.len());
        frame.push(u8::from(encoding != Encoding::Identity));
        frame.extend_from_slice(&u32::try_from(packed.bytes.len()).expect("a request below 4 GiB").to_be_bytes());
        frame.extend_from_slice(&packed.bytes);
        let items_at = match encoding {
            Encoding::Identity => message.items_at.iter().map(|at| at + PREFIX_LEN).collect(),
            _ => Vec::new(),
        };
        Template {
            signal: shape.signal,
            items: shape.items_per_request,
            stamp_at: PREFIX_LEN + packed.head_at + message.stamp_at,
            items_at,
            layout: message.layout,
            gzip: packed.gzip.map(|tail| tail.shifted(PREFIX_LEN)),
            frame,
        }
    }

    /// The unstamped frame: the first bytes of every buffer that [`Template::stamp`] is applied to.
    pub(crate) fn frame(&self) -> &[u8] {
        &self.frame
    }

    pub(crate) fn items(&self) -> u32 {
        self.items
    }

    /// Writes identity and time into a copy of the frame, whatever it was stamped with before.
    pub(crate) fn stamp(&self, frame: &mut [u8], stamp: Stamp) {
        debug_assert_eq!(frame.len(), self.frame.len());
        let value = &mut frame[self.stamp_at..self.stamp_at + STAMP_LEN];
        put_hex(&mut value[..16], stamp.first.0);
        put_hex(&mut value[16..], stamp.time_unix_ns);
        for (index, &at) in self.items_at.iter().enumerate() {
            self.stamp_item(&mut frame[at..], Identity(stamp.first.0 + index as u64), stamp);
        }
        if let Some(tail) = &self.gzip {
            tail.seal(frame);
        }
    }

    fn stamp_item(&self, item: &mut [u8], identity: Identity, stamp: Stamp) {
        let layout = &self.layout;
        if let Some(at) = layout.trace_id_at {
            // Two spans a trace: the upper half tells runs apart, the lower half traces.
            item[at..at + 8].copy_from_slice(&(stamp.time_unix_ns | 1).to_be_bytes());
            item[at + 8..at + 16].copy_from_slice(&(identity.0 >> 1).to_be_bytes());
        }
        let bytes = if self.signal == Signal::Metrics { identity.0.to_le_bytes() } else { identity.0.to_be_bytes() };
        item[layout.identity_at..layout.identity_at + 8].copy_from_slice(&bytes);
        item[layout.time_at..layout.time_at + 8].copy_from_slice(&stamp.time_unix_ns.to_le_bytes());
        if let Some(at) = layout.end_time_at {
            item[at..at + 8].copy_from_slice(&(stamp.time_unix_ns + SPAN_LASTS_NS).to_le_bytes());
        }
        if let Some(every) = stamp.poison_every {
            let mark = if identity.sequence().is_multiple_of(every) { POISON_MARK } else { ORDINARY_MARK };
            item[layout.mark_at..layout.mark_at + mark.len()].copy_from_slice(mark.as_bytes());
        }
    }
}

pub(crate) fn put_hex(out: &mut [u8], value: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (index, digit) in out.iter_mut().enumerate() {
        *digit = DIGITS[(value >> (60 - 4 * index) & 15) as usize];
    }
}

/// An encoded export request and the places in it.
struct Message {
    bytes: Vec<u8>,
    stamp_at: usize,
    items_at: Vec<usize>,
    layout: Layout,
}

impl Message {
    fn build(shape: &Shape) -> Self {
        assert!(shape.attributes >= 1 && shape.items_per_request >= 1, "an item has its mark, a request an item");
        let mut text = Text::new();
        let mut layout = Layout::default();
        let items: Vec<Vec<u8>> = (0..shape.items_per_request)
            .map(|index| {
                let (item, places) = encode_item(shape, index, &mut text);
                layout = places;
                item
            })
            .collect();
        let resource = encode_resource();
        let stamp_in_resource = find(&resource, &[b'0'; STAMP_LEN]);
        let (scope, items_in_scope) = encode_scope(shape.signal, &items);
        let mut parts = Vec::with_capacity(resource.len() + scope.len() + 16);
        put_bytes(&mut parts, 1, &resource);
        let resource_at = parts.len() - resource.len();
        put_bytes(&mut parts, 2, &scope);
        let scope_at = parts.len() - scope.len();
        let mut bytes = Vec::with_capacity(parts.len() + 16);
        put_bytes(&mut bytes, 1, &parts);
        let parts_at = bytes.len() - parts.len();
        Message {
            stamp_at: parts_at + resource_at + stamp_in_resource,
            items_at: items_in_scope.iter().map(|at| parts_at + scope_at + at).collect(),
            bytes,
            layout,
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> usize {
    memchr::memmem::find(haystack, needle).expect("the template has just been built with this in it")
}

fn encode_resource() -> Vec<u8> {
    let mut resource = Vec::new();
    put_attribute(&mut resource, 1, REQUEST_ATTRIBUTE, &[b'0'; STAMP_LEN]);
    put_attribute(&mut resource, 1, "service.name", b"load-test");
    put_attribute(&mut resource, 1, "service.version", b"1.0.0");
    put_attribute(&mut resource, 1, "k8s.namespace.name", b"load-test");
    put_attribute(&mut resource, 1, "k8s.pod.name", b"load-generator-7d9c5b8f4-x2x7q");
    resource
}

/// ScopeSpans, ScopeMetrics or ScopeLogs with the items in it, and where each of them begins.
fn encode_scope(signal: Signal, items: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
    let mut scope = Vec::new();
    let mut name = Vec::new();
    put_bytes(&mut name, 1, b"sluice-load-test");
    put_bytes(&mut scope, 1, &name);
    let mut items_at = Vec::with_capacity(items.len());
    if signal != Signal::Metrics {
        for item in items {
            put_bytes(&mut scope, 2, item);
            items_at.push(scope.len() - item.len());
        }
        return (scope, items_at);
    }
    for (index, points) in items.chunks(POINTS_PER_METRIC as usize).enumerate() {
        let mut gauge = Vec::new();
        let mut points_at = Vec::new();
        for point in points {
            put_bytes(&mut gauge, 1, point);
            points_at.push(gauge.len() - point.len());
        }
        let mut metric = Vec::new();
        put_bytes(&mut metric, 1, format!("load_test.metric.{index:03}").as_bytes());
        put_bytes(&mut metric, 5, &gauge);
        let gauge_at = metric.len() - gauge.len();
        put_bytes(&mut scope, 2, &metric);
        let metric_at = scope.len() - metric.len();
        items_at.extend(points_at.iter().map(|at| metric_at + gauge_at + at));
    }
    (scope, items_at)
}

/// One item in ascending field order, as SDKs write it. All items of a shape have the same length and layout.
fn encode_item(shape: &Shape, index: u32, text: &mut Text) -> (Vec<u8>, Layout) {
    let identity = Identity::relative(index).0;
    let time = crate::unix_ns();
    let mut item = Vec::new();
    let mut layout = Layout::default();
    match shape.signal {
        Signal::Traces => {
            put_bytes(&mut item, 1, &text.id(16));
            layout.trace_id_at = Some(item.len() - 16);
            put_bytes(&mut item, 2, &identity.to_be_bytes());
            layout.identity_at = item.len() - 8;
            put_bytes(&mut item, 5, b"load-test-operation");
            put_unsigned(&mut item, 6, 2);
            put_fixed64(&mut item, 7, time);
            layout.time_at = item.len() - 8;
            put_fixed64(&mut item, 8, time + SPAN_LASTS_NS);
            layout.end_time_at = Some(item.len() - 8);
            layout.mark_at = put_attributes(&mut item, 9, shape, text);
        }
        Signal::Metrics => {
            put_fixed64(&mut item, 3, time);
            layout.time_at = item.len() - 8;
            put_fixed64(&mut item, 6, identity);
            layout.identity_at = item.len() - 8;
            layout.mark_at = put_attributes(&mut item, 7, shape, text);
        }
        Signal::Logs => {
            put_fixed64(&mut item, 1, time);
            layout.time_at = item.len() - 8;
            put_unsigned(&mut item, 2, 9);
            put_bytes(&mut item, 3, b"INFO");
            let mut body = Vec::new();
            put_bytes(&mut body, 1, text.body(shape.body_bytes).as_bytes());
            put_bytes(&mut item, 5, &body);
            layout.mark_at = put_attributes(&mut item, 6, shape, text);
            put_bytes(&mut item, 9, &text.id(16));
            layout.trace_id_at = Some(item.len() - 16);
            put_bytes(&mut item, 10, &identity.to_be_bytes());
            layout.identity_at = item.len() - 8;
        }
    }
    (item, layout)
}

/// Appends the attributes, the mark first, and says where the mark's value begins. Every second value is the same in
/// all items and the others are random, which compresses to about a quarter, as real telemetry does.
fn put_attributes(item: &mut Vec<u8>, field: u32, shape: &Shape, text: &mut Text) -> usize {
    put_attribute(item, field, MARK_ATTRIBUTE, ORDINARY_MARK.as_bytes());
    let mark_at = item.len() - ORDINARY_MARK.len();
    for index in 1..shape.attributes {
        let value = if index % 2 == 0 {
            text.random(shape.attribute_value_bytes)
        } else {
            text.constant(index, shape.attribute_value_bytes)
        };
        put_attribute(item, field, &format!("attribute{index:02}"), value.as_bytes());
    }
    mark_at
}

/// Text that is the same in every run: a run is to be repeatable.
struct Text {
    random: fastrand::Rng,
}

impl Text {
    fn new() -> Self {
        Text { random: fastrand::Rng::with_seed(0x51_1c_e5) }
    }

    fn id(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.random.u8(1..)).collect()
    }

    fn random(&mut self, len: usize) -> String {
        (0..len).map(|_| self.random.alphanumeric()).collect()
    }

    fn constant(&self, index: u32, len: usize) -> String {
        let mut random = fastrand::Rng::with_seed(u64::from(index));
        (0..len).map(|_| random.alphanumeric()).collect()
    }

    fn body(&mut self, len: usize) -> String {
        const WORDS: [&str; 24] = [
            "request",
            "served",
            "from",
            "cache",
            "upstream",
            "latency",
            "user",
            "session",
            "order",
            "created",
            "with",
            "status",
            "retry",
            "after",
            "timeout",
            "connection",
            "closed",
            "by",
            "peer",
            "GET",
            "POST",
            "200",
            "503",
            "payment",
        ];
        let mut body = String::with_capacity(len + 16);
        while body.len() < len {
            body.push_str(WORDS[self.random.usize(..WORDS.len())]);
            body.push(' ');
            if self.random.u8(..) < 48 {
                body.push_str(&format!("{:08x} ", self.random.u32(..)));
            }
        }
        body.truncate(len);
        body
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::{
        logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
        trace::v1::ExportTraceServiceRequest,
    };
    use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};
    use prost::Message as _;

    use super::*;

    const STAMP: Stamp =
        Stamp { first: Identity(7 << 48 | 1000), time_unix_ns: 1_700_000_000_000_000_000, poison_every: Some(10) };

    fn stamped(signal: Signal) -> Vec<u8> {
        let template = Template::new(&Shape::of(signal), Encoding::Identity);
        let mut frame = template.frame().to_vec();
        template.stamp(&mut frame, STAMP);
        assert_eq!(u32::from_be_bytes(frame[1..5].try_into().unwrap()) as usize, frame.len() - PREFIX_LEN);
        frame.split_off(PREFIX_LEN)
    }

    #[test]
    fn spans_are_the_load_tests_spans_and_carry_the_stamp() {
        let bytes = stamped(Signal::Traces);
        let request = ExportTraceServiceRequest::decode(&bytes[..]).unwrap();
        let spans = &request.resource_spans[0].scope_spans[0].spans;
        assert_eq!(spans.len(), 100);
        assert!((185_000..200_000).contains(&bytes.len()), "about 1.9 kB a span: {}", bytes.len());
        for (index, span) in spans.iter().enumerate() {
            assert_eq!(span.span_id, (STAMP.first.0 + index as u64).to_be_bytes());
            assert_eq!(span.start_time_unix_nano, STAMP.time_unix_ns);
            assert_eq!(span.end_time_unix_nano, STAMP.time_unix_ns + SPAN_LASTS_NS);
            assert_eq!(span.attributes.len(), 40);
            let poisoned = format!("{:?}", span.attributes[0]).contains(POISON_MARK);
            assert_eq!(poisoned, (1000 + index) % 10 == 0);
        }
        assert_eq!(spans[0].trace_id, spans[1].trace_id, "two spans a trace");
        assert_ne!(spans[1].trace_id, spans[2].trace_id);
    }

    #[test]
    fn points_carry_the_stamp() {
        let bytes = stamped(Signal::Metrics);
        let request = ExportMetricsServiceRequest::decode(&bytes[..]).unwrap();
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let mut points = Vec::new();
        for metric in metrics {
            let Some(metric::Data::Gauge(gauge)) = &metric.data else { panic!("a gauge") };
            points.extend(&gauge.data_points);
        }
        assert_eq!((metrics.len(), points.len()), (10, 100));
        assert!((45_000..55_000).contains(&bytes.len()), "about 0.5 kB a point: {}", bytes.len());
        for (index, point) in points.iter().enumerate() {
            let identity = (STAMP.first.0 + index as u64).cast_signed();
            assert_eq!(point.value, Some(number_data_point::Value::AsInt(identity)));
            assert_eq!(point.time_unix_nano, STAMP.time_unix_ns);
            assert_eq!(point.attributes.len(), 10);
        }
    }

    #[test]
    fn records_carry_the_stamp() {
        let bytes = stamped(Signal::Logs);
        let request = ExportLogsServiceRequest::decode(&bytes[..]).unwrap();
        let records = &request.resource_logs[0].scope_logs[0].log_records;
        assert_eq!(records.len(), 100);
        assert!((235_000..260_000).contains(&bytes.len()), "about 2.5 kB a record: {}", bytes.len());
        for (index, record) in records.iter().enumerate() {
            assert_eq!(record.span_id, (STAMP.first.0 + index as u64).to_be_bytes());
            assert_eq!(record.time_unix_nano, STAMP.time_unix_ns);
        }
    }

    #[test]
    fn stamping_again_leaves_nothing_of_the_stamp_before() {
        for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Zstd] {
            let template = Template::new(&Shape::of(Signal::Logs), encoding);
            let (mut once, mut twice) = (template.frame().to_vec(), template.frame().to_vec());
            template.stamp(&mut once, STAMP);
            template.stamp(&mut twice, Stamp { first: Identity(9 << 48), time_unix_ns: 1, poison_every: Some(1) });
            template.stamp(&mut twice, STAMP);
            assert!(once == twice, "{encoding:?}");
        }
    }

    #[test]
    fn compressed_requests_compress_as_real_telemetry_does() {
        for signal in Signal::ALL {
            let plain = Template::new(&Shape::of(signal), Encoding::Identity).frame().len();
            let gzip = Template::new(&Shape::of(signal), Encoding::Gzip).frame().len();
            let ratio = plain as f64 / gzip as f64;
            assert!((2.5..6.0).contains(&ratio), "{signal}: {ratio:.2}");
        }
    }
}
