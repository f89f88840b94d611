//! Frames whose identity can be changed in place: the first bytes of the message, which hold the
//! identity, travel as a stored block; the constant rest is compressed once.

use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use sluice_net::grpc::frame::Prefix;
use sluice_otlp::Encoding;

use super::template::PREFIX_LEN;

/// A message as it goes over the wire, behind its gRPC prefix.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    pub(crate) frame: Vec<u8>,
    /// Where the message's first bytes are in the frame, verbatim.
    pub(crate) head: Range<usize>,
    gzip: Option<GzipTail>,
}

/// The parts of a gzip member that its checksum needs after the head has changed.
#[derive(Clone, Debug)]
struct GzipTail {
    /// Checksum of the constant rest.
    rest: Arc<Crc>,
    crc_at: usize,
}

impl Packed {
    /// Packs `message` so that its first `head_len` bytes stay as they are.
    pub(crate) fn new(message: &[u8], head_len: usize, encoding: Encoding) -> Packed {
        let frame = vec![0; PREFIX_LEN];
        let mut packed = match encoding {
            Encoding::Identity => {
                let head = PREFIX_LEN..PREFIX_LEN + head_len;
                Packed { frame: [&frame, message].concat(), head, gzip: None }
            }
            Encoding::Gzip => gzip(frame, message.split_at(head_len)),
            Encoding::Zstd => zstd(frame, message.split_at(head_len)),
            Encoding::Snappy => unreachable!("refused when the load was checked"),
        };
        let len_bytes = packed.frame.len() - PREFIX_LEN;
        let prefix = Prefix { compressed: encoding != Encoding::Identity, len_bytes }.encode();
        packed.frame[..PREFIX_LEN].copy_from_slice(&prefix.expect("a request below 4 GiB"));
        packed
    }

    /// Makes the checksum right for the head that a copy of the frame has now.
    pub(crate) fn seal(&self, frame: &mut [u8]) {
        if let Some(GzipTail { rest, crc_at }) = &self.gzip {
            let mut crc = Crc::new();
            crc.update(&frame[self.head.clone()]);
            crc.combine(rest);
            frame[*crc_at..crc_at + 4].copy_from_slice(&crc.sum().to_le_bytes());
        }
    }
}

/// A gzip member (RFC 1952): a stored block (RFC 1951, 3.2.4) with the head, then the rest at level
/// 6.
fn gzip(mut frame: Vec<u8>, (head, rest): (&[u8], &[u8])) -> Packed {
    let stored = u16::try_from(head.len()).expect("the head is a few hundred bytes");
    frame.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 0]);
    frame.extend_from_slice(&stored.to_le_bytes());
    frame.extend_from_slice(&(!stored).to_le_bytes());
    let head_at = frame.len();
    frame.extend_from_slice(head);
    let mut deflate = DeflateEncoder::new(&mut frame, Compression::new(6));
    deflate.write_all(rest).and_then(|()| deflate.finish()).expect("deflating in memory");
    let crc_at = frame.len();
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(&((head.len() + rest.len()) as u32).to_le_bytes());
    let mut crc = Crc::new();
    crc.update(rest);
    let gzip = Some(GzipTail { rest: Arc::new(crc), crc_at });
    Packed { frame, head: head_at..head_at + head.len(), gzip }
}

/// A zstd frame (RFC 8878): a raw block with the head, then the blocks of the rest, compressed
/// apart. Those refer to nothing before them, so that they hold behind any head.
fn zstd(mut frame: Vec<u8>, (head, rest): (&[u8], &[u8])) -> Packed {
    let compressed = zstd::bulk::compress(rest, 3).expect("compressing in memory");
    let len = u32::try_from(head.len() + rest.len()).expect("a request below 4 GiB");
    // Single segment, content size in four bytes, no checksum, no dictionary.
    frame.extend_from_slice(&[0x28, 0xb5, 0x2f, 0xfd, 0b1010_0000]);
    frame.extend_from_slice(&len.to_le_bytes());
    frame.extend_from_slice(&((head.len() as u32) << 3).to_le_bytes()[..3]);
    let head_at = frame.len();
    frame.extend_from_slice(head);
    frame.extend_from_slice(&compressed[zstd_header_len(&compressed)..]);
    Packed { frame, head: head_at..head_at + head.len(), gzip: None }
}

/// Length of the header of a zstd frame without dictionary (RFC 8878, 3.1.1.1).
fn zstd_header_len(frame: &[u8]) -> usize {
    let descriptor = frame[4];
    let single_segment = descriptor & 0b10_0000 != 0;
    let content_size_len = match descriptor >> 6 {
        0 => usize::from(single_segment),
        flag => 1 << flag,
    };
    4 + 1 + usize::from(!single_segment) + content_size_len
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

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
            assert_eq!(inflate(encoding, &frame[PREFIX_LEN..]), message);
            let mut changed = message.clone();
            changed[..200].reverse();
            frame[packed.head.clone()].reverse();
            packed.seal(&mut frame);
            assert_eq!(inflate(encoding, &frame[PREFIX_LEN..]), changed, "{encoding:?}");
        }
    }
}
