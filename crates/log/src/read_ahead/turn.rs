//! One turn of reading for one reader: its frames in a part of a segment.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::tasks::{Found, Purpose, Task};
use crate::cursors::DiskLease;
use crate::error::Result;
use crate::format::FrameHeader;
use crate::log::{DiskFrame, Passed};
use crate::segment::SegmentScan;
use crate::types::{Offset, Record, Undecodable};

/// Bytes on disk that are read for one reader before the next has its turn.
const TURN_BYTES: u64 = 1 << 20;
/// Freed entries are looked for at this number of entries at first.
const FIRST_FORGET: usize = 256;

/// Entries that were read and that some reader still uses.
pub(super) struct SharedFrames<T> {
    by_offset: HashMap<Offset, Weak<T>>,
    /// At this number of entries the freed ones are removed.
    forget_at: usize,
}

impl<T> Default for SharedFrames<T> {
    fn default() -> Self {
        SharedFrames { by_offset: HashMap::new(), forget_at: FIRST_FORGET }
    }
}

impl<T> SharedFrames<T> {
    fn get_or_read(
        &mut self,
        offset: Offset,
        read: impl FnOnce() -> Result<Result<T, Undecodable>>,
    ) -> Result<Result<Arc<T>, Undecodable>> {
        if let Some(entry) = self.by_offset.get(&offset).and_then(Weak::upgrade) {
            return Ok(Ok(entry));
        }
        let entry = read()?.map(Arc::new);
        if self.by_offset.len() >= self.forget_at {
            self.by_offset.retain(|_, entry| entry.strong_count() > 0);
            self.forget_at = 2 * self.by_offset.len() + FIRST_FORGET;
        }
        self.by_offset.extend(entry.iter().map(|entry| (offset, Arc::downgrade(entry))));
        Ok(entry)
    }
}

/// Reads one turn of a task. If the disk refuses a read, the turn ends before the frame.
pub(super) fn read_turn<T: Record>(
    segment: &mut SegmentScan,
    task: &Task,
    shared: &mut SharedFrames<T>,
) -> Found<T> {
    let mut found = Found::nothing(task.from);
    let start = segment.position();
    let mut charged_bytes = 0;
    while segment.position() - start < TURN_BYTES && charged_bytes < task.bytes {
        let places = segment.damage().places();
        let next = match segment.next_frame() {
            Ok(next) => next,
            Err(error) => {
                found.refused = Some(error);
                break;
            }
        };
        if segment.damage().places() > places {
            let offset = next.map_or(task.until, |located| located.header.offset.min(task.until));
            found.unread.extend((found.until < offset).then_some((found.until, offset)));
        }
        let Some(located) = next else {
            found.until = task.until;
            break;
        };
        let header = located.header;
        if header.offset >= task.until {
            // Of another segment, or still in memory: a later task looks at it.
            segment.seek(located.position);
            found.until = task.until;
            break;
        }
        // It was written twice, or was looked at already.
        if header.offset < found.until {
            continue;
        }
        if segment.readers().contains(&task.persistent_id) {
            charged_bytes += header.charge.bytes;
            if task.purpose == Purpose::Drop {
                found.drops.push(DiskFrame::of(segment, located));
            } else {
                let FrameHeader { offset, facts, charge, .. } = header;
                let lease = DiskLease { charge, received_unix_ns: facts.received_unix_ns };
                let entry = shared.get_or_read(offset, || {
                    Ok(segment.body()?.ok_or(Undecodable::Damaged).and_then(T::decode))
                });
                match entry {
                    Err(error) => {
                        segment.seek(located.position);
                        found.refused = Some(error);
                        break;
                    }
                    Ok(Ok(entry)) => found.entries.push((offset, entry, lease)),
                    Ok(Err(why)) => {
                        found.passed.push((located.position, Passed::Undecodable(why)));
                        found.unread.push((offset, offset + 1));
                    }
                }
            }
        }
        found.until = header.offset + 1;
    }
    found
        .passed
        .extend(segment.take_damaged_at().into_iter().map(|position| (position, Passed::DAMAGED)));
    found
}
