//! Frames whose identity can be changed in place: the first bytes of the message, which hold the
//! identity, travel as a stored block; the constant rest is compressed once.

use std::io::Write as _;
use std::ops::Range;

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use sluice_net::grpc::frame::{PREFIX_BYTES, Prefix};
use sluice_otlp::Encoding;

/// A message as it goes over the wire, behind its gRPC prefix.
pub(super) struct Packed {
    pub(super) frame: Vec<u8>,
    /// Where the message's first bytes are in the frame, verbatim.
    pub(super) head: Range<usize>,
    /// Of a gzip member: the checksum of its constant rest, and where that of the whole is.
    checksum: Option<(Crc, usize)>,
}

impl Packed {
    /// Packs `message` so that its first `head_len` bytes stay as they are.
    pub(super) fn new(message: &[u8], head_len: usize, encoding: Encoding) -> Packed {
        let (head, rest) = message.split_at(head_len);
        let len = u32::try_from(message.len()).expect("a request below 4 GiB").to_le_bytes();
        let mut frame = vec![0; PREFIX_BYTES];
        match encoding {
            Encoding::Identity => {}
            Encoding::Gzip => {
                let stored = u16::try_from(head_len).expect("the head is a few hundred bytes");
                // A gzip member (RFC 1952) that begins with a stored block (RFC 1951, 3.2.4).
                frame.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 0]);
                frame.extend_from_slice(&stored.to_le_bytes());
                frame.extend_from_slice(&(!stored).to_le_bytes());
            }
            Encoding::Zstd => {
                // A zstd frame (RFC 8878): single segment, content size in four bytes, no checksum,
                // no dictionary. It begins with a raw block.
                frame.extend_from_slice(&[0x28, 0xb5, 0x2f, 0xfd, 0b1010_0000]);
                frame.extend_from_slice(&len);
                frame.extend_from_slice(&((head_len as u32) << 3).to_le_bytes()[..3]);
            }
            Encoding::Snappy => unreachable!("refused when the load was checked"),
        }
        let head_at = frame.len()..frame.len() + head_len;
        frame.extend_from_slice(head);
        let mut checksum = None;
        match encoding {
            Encoding::Gzip => {
                let mut deflate = DeflateEncoder::new(&mut frame, Compression::new(6));
                deflate.write_all(rest).and_then(|()| deflate.finish()).expect("in memory");
                let mut crc = Crc::new();
                crc.update(rest);
                checksum = Some((crc, frame.len()));
                frame.extend_from_slice(&[0; 4]);
                frame.extend_from_slice(&len);
            }
            // Compressed apart, these blocks refer to nothing before them: they fit any head.
            Encoding::Zstd => {
                let blocks = zstd::bulk::compress(rest, 3).expect("in memory");
                frame.extend_from_slice(&blocks[zstd_header_len(&blocks)..]);
            }
            _ => frame.extend_from_slice(rest),
        }
        let len_bytes = frame.len() - PREFIX_BYTES;
        let prefix = Prefix { compressed: encoding != Encoding::Identity, len_bytes }.encode();
        frame[..PREFIX_BYTES].copy_from_slice(&prefix.expect("a request below 4 GiB"));
        Packed { frame, head: head_at, checksum }
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
            assert_eq!(inflate(encoding, &frame[PREFIX_BYTES..]), message);
            let mut changed = message.clone();
            changed[..200].reverse();
            frame[packed.head.clone()].reverse();
            packed.seal(&mut frame);
            assert_eq!(inflate(encoding, &frame[PREFIX_BYTES..]), changed, "{encoding:?}");
        }
    }
}
