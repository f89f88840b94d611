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
    /// Reads the copy of what an earlier process knew. The log that is opened next shows the rest.
    pub(crate) fn open(
        disk: &dyn Disk,
        directory: &Path,
        signal: Signal,
        limits: Limits,
    ) -> Arc<Known> {
        let mut window = Window::new(limits, 0);
        let text = companion::load(disk, directory).unwrap_or_else(|error| {
            tell(signal, &error);
            None
        });
        let (ranges, copied_below) = text.as_deref().and_then(parse).unwrap_or_default();
        ranges.iter().for_each(|ranges| window.recover(ranges));
        Arc::new(Known { copied_below, ..Known::of(signal, window) })
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
    fn asks_from(&self) -> Offset {
        self.copied_below
    }

    fn found(&self, record: StoredRecord) {
        let metadata = FrameMetadata::decode(&record.metadata);
        let ranges = metadata.ok().and_then(|it| it.ranges);
        ranges.iter().for_each(|ranges| self.window.lock().recover(ranges));
    }

    fn opened(&self, head: Offset, errors: Vec<FileError>) {
        errors.iter().for_each(|error| tell(self.signal, error));
        if let Some(last) = head.checked_sub(1) {
            self.window.lock().note_appended(last);
        }
    }

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
