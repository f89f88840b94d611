//! The frames of a log, each once, read without changing anything.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use sluice_config::size;
use sluice_log::disk::RealDisk;
use sluice_log::format::CursorState;
use sluice_log::segment::{Damage, SegmentChain};
use sluice_log::{FileError, RangeSet, StoredRecord};

use super::directory::StoredDelivery;
use crate::output::complain;
use crate::text;

pub(super) struct StoredFrame {
    pub stored: StoredRecord,
    /// Ids of its deliveries.
    pub readers: Vec<u32>,
}

/// A walk over a log's frames in the order of the segments.
pub(super) struct Frames {
    pub chain: SegmentChain,
    /// A frame may be in two segments after a failed write.
    seen: RangeSet,
    /// Only frames that this delivery has not resolved.
    waiting_for: Option<CursorState>,
}

impl Frames {
    pub(super) fn from(log: &Path, from: u64) -> Result<Self> {
        let chain = SegmentChain::open(Arc::new(RealDisk), log, from)?;
        Ok(Frames { chain, seen: RangeSet::default(), waiting_for: None })
    }

    /// Only the backlog of a delivery: all frames if its cursor is lost.
    pub(super) fn backlog(delivery: &StoredDelivery, from: u64) -> Result<Self> {
        let floor = delivery.cursor.as_ref().map_or(0, |cursor| cursor.floor);
        let frames = Frames::from(&delivery.log.path, from.max(floor))?;
        Ok(Frames { waiting_for: delivery.cursor.clone(), ..frames })
    }

    /// The next whole frame. Damaged frames are counted, unreadable segments reported.
    pub(super) fn next(&mut self) -> Result<Option<StoredFrame>> {
        while let Some(located) = readable(|| self.chain.next_frame())? {
            let offset = located.header.offset;
            let readers = self.chain.readers().to_vec();
            let waits = |cursor: &CursorState| cursor.waits_for(&readers, offset);
            if self.seen.contains(offset) || !self.waiting_for.as_ref().is_none_or(waits) {
                continue;
            }
            let Some(stored) = self.chain.body()? else { continue };
            self.seen.insert(offset);
            return Ok(Some(StoredFrame { stored, readers }));
        }
        Ok(None)
    }
}

/// Receive time of the oldest frame in the delivery's backlog. Reads headers only.
pub(super) fn oldest_unix_ns(log: &Path, cursor: &CursorState) -> Result<Option<u64>> {
    let mut chain = SegmentChain::open(Arc::new(RealDisk), log, cursor.floor)?;
    while let Some(located) = readable(|| chain.next_frame())? {
        if cursor.waits_for(chain.readers(), located.header.offset) {
            return Ok(Some(located.header.facts.received_unix_ns));
        }
    }
    Ok(None)
}

/// The next frame or letter, skipping unreadable segments.
pub(super) fn readable<T>(mut next: impl FnMut() -> Result<T, FileError>) -> Result<T> {
    loop {
        match next() {
            // The segment is unreadable as a whole. Errors of the disk would come again.
            Err(error) if error.is_of_whole_segment() => {
                complain!("sluice: skipped: {error}");
            }
            result => return Ok(result?),
        }
    }
}

pub(super) fn report_damage(damaged: &[(PathBuf, Damage)]) {
    for (path, damage) in damaged {
        let frames = text::counted(damage.frames, "damaged frame");
        let places = text::counted(damage.regions, "unreadable place");
        let (path, bytes) = (path.display(), size::rounded(damage.bytes));
        complain!(
            "sluice: {path}: skipped {frames} and {places} ({bytes}); `sluice log verify` shows \
             where"
        );
    }
}
