//! The frames of a log, each once, read without changing anything.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use sluice_log::FileError;
use sluice_log::RangeSet;
use sluice_log::dead_letters::{DeadLetter, DeadLetterReader};
use sluice_log::disk::Disk;
use sluice_log::format::{CursorState, FrameHeader};
use sluice_log::segment::{Body, Damage, Located, SegmentChain};

use super::directory::{Cursor, StoredDelivery};
use super::text;
use crate::output::complain;

/// A whole frame.
pub(super) struct StoredFrame {
    pub header: FrameHeader,
    /// Ids of its deliveries.
    pub readers: Vec<u32>,
    pub body: Body,
}

/// A walk over a log's frames in the order of the segments.
pub(super) struct Frames {
    chain: SegmentChain,
    /// A frame may be in two segments after a failed write.
    seen: RangeSet,
    /// Only frames that this delivery has not resolved.
    waiting_for: Option<CursorState>,
}

impl Frames {
    pub(super) fn from(disk: Arc<dyn Disk>, log: &Path, from: u64) -> Result<Self> {
        let chain = SegmentChain::open(disk, log, from)?;
        Ok(Frames { chain, seen: RangeSet::default(), waiting_for: None })
    }

    /// Only the backlog of a delivery: all frames if its cursor is lost. `None` if it has no
    /// backlog.
    pub(super) fn backlog(
        disk: Arc<dyn Disk>,
        delivery: &StoredDelivery,
        from: u64,
    ) -> Result<Option<Self>> {
        let log = &delivery.log.path;
        Ok(match &delivery.cursor {
            Cursor::None => None,
            Cursor::Lost => Some(Frames::from(disk, log, from)?),
            Cursor::Known(cursor) => {
                let frames = Frames::from(disk, log, from.max(cursor.floor))?;
                Some(Frames { waiting_for: Some(cursor.clone()), ..frames })
            }
        })
    }

    /// The next whole frame. Damaged frames are skipped and counted; unreadable segments are
    /// skipped and reported.
    pub(super) fn next(&mut self) -> Result<Option<StoredFrame>> {
        while let Some(located) = next_readable(&mut self.chain)? {
            let header = located.header;
            if self.seen.contains(header.offset) {
                continue;
            }
            let readers = self.chain.readers().to_vec();
            let is_wanted = self
                .waiting_for
                .as_ref()
                .is_none_or(|cursor| waits_for(cursor, &readers, header.offset));
            if !is_wanted {
                continue;
            }
            let Some(body) = self.chain.body()? else { continue };
            self.seen.insert(header.offset);
            return Ok(Some(StoredFrame { header, readers, body }));
        }
        Ok(None)
    }

    pub(super) fn damage(&self) -> Damage {
        self.chain.damage()
    }
}

/// True if the delivery had not resolved this frame of its own when its cursor was written.
pub(super) fn waits_for(cursor: &CursorState, readers: &[u32], offset: u64) -> bool {
    let is_resolved = offset < cursor.floor
        || cursor.resolved.iter().any(|&(start, end)| (start..end).contains(&offset));
    !is_resolved && readers.contains(&cursor.id)
}

/// The receive time of the oldest frame of the delivery's backlog, if it has one. Reads headers
/// only.
pub(super) fn oldest_unix_ns(
    disk: Arc<dyn Disk>,
    log: &Path,
    cursor: &CursorState,
) -> Result<Option<u64>> {
    let mut chain = SegmentChain::open(disk, log, cursor.floor)?;
    while let Some(located) = next_readable(&mut chain)? {
        if waits_for(cursor, chain.readers(), located.header.offset) {
            return Ok(Some(located.header.facts.received_unix_ns));
        }
    }
    Ok(None)
}

/// The next letter, skipping unreadable segments.
pub(super) fn next_letter(letters: &mut DeadLetterReader) -> Result<Option<DeadLetter>> {
    loop {
        match letters.next() {
            Err(error) if is_unreadable(&error) => complain!("sluice: skipped: {error}"),
            result => return Ok(result?),
        }
    }
}

fn next_readable(chain: &mut SegmentChain) -> Result<Option<Located>> {
    loop {
        match chain.next() {
            Err(error) if is_unreadable(&error) => complain!("sluice: skipped: {error}"),
            result => return Ok(result?),
        }
    }
}

/// A segment that is unreadable as a whole. Other errors come from the disk, and would come again.
fn is_unreadable(error: &FileError) -> bool {
    matches!(error, FileError::NoSegment { .. } | FileError::NewerVersion { .. })
}

/// Reports on the standard error what could not be read.
pub(super) fn report_damage(what: &Path, damage: Damage) {
    if !damage.is_none() {
        complain!(
            "sluice: {}: skipped {} and {} ({}); `sluice log verify` shows where",
            what.display(),
            text::counted(damage.frames, "damaged frame"),
            text::counted(damage.regions, "unreadable place"),
            text::bytes(damage.bytes)
        );
    }
}
