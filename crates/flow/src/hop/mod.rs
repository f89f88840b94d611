//! The hop from one Sluice to another: a request names the ranges of its source that it holds, and
//! a receiver acknowledges what it has had without storing it again.
//! `docs/decisions/042-effectively-once-hop.md` has the reasons.
//!
//! - A [`Place`] orders all items of a source: the offset of a frame in the log that it was
//!   appended to, then the item within the frame.
//! - A frame has its place for good: it keeps the id of its log on disk, so that it is the same
//!   place after a restart, in whatever batch it is sent. The items of a frame of which
//!   [`Fetched`] tells have their places in the stream that they were read from.
//! - A request is known, new, or both: one that is both is refused, and its sender cuts it.
//!
//! Invariant: forgetting doubles data and loses none. What is known was taken, and nothing else is.

mod range_map;
mod ranges;
mod window;
#[cfg(test)]
mod window_tests;

use std::ops::Range;
use std::sync::Arc;

pub use ranges::{Malformed, Ranges, RangesTooLong, Source};
pub use window::{Floor, Found, Limits, Totals, Window};

/// The header of a request, and the metadata key of a gRPC call.
pub const HEADER: &str = "sluice-range";

/// The text of a refusal by which a sender knows that it has to cut the request.
pub const OVERLAP: &str = "a part of its sluice-range is known here";

/// A position among the items of a source: the offset of a frame, and an item in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u128);

/// A range of a source that can be read again: a file, a partition. Read again, whether or not it
/// is cut as before, it gives the same items at the same offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// A random id of the stream: new whenever its offsets begin anew, or may have other content.
    pub stream: u128,
    /// Offsets in the stream, not empty.
    pub range: Range<u64>,
    /// The offsets of the items, counted from the start of the range, in order.
    pub items: Arc<[u32]>,
}

impl Fetched {
    /// Where an item begins. For the number of items: the end.
    pub fn place(&self, item: usize) -> Place {
        let Some(&offset) = self.items.get(item) else { return Place::new(self.range.end, 0) };
        // Of items that are made of the same bytes, each has a number.
        let same = self.items[..item].iter().rev().take_while(|it| **it == offset).count();
        Place::new(self.range.start + u64::from(offset), same as u32)
    }

    /// Memory that it occupies, about.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Fetched>() + size_of_val(&*self.items)
    }
}

impl Place {
    pub fn new(offset: u64, item: u32) -> Place {
        Place(u128::from(offset) << 32 | u128::from(item))
    }

    /// The place behind all items of a frame.
    pub fn behind(offset: u64) -> Place {
        Place((u128::from(offset) + 1) << 32)
    }
}
