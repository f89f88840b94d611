//! The hop from one Sluice to another: a request names the ranges of its source that it holds, and
//! a receiver acknowledges what it has had without storing it again.
//! `docs/decisions/042-effectively-once-hop.md` has the reasons.
//!
//! - A [`Place`] orders all items of a source: the offset of a frame in the log that it was
//!   appended to, then the item within the frame.
//! - A frame has its place for good: it keeps the id of its log on disk, so that it is the same
//!   place after a restart, in whatever batch it is sent. A frame of which [`Fetched`] tells has its
//!   place in the stream that it was read from: it is the same if it is read again.
//! - A request is known, new, or both: one that is both is refused, and its sender cuts it.
//!
//! Invariant: forgetting doubles data and loses none. What is known was taken, and nothing else is.

mod range_map;
mod ranges;
mod window;
#[cfg(test)]
mod window_tests;

use std::ops::Range;

pub use ranges::{Malformed, Ranges, RangesTooLong, Source};
pub use window::{Floor, Found, Limits, Totals, Window};

/// The header of a request, and the metadata key of a gRPC call.
pub const HEADER: &str = "sluice-range";

/// The text of a refusal by which a sender knows that it has to cut the request.
pub const OVERLAP: &str = "a part of its sluice-range is known here";

/// A position among the items of a source: the offset of a frame, and an item in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u128);

/// A range of a source that can be read again: a file, a partition. If it is read again, it gives
/// the same items in the same order, and no other range of the stream begins within it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// A random id of the stream and of all that makes items of it: new whenever either differs.
    pub stream: u128,
    /// Offsets in the stream, not empty.
    pub range: Range<u64>,
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
