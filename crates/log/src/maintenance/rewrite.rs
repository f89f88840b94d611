//! Rewriting segments of which little is still wanted, so that a few old frames do not pin much
//! space, nor many old segments many files, nor the padding of small commits most of the disk.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Maintenance, Run};
use crate::cursors::Cursor;
use crate::disk::{DirectoryEntry, create_if_missing};
use crate::error::{IoContext as _, Result};
use crate::format::{BLOCK_LEN_BYTES, FrameRef, SegmentName};
use crate::log::{DiskFrame, Ids, Inner, Pin, Segment};
use crate::segment::{ScanOptions, SegmentWriter, list_if_there, list_segments, list_set_aside};
use crate::types::{CursorId, Offset, Record};

/// A segment is rewritten if less than one byte in this many is wanted.
const WANTED_PART: u64 = 4;
/// This many neighbours are joined if each is sparse or below `segment_bytes / SMALL_PART`.
const SMALL_FILES: usize = 4;
const SMALL_PART: u64 = 8;
/// A sparse segment below `segment_bytes` divided by this is not worth a rewrite by itself.
const WORTHWHILE_PART: u64 = 16;
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(30);

/// A segment that may be rewritten.
struct Old {
    segment: Segment,
    /// Estimate of its bytes that are wanted.
    wanted_bytes: u64,
}

/// A new segment and the old ones that it replaces.
struct Rewritten {
    writer: SegmentWriter,
    /// Number of old segments that are copied in full.
    segments: usize,
    /// The readers of its frames.
    kept_for: HashSet<CursorId>,
}

/// The outcome of copying an old segment.
enum Copied {
    All,
    /// It is full.
    Part,
    /// The old one is damaged.
    Damaged,
}

impl<T: Record> Maintenance<T> {
    /// Rewrites one run of old segments, if there is one.
    pub(super) fn rewrite(&mut self) {
        if Instant::now() >= self.retry_at {
            self.passed_by.clear();
        }
        let segment_bytes = self.home.options.segment_bytes;
        let chosen = self.shared.inner.lock().choose_olds(segment_bytes, &self.passed_by);
        let Some(mut olds) = chosen else { return };
        let disk = &*self.home.options.disk;
        let has_more = |old: &&Old| !self.shared.has_nothing_more(disk, &old.segment);
        let left: Vec<Offset> = olds.iter().filter(has_more).map(|old| old.segment.first).collect();
        if !left.is_empty() {
            return self.pass_by(left);
        }
        let listed = self.without_strangers(&mut olds).map_err(|_| None);
        let done = listed.and_then(|before_stranger| match is_worthwhile(&olds, segment_bytes) {
            true => self.rewrite_run(&olds),
            false => Ok(before_stranger),
        });
        let left = done.unwrap_or_else(|failed| {
            // Nothing is lost: the old files are still there.
            self.shared.with_store(|store| store.stats.failures += 1);
            self.remove_unfinished();
            if failed.is_none() {
                self.rewrite_at = Instant::now() + PAUSE_AFTER_FAILURE;
            }
            failed.into_iter().collect()
        });
        self.pass_by(left);
    }

    /// Removes new segments that replaced none. If one stays, this is tried again before the next
    /// run and at the next start.
    fn remove_unfinished(&self) {
        let (disk, directory) = (&*self.home.options.disk, &self.home.rewrite_directory);
        let stays = |left: &DirectoryEntry| disk.remove_file(&directory.join(&left.name)).is_err();
        let failures = list_if_there(disk, directory)
            .map_or(1, |left| left.iter().filter(|left| stays(left)).count() as u64);
        self.shared.with_store(|store| store.stats.failures += failures);
    }

    /// Leaves segments, given by their first offsets, out of rewrites for a while.
    fn pass_by(&mut self, segments: Vec<Offset>) {
        if self.passed_by.is_empty() {
            self.retry_at = Instant::now() + PAUSE_AFTER_FAILURE;
        }
        self.passed_by.extend(segments);
    }

    /// Ends the run before the first file that does not belong to it and that recovery would read
    /// instead of the new one: it could not be removed or cannot be read. Returns the first offsets
    /// of the old segments before that file.
    fn without_strangers(&self, olds: &mut Vec<Old>) -> Result<Vec<Offset>> {
        let (first, last) = (olds[0].segment.first, olds[olds.len() - 1].segment.last);
        let (disk, directory) = (&*self.home.options.disk, &self.home.options.directory);
        let files = list_segments(disk, directory)?;
        // One that was set aside may be put back.
        let set_aside = list_set_aside(disk, directory)?;
        let aside = set_aside.iter().map(|file| file.name.first_offset);
        let aside = aside.filter(|aside| (first + 1..=last).contains(aside)).min();
        let is_stranger = |name: &SegmentName| {
            let path = self.home.options.directory.join(name.to_string());
            (first + 1..=last).contains(&name.first_offset)
                && olds.iter().all(|old| old.segment.path != path)
        };
        // The files are in order.
        let stranger = files.iter().find(|(name, _)| is_stranger(name));
        let stranger = stranger.map(|(name, _)| name.first_offset).into_iter().chain(aside).min();
        let Some(stranger) = stranger else { return Ok(Vec::new()) };
        let firsts = olds.iter().map(|old| old.segment.first);
        let before_stranger = firsts.filter(|&first| first < stranger).collect();
        olds.retain(|old| old.segment.last < stranger);
        Ok(before_stranger)
    }

    /// Returns the first offset of a segment that stays because it is damaged. The error is that of
    /// the segment that failed. None if the new file could not be created: another run would fail
    /// as well.
    fn rewrite_run(&mut self, olds: &[Old]) -> Result<Vec<Offset>, Option<Offset>> {
        let Old { segment: Segment { first, path, .. }, .. } = &olds[0];
        let mut rewritten = self.begin(olds).map_err(|_| None)?;
        let ids = self.shared.inner.lock().ids_by_persistent_id();
        for old in olds {
            let copied = self.copy(old, &ids, &mut rewritten);
            // The part of it that is in the new file is passed over, since the old file stays.
            match copied.map_err(|_| Some(old.segment.first))? {
                Copied::All => rewritten.segments += 1,
                Copied::Part => break,
                Copied::Damaged => {
                    self.remove_unfinished();
                    return Ok(vec![old.segment.first]);
                }
            }
        }
        let disk = Arc::clone(&self.home.options.disk);
        let put_in_place = |writer: &mut SegmentWriter| {
            writer.seal()?;
            disk.rename(writer.path(), path).at(path, "cannot rename")?;
            let directory = &self.home.options.directory;
            disk.sync_directory(directory).at(directory, "cannot sync the directory")
        };
        let done = &olds[..rewritten.segments];
        // Frames that were resolved since cursors were written are not in the new file.
        self.files.lock().store(&self.shared, &self.home, false);
        if let Some(passed) = self.first_passed(done) {
            self.remove_unfinished();
            return Ok(vec![passed]);
        }
        if done.is_empty() || put_in_place(&mut rewritten.writer).is_err() {
            return Err(Some(*first));
        }
        self.install(path.clone(), done, &rewritten);
        let replaced: Vec<_> = done[1..].iter().map(|old| old.segment.path.clone()).collect();
        self.unremoved.push(Run::from(replaced));
        self.remove_unneeded(false);
        Ok(Vec::new())
    }

    /// The first of the old segments in which a reader has passed something meanwhile.
    fn first_passed(&self, olds: &[Old]) -> Option<Offset> {
        let mut firsts = olds.iter().map(|old| old.segment.first);
        self.shared.with_store(|store| {
            let known = &store.segments.by_first;
            firsts.find(|first| known.get(first).is_some_and(Segment::may_have_more))
        })
    }

    fn begin(&self, olds: &[Old]) -> Result<Rewritten> {
        let directory = &self.home.rewrite_directory;
        create_if_missing(&*self.home.options.disk, directory).at(directory, "cannot create")?;
        self.remove_unfinished();
        let all_bytes: u64 = olds.iter().map(|old| old.segment.len_bytes).sum();
        let first = &olds[0].segment;
        let len_bytes = all_bytes.min(self.home.options.segment_bytes).max(first.len_bytes);
        let len_bytes = len_bytes + BLOCK_LEN_BYTES;
        // The next run removes what is left.
        let left = &mut Vec::new();
        let writer = self.home.create_segment(directory, first.first, len_bytes, left)?;
        Ok(Rewritten { writer, segments: 0, kept_for: HashSet::new() })
    }

    /// Copies the wanted frames of a segment. A damaged file stays for its readers, who pass the
    /// damage; it is set aside then.
    fn copy(&self, old: &Old, ids: &Ids, rewritten: &mut Rewritten) -> Result<Copied> {
        let mut scan = self.home.open(&old.segment, ScanOptions::default())?;
        let mut next = old.segment.first;
        while let Some(located) = scan.next_frame()? {
            let offset = located.header.offset;
            if offset > old.segment.last {
                break;
            }
            if offset < next {
                continue;
            }
            next = offset + 1;
            let old_frame = DiskFrame::of(&scan, located);
            let (wanted_by, readers, is_taken) = {
                let inner = self.shared.inner.lock();
                let wanted_by = inner.waiting_for(&old_frame, ids);
                let persistent_id = |id: &CursorId| inner.cursor(*id).persistent_id;
                let readers: Vec<u32> = wanted_by.iter().map(persistent_id).collect();
                (wanted_by, readers, inner.is_taken(&old_frame, ids))
            };
            if wanted_by.is_empty() {
                continue;
            }
            let Some(body) = scan.body()? else { break };
            let frame = FrameRef {
                offset,
                facts: located.header.facts,
                charge: located.header.charge,
                is_taken,
                readers: &readers,
                metadata: &body.metadata,
                payload: &body.payload,
            };
            if !rewritten.writer.fits(&frame) {
                return Ok(Copied::Part);
            }
            rewritten.writer.append(&frame)?;
            rewritten.kept_for.extend(wanted_by);
        }
        Ok(if scan.damage().is_none() { Copied::All } else { Copied::Damaged })
    }

    /// Replaces the old segments by the new one.
    fn install(&self, path: PathBuf, olds: &[Old], rewritten: &Rewritten) {
        let (first, last) = (olds[0].segment.first, olds[olds.len() - 1].segment.last);
        let mut inner = self.shared.inner.lock();
        // The new segment has all unresolved frames of the old ones.
        let by_first = &inner.on_disk().segments.by_first;
        let old_pins = olds.iter().filter_map(|old| Some(&by_first.get(&old.segment.first)?.pins));
        let counted = merged(old_pins);
        let pin = |&reader: &CursorId| {
            let cursor = inner.cursors[reader.0].as_ref()?;
            let pin = counted.as_ref().map(|counted| counted.get(&reader).copied());
            Some((
                reader,
                pin.map_or_else(|| uncounted(cursor, first, last), Option::unwrap_or_default),
            ))
        };
        let pins = rewritten.kept_for.iter().filter_map(pin).collect();
        let store = inner.on_disk();
        store.stats.rewrites += 1;
        for old in olds {
            store.segments.by_first.remove(&old.segment.first);
        }
        store.segments.insert(Segment {
            path,
            first,
            last,
            epoch: Some(rewritten.writer.header().epoch),
            len_bytes: rewritten.writer.len_bytes(),
            end: Some(rewritten.writer.durable_end()),
            pins,
            ..Segment::default()
        });
        // It closes the old ones.
        self.shared.read_ahead_wake.notify_one();
    }
}

impl<T> Inner<T> {
    /// The first run of neighbours that is worth a rewrite.
    fn choose_olds(&mut self, segment_bytes: u64, passed_by: &HashSet<Offset>) -> Option<Vec<Old>> {
        self.update_pins();
        let store = self.store.as_ref()?;
        let mut run: Vec<Old> = Vec::new();
        for segment in store.segments.by_first.values() {
            let is_known = |reader: CursorId| {
                self.cursors[reader.0].as_ref().is_none_or(|cursor| !cursor.is_lost)
            };
            let candidate = candidate(segment, store.evicted_below, segment_bytes)
                .filter(|_| segment.pinning().all(is_known) && !segment.may_have_more())
                .filter(|_| !passed_by.contains(&segment.first));
            let wanted: u64 = run.iter().chain(&candidate).map(|old| old.wanted_bytes).sum();
            // Frames are counted in another way where they are still in memory.
            let is_in_memory = |segment: &Segment| segment.last >= store.evicted_below;
            let differs =
                run.last().is_some_and(|old| is_in_memory(&old.segment) != is_in_memory(segment));
            if candidate.is_none() || differs || wanted > segment_bytes / 2 {
                if is_worthwhile(&run, segment_bytes) {
                    return Some(run);
                }
                run.clear();
            }
            run.extend(candidate);
        }
        is_worthwhile(&run, segment_bytes).then_some(run)
    }
}

/// The segment, if it is sparse or small. Segments that are still in memory come next to their
/// readers: only those of a backlog with much padding are worth it.
fn candidate(segment: &Segment, evicted_below: Offset, segment_bytes: u64) -> Option<Old> {
    let is_in_memory = segment.last >= evicted_below;
    if segment.is_open || is_in_memory && !(segment.is_padded() && is_backlog(segment)) {
        return None;
    }
    let sparse = segment.pinned_bytes().filter(|bytes| bytes * WANTED_PART < segment.len_bytes);
    let small = (segment.len_bytes < segment_bytes / SMALL_PART).then_some(segment.len_bytes);
    Some(Old { segment: segment.clone(), wanted_bytes: sparse.or(small)? })
}

/// Whether its readers have not begun to resolve it.
fn is_backlog(segment: &Segment) -> bool {
    segment.pinned_bytes().is_some_and(|pinned| pinned >= segment.committed_bytes / 2)
}

/// The sums of what readers pin in several segments. None if that is not counted in one of them.
fn merged<'a>(
    pins: impl Iterator<Item = &'a BTreeMap<CursorId, Pin>>,
) -> Option<BTreeMap<CursorId, Pin>> {
    let mut sums = BTreeMap::<CursorId, Pin>::new();
    for (&reader, pin) in pins.flatten() {
        if pin.may_be_more {
            return None;
        }
        sums.entry(reader).or_default().held.add(pin.held);
    }
    Some(sums)
}

/// The pin of a reader in a file in which its frames are not counted and none is in memory.
fn uncounted<T>(cursor: &Cursor<T>, first: Offset, last: Offset) -> Pin {
    Pin { held: cursor.leased_on_disk(first..=last), may_be_more: cursor.next <= last }
}

fn is_worthwhile(run: &[Old], segment_bytes: u64) -> bool {
    let worthwhile_bytes = (segment_bytes / WORTHWHILE_PART).max(4 * BLOCK_LEN_BYTES);
    let is_sparse = |old: &Old| {
        old.wanted_bytes * WANTED_PART < old.segment.len_bytes
            && old.segment.len_bytes >= worthwhile_bytes
    };
    run.len() >= SMALL_FILES || run.iter().any(is_sparse)
}
