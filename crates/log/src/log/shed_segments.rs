//! Giving up frames on disk, whole segments at a time: space is free only when a file is removed.
//!
//! A segment goes if every reader that has not resolved one of its frames may give that frame up
//! and has not leased it. Otherwise all of it stays, since no space would be free. The caller looks
//! at frames in memory; only the reader thread looks at those on disk: it reads their headers.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::segments::{Segment, Shed};
use super::shed::{GivenUp, LOOKED_AT_ONCE};
use super::{Inner, Log, Shared};
use crate::cursor::Cursor;
use crate::format::FrameHeader;
use crate::gauges::Sheds;
use crate::types::{CursorId, Holding, Offset, Wake};

/// A segment that had to stay is looked at again after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The readers of a log by their persistent ids.
pub(crate) type Ids = HashMap<u32, CursorId>;

/// A frame on disk, without its body.
pub(crate) struct DiskFrame {
    pub(crate) header: FrameHeader,
    /// Persistent ids.
    pub(crate) readers: Vec<u32>,
}

impl<T> Log<T> {
    /// Length of the segments that are needed, open or set aside, reserved space included.
    pub fn needed_disk_bytes(&self) -> u64 {
        let mut inner = self.shared.inner.lock();
        inner.update_pins();
        let Some(store) = &inner.store else { return 0 };
        let is_needed = |segment: &&Segment| segment.is_open || segment.is_pinned();
        let needed = store.segments.by_first.values().filter(is_needed);
        let set_aside = store.set_aside.iter().map(|file| file.len_bytes);
        needed.map(|segment| segment.len_bytes).chain(set_aside).sum()
    }

    /// Gives up the oldest segments that may go, until about `bytes` of disk are free. Returns the
    /// length of these segments, and the entries that were in memory. Segments on disk only are
    /// left to the reader thread, which may find that they stay ([`Log::take_dropped`]).
    pub fn shed_segments(&self, bytes: u64) -> (u64, Vec<GivenUp<T>>) {
        let (mut freed_bytes, mut given_up) = (0, Vec::new());
        let mut inner = self.shared.inner.lock();
        inner.update_pins();
        let (candidates, evicted_below) = (inner.sheddable_segments(), inner.evicted_below());
        drop(inner);
        for (first, last, len_bytes) in candidates {
            if freed_bytes >= bytes {
                break;
            }
            // A segment that is partly in memory has its turn when it is on disk only.
            let goes = if last < evicted_below {
                self.ask_for_segment(first)
            } else {
                first >= evicted_below && self.shed_slots(first, last, &mut given_up)
            };
            freed_bytes += if goes { len_bytes } else { 0 };
        }
        if !given_up.is_empty() {
            self.shared.note_shed();
        }
        (freed_bytes, given_up)
    }

    fn ask_for_segment(&self, first: Offset) -> bool {
        let mut inner = self.shared.inner.lock();
        let Some(segment) = inner.on_disk().segments.by_first.get_mut(&first) else { return false };
        segment.shed = Shed::Asked;
        self.shared.reader_wake.notify_one();
        true
    }

    /// Gives up a segment whose frames are all in memory. False if it has to stay.
    fn shed_slots(&self, first: Offset, last: Offset, given_up: &mut Vec<GivenUp<T>>) -> bool {
        let may_go = |inner: &Inner<T>, offset| {
            inner.slots.get(offset).is_none_or(|slot| inner.all_may_give_up(slot, offset))
        };
        self.all_slots(first, last, |inner, offset| may_go(inner, offset))
            && self.all_slots(first, last, |inner, offset| {
                if may_go(inner, offset)
                    && let Some(readers) = inner.slots.get(offset).map(|slot| slot.readers.clone())
                {
                    given_up.extend(readers.iter().filter_map(|&id| inner.give_up_of(id, offset)));
                }
                true
            })
    }

    /// Visits slots until `visit` returns false, releasing the lock now and then. Also false if
    /// slots were evicted meanwhile: the reader thread decides about frames on disk.
    fn all_slots(
        &self,
        first: Offset,
        last: Offset,
        mut visit: impl FnMut(&mut Inner<T>, Offset) -> bool,
    ) -> bool {
        let mut offset = first;
        while offset <= last {
            let mut inner = self.shared.inner.lock();
            if first < inner.evicted_below() {
                return false;
            }
            for _ in 0..LOOKED_AT_ONCE {
                offset = inner.slots.next_live(offset);
                if offset > last || offset >= inner.slots.head() {
                    return true;
                }
                if !visit(&mut inner, offset) {
                    return false;
                }
                offset += 1;
            }
        }
        true
    }
}

impl<T> Shared<T> {
    /// Makes maintenance remove the segments that were given up.
    pub(crate) fn note_shed(&self) {
        self.with_store(|store| store.has_shed = true);
        self.maintenance_wake.notify_all();
    }
}

impl<T> Inner<T> {
    /// First offset, last offset and length of the segments that all their readers may shed.
    fn sheddable_segments(&self) -> Vec<(Offset, Offset, u64)> {
        let Some(store) = &self.store else { return Vec::new() };
        let may_give_up = |segment: &Segment, id: CursorId| {
            self.cursors[id.0].as_ref().is_none_or(|cursor| {
                let mut leased = cursor.disk_leases.range(segment.first..=segment.last);
                cursor.gauges.may_shed() != Sheds::Nothing && leased.next().is_none()
            })
        };
        let had_to_stay = |shed| matches!(shed, Shed::Refused(at) if at.elapsed() < LOOK_AGAIN);
        let segments = store.segments.by_first.values().filter(|segment| {
            !segment.is_open
                && !segment.may_have_more()
                && segment.is_pinned()
                && !had_to_stay(segment.shed)
                && segment.pinning().all(|id| may_give_up(segment, id))
        });
        segments.map(|segment| (segment.first, segment.last, segment.len_bytes)).collect()
    }

    /// Whether some reader is known to have taken a frame on disk.
    pub(crate) fn is_taken(&self, frame: &DiskFrame, ids: &Ids) -> bool {
        let has_taken = |id: &u32| {
            let cursor = ids.get(id).and_then(|id| self.cursors[id.0].as_ref());
            cursor.is_some_and(|cursor| cursor.has_taken(frame.header.offset))
        };
        frame.header.is_taken || frame.readers.iter().any(has_taken)
    }

    /// Whether a reader that has not resolved a frame on disk may give it up.
    pub(crate) fn may_drop(&self, cursor: &Cursor<T>, frame: &DiskFrame, ids: &Ids) -> bool {
        let is_taken = || self.is_taken(frame, ids);
        frame.header.offset >= cursor.next && cursor.gauges.may_shed().allows(is_taken)
    }

    /// Whether every reader that waits for a frame on disk may give it up.
    pub(crate) fn all_may_drop(&self, frame: &DiskFrame, ids: &Ids) -> bool {
        self.waiting_for(frame, ids).iter().all(|id| self.may_drop(self.cursor(*id), frame, ids))
    }

    /// The readers that have not resolved a frame on disk.
    pub(crate) fn waiting_for(&self, frame: &DiskFrame, ids: &Ids) -> Vec<CursorId> {
        let known = frame.readers.iter().filter_map(|id| ids.get(id).copied());
        let waits = |cursor: &Cursor<T>| !cursor.is_resolved(frame.header.offset);
        known.filter(|id| self.cursors[id.0].as_ref().is_some_and(waits)).collect()
    }

    /// Gives a frame up for every reader that waits for it. False if one of them keeps it.
    pub(crate) fn drop_for_all(
        &mut self,
        frame: &DiskFrame,
        ids: &Ids,
        dropped: &mut HashMap<CursorId, Holding>,
    ) -> bool {
        if !self.all_may_drop(frame, ids) {
            return false;
        }
        for id in self.waiting_for(frame, ids) {
            self.drop_on_disk(id, frame.header.offset, frame.header.charge);
            dropped.entry(id).or_default().add(frame.header.charge);
        }
        true
    }

    /// Records what the reader thread gave up in a segment. If another file has taken its place
    /// meanwhile, not every frame of that file was looked at. Returns the wakes of the readers.
    pub(crate) fn end_shed(
        &mut self,
        asked: &Segment,
        is_free: bool,
        dropped: HashMap<CursorId, Holding>,
    ) -> Vec<Wake> {
        let (first, last) = (asked.first, asked.last);
        let segment = self.store.as_mut().and_then(|store| store.segments.by_first.get_mut(&first));
        if let Some(segment) = segment.filter(|it| it.generation == asked.generation) {
            segment.shed = if is_free { Shed::No } else { Shed::Refused(Instant::now()) };
            if is_free {
                // Each frame was looked at: none is left for any reader.
                let readers: Vec<CursorId> = segment.pinning().collect();
                segment.pins.clear();
                for id in readers {
                    if let Some(cursor) = &mut self.cursors[id.0] {
                        cursor.resolve_run(first, last + 1);
                    }
                }
            }
        }
        let mut wakes = Vec::new();
        for (id, dropped) in dropped {
            let Some(cursor) = &mut self.cursors[id.0] else { continue };
            cursor.dropped_unseen.add(dropped);
            cursor.note_dropped_range(first, last + 1, dropped);
            cursor.publish();
            wakes.push(cursor.wake.clone());
        }
        wakes
    }
}
