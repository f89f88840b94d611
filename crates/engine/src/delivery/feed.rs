//! The state of making a frame's units, one after another.

use std::sync::Arc;

use sluice_otlp::{Detached, Halving, Parts};

use super::leased::Leased;
use super::prepare::Lease;

/// The units that are still to be made of a frame. They are made one after another: all of them
/// may take far more memory than the frame.
pub(crate) struct Feed {
    pub leased: Arc<Leased>,
    /// Index of the next path. The one before it is the present one.
    pub(super) next_path: usize,
    /// Items of the present path of which units were made.
    pub(super) items_before: u32,
    /// Of the present path: the input of its steps, in slices, if all of it would grow too much or
    /// has to be cut.
    pub(super) slices: Option<(Lease, Left<Halving>)>,
    /// A payload that is being cut, and the parts that are left.
    pub(super) cutting: Option<(Lease, Left<Parts>)>,
    /// Something was made of the frame.
    pub has_begun: bool,
}

/// The parts or slices of a payload that are still to be made.
pub(super) enum Left<T> {
    Here(T),
    /// The payload was let go of.
    LetGo(Detached<T>),
}

impl Left<Parts> {
    pub(super) fn is_over(&self) -> bool {
        match self {
            Left::Here(parts) => parts.is_over(),
            Left::LetGo(parts) => parts.is_over(),
        }
    }
}

impl Left<Halving> {
    pub(super) fn is_over(&self) -> bool {
        match self {
            Left::Here(slices) => slices.is_over(),
            Left::LetGo(slices) => slices.is_over(),
        }
    }
}

impl Feed {
    pub(crate) fn new(leased: Arc<Leased>) -> Feed {
        let (next_path, items_before, slices, cutting) = Default::default();
        Feed { leased, next_path, items_before, slices, cutting, has_begun: false }
    }

    /// The payload was let go of that the next unit is cut from.
    pub(super) fn is_let_go(&self) -> bool {
        matches!(&self.cutting, Some((_, Left::LetGo(_))))
            || self.cutting.is_none() && matches!(&self.slices, Some((_, Left::LetGo(_))))
    }

    /// Nothing comes of the paths that are left.
    pub(super) fn end(&mut self) {
        self.next_path = usize::MAX;
    }

    /// Takes note of items of the present path. Returns the number of those before.
    pub(super) fn pass_items(&mut self, items: u32) -> u32 {
        let after = self.items_before.saturating_add(items);
        std::mem::replace(&mut self.items_before, after)
    }

    /// Takes note of a unit or dead letter that was made.
    pub(super) fn begin(&mut self) {
        self.has_begun = true;
        self.leased.add_parts(1);
    }
}
