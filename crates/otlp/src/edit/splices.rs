//! A list of changes to an encoded message, applied in one copy.

use std::ops::Range;

use bytes::Bytes;

use crate::wire::{Malformed, malformed, write_varint};

/// Bytes of the request that are replaced by bytes of the scratch buffer.
struct Splice {
    at: Range<usize>,
    insert: Range<usize>,
}

/// An edit would take more memory than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond;

impl Beyond {
    pub(super) fn at(offset: usize) -> Malformed {
        malformed(offset, "the changes take more memory than they may")
    }

    pub(super) fn at_the_end_of(request: &Bytes) -> impl Fn(Beyond) -> Malformed {
        let offset = request.len();
        move |Beyond| Beyond::at(offset)
    }
}

/// Changes in the order of their positions. The lengths of the messages around them follow.
#[derive(Default)]
pub(super) struct Splices {
    list: Vec<Splice>,
    inserted: Vec<u8>,
    /// Bytes by which the result is longer than the request, so far.
    growth: isize,
}

/// A message that was entered and is not left yet.
pub(super) struct Entered {
    slot: usize,
    growth_before: isize,
    inserted_before: usize,
}

impl Splices {
    /// Enters a nested message. Changes until it is left lie within it.
    pub(super) fn enter(&mut self) -> Entered {
        let slot = self.list.len();
        // The length comes before the content: its place in the list is filled in when it is known.
        self.list.push(Splice { at: 0..0, insert: 0..0 });
        Entered { slot, growth_before: self.growth, inserted_before: self.inserted.len() }
    }

    /// Forgets the changes within a message, which is then as if it had not been entered.
    pub(super) fn give_up(&mut self, entered: &Entered) {
        self.list.truncate(entered.slot);
        self.inserted.truncate(entered.inserted_before);
        self.growth = entered.growth_before;
    }

    /// Leaves a nested message with its length at `len` and its content at `content`.
    pub(super) fn leave(&mut self, entered: &Entered, len: Range<usize>, content: &Range<usize>) {
        if self.list.len() == entered.slot + 1 {
            self.list.pop();
            return;
        }
        let new_len = content.len() as isize + self.growth - entered.growth_before;
        let start = self.inserted.len();
        write_varint(&mut self.inserted, new_len as u64);
        let insert = start..self.inserted.len();
        self.growth += insert.len() as isize - len.len() as isize;
        self.list[entered.slot] = Splice { at: len, insert };
    }

    /// Replaces the bytes at `at` by those of `write`. `at` lies behind all earlier changes.
    pub(super) fn replace(&mut self, at: Range<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.inserted.len();
        write(&mut self.inserted);
        let insert = start..self.inserted.len();
        self.growth += insert.len() as isize - at.len() as isize;
        self.list.push(Splice { at, insert });
    }

    /// Memory that these changes and the request with them take.
    pub(super) fn memory_bytes(&self, request: &[u8]) -> usize {
        let changes = self.list.len() * size_of::<Splice>() + self.inserted.len();
        changes + (request.len() as isize + self.growth) as usize
    }

    pub(super) fn remove(&mut self, at: Range<usize>) {
        self.replace(at, |_| {});
    }

    /// The request with all changes made; nothing if there are none.
    pub(super) fn apply(&self, request: &[u8]) -> Option<Bytes> {
        if self.list.is_empty() {
            return None;
        }
        let len = (request.len() as isize + self.growth) as usize;
        let mut out = Vec::with_capacity(len);
        let mut copied = 0;
        for splice in &self.list {
            out.extend_from_slice(&request[copied..splice.at.start]);
            out.extend_from_slice(&self.inserted[splice.insert.clone()]);
            copied = splice.at.end;
        }
        out.extend_from_slice(&request[copied..]);
        debug_assert_eq!(out.len(), len);
        Some(out.into())
    }
}
