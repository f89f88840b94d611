//! The ranges of other Sluices that a log has had: asked when a request arrives, settled when its
//! sender is answered, kept on disk beside the cursors. `sluice_flow::hop` decides.

mod disk;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use sluice_flow::Refusal;
use sluice_flow::hop::{Floor, Found, Limits, Ranges, Totals, Window};
use sluice_otlp::Signal;

/// The window of one log. Its lock is taken under the log's, and never the other way round.
pub(crate) struct Known {
    signal: Signal,
    window: Mutex<Window>,
    /// The version that is on disk.
    stored_version: AtomicU64,
    /// The version that was last asked for.
    asked_version: AtomicU64,
    has_failed: AtomicBool,
}

/// The fate of a request that names its ranges.
#[derive(Debug)]
pub(crate) enum Asked {
    New(Mark),
    /// It is acknowledged and not stored.
    Known,
}

/// When a frame's ranges are settled, and whether the frame has them on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Promise {
    /// Its sender is answered OK at once.
    pub is_answered: bool,
    pub is_stored: bool,
}

/// The ranges of a frame on its way. Dropped before its end is known, they are forgotten.
pub(crate) struct Mark {
    known: Arc<Known>,
    ranges: Ranges,
    floor: Floor,
    pub is_stored: bool,
    is_settled: AtomicBool,
}

impl Known {
    pub(crate) fn in_memory(signal: Signal) -> Self {
        Known::of(signal, Window::new(Limits::default(), 0))
    }

    fn of(signal: Signal, window: Window) -> Self {
        let version = AtomicU64::new(window.version());
        Known {
            signal,
            window: Mutex::new(window),
            stored_version: version,
            asked_version: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        }
    }

    pub(crate) fn arrive(
        self: &Arc<Self>,
        ranges: Ranges,
        promise: Promise,
    ) -> Result<Asked, Refusal> {
        let Promise { is_answered, is_stored } = promise;
        match self.window.lock().arrive(&ranges, is_answered, is_stored) {
            Found::Known => Ok(Asked::Known),
            Found::New(floor) => {
                let (known, is_settled) = (self.clone(), AtomicBool::new(false));
                Ok(Asked::New(Mark { known, ranges, floor, is_stored, is_settled }))
            }
            Found::Arriving => {
                Err(Refusal::overloaded("an earlier attempt at this request is not answered yet"))
            }
            Found::Overlaps => Err(Refusal::Overlaps),
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        self.window.lock().totals()
    }
}

impl Mark {
    pub(crate) fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// The frame got this offset.
    pub(crate) fn note_appended(&self, offset: u64) {
        self.known.window.lock().note_appended(offset);
    }

    /// The frame is on disk or resolved: this process can no longer lose it. Only the first call of
    /// this or [`Mark::forget`] has an effect.
    pub(crate) fn keep(&self) {
        if !self.is_settled.swap(true, Ordering::AcqRel) {
            self.known.window.lock().keep(&self.ranges, self.floor);
        }
    }

    /// The sender of the frame gets a refusal.
    pub(crate) fn forget(&self) {
        if !self.is_settled.swap(true, Ordering::AcqRel) {
            self.known.window.lock().forget(&self.ranges, self.floor);
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.forget();
    }
}

impl std::fmt::Debug for Mark {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Mark({})", self.ranges)
    }
}
