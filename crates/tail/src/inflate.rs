//! Compressed files, which can only be read from their beginning. What was reached in a turn is
//! kept for the next one.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;

use flate2::bufread::MultiGzDecoder;

use crate::FileId;
use crate::identity::{LEAD_BYTES, Mark, hash};
use crate::whole_read::{Stop, read_full};
use crate::window::WINDOW_BYTES;

const INPUT_BYTES: usize = 32 << 10;
/// Files whose place is kept. One takes about 80 KiB beside its unread bytes.
const KEPT_MAX: usize = 8;
/// Unread bytes of all kept files. What is longer is inflated again.
const KEPT_BYTES: usize = 2 << 20;

/// Inflates a file from its beginning.
pub(crate) struct Inflater {
    decoder: MultiGzDecoder<BufReader<FromStart>>,
    pub offset: u64,
}

impl Inflater {
    pub(crate) fn new(file: &File) -> io::Result<Inflater> {
        let file = FromStart { file: file.try_clone()?, offset: 0 };
        let input = BufReader::with_capacity(INPUT_BYTES, file);
        Ok(Inflater { decoder: MultiGzDecoder::new(input), offset: 0 })
    }

    /// Reads up to an offset; less if the content ends before.
    pub(crate) fn skip_to(&mut self, offset: u64) -> io::Result<()> {
        let mut passed = [0; 16 << 10];
        while self.offset < offset {
            let length = (offset - self.offset).min(passed.len() as u64) as usize;
            let (read, _) = read_full(&mut passed[..length], 0, |into, _| self.read(into))?;
            if read == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl Read for Inflater {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(into)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// A file read from its first byte, whatever the place of its descriptor.
struct FromStart {
    file: File,
    offset: u64,
}

impl Read for FromStart {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// A file between two turns.
pub(crate) struct Kept {
    pub of: FileId,
    /// Size and time of the file: it is inflated again once they change.
    pub version: u64,
    /// The last bytes before the inflater's place.
    pub bytes: Vec<u8>,
    pub inflater: Inflater,
}

impl Kept {
    /// The offset of the first byte.
    pub(crate) fn start(&self) -> u64 {
        self.inflater.offset - self.bytes.len() as u64
    }
}

/// Files between their turns, the dearest ones if there are too many.
#[derive(Default)]
pub(crate) struct KeptFiles(Vec<Kept>);

impl KeptFiles {
    pub(crate) fn put(&mut self, kept: Kept) {
        self.0.retain(|other| other.of != kept.of);
        self.0.push(kept);
        let bytes = |all: &[Kept]| all.iter().map(|kept| kept.bytes.len()).sum::<usize>();
        while self.0.len() > KEPT_MAX || bytes(&self.0) > KEPT_BYTES {
            // A file that has come less far costs less to inflate again.
            let cheapest = self.0.iter().enumerate().min_by_key(|(_, kept)| kept.inflater.offset);
            let Some((at, _)) = cheapest else { return };
            self.0.swap_remove(at);
        }
    }

    /// Whether a file's place would be kept, or is, so that it is not inflated again each turn.
    pub(crate) fn has_place(&self, of: FileId) -> bool {
        let bytes: usize = self.0.iter().map(|kept| kept.bytes.len()).sum();
        self.0.iter().any(|kept| kept.of == of)
            || (self.0.len() < KEPT_MAX && bytes + WINDOW_BYTES <= KEPT_BYTES)
    }

    pub(crate) fn take(&mut self, of: FileId, version: u64) -> Option<Kept> {
        let at = self.0.iter().position(|kept| kept.of == of)?;
        Some(self.0.swap_remove(at)).filter(|kept| kept.version == version)
    }

    pub(crate) fn retain(&mut self, is_open: impl Fn(FileId) -> bool) {
        self.0.retain(|kept| is_open(kept.of));
    }
}

/// The end of what a compressed file holds.
pub(crate) fn end(file: &File) -> io::Result<Mark> {
    let (mut inflater, mut bytes, mut length) = (Inflater::new(file)?, [0; 16 << 10], 0);
    loop {
        let room = &mut bytes[length..];
        let (read, stop) = read_full(room, 0, |into, _| inflater.read(into))?;
        length += read;
        if read == 0 || stop != Stop::More {
            let lead = hash(&bytes[length.saturating_sub(LEAD_BYTES)..length]);
            return Ok(Mark { offset: inflater.offset, lead, ..Mark::default() });
        }
        bytes.copy_within(length - LEAD_BYTES.min(length)..length, 0);
        length = LEAD_BYTES.min(length);
    }
}

/// Whether the file begins as gzip does. `None`: it is too short to tell.
pub(crate) fn begins_as_gzip(file: &File) -> io::Result<Option<bool>> {
    const MAGIC: [u8; 2] = [0x1f, 0x8b];
    let mut bytes = [0; 2];
    let (read, _) = read_full(&mut bytes, 2, |into, done| file.read_at(into, done))?;
    let fits = MAGIC.starts_with(&bytes[..read]);
    Ok((!fits || read == MAGIC.len()).then_some(fits))
}
