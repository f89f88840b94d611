//! The part of a content that is in memory. One window serves all files, in turns.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;

use crate::FileId;
use crate::identity::LEAD_BYTES;
use crate::inflate::{Inflater, Kept, KeptFiles};
use crate::whole_read::{Stop, read_full};

/// Bytes of a window while no record is longer.
pub const WINDOW_BYTES: usize = 256 << 10;

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
    /// Behind the last byte, and the version of its file.
    inflater: Option<(Inflater, u64)>,
    kept: KeptFiles,
}

impl Window {
    /// Forgets the bytes: the file may have changed.
    pub(crate) fn clear(&mut self) {
        (self.of, self.inflater) = (None, None);
        (self.is_end, self.is_cut) = (false, false);
        self.bytes.clear();
        if self.bytes.capacity() > WINDOW_BYTES + LEAD_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// Forgets the bytes. A compressed file goes on from this offset in its next turn.
    pub(crate) fn end_turn(&mut self, offset: u64) {
        let first = offset.saturating_sub(LEAD_BYTES as u64).checked_sub(self.start);
        if let (Some(of), Some((inflater, version)), Some(first)) =
            (self.of, self.inflater.take(), first)
        {
            let bytes = self.bytes.get(first as usize..).unwrap_or_default().to_vec();
            self.kept.put(Kept { of, version, bytes, inflater });
        }
        self.clear();
    }

    /// Gives the memory back if it is no file's turn, and what is kept of files that are closed.
    pub(crate) fn release(&mut self, is_open: impl Fn(FileId) -> bool) {
        if self.of.is_none() {
            self.bytes = Vec::new();
        }
        self.kept.retain(is_open);
    }

    /// Whether a compressed file can go on in its next turn where this one ends. `has_turn`: others
    /// that will.
    pub(crate) fn has_place(&mut self, id: FileId, has_turn: impl Fn(FileId) -> bool) -> bool {
        self.kept.retain(|of| of == id || has_turn(of));
        self.kept.has_place(id)
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
    /// Returns whether there was anything. `gzip`: the file's version, if it is compressed.
    pub(crate) fn read(
        &mut self,
        id: FileId,
        file: &File,
        gzip: Option<u64>,
        offset: u64,
        max_bytes: usize,
    ) -> io::Result<bool> {
        let lead = offset.min(LEAD_BYTES as u64);
        if self.of != Some(id) {
            self.clear();
            (self.of, self.start) = (Some(id), offset - lead);
            if let Some(version) = gzip {
                self.go_on(id, version);
            }
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
        let read = if let Some(version) = gzip {
            self.inflate(version, file, at, before, least)
        } else {
            let read = |into: &mut [u8], done| file.read_at(into, at + done);
            read_full(&mut self.bytes[before..], least, read)
        };
        let (length, stop) = *read.as_ref().unwrap_or(&(0, Stop::More));
        (self.is_end, self.is_cut) = (stop != Stop::More, stop == Stop::Cut);
        self.bytes.truncate(before + length);
        read.map(|(read, _)| read > 0)
    }

    /// Goes on where the file's last turn ended, if nothing has changed since.
    fn go_on(&mut self, id: FileId, version: u64) {
        let kept = self.kept.take(id, version);
        let starts = |kept: &Kept| (kept.start()..=kept.inflater.offset).contains(&self.start);
        if let Some(mut kept) = kept.filter(starts) {
            kept.bytes.drain(..(self.start - kept.start()) as usize);
            self.bytes = kept.bytes;
            self.inflater = Some((kept.inflater, version));
        }
    }

    fn inflate(
        &mut self,
        version: u64,
        file: &File,
        at: u64,
        before: usize,
        least: usize,
    ) -> io::Result<(usize, Stop)> {
        let mut inflater = match self.inflater.take() {
            Some((inflater, _)) if inflater.offset == at => inflater,
            _ => Inflater::new(file)?,
        };
        inflater.skip_to(at)?;
        let more = |into: &mut [u8], _| inflater.read(into);
        let (read, stop) = read_full(&mut self.bytes[before..], least, more)?;
        // At its end it is opened anew: more may have been appended.
        if before + read == self.bytes.len() {
            self.inflater = Some((inflater, version));
        }
        Ok((read, stop))
    }
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
        let mut inflater = Inflater::new(file)?;
        inflater.skip_to(offset)?;
        if inflater.offset < offset {
            (0, Stop::End)
        } else {
            read_full(&mut bytes, max_bytes, |into, _| inflater.read(into))?
        }
    } else {
        read_full(&mut bytes, max_bytes, |into, done| file.read_at(into, offset + done))?
    };
    bytes.truncate(read);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use proptest::prelude::*;

    use super::*;
    use crate::identify::mark_at;
    use crate::inflate;

    fn gzip(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().expect("is created");
        let mut encoder = flate2::write::GzEncoder::new(&mut file, flate2::Compression::fast());
        encoder.write_all(content).expect("is compressed");
        encoder.finish().expect("is compressed");
        file
    }

    fn lines(seed: u64, count: u64) -> Vec<u8> {
        (0..count)
            .flat_map(|at| format!("{seed} {at} {}\n", at * 7919 % 1009).into_bytes())
            .collect()
    }

    /// Reads once from an offset, as a turn does, and goes on behind `read_bytes`.
    fn turn(window: &mut Window, id: FileId, version: u64, file: &File, offset: u64) -> Vec<u8> {
        window.clear();
        let read = window.read(id, file, Some(version), offset, 4096);
        read.map(|_| window.from(offset).to_vec()).unwrap_or_default()
    }

    /// Scenario: a compressed file is read in two turns, and its bytes are gone before the second.
    /// Guarantee: an unchanged file is not inflated again from its beginning; a changed one is.
    #[test]
    fn a_compressed_file_goes_on_where_its_turn_ended() {
        let content = lines(1, 1000);
        for (version, goes_on) in [(7, true), (8, false)] {
            let (mut window, mut file) = (Window::default(), gzip(&content));
            assert_eq!(turn(&mut window, FileId(1), 7, &file, 0), content[..4096]);
            window.end_turn(1000);
            let length = file.metadata().expect("is there").len() as usize;
            assert!(length < 32 << 10, "one piece of input");
            file.rewind().and_then(|()| file.write_all(&vec![0; length])).expect("is written");
            let read = turn(&mut window, FileId(1), version, &file, 1000);
            assert_eq!(read == content[1000..5096], goes_on);
        }
    }

    /// Guarantee: the end is found in one pass, with the bytes before it.
    #[test]
    fn the_end_is_the_place_behind_all_bytes() {
        for length in [0, 1, LEAD_BYTES, 16 << 10, (16 << 10) + 1, 100_000] {
            let content = &lines(1, 10_000)[..length];
            let expected = mark_at(&gzip(content), true, length as u64).expect("is read");
            assert_eq!(inflate::end(&gzip(content)).expect("is read"), expected);
        }
    }

    /// Guarantee: the places of a bounded number of files are kept, those that have come farthest.
    #[test]
    fn files_that_came_farthest_are_kept() {
        let (mut window, file) = (Window::default(), gzip(&lines(1, 10_000)));
        for id in (1..=20).rev() {
            turn(&mut window, FileId(id), 7, &file, id * 1000);
            window.end_turn(id * 1000);
        }
        let mut kept: Vec<u64> =
            (1..=20).filter(|id| window.kept.take(FileId(*id), 7).is_some()).collect();
        kept.sort_unstable();
        assert_eq!(kept, (13..=20).collect::<Vec<u64>>());
        turn(&mut window, FileId(1), 7, &file, 1000);
        window.end_turn(1000);
        window.release(|_| false);
        assert!(window.kept.take(FileId(1), 7).is_none(), "it was closed");
    }

    proptest! {
        /// Guarantee: whatever the order of turns and of places, the bytes are those of the file.
        #[test]
        fn turns_read_what_the_files_hold(
            turns in prop::collection::vec((0..12_u64, 0..20_000_u64, 0..4096_u64), 1..60),
        ) {
            let contents: Vec<Vec<u8>> = (0..12).map(|id| lines(id, 2000)).collect();
            let files: Vec<File> = contents.iter().map(|content| gzip(content)).collect();
            let (mut window, mut places) = (Window::default(), [0; 12]);
            for (id, jump, step) in turns {
                let (at, content) = (id as usize, &contents[id as usize]);
                // Every other turn goes on, as most do; the others are rewound or have skipped.
                let jumped = jump.min(content.len() as u64);
                let offset = if jump % 2 == 0 { places[at] } else { jumped };
                let read = turn(&mut window, FileId(id), 7, &files[at], offset);
                let expected = &content[offset as usize..];
                prop_assert_eq!(&read, &expected[..expected.len().min(4096)]);
                places[at] = offset + step.min(read.len() as u64);
                window.end_turn(places[at]);
            }
        }
    }
}
