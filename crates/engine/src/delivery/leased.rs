//! A frame that a delivery has read, and the parts of it that are unresolved.

use std::sync::Arc;

use parking_lot::Mutex;
use sluice_log::Offset;

use super::account::{Account, Settled};
use crate::entry::Entry;

/// The fate of a part of a frame, the best first. A frame has the worst fate of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// Delivered, or among the dead letters.
    Taken,
    /// Dropped, as a policy declares.
    GivenUp,
    /// Handed back to its sender, with a refusal.
    Returned,
}

/// A frame that a delivery has read from the log, until all that was made of it is resolved.
pub(crate) struct Leased {
    pub offset: Offset,
    pub entry: Arc<Entry>,
    /// The number of unresolved parts, and the worst fate of the resolved ones.
    parts: Mutex<(usize, Fate)>,
    pub settled: Settled,
}

impl Leased {
    /// A frame of one part, which stands for all units that are still to be made of it.
    pub(super) fn new(account: Arc<Account>, offset: Offset, entry: Arc<Entry>) -> Arc<Self> {
        let settled = Settled::of(account);
        Arc::new(Leased { offset, entry, parts: Mutex::new((1, Fate::Taken)), settled })
    }

    /// Takes note that a part is resolved. The fate of the frame if it was the last.
    pub(crate) fn resolve_part(&self, fate: Fate) -> Option<Fate> {
        let (left, worst) = &mut *self.parts.lock();
        *left -= 1;
        *worst = fate.max(*worst);
        (*left == 0).then_some(*worst)
    }

    /// More parts are made of the frame.
    pub(crate) fn add_parts(&self, count: usize) {
        self.parts.lock().0 += count;
    }
}
