//! The hop from one Sluice to another: a request names the ranges of its source that it holds, and
//! a receiver acknowledges what it has had without storing it again.
//! `docs/decisions/042-effectively-once-hop.md` has the reasons.
//!
//! - A [`Place`] orders all items of a source: the offset of a frame in the log that it was
//!   appended to, then the item within the frame.
//! - A frame has its place for good: it keeps the id of its log on disk, so that it is the same
//!   place after a restart, in whatever batch it is sent. A frame that its source can read again
//!   has the place that [`Fetched`] tells instead.
//! - A request is known, new, or both: one that is both is refused, and its sender cuts it.
//!
//! Invariant: forgetting doubles data and loses none. What is known was taken, and nothing else is.

mod range_map;
mod ranges;
mod window;
#[cfg(test)]
mod window_tests;

pub use ranges::{Malformed, Ranges, RangesTooLong, Source};
pub use window::{Floor, Found, Limits, Totals, Window};

/// The header of a request, and the metadata key of a gRPC call.
pub const HEADER: &str = "sluice-range";

/// The text of a refusal by which a sender knows that it has to cut the request.
pub const OVERLAP: &str = "a part of its sluice-range is known here";

/// A position among the items of a source: the offset of a frame, and an item in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u128);

/// The name that a source gives to a frame that it can read again, in the place of the log and the
/// offset there. It never gives the name to another frame: one of the same name has the same items
/// in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// A random id, new with each start of the source.
    pub run: u128,
    /// Counts the frames that got names since.
    pub number: u64,
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
