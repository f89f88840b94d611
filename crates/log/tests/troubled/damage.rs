//! Damage of segments at rest, and the values that it hurts.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use sluice_log::disk::{Access, Disk as _};
use sluice_log::segment::{ScanOptions, SegmentScan};

use super::World;
use crate::support::at_rest::Damaged;
use crate::support::faulty_disk::FaultyDisk;
use crate::support::memory_file::PAGE_LEN_BYTES;

/// A damaged place, and the values that cannot be read meanwhile.
pub(crate) struct Hurt {
    at: Damaged,
    positions: Range<u64>,
    values: BTreeSet<u64>,
}

/// The frames of a segment: positions and value of each.
struct Frames {
    all: Vec<(Range<u64>, u64)>,
    is_sealed: bool,
}

impl Frames {
    /// None if the bytes are not those of a segment with a frame.
    fn of(bytes: &[u8]) -> Option<Frames> {
        let (disk, path) = (FaultyDisk::new(0), Path::new("/a.seg"));
        disk.put(path, bytes);
        let file = disk.open(path, Access::Read).expect("a file");
        let options = ScanOptions::default();
        let mut reader = SegmentScan::open(Arc::clone(&file), path, options).ok()?;
        let mut all = Vec::new();
        while let Some(located) = reader.next_frame().expect("a disk without troubles") {
            let body = reader.body().expect("a disk without troubles");
            let value = body.and_then(|body| body.metadata[..].try_into().ok());
            let value = value.map(u64::from_le_bytes);
            all.extend(value.map(|value| (located.position..located.end(), value)));
        }
        let is_sealed = reader.info().footer.is_some();
        (!all.is_empty()).then_some(Frames { all, is_sealed })
    }

    fn values_in(&self, positions: Range<u64>) -> BTreeSet<u64> {
        let overlaps =
            |frame: &Range<u64>| frame.start < positions.end && positions.start < frame.end;
        self.all.iter().filter(|(frame, _)| overlaps(frame)).map(|(_, value)| *value).collect()
    }
}

impl World {
    /// Damages one place of one segment: a byte of a sealed one, or a page, which cannot be read.
    pub(crate) fn damage(&mut self, pick: usize, at: u64, is_bad_page: bool) {
        let mut files = self.disk.contents();
        files.retain(|(path, _)| path.to_string_lossy().contains(".seg"));
        if files.is_empty() || self.hurts.len() == 3 {
            return;
        }
        let (path, bytes) = &files[pick % files.len()];
        let Some(frames) = Frames::of(bytes) else { return };
        let (frame, _) = frames.all[at as usize % frames.all.len()].clone();
        let position = frame.start + at % (frame.end - frame.start);
        let page = position / PAGE_LEN_BYTES * PAGE_LEN_BYTES;
        let positions =
            if is_bad_page { page..page + PAGE_LEN_BYTES } else { position..position + 1 };
        let values = frames.values_in(positions.clone());
        let mut hurt = self.hurt_values();
        hurt.extend(&values);
        if frames.all.iter().all(|(_, value)| hurt.contains(value)) {
            // Readers wait for a file of which nothing can be read, until it is set aside by hand.
            return;
        }
        let at = if is_bad_page {
            self.disk.spoil(path, position)
        } else if frames.is_sealed {
            self.disk.rot(path, position, 1 << (at % 8))
        } else {
            // Damage behind all that is known to be durable passes for a torn write.
            None
        };
        self.hurts.extend(at.map(|at| Hurt { at, positions, values }));
        self.was_hurt.extend(self.hurt_values());
    }

    /// Notes the values that were written to a bad page later: it was damaged in the middle of a
    /// write.
    pub(crate) fn note_written_hurts(&mut self) {
        let files = self.disk.contents();
        for hurt in &mut self.hurts {
            let path = self.disk.path_of(hurt.at);
            let file = files.iter().find(|(name, _)| Some(name) == path.as_ref());
            let frames = file.and_then(|(_, bytes)| Frames::of(bytes));
            hurt.values.extend(frames.iter().flat_map(|it| it.values_in(hurt.positions.clone())));
        }
        self.was_hurt.extend(self.hurt_values());
    }

    /// Mends the files of which nothing can be read any more, since a crash or a cut took the rest:
    /// readers wait for such a file.
    pub(crate) fn mend_hopeless(&mut self) {
        self.note_written_hurts();
        let (hurt, files) = (self.hurt_values(), self.disk.contents());
        let is_hopeless = |damage: &Hurt| {
            let path = self.disk.path_of(damage.at);
            let file = files.iter().find(|(name, _)| Some(name) == path.as_ref());
            // A frame that the disk refused to sync was written again to the next file.
            let later = files.iter().filter(|(name, _)| Some(name) > path.as_ref());
            let later: Vec<Frames> = later.filter_map(|(_, bytes)| Frames::of(bytes)).collect();
            let is_again = |value: &u64| {
                later.iter().flat_map(|frames| &frames.all).any(|(_, again)| again == value)
            };
            let is_gone = |value: &u64| hurt.contains(value) || is_again(value);
            file.is_some_and(|(_, bytes)| {
                Frames::of(bytes)
                    .is_none_or(|frames| frames.all.iter().all(|(_, value)| is_gone(value)))
            })
        };
        let (hopeless, hurts) = std::mem::take(&mut self.hurts).into_iter().partition(is_hopeless);
        self.hurts = hurts;
        let hopeless: Vec<Hurt> = hopeless;
        hopeless.into_iter().rev().for_each(|hurt| self.disk.restore(hurt.at));
    }

    pub(crate) fn hurt_values(&self) -> BTreeSet<u64> {
        self.hurts.iter().flat_map(|hurt| &hurt.values).copied().collect()
    }

    /// Everything can be read again.
    pub(crate) fn restore_all(&mut self) {
        self.hurts.drain(..).rev().for_each(|hurt| self.disk.restore(hurt.at));
    }

    /// The values in files that are set aside.
    pub(crate) fn values_aside(&self) -> BTreeSet<u64> {
        let is_aside = |path: &Path| path.to_string_lossy().contains(".seg.damaged");
        let mut values = BTreeSet::new();
        for (_, bytes) in self.disk.contents().iter().filter(|(path, _)| is_aside(path)) {
            let frames = Frames::of(bytes);
            values.extend(frames.iter().flat_map(|frames| &frames.all).map(|(_, value)| value));
        }
        let hurts = self.hurts.iter();
        let aside = hurts.filter(|hurt| self.disk.path_of(hurt.at).is_some_and(|it| is_aside(&it)));
        values.extend(aside.flat_map(|hurt| &hurt.values));
        values
    }
}
