//! A request that is encoded once and then only stamped: the places of identities and times are
//! known, so that sending costs no encoding and no allocation an item.

use sluice_net::grpc::frame::PREFIX_BYTES;
use sluice_otlp::{Encoding, Signal};

use super::message::{Layout, Message, SPAN_LASTS_NS};
use super::packed::Packed;
use crate::identity::{Identity, ORDINARY_MARK, POISON_MARK, Stamp};

/// The form of generated items.
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
    /// The items of the Kyma telemetry load test: spans of 40 attributes (about 1.9 kB), metric
    /// points of 10 (about 0.5 kB), log records with bodies of 2,000 bytes (about 2.5 kB); 100
    /// items a request.
    pub fn of(signal: Signal) -> Self {
        let attributes = if signal == Signal::Traces { 40 } else { 10 };
        Shape {
            signal,
            items_per_request: 100,
            attributes,
            attribute_value_bytes: 27,
            body_bytes: 2000,
        }
    }

    /// Length of one item in an uncompressed request, with its share of the request's frame.
    pub fn bytes_per_item(&self) -> f64 {
        Message::build(self).bytes.len() as f64 / f64::from(self.items_per_request)
    }
}

/// A ready request in the form in which it goes over the wire, gRPC prefix included.
pub(crate) struct Template {
    signal: Signal,
    packed: Packed,
    items: u64,
    /// Where each item's identity is in the frame. Empty where the items are compressed: then the
    /// request's stamp alone varies.
    identities_at: Vec<usize>,
    layout: Layout,
}

impl Template {
    /// Builds the request. `Encoding::Snappy` is not an encoding of OTLP senders and is refused by
    /// the caller.
    pub(crate) fn new(shape: &Shape, encoding: Encoding) -> Self {
        let Message { bytes, stamp_at, identities_at, layout } = Message::build(shape);
        let identities_at = match encoding {
            Encoding::Identity => identities_at.iter().map(|at| at + PREFIX_BYTES).collect(),
            _ => Vec::new(),
        };
        Template {
            signal: shape.signal,
            // What is compressed begins where the stamp ends.
            packed: Packed::new(&bytes, stamp_at + Stamp::LEN, encoding),
            items: shape.items_per_request.into(),
            identities_at,
            layout,
        }
    }

    /// The unstamped frame: the first bytes of every buffer that [`Template::stamp`] is applied to.
    pub(crate) fn frame(&self) -> &[u8] {
        &self.packed.frame
    }

    pub(crate) fn items(&self) -> u64 {
        self.items
    }

    /// Writes identities and time into a copy of the frame, whatever it was stamped with before.
    /// Every item whose sequence number is a multiple of `poison_every` is marked as poison.
    pub(crate) fn stamp(&self, frame: &mut [u8], stamp: Stamp, poison_every: Option<u64>) {
        debug_assert_eq!(frame.len(), self.packed.frame.len());
        let stamp_end = self.packed.head.end;
        stamp.write(&mut frame[stamp_end - Stamp::LEN..stamp_end]);
        for (index, &identity_at) in self.identities_at.iter().enumerate() {
            let (layout, time_unix_ns) = (&self.layout, stamp.sent_unix_ns);
            let identity = Identity(stamp.first.0 + index as u64);
            let mut put = |offset: isize, bytes: &[u8]| {
                let at = identity_at.wrapping_add_signed(offset);
                frame[at..at + bytes.len()].copy_from_slice(bytes);
            };
            put(0, &identity_bytes(self.signal, identity));
            put(layout.time, &time_unix_ns.to_le_bytes());
            if let Some(trace_id) = layout.trace_id {
                // Two spans a trace: the upper half tells runs apart, the lower half traces.
                put(trace_id, &(time_unix_ns | 1).to_be_bytes());
                put(trace_id + 8, &(identity.0 >> 1).to_be_bytes());
            }
            if let Some(end_time) = layout.end_time {
                put(end_time, &(time_unix_ns + SPAN_LASTS_NS).to_le_bytes());
            }
            if let Some(every) = poison_every {
                let is_poison = identity.sequence().is_multiple_of(every);
                let mark = if is_poison { POISON_MARK } else { ORDINARY_MARK };
                put(layout.mark, mark.as_bytes());
            }
        }
        self.packed.seal(frame);
    }
}

/// An identity as an item's field has it: a span id, or an integer.
pub(super) fn identity_bytes(signal: Signal, identity: Identity) -> [u8; 8] {
    match signal {
        Signal::Metrics => identity.0.to_le_bytes(),
        Signal::Traces | Signal::Logs => identity.0.to_be_bytes(),
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
        Stamp { first: Identity(7 << 48 | 1000), sent_unix_ns: 1_700_000_000_000_000_000 };

    fn stamped(signal: Signal) -> Vec<u8> {
        let template = Template::new(&Shape::of(signal), Encoding::Identity);
        let mut frame = template.frame().to_vec();
        template.stamp(&mut frame, STAMP, Some(10));
        assert_eq!(
            u32::from_be_bytes(frame[1..5].try_into().unwrap()) as usize,
            frame.len() - PREFIX_BYTES
        );
        frame.split_off(PREFIX_BYTES)
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
            assert_eq!(span.start_time_unix_nano, STAMP.sent_unix_ns);
            assert_eq!(span.end_time_unix_nano, STAMP.sent_unix_ns + SPAN_LASTS_NS);
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
            assert_eq!(point.time_unix_nano, STAMP.sent_unix_ns);
            assert_eq!(point.attributes.len(), 10);
        }
    }

    #[test]
    fn records_carry_the_stamp() {
        let bytes = stamped(Signal::Logs);
        let request = ExportLogsServiceRequest::decode(&bytes[..]).unwrap();
        let records = &request.resource_logs[0].scope_logs[0].log_records;
        assert_eq!(records.len(), 100);
        assert!(
            (235_000..260_000).contains(&bytes.len()),
            "about 2.5 kB a record: {}",
            bytes.len()
        );
        for (index, record) in records.iter().enumerate() {
            assert_eq!(record.span_id, (STAMP.first.0 + index as u64).to_be_bytes());
            assert_eq!(record.time_unix_nano, STAMP.sent_unix_ns);
        }
    }

    #[test]
    fn stamping_again_leaves_nothing_of_the_stamp_before() {
        for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Zstd] {
            let template = Template::new(&Shape::of(Signal::Logs), encoding);
            let (mut once, mut twice) = (template.frame().to_vec(), template.frame().to_vec());
            template.stamp(&mut once, STAMP, Some(10));
            let before = Stamp { first: Identity(9 << 48), sent_unix_ns: 1 };
            template.stamp(&mut twice, before, Some(1));
            template.stamp(&mut twice, STAMP, Some(10));
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
