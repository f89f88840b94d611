//! Cuts an encoded request into smaller ones.
//!
//! The request is a tree of borders: request, ResourceX, ScopeX, (Metric, its data,) items. It is
//! cut at the highest border at which parts fit: only an element that does not fit is opened, and
//! its other fields (resource, scope, metric name, …: its header) are repeated in each part.

mod detached;
mod halving;
mod node;
mod parts;

use bytes::Bytes;

use crate::Signal;
use crate::wire::Result;
pub use detached::Detached;
pub use halving::Halving;
use node::Node;
pub use parts::{PartRef, Parts, Sizes};

/// The bounds of one part. `usize::MAX` is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitLimits {
    pub max_bytes: usize,
    /// Spans, metric points or log records; zero counts as one.
    pub max_items: usize,
}

impl SplitLimits {
    /// At most half of this many items, rounded up.
    pub fn half_of(items: u32) -> SplitLimits {
        SplitLimits { max_items: (items as usize).div_ceil(2), max_bytes: usize::MAX }
    }

    pub fn allow(&self, len_bytes: usize, items: u32) -> bool {
        len_bytes <= self.max_bytes && items as usize <= self.max_items
    }
}

/// An encoded request, and the number of its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub bytes: Bytes,
    /// Spans, metric points or log records.
    pub items: u32,
}

/// Cuts an encoded request at ResourceX, ScopeX and item borders (metrics also within one metric,
/// between data points) so that each part obeys both limits. Only a part that cannot be cut further
/// (one item with its headers, or an element without items) may exceed `max_bytes`; or one with a
/// long header, which is at most seven eighths of a part unless it is repeated for few items.
///
/// Order is kept, nothing is lost, fields that are unknown are repeated with the header that they
/// belong to. A part that needs no header is a slice of the request: nothing is copied at top-level
/// borders. A request within the limits, even empty, is one part.
///
/// # Errors
/// [`crate::Malformed`] if levels above items cannot be read; [`crate::scan`] reads items, too.
pub fn split(signal: Signal, request: &Bytes, limits: SplitLimits) -> Result<Vec<Part>> {
    let part = |part: PartRef| Part { bytes: part.bytes(), items: part.sizes.items };
    parts(signal, request, limits)?.map(|it| it.map(part)).collect()
}

/// The same as [`split`], one part after another. None of them is encoded before it is asked for.
///
/// # Errors
/// As of [`split`], here or from the iterator.
pub fn parts(signal: Signal, request: &Bytes, limits: SplitLimits) -> Result<Parts> {
    Parts::new(signal, request, limits)
}

/// Counts the spans, metric points or log records of a request without looking into them. For
/// requests that are known to be valid; [`crate::scan`] validates and counts.
///
/// # Errors
/// [`crate::Malformed`] if the structure down to the items cannot be read.
pub fn count(signal: Signal, request: &[u8]) -> Result<u32> {
    Node::request(request, signal).items(request)
}
