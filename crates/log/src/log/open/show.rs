//! Showing the frames that a start finds to a companion.

use std::collections::HashMap;
use std::path::Path;

use super::super::{Segment, Segments};
use crate::companion::{Companion, store};
use crate::cursors::Cursor;
use crate::disk::{Access, Disk};
use crate::error::{IoContext as _, Result};
use crate::format::FrameHeader;
use crate::segment::open_if_there;
use crate::types::{Offset, StoredRecord};

/// A start reads no more segments than this, the newest ones.
const SEGMENTS_AT_START: usize = 32;

/// Shows a companion the frames that a start has found in the newest segments, and tells it the
/// head. A copy that tells of offsets that are given again is replaced before they are.
pub(super) fn show_found<'c, T: 'c>(
    companion: &dyn Companion,
    cursors: impl Iterator<Item = &'c Cursor<T>>,
    disk: &dyn Disk,
    directory: &Path,
    segments: &Segments,
    head: Offset,
) {
    let from = companion.asks_from();
    let cursors: HashMap<u32, &Cursor<T>> = cursors.map(|it| (it.persistent_id, it)).collect();
    let counts = |header: &FrameHeader, readers: &[u32]| !is_given_up(&cursors, header, readers);
    let newest = segments.by_first.values().rev().take(SEGMENTS_AT_START);
    let shown = newest.filter(|segment| segment.last >= from).map(|segment| {
        let show = |record: StoredRecord| companion.found(record);
        visit(disk, directory, segment, from, &counts, show)
    });
    let errors = shown.filter_map(Result::err).collect();
    companion.opened(head, errors);
    if from > head {
        companion.stored(store(disk, directory, &companion.text()));
    }
}

/// Whether some reader of a frame has given it up, or is gone, and none waits for it. Its sender
/// may have been told to come again: a frame may be given up while it is being written.
fn is_given_up<T>(
    cursors: &HashMap<u32, &Cursor<T>>,
    header: &FrameHeader,
    readers: &[u32],
) -> bool {
    let offset = header.offset;
    let waits = |id: &u32| cursors.get(id).is_some_and(|it| !it.is_resolved(offset));
    let has_taken = |id: &u32| cursors.get(id).is_some_and(|it| !it.untaken.contains(offset));
    !header.is_taken && !readers.iter().any(waits) && !readers.iter().all(has_taken)
}

/// Visits the whole frames of a segment that count.
fn visit(
    disk: &dyn Disk,
    directory: &Path,
    segment: &Segment,
    from: Offset,
    counts: &dyn Fn(&FrameHeader, &[u32]) -> bool,
    mut visit: impl FnMut(StoredRecord),
) -> Result<()> {
    let path = &segment.path;
    let Some(mut scan) = open_if_there(disk, path)? else { return Ok(()) };
    if scan.info().footer.is_none() {
        // A process that was killed may have left frames in it that were never synced, and a name.
        let file = disk.open(path, Access::ReadWrite).at(path, "cannot open")?;
        file.sync_data().at(path, "cannot sync")?;
        disk.sync_directory(directory).at(directory, "cannot sync")?;
    }
    while let Some(located) = scan.next_frame()? {
        let offset = located.header.offset;
        // Those above are in a later segment, or were never written as a whole.
        if (from..=segment.last).contains(&offset)
            && counts(&located.header, scan.readers())
            && let Some(record) = scan.body()?
        {
            visit(record);
        }
    }
    Ok(())
}
