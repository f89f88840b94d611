//! The part of a content that is in memory. One window serves all files, in turns.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;

use flate2::bufread::MultiGzDecoder;

use crate::FileId;
use crate::identity::LEAD_BYTES;

/// Bytes of a window while no record is longer.
pub const WINDOW_BYTES: usize = 256 << 10;
const INFLATE_INPUT_BYTES: usize = 32 << 10;

/// Bytes of one file, from some bytes before the place that is read.
#[derive(Default)]
pub(crate) struct Window {
    of: Option<FileId>,
    bytes: Vec<u8>,
    /// The offset of the first byte.
    start: u64,
    /// The file had no more behind the last byte.
    pub is_end: bool,
    /// The end lies within compressed data that goes on later.
    pub is_cut: bool,
    inflater: Option<Inflater>,
}

impl Window {
    /// Forgets the bytes: the file may have changed.
    pub(crate) fn clear(&mut self) {
        self.of = None;
        self.bytes.clear();
        if self.bytes.capacity() > WINDOW_BYTES + LEAD_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// Gives the memory back if it is no file's turn.
    pub(crate) fn release(&mut self) {
        if self.of.is_none() {
            self.bytes = Vec::new();
        }
    }

    pub(crate) fn holds(&self, id: FileId) -> bool {
        self.of == Some(id)
    }

    /// The bytes from an offset on.
    pub(crate) fn from(&self, offset: u64) -> &[u8] {
        self.bytes.get((offset - self.start) as usize..).unwrap_or_default()
    }

    /// The bytes between two offsets, if all of them are here.
    pub(crate) fn between(&self, start: u64, end: u64) -> Option<&[u8]> {
        let at = |offset: u64| usize::try_from(offset.checked_sub(self.start)?).ok();
        self.bytes.get(at(start)?..at(end)?)
    }

    /// The bytes before an offset, as many as are compared.
    pub(crate) fn lead(&self, offset: u64) -> &[u8] {
        let stop = ((offset - self.start) as usize).min(self.bytes.len());
        &self.bytes[stop.saturating_sub(LEAD_BYTES)..stop]
    }

    /// Reads on behind the bytes that are there, so that at most `max_bytes` follow the offset.
    /// Returns whether there was anything.
    pub(crate) fn read(
        &mut self,
        id: FileId,
        file: &File,
        is_gzip: bool,
        offset: u64,
        max_bytes: usize,
    ) -> io::Result<bool> {
        let lead = offset.min(LEAD_BYTES as u64);
        if self.of != Some(id) {
            (self.of, self.start) = (Some(id), offset - lead);
            self.bytes.clear();
        }
        let dropped = (offset - lead).saturating_sub(self.start) as usize;
        self.bytes.drain(..dropped.min(self.bytes.len()));
        self.start += dropped as u64;
        let before = self.bytes.len();
        let whole = max_bytes + lead as usize;
        if before >= whole {
            return Ok(true);
        }
        self.bytes.resize(whole, 0);
        let at = self.start + before as u64;
        // Less than what is before the place would look like another content.
        let least = (lead as usize).saturating_sub(before);
        let read = if is_gzip {
            self.inflate(id, file, at, before, least)
        } else {
            let read = |into: &mut [u8], done| file.read_at(into, at + done);
            read_full(&mut self.bytes[before..], least, read)
        };
        let (length, stop) = *read.as_ref().unwrap_or(&(0, Stop::More));
        (self.is_end, self.is_cut) = (stop != Stop::More, stop == Stop::Cut);
        self.bytes.truncate(before + length);
        read.map(|(read, _)| read > 0)
    }

    fn inflate(
        &mut self,
        id: FileId,
        file: &File,
        at: u64,
        before: usize,
        least: usize,
    ) -> io::Result<(usize, Stop)> {
        let mut inflater = match self.inflater.take() {
            Some(inflater) if inflater.of == id && inflater.offset == at => inflater,
            _ => Inflater::new(id, file)?,
        };
        inflater.skip_to(at)?;
        let more = |into: &mut [u8], _| inflater.decoder.read(into);
        let (read, stop) = read_full(&mut self.bytes[before..], least, more)?;
        inflater.offset += read as u64;
        // At its end it is opened anew: more may have been appended.
        if before + read == self.bytes.len() {
            self.inflater = Some(inflater);
        }
        Ok((read, stop))
    }
}

/// Why no more was read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// There may be more.
    More,
    End,
    /// The end is within compressed data.
    Cut,
}

/// Reads until nothing more comes or the buffer is full. Returns the length. Fewer bytes than
/// `least` before an error are none, unless the content itself is damaged there.
fn read_full(
    into: &mut [u8],
    least: usize,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<(usize, Stop)> {
    let mut done = 0;
    while done < into.len() {
        match read(&mut into[done..], done as u64) {
            Ok(0) => return Ok((done, Stop::End)),
            Ok(length) => done += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A file that is still being compressed.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok((done, Stop::Cut));
            }
            // The bytes before the error are good, and it will come again.
            Err(error) if done > 0 && (done >= least || is_damage(&error)) => break,
            Err(error) => return Err(error),
        }
    }
    Ok((done, Stop::More))
}

/// The compressed content is damaged: it fails in the same way until it changes.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
}

/// Inflates the file that is in its turn, from its beginning.
struct Inflater {
    of: FileId,
    decoder: MultiGzDecoder<BufReader<FromStart>>,
    offset: u64,
}

impl Inflater {
    fn new(of: FileId, file: &File) -> io::Result<Inflater> {
        let file = FromStart { file: file.try_clone()?, offset: 0 };
        let input = BufReader::with_capacity(INFLATE_INPUT_BYTES, file);
        Ok(Inflater { of, decoder: MultiGzDecoder::new(input), offset: 0 })
    }

    /// Reads up to an offset; less if the content ends before.
    fn skip_to(&mut self, offset: u64) -> io::Result<()> {
        let mut passed = [0; 16 << 10];
        while self.offset < offset {
            let length = (offset - self.offset).min(passed.len() as u64) as usize;
            let (read, _) = read_full(&mut passed[..length], 0, |into, _| self.decoder.read(into))?;
            if read == 0 {
                break;
            }
            self.offset += read as u64;
        }
        Ok(())
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

/// Whether the file begins as gzip does. `None`: it is too short to tell.
pub(crate) fn begins_as_gzip(file: &File) -> io::Result<Option<bool>> {
    const MAGIC: [u8; 2] = [0x1f, 0x8b];
    let mut bytes = [0; 2];
    let (read, _) = read_full(&mut bytes, 2, |into, done| file.read_at(into, done))?;
    let fits = MAGIC.starts_with(&bytes[..read]);
    Ok((!fits || read == MAGIC.len()).then_some(fits))
}

/// Some bytes of a content, without the window. Fewer only at its end, or where it is damaged.
pub(crate) fn peek(
    file: &File,
    is_gzip: bool,
    offset: u64,
    max_bytes: usize,
) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; max_bytes];
    let (read, _) = if is_gzip {
        let mut inflater = Inflater::new(FileId(0), file)?;
        inflater.skip_to(offset)?;
        if inflater.offset < offset {
            (0, Stop::End)
        } else {
            read_full(&mut bytes, max_bytes, |into, _| inflater.decoder.read(into))?
        }
    } else {
        read_full(&mut bytes, max_bytes, |into, done| file.read_at(into, offset + done))?
    };
    bytes.truncate(read);
    Ok(bytes)
}

/// The length of what a compressed file holds.
pub(crate) fn inflated_len(file: &File) -> io::Result<u64> {
    let mut inflater = Inflater::new(FileId(0), file)?;
    inflater.skip_to(u64::MAX)?;
    Ok(inflater.offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: what is read before an error of the disk counts only if it is enough to tell the
    /// content, and what comes before damage always does.
    #[test]
    fn bytes_before_an_error_count_if_they_are_enough() {
        let read = |least: usize, kind: io::ErrorKind| {
            let until_300 =
                |into: &mut [u8], done: u64| match 300_usize.saturating_sub(done as usize) {
                    0 => Err(io::Error::from(kind)),
                    left => Ok(left.min(into.len())),
                };
            let read = read_full(&mut [0; 1000], least, until_300);
            read.map(|(length, _)| length).map_err(|error| error.kind())
        };
        let other = io::ErrorKind::Other;
        assert_eq!(read(256, other), Ok(300));
        assert_eq!(read(301, other), Err(other));
        assert_eq!(read(301, io::ErrorKind::InvalidData), Ok(300));
    }
}
