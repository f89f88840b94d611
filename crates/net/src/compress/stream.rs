//! Unpacking gzip that comes in pieces, for bodies that are longer than memory.

use flate2::{Decompress, FlushDecompress, Status};

use super::DecompressError;

const fn corrupt(reason: &'static str) -> DecompressError {
    DecompressError::Corrupt { format: "gzip", reason }
}

/// Any number of gzip members, each verified, whose pieces may be cut anywhere. What comes out is
/// bounded by the caller's room only.
pub struct GunzipStream {
    stream: Decompress,
    /// Between members, or before the first one.
    is_at_end: bool,
    has_begun: bool,
}

impl Default for GunzipStream {
    fn default() -> Self {
        let stream = Decompress::new_gzip(15);
        GunzipStream { stream, is_at_end: false, has_begun: false }
    }
}

impl GunzipStream {
    /// The memory of a decoder: its window, its tables, and what its allocator adds.
    pub const MEMORY_BYTES: usize = 64 << 10;

    /// Unpacks from the front of `input`, which becomes what is left of it. Answers how many bytes
    /// of `room`, which is not empty, are filled: zero if more input is needed.
    ///
    /// # Errors
    /// The input is no gzip.
    pub fn unpack(&mut self, input: &mut &[u8], room: &mut [u8]) -> Result<usize, DecompressError> {
        loop {
            if self.is_at_end {
                if input.is_empty() {
                    return Ok(0);
                }
                self.stream = Decompress::new_gzip(15);
                self.is_at_end = false;
            }
            self.has_begun |= !input.is_empty();
            let (taken, made) = (self.stream.total_in(), self.stream.total_out());
            let status = self.stream.decompress(input, room, FlushDecompress::None);
            let taken = (self.stream.total_in() - taken) as usize;
            let made = (self.stream.total_out() - made) as usize;
            *input = &input[taken..];
            match status {
                Ok(Status::StreamEnd) => self.is_at_end = true,
                Ok(_) => {}
                Err(_) => {
                    return Err(corrupt("the stream is malformed or its checksum does not match"));
                }
            }
            if made > 0 || (taken == 0 && !self.is_at_end) {
                return Ok(made);
            }
        }
    }

    /// The input has ended.
    ///
    /// # Errors
    /// It ended within a member, or was empty.
    pub fn finish(&self) -> Result<(), DecompressError> {
        match (self.has_begun, self.is_at_end) {
            (_, true) => Ok(()),
            (false, _) => Err(corrupt("it is empty")),
            (true, _) => Err(corrupt("it ends early")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn member(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).expect("compresses");
        encoder.finish().expect("compresses")
    }

    /// Bytes that come out of pieces of this length, into rooms of another.
    fn unpack(packed: &[u8], piece: usize, room: usize) -> Result<Vec<u8>, DecompressError> {
        let (mut stream, mut out, mut room) = (GunzipStream::default(), Vec::new(), vec![0; room]);
        for mut piece in packed.chunks(piece) {
            loop {
                let made = stream.unpack(&mut piece, &mut room)?;
                out.extend_from_slice(&room[..made]);
                if made == 0 {
                    assert!(piece.is_empty());
                    break;
                }
            }
        }
        stream.finish().map(|()| out)
    }

    /// Guarantee: members come out whole, wherever they are cut; what is cut off or damaged is an
    /// error.
    #[test]
    fn pieces_are_unpacked() {
        let plain: Vec<u8> = (0..100_000_u32).flat_map(|number| number.to_le_bytes()).collect();
        let packed = [member(&plain), member(b""), member(b"end")].concat();
        let whole = [&plain[..], b"end"].concat();
        for (piece, room) in [(1, 4096), (7, 1), (1000, 1000), (packed.len(), 1 << 20)] {
            assert_eq!(unpack(&packed, piece, room).as_deref(), Ok(&whole[..]), "{piece} {room}");
        }
        for cut in [0, 1, 9, 500, packed.len() - 1] {
            assert!(unpack(&packed[..cut], 100, 4096).is_err(), "{cut}");
        }
        let mut damaged = packed.clone();
        damaged[packed.len() / 2] ^= 1;
        assert!(unpack(&damaged, 100, 4096).is_err());
        assert!(unpack(&[&packed[..], b"trailing"].concat(), 100, 4096).is_err());
    }

    /// Guarantee: a decoder takes no more memory than is charged for it.
    #[test]
    fn a_bomb_comes_out_in_rooms() {
        let packed = member(&vec![0; 16 << 20]);
        assert!(packed.len() < 20_000);
        assert_eq!(unpack(&packed, packed.len(), 4096).map(|out| out.len()), Ok(16 << 20));
    }
}
