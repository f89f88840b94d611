//! A file in memory that knows which of its pages are on the disk and which a power cut would lose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;

pub const PAGE_LEN_BYTES: u64 = 4096;
/// The disk writes a sector at once; a page can be torn between sectors.
const SECTOR_LEN_BYTES: usize = 512;

type Page = Arc<[u8; PAGE_LEN_BYTES as usize]>;

/// State after a power cut of the pages that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsynced {
    /// All are lost.
    Lost,
    /// Each is lost, kept or torn between sectors, whatever the order in which they were written.
    Mixed,
    /// As `Mixed`; the sectors of torn pages may also have garbage.
    Garbage,
}

/// Pages that were never written are zeros and take no memory: files may be large and sparse.
#[derive(Clone, Default)]
pub struct MemoryFile {
    len_bytes: u64,
    pages: BTreeMap<u64, Page>,
    durable_len_bytes: u64,
    durable_pages: BTreeMap<u64, Page>,
    dirty: BTreeSet<u64>,
    /// Space up to this position is reserved.
    allocated_bytes: u64,
}

impl MemoryFile {
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Space that the file takes.
    pub fn used_bytes(&self) -> u64 {
        self.used_with(self.allocated_bytes)
    }

    /// Space that the file would take after a write that ends at `end`.
    pub fn used_after_write(&self, position: u64, end: u64) -> u64 {
        let new = (position / PAGE_LEN_BYTES..end.div_ceil(PAGE_LEN_BYTES))
            .filter(|page| {
                *page >= self.allocated_bytes.div_ceil(PAGE_LEN_BYTES)
                    && !self.pages.contains_key(page)
            })
            .count() as u64;
        self.used_bytes() + new * PAGE_LEN_BYTES
    }

    /// Space that the file would take after an allocation.
    pub fn used_after_allocation(&self, len_bytes: u64) -> u64 {
        self.used_with(self.allocated_bytes.max(len_bytes))
    }

    fn used_with(&self, allocated_bytes: u64) -> u64 {
        let allocated_pages = allocated_bytes.div_ceil(PAGE_LEN_BYTES);
        (allocated_pages + self.pages.range(allocated_pages..).count() as u64) * PAGE_LEN_BYTES
    }

    pub fn read(&self, buffer: &mut [u8], position: u64) -> usize {
        let len = buffer
            .len()
            .min(usize::try_from(self.len_bytes.saturating_sub(position)).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < len {
            let at = position + done as u64;
            let within = (at % PAGE_LEN_BYTES) as usize;
            let part = (PAGE_LEN_BYTES as usize - within).min(len - done);
            let target = &mut buffer[done..done + part];
            match self.pages.get(&(at / PAGE_LEN_BYTES)) {
                Some(page) => target.copy_from_slice(&page[within..within + part]),
                None => target.fill(0),
            }
            done += part;
        }
        len
    }

    pub fn write(&mut self, bytes: &[u8], position: u64) {
        let mut done = 0;
        while done < bytes.len() {
            let at = position + done as u64;
            let within = (at % PAGE_LEN_BYTES) as usize;
            let part = (PAGE_LEN_BYTES as usize - within).min(bytes.len() - done);
            let index = at / PAGE_LEN_BYTES;
            let page =
                self.pages.entry(index).or_insert_with(|| Arc::new([0; PAGE_LEN_BYTES as usize]));
            Arc::make_mut(page)[within..within + part].copy_from_slice(&bytes[done..done + part]);
            self.dirty.insert(index);
            done += part;
        }
        self.len_bytes = self.len_bytes.max(position + bytes.len() as u64);
    }

    pub fn allocate(&mut self, len_bytes: u64) {
        self.allocated_bytes = self.allocated_bytes.max(len_bytes);
        self.len_bytes = self.len_bytes.max(len_bytes);
    }

    pub fn set_len(&mut self, len_bytes: u64) {
        if len_bytes < self.len_bytes {
            let whole_pages = len_bytes.div_ceil(PAGE_LEN_BYTES);
            self.dirty.extend(self.pages.split_off(&whole_pages).into_keys());
            let within = (len_bytes % PAGE_LEN_BYTES) as usize;
            if let Some(page) =
                self.pages.get_mut(&(len_bytes / PAGE_LEN_BYTES)).filter(|_| within > 0)
            {
                Arc::make_mut(page)[within..].fill(0);
                self.dirty.insert(len_bytes / PAGE_LEN_BYTES);
            }
            self.allocated_bytes = self.allocated_bytes.min(len_bytes);
        }
        self.len_bytes = len_bytes;
    }

    pub fn sync(&mut self) {
        for index in std::mem::take(&mut self.dirty) {
            self.make_durable(index);
        }
        self.durable_len_bytes = self.len_bytes;
    }

    /// Fails as a kernel does when the disk refuses: some pages are written, the others are marked
    /// clean, so that the next sync succeeds without them.
    pub fn fail_sync(&mut self, random: &mut Rng) {
        for index in std::mem::take(&mut self.dirty) {
            if random.bool() {
                self.make_durable(index);
            }
        }
    }

    /// Leaves the file as it is when the power comes back.
    pub fn cut_power(&mut self, unsynced: Unsynced, random: &mut Rng) {
        for index in std::mem::take(&mut self.dirty) {
            match random.u8(0..3) {
                _ if unsynced == Unsynced::Lost => {}
                0 => {}
                1 => self.make_durable(index),
                _ => self.tear(index, unsynced, random),
            }
        }
        if unsynced != Unsynced::Lost && random.bool() {
            self.durable_len_bytes = self.len_bytes;
        }
        self.pages = self.durable_pages.clone();
        let pages_end =
            self.pages.last_key_value().map_or(0, |(index, _)| (index + 1) * PAGE_LEN_BYTES);
        self.len_bytes = pages_end.max(self.durable_len_bytes);
        self.set_len(self.durable_len_bytes);
        self.durable_pages = self.pages.clone();
        self.dirty.clear();
        self.allocated_bytes = self.allocated_bytes.min(self.len_bytes);
    }

    /// Flips one bit, as a worn disk does.
    pub fn flip_bit(&mut self, bit: u64) {
        let position = bit / 8;
        let mut byte = [0];
        if self.read(&mut byte, position) == 1 {
            byte[0] ^= 1 << (bit % 8);
            self.write(&byte, position);
        }
    }

    /// Flips bits of a byte that lies on the disk and in the page cache. False if there is none.
    pub fn rot(&mut self, position: u64, bits: u8) -> bool {
        self.sync();
        let (index, within) = (position / PAGE_LEN_BYTES, (position % PAGE_LEN_BYTES) as usize);
        let is_there = position < self.len_bytes && self.pages.contains_key(&index);
        let pages = [self.pages.get_mut(&index), self.durable_pages.get_mut(&index)];
        for page in pages.into_iter().flatten().filter(|_| is_there) {
            Arc::make_mut(page)[within] ^= bits;
        }
        is_there
    }

    fn make_durable(&mut self, index: u64) {
        match self.pages.get(&index) {
            Some(page) => self.durable_pages.insert(index, page.clone()),
            None => self.durable_pages.remove(&index),
        };
    }

    fn tear(&mut self, index: u64, unsynced: Unsynced, random: &mut Rng) {
        let zeros = || Arc::new([0; PAGE_LEN_BYTES as usize]);
        let new = self.pages.get(&index).cloned().unwrap_or_else(zeros);
        let mut torn = self.durable_pages.get(&index).cloned().unwrap_or_else(zeros);
        let bytes = Arc::make_mut(&mut torn);
        for start in (0..bytes.len()).step_by(SECTOR_LEN_BYTES) {
            let sector = start..start + SECTOR_LEN_BYTES;
            match random.u8(0..8) {
                0..4 => bytes[sector.clone()].copy_from_slice(&new[sector]),
                4 if unsynced == Unsynced::Garbage => random.fill(&mut bytes[sector]),
                _ => {}
            }
        }
        self.durable_pages.insert(index, torn);
    }
}
