//! Damage of what lies on a disk: bytes that change, and pages that cannot be read any more. Each
//! can be undone, wherever the file is by then.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::calls::input_output;
use super::faulty_disk::FaultyDisk;
use super::memory_file::PAGE_LEN_BYTES;
use super::names::Node;

/// Pages that cannot be read until they are overwritten, by the index of their file.
#[derive(Default)]
pub struct BadPages(BTreeSet<(usize, u64)>);

impl BadPages {
    /// The part of a read before the first bad page, which a kernel returns. An error if the read
    /// begins in one.
    pub fn readable_len(&self, file: usize, position: u64, len: usize) -> io::Result<usize> {
        let end = position + len as u64;
        let pages = (file, position / PAGE_LEN_BYTES)..(file, end.div_ceil(PAGE_LEN_BYTES));
        let Some((_, bad)) = self.0.range(pages).next() else { return Ok(len) };
        match (bad * PAGE_LEN_BYTES).checked_sub(position) {
            Some(before) if before > 0 => Ok(before as usize),
            _ => Err(input_output()),
        }
    }

    /// A page that is overwritten can be read again. One that is overwritten in part has to be read
    /// for that.
    pub fn write(&mut self, file: usize, position: u64, len: usize) -> io::Result<()> {
        let end = position + len as u64;
        let whole = position.div_ceil(PAGE_LEN_BYTES)..end / PAGE_LEN_BYTES;
        self.0.retain(|(bad, page)| *bad != file || !whole.contains(page));
        if len == 0 {
            return Ok(());
        }
        let in_part = [position / PAGE_LEN_BYTES, (end - 1) / PAGE_LEN_BYTES];
        let is_bad = in_part.iter().any(|&page| self.0.contains(&(file, page)));
        if is_bad { Err(input_output()) } else { Ok(()) }
    }

    pub fn cut(&mut self, file: usize, len_bytes: u64) {
        self.0.retain(|&(bad, page)| bad != file || page * PAGE_LEN_BYTES < len_bytes);
    }
}

/// A damaged place on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    file: usize,
    position: u64,
    /// The bits that changed. Zero: the page cannot be read.
    bits: u8,
}

impl FaultyDisk {
    /// Changes bits of a byte at rest. None if there is no such byte.
    pub fn rot(&self, path: &Path, position: u64, bits: u8) -> Option<Damaged> {
        let mut state = self.state.lock();
        let file = state.file_at(path).ok()?;
        state.files[file].rot(position, bits).then_some(Damaged { file, position, bits })
    }

    /// Makes a page unreadable until it is overwritten. None if there is no such page.
    pub fn spoil(&self, path: &Path, position: u64) -> Option<Damaged> {
        let mut state = self.state.lock();
        let file = state.file_at(path).ok()?;
        if position >= state.files[file].len_bytes() {
            return None;
        }
        state.bad_pages.0.insert((file, position / PAGE_LEN_BYTES));
        Some(Damaged { file, position, bits: 0 })
    }

    /// Makes a damaged place whole again.
    pub fn restore(&self, damaged: Damaged) {
        let Damaged { file, position, bits } = damaged;
        let mut state = self.state.lock();
        if bits == 0 {
            state.bad_pages.0.remove(&(file, position / PAGE_LEN_BYTES));
        } else {
            state.files[file].rot(position, bits);
        }
    }

    /// The present path of a damaged file. None if it has no name any more.
    pub fn path_of(&self, damaged: Damaged) -> Option<PathBuf> {
        let state = self.state.lock();
        let mut names = state.names.iter();
        let found = names.find(|(_, node)| **node == Node::File(damaged.file));
        found.map(|(path, _)| path.clone())
    }
}
