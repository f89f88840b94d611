//! A request that is encoded once and then only stamped: the places of identities and times are
//! known, so that sending costs no encoding and no allocation an item.

use std::io::Write as _;
use std::ops::Range;

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use sluice_net::grpc::frame::{PREFIX_BYTES, Prefix};
use sluice_otlp::{Encoding, Signal};
use zstd::bulk::Compressor;

use super::message::{Layout, Message, SPAN_LASTS_NS};
use crate::identity::{Identity, ORDINARY_MARK, POISON_MARK, Stamp};

/// Header of a zstd frame: magic number, descriptor and window only (RFC 8878, 3.1.1).
const ZSTD_HEADER_BYTES: usize = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub signal: Signal,
    pub items_per_request: u32,
    /// Attributes an item, one of which is the mark. At least 1.
    pub attributes: u32,
    /// Length of a log record's body in bytes. Ignored for the other signals, which have no body.
    pub body_bytes: usize,
}

impl Shape {
    /// The Kyma telemetry load test's: spans of 40 attributes (about 1.9 kB), metric points of 10
    /// (0.5 kB), log records with bodies of 2,000 bytes (2.5 kB); 100 items a request.
    pub fn of(signal: Signal) -> Self {
        let attributes = if signal == Signal::Traces { 40 } else { 10 };
        Shape { signal, items_per_request: 100, attributes, body_bytes: 2000 }
    }

    /// Length of one item in an uncompressed request, with its share of the request's frame.
    pub fn bytes_per_item(&self) -> f64 {
        Message::build(self).bytes.len() as f64 / f64::from(self.items_per_request)
    }
}

/// A ready request in the form in which it goes over the wire, gRPC prefix included.
pub(crate) struct Template {
    signal: Signal,
    pub(crate) packed: Packed,
    pub(crate) items: u64,
    /// Offset of each item in the frame. Empty if compressed: only the stamp varies then.
    identities_at: Vec<usize>,
    layout: Layout,
}

impl Template {
    pub(crate) fn new(shape: &Shape, encoding: Encoding) -> Self {
        let Message { bytes, stamp_at, identities_at, layout } = Message::build(shape);
        let identities_at = match encoding {
            Encoding::Identity => identities_at.iter().map(|at| at + PREFIX_BYTES).collect(),
            _ => Vec::new(),
        };
        Template {
            signal: shape.signal,
            // The compressed part begins where the stamp ends.
            packed: Packed::new(&bytes, stamp_at + Stamp::LEN, encoding),
            items: shape.items_per_request.into(),
            identities_at,
            layout,
        }
    }

    /// Writes identities and time into a copy of the frame, over any earlier stamp. Every item
    /// whose sequence number is a multiple of `poison_every` is marked as poison.
    pub(crate) fn stamp(&self, frame: &mut [u8], stamp: Stamp, poison_every: Option<u64>) {
        debug_assert_eq!(frame.len(), self.packed.frame.len());
        let stamp_end = self.packed.head.end;
        stamp.write(&mut frame[stamp_end - Stamp::LEN..stamp_end]);
        for (index, &identity_at) in self.identities_at.iter().enumerate() {
            let (layout, time_unix_ns) = (&self.layout, stamp.sent_unix_ns);
            let identity = Identity(stamp.identity.0 + index as u64);
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

/// A message as it goes over the wire, behind its gRPC prefix. Its first bytes, which hold the
/// identity, travel as a stored block and can be changed in place; the rest is compressed once.
pub(crate) struct Packed {
    pub(crate) frame: Vec<u8>,
    /// Range of the message's first bytes in the frame, which stand there verbatim.
    pub(super) head: Range<usize>,
    /// For gzip: checksum of the constant rest, and offset of the checksum of the whole.
    checksum: Option<(Crc, usize)>,
}

impl Packed {
    /// Packs `message` so that its first `head_len` bytes stay as they are.
    pub(super) fn new(message: &[u8], head_len: usize, encoding: Encoding) -> Packed {
        let (head, rest) = message.split_at(head_len);
        let len = u32::try_from(message.len()).expect("a request below 4 GiB").to_le_bytes();
        // The bytes around the head.
        let (before, behind) = match encoding {
            Encoding::Identity => (Vec::new(), rest.to_vec()),
            Encoding::Gzip => {
                let stored = u16::try_from(head_len).expect("the head is a few hundred bytes");
                // A gzip member (RFC 1952) that begins with a stored block (RFC 1951, 3.2.4).
                let begin = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 0];
                let before = [&begin[..], &stored.to_le_bytes(), &(!stored).to_le_bytes()];
                let mut deflate = DeflateEncoder::new(Vec::new(), Compression::new(6));
                let blocks = deflate.write_all(rest).and_then(|()| deflate.finish());
                (before.concat(), [&blocks.expect("in memory")[..], &[0; 4], &len].concat())
            }
            Encoding::Zstd => {
                // A zstd frame (RFC 8878): single segment, content size in four bytes, no checksum,
                // no dictionary. It begins with a raw block.
                let raw_block = ((head_len as u32) << 3).to_le_bytes();
                let before = [&[0x28, 0xb5, 0x2f, 0xfd, 0b1010_0000], &len[..], &raw_block[..3]];
                // Compressed apart, these blocks refer to nothing before them: they fit any head.
                let mut compressor = Compressor::new(3).expect("in memory");
                compressor.include_contentsize(false).expect("a flag that zstd has");
                let blocks = compressor.compress(rest).expect("in memory");
                (before.concat(), blocks[ZSTD_HEADER_BYTES..].to_vec())
            }
            Encoding::Snappy => unreachable!("refused when the load was checked"),
        };
        let len_bytes = before.len() + head_len + behind.len();
        let prefix = Prefix { compressed: encoding != Encoding::Identity, len_bytes }.encode();
        let prefix = prefix.expect("a request below 4 GiB");
        let frame = [&prefix[..], &before, head, &behind].concat();
        let checksum = (encoding == Encoding::Gzip).then(|| {
            let mut crc = Crc::new();
            crc.update(rest);
            // Before the length, at the end.
            (crc, frame.len() - 8)
        });
        let head_at = PREFIX_BYTES + before.len();
        Packed { frame, head: head_at..head_at + head_len, checksum }
    }

    /// Makes the checksum right for the head that a copy of the frame has now.
    pub(super) fn seal(&self, frame: &mut [u8]) {
        if let Some((rest, at)) = &self.checksum {
            let mut crc = Crc::new();
            crc.update(&frame[self.head.clone()]);
            crc.combine(rest);
            frame[*at..at + 4].copy_from_slice(&crc.sum().to_le_bytes());
        }
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
        Stamp { identity: Identity(7 << 48 | 1000), sent_unix_ns: 1_700_000_000_000_000_000 };

    fn stamped(signal: Signal) -> Vec<u8> {
        let template = Template::new(&Shape::of(signal), Encoding::Identity);
        let mut frame = template.packed.frame.to_vec();
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
            assert_eq!(span.span_id, (STAMP.identity.0 + index as u64).to_be_bytes());
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
            let identity = (STAMP.identity.0 + index as u64).cast_signed();
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
            assert_eq!(record.span_id, (STAMP.identity.0 + index as u64).to_be_bytes());
            assert_eq!(record.time_unix_nano, STAMP.sent_unix_ns);
        }
    }

    #[test]
    fn stamping_again_leaves_nothing_of_the_stamp_before() {
        for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Zstd] {
            let template = Template::new(&Shape::of(Signal::Logs), encoding);
            let (mut once, mut twice) =
                (template.packed.frame.to_vec(), template.packed.frame.to_vec());
            template.stamp(&mut once, STAMP, Some(10));
            let before = Stamp { identity: Identity(9 << 48), sent_unix_ns: 1 };
            template.stamp(&mut twice, before, Some(1));
            template.stamp(&mut twice, STAMP, Some(10));
            assert!(once == twice, "{encoding:?}");
        }
    }

    #[test]
    fn compressed_requests_compress_as_real_telemetry_does() {
        for signal in Signal::ALL {
            let plain = Template::new(&Shape::of(signal), Encoding::Identity).packed.frame.len();
            let gzip = Template::new(&Shape::of(signal), Encoding::Gzip).packed.frame.len();
            let ratio = plain as f64 / gzip as f64;
            assert!((2.5..6.0).contains(&ratio), "{signal}: {ratio:.2}");
        }
    }

    use std::io::Read;

    fn inflate(encoding: Encoding, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match encoding {
            // `GzDecoder`, unlike `MultiGzDecoder`, reads one member: nothing may be left behind
            // it.
            Encoding::Gzip => {
                let mut decoder = flate2::bufread::GzDecoder::new(bytes);
                decoder.read_to_end(&mut out).unwrap();
                assert!(decoder.into_inner().is_empty());
            }
            Encoding::Zstd => out = zstd::decode_all(bytes).unwrap(),
            _ => unreachable!(),
        }
        out
    }

    #[test]
    fn a_changed_head_is_still_one_valid_member_or_frame() {
        // Long enough for several zstd blocks of 128 KiB, and with the head's bytes again in the
        // rest.
        let mut message: Vec<u8> =
            (0..400_000_u32).map(|index| (index / 7 % 251) as u8 ^ (index % 5) as u8).collect();
        let head = message[..200].to_vec();
        message[1000..1200].copy_from_slice(&head);
        for encoding in [Encoding::Gzip, Encoding::Zstd] {
            let packed = Packed::new(&message, 200, encoding);
            let mut frame = packed.frame.clone();
            assert!(frame.len() < message.len() / 2, "{encoding:?} compresses");
            packed.seal(&mut frame);
            assert_eq!(inflate(encoding, &frame[PREFIX_BYTES..]), message);
            let mut changed = message.clone();
            changed[..200].reverse();
            frame[packed.head.clone()].reverse();
            packed.seal(&mut frame);
            assert_eq!(inflate(encoding, &frame[PREFIX_BYTES..]), changed, "{encoding:?}");
        }
    }
}
