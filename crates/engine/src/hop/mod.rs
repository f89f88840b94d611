//! The ranges of other Sluices that a log has had: asked when a request arrives, settled when its
//! sender is answered, kept on disk beside the cursors. `sluice_flow::hop` decides.

mod disk;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use sluice_flow::Refusal;
use sluice_flow::hop::{Floor, Found, Limits, Ranges, Totals, Window};
use sluice_log::Offset;
use sluice_otlp::Signal;

/// The window of one log. Its lock is taken under the log's, and never the other way round.
pub(crate) struct Known {
    signal: Signal,
    window: Mutex<Window>,
    /// The copy that a start found tells of frames below this offset. It may be above the log's
    /// head after a crash.
    copied_below: Offset,
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
    /// Its sender is answered OK as soon as the log has it.
    pub is_answered: bool,
    pub is_stored: bool,
}

/// The ranges of a frame on its way. Dropped before its end is known, they are forgotten.
pub(crate) struct Mark {
    known: Arc<Known>,
    ranges: Ranges,
    floor: Floor,
    promise: Promise,
    is_settled: AtomicBool,
}

impl Known {
    pub(crate) fn in_memory(signal: Signal, limits: Limits) -> Self {
        Known::of(signal, Window::new(limits, 0))
    }

    fn of(signal: Signal, window: Window) -> Self {
        let version = AtomicU64::new(window.version());
        Known {
            signal,
            window: Mutex::new(window),
            copied_below: 0,
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
        match self.window.lock().arrive(&ranges, promise.is_stored) {
            Found::Known => Ok(Asked::Known),
            Found::New(floor) => {
                let (known, is_settled) = (self.clone(), AtomicBool::new(false));
                Ok(Asked::New(Mark { known, ranges, floor, promise, is_settled }))
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

    /// Whether the frame has the ranges on disk.
    pub(crate) fn is_stored(&self) -> bool {
        self.promise.is_stored
    }

    /// The frame got this offset. Where nothing else is waited for, its sender is answered now.
    pub(crate) fn note_appended(&self, offset: u64) {
        let mut window = self.known.window.lock();
        window.note_appended(offset);
        // A delivery may have settled it in the meantime.
        if self.promise.is_answered && !self.is_settled.load(Ordering::Acquire) {
            window.answer(&self.ranges);
        }
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
