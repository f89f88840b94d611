//! The copy of a window on disk: text, as `docs/formats/segment-log.md` says.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluice_flow::hop::{Limits, Ranges, Window};
use sluice_log::companion::{self, Companion};
use sluice_log::disk::Disk;
use sluice_log::{FileError, Offset, Result, StoredRecord};
use sluice_otlp::Signal;

use super::Known;
use crate::stored::FrameMetadata;

const TITLE: &str = "sluice window 1";
const FROM: &str = "from ";

impl Known {
    /// Reads what an earlier process knew, before the log is opened. Its copy tells of frames below
    /// an offset, which is returned; it may be above the log's head after a crash.
    pub(crate) fn open(disk: &dyn Disk, directory: &Path, signal: Signal) -> (Arc<Known>, Offset) {
        let mut window = Window::new(Limits::default(), 0);
        let text = companion::load(disk, directory).unwrap_or_else(|error| {
            tell(signal, &error);
            None
        });
        let (ranges, from) = text.as_deref().and_then(parse).unwrap_or_default();
        ranges.iter().for_each(|ranges| window.recover(ranges));
        let version_of_copy = window.version();
        let visit = |record: StoredRecord| {
            let metadata = FrameMetadata::decode(&record.metadata);
            metadata.ok().and_then(|it| it.ranges).iter().for_each(|it| window.recover(it));
        };
        let errors = companion::visit_since(disk, directory, from, visit);
        errors.iter().for_each(|error| tell(signal, error));
        let known = Known::of(signal, window);
        known.stored_version.store(version_of_copy, Ordering::Relaxed);
        (Arc::new(known), from)
    }

    /// The log is open, and gives this offset next. `from`: see [`Known::open`]. A copy that tells
    /// of offsets that are given again is replaced before they are.
    pub(crate) fn opened(&self, disk: &dyn Disk, directory: &Path, head: Offset, from: Offset) {
        if let Some(last) = head.checked_sub(1) {
            self.window.lock().note_appended(last);
        }
        if from > head {
            self.stored(companion::store(disk, directory, &self.text()));
        }
    }
}

fn tell(signal: Signal, error: &FileError) {
    tracing::warn!(
        %signal, %error,
        "some requests of other Sluices may not be known again, and are stored once more if they \
         are repeated"
    );
}

impl Companion for Known {
    fn is_changed(&self) -> bool {
        self.window.lock().version() != self.stored_version.load(Ordering::Relaxed)
    }

    fn text(&self) -> String {
        let window = self.window.lock();
        self.asked_version.store(window.version(), Ordering::Relaxed);
        let (ranges, from) = window.copy();
        drop(window);
        let mut text = format!("{TITLE}\n{FROM}{from}\n");
        for ranges in ranges.into_sources() {
            let _ = writeln!(text, "{ranges}");
        }
        text
    }

    fn stored(&self, result: Result<()>) {
        let has_failed = result.is_err();
        match result {
            Ok(()) => {
                let version = self.asked_version.load(Ordering::Relaxed);
                self.stored_version.store(version, Ordering::Relaxed);
            }
            Err(error) if !self.has_failed.load(Ordering::Relaxed) => tell(self.signal, &error),
            Err(_) => {}
        }
        self.has_failed.store(has_failed, Ordering::Relaxed);
    }
}

/// The ranges, a source each, and the offset from which on frames on disk may have others.
fn parse(text: &str) -> Option<(Vec<Ranges>, Offset)> {
    let mut lines = text.lines();
    if lines.next()? != TITLE {
        return None;
    }
    let from = lines.next()?.strip_prefix(FROM)?.parse().ok()?;
    // A line of a later release is left out.
    Some((lines.filter_map(|line| Ranges::parse(line).ok()).collect(), from))
}
