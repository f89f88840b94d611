//! Compressed requests whose identity can be changed in place: the first bytes of the message, which hold the identity,
//! travel as a stored block; the constant rest is compressed once.

use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use sluice_otlp::Encoding;

/// A packed message.
pub(crate) struct Packed {
    pub(crate) bytes: Vec<u8>,
    /// Where the message's first byte is in `bytes`, verbatim.
    pub(crate) head_at: usize,
    pub(crate) gzip: Option<GzipTail>,
}

/// The parts of a gzip member that its checksum needs after the head has changed.
#[derive(Clone, Debug)]
pub(crate) struct GzipTail {
    head: std::ops::Range<usize>,
    /// Checksum of the constant rest.
    rest: std::sync::Arc<Crc>,
    crc_at: usize,
}

impl GzipTail {
    pub(crate) fn shifted(mut self, by: usize) -> Self {
        self.head = self.head.start + by..self.head.end + by;
        self.crc_at += by;
        self
    }

    /// Makes the member's checksum right for the head that `frame` has now.
    pub(crate) fn seal(&self, frame: &mut [u8]) {
        let mut crc = Crc::new();
        crc.update(&frame[self.head.clone()]);
        crc.combine(&self.rest);
        frame[self.crc_at..self.crc_at + 4].copy_from_slice(&crc.sum().to_le_bytes());
    }
}

/// Packs `message` so that its first `head_len` bytes stay as they are.
pub(crate) fn pack(message: &[u8], head_len: usize, encoding: Encoding) -> Packed {
    match encoding {
        Encoding::Identity => Packed { bytes: message.to_vec(), head_at: 0, gzip: None },
        Encoding::Gzip => gzip(message, head_len),
        Encoding::Zstd => zstd(message, head_len),
        Encoding::Snappy => unreachable!("refused when the load was checked"),
    }
}

/// A gzip member (RFC 1952): a stored block (RFC 1951, 3.2.4) with the head, then the rest at level 6.
fn gzip(message: &[u8], head_len: usize) -> Packed {
    let (head, rest) = message.split_at(head_len);
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let stored = u16::try_from(head_len).expect("the head is a few hundred bytes");
    bytes.push(0);
    bytes.extend_from_slice(&stored.to_le_bytes());
    bytes.extend_from_slice(&(!stored).to_le_bytes());
    let head_at = bytes.len();
    bytes.extend_from_slice(head);
    deflate(rest, &mut bytes);
    let crc_at = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(message.len() as u32).to_le_bytes());
    let mut crc = Crc::new();
    crc.update(rest);
    let tail = GzipTail { head: head_at..head_at + head_len, rest: std::sync::Arc::new(crc), crc_at };
    tail.seal(&mut bytes);
    Packed { bytes, head_at, gzip: Some(tail) }
}

fn deflate(rest: &[u8], out: &mut Vec<u8>) {
    let mut compress = Compress::new(Compression::new(6), false);
    loop {
        out.reserve(rest.len() / 2 + 64);
        let read = compress.total_in() as usize;
        let status = compress.compress_vec(&rest[read..], out, FlushCompress::Finish).expect("deflating in memory");
        if status == Status::StreamEnd {
            return;
        }
    }
}

/// A zstd frame (RFC 8878): a raw block with the head, then the blocks of the rest, compressed apart. Those refer to
/// nothing before them, so that they hold behind any head.
fn zstd(message: &[u8], head_len: usize) -> Packed {
    let (head, rest) = message.split_at(head_len);
    let compressed = zstd::bulk::compress(rest, 3).expect("compressing in memory");
    // Single segment, content size in four bytes, no checksum, no dictionary.
    let mut bytes = vec![0x28, 0xb5, 0x2f, 0xfd, 0b1010_0000];
    bytes.extend_from_slice(&u32::try_from(message.len()).expect("a request below 4 GiB").to_le_bytes());
    bytes.extend_from_slice(&((head_len as u32) << 3).to_le_bytes()[..3]);
    let head_at = bytes.len();
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(&compressed[zstd_header_len(&compressed)..]);
    Packed { bytes, head_at, gzip: None }
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
            // `GzDecoder`, unlike `MultiGzDecoder`, reads one member: nothing may be left behind it.
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
        // Long enough for several zstd blocks of 128 KiB, and with the head's bytes again in the rest.
        let mut message: Vec<u8> = (0..400_000_u32).map(|index| (index / 7 % 251) as u8 ^ (index % 5) as u8).collect();
        let head = message[..200].to_vec();
        message[1000..1200].copy_from_slice(&head);
        for encoding in [Encoding::Gzip, Encoding::Zstd] {
            let mut packed = pack(&message, 200, encoding);
            assert!(packed.bytes.len() < message.len() / 2, "{encoding:?} compresses");
            assert_eq!(inflate(encoding, &packed.bytes), message);
            let mut changed = message.clone();
            changed[..200].reverse();
            packed.bytes[packed.head_at..packed.head_at + 200].reverse();
            if let Some(tail) = &packed.gzip {
                tail.seal(&mut packed.bytes);
            }
            assert_eq!(inflate(encoding, &packed.bytes), changed, "{encoding:?}");
        }
    }
}
