//! A request in parts, of which those that prove too large are halved.

use bytes::Bytes;

use super::{PartRef, Parts, SplitLimits, parts};
use crate::Signal;
use crate::wire::Result;

/// The parts of a request, one after another, and those of parts that are halved meanwhile.
pub struct Halving {
    /// Innermost last.
    pub(super) stack: Vec<Parts>,
}

impl Halving {
    /// The parts of a request within limits.
    ///
    /// # Errors
    /// As of [`super::split`], here or from the iterator, which ends then.
    pub fn new(signal: Signal, request: &Bytes, limits: SplitLimits) -> Result<Halving> {
        Ok(Halving { stack: vec![parts(signal, request, limits)?] })
    }

    /// The halves of the part that came last come next. False if it is a single item.
    pub fn halve(&mut self, part: &PartRef) -> bool {
        let can_be_cut = part.sizes.items > 1;
        if can_be_cut {
            self.stack.push(part.parts(SplitLimits::half_of(part.sizes.items)));
        }
        can_be_cut
    }

    /// True if no part is left, unless one is halved.
    pub fn is_over(&self) -> bool {
        self.stack.iter().all(Parts::is_over)
    }
}

impl Iterator for Halving {
    type Item = Result<PartRef>;

    fn next(&mut self) -> Option<Result<PartRef>> {
        while let Some(parts) = self.stack.last_mut() {
            match parts.next() {
                Some(Ok(part)) => return Some(Ok(part)),
                Some(error) => {
                    self.stack.clear();
                    return Some(error);
                }
                None => _ = self.stack.pop(),
            }
        }
        None
    }
}
