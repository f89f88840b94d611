//! Troubles of a disk that come and go: which calls they meet, how the disk answers those, and how
//! long that lasts.

use std::io;
use std::ops::Range;

use fastrand::Rng;
use rustix::io::Errno;

use super::calls::{Call, Operation};

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Error(Errno),
    /// None until the trouble is over or the process dies. Then the call is done.
    Hang,
}

#[derive(Clone, Debug)]
pub enum Lasts {
    /// Until [`super::faulty_disk::FaultyDisk::clear_fault`].
    On,
    /// The calls that it would meet are counted; it meets these.
    Calls(Range<u64>),
    /// A span of the disk's clock, of which each call is one tick.
    Ticks(Range<u64>),
    /// It meets a call with this chance in a thousand.
    Chance(u32),
}

/// One trouble. A call that all of its conditions hold for is met.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// Empty: all operations.
    pub operations: Vec<Operation>,
    /// A part of the path. Empty: every file and directory.
    pub path_part: String,
    /// Positions in a file, for calls that have some.
    pub positions: Range<u64>,
    /// Only calls that change something, or prepare it: a file system that is mounted read-only.
    pub changes_only: bool,
    pub answer: Answer,
    pub lasts: Lasts,
}

impl Trouble {
    /// Every call of these operations gets this error.
    pub fn new(operations: &[Operation], error: Errno) -> Self {
        Trouble {
            operations: operations.to_vec(),
            path_part: String::new(),
            positions: 0..u64::MAX,
            changes_only: false,
            answer: Answer::Error(error),
            lasts: Lasts::On,
        }
    }

    /// The file system is mounted read-only.
    pub fn read_only() -> Self {
        Trouble { changes_only: true, ..Trouble::new(&[], Errno::ROFS) }
    }

    /// The file system is not mounted: no path leads to it, and open files stay usable.
    pub fn unmounted() -> Self {
        use Operation::{CreateDirectory, CreateNew, Device, List, Open, RemoveFile, Rename};
        let by_path = [
            CreateDirectory,
            CreateNew,
            Device,
            List,
            Open,
            RemoveFile,
            Rename,
            Operation::SyncDirectory,
        ];
        Trouble::new(&by_path, Errno::NOENT)
    }

    fn meets(&self, call: &Call<'_>) -> bool {
        let is_of = |operations: &[Operation]| operations.contains(&call.operation);
        let is_at = |positions: &Range<u64>| {
            call.positions.is_empty()
                || positions.start < call.positions.end && call.positions.start < positions.end
        };
        (self.operations.is_empty() || is_of(&self.operations))
            && (!self.changes_only || call.changes)
            && call.path.to_string_lossy().contains(&self.path_part)
            && is_at(&self.positions)
    }
}

/// The troubles of a disk.
#[derive(Default)]
pub struct Troubles {
    /// With the number of calls that each would have met.
    all: Vec<(Trouble, u64)>,
    /// Changes when troubles end at once: calls without an answer get one then.
    pub ended: u64,
    /// Calls that were met.
    pub met: u64,
}

impl Troubles {
    pub fn add(&mut self, trouble: Trouble) {
        self.all.push((trouble, 0));
    }

    pub fn end(&mut self) {
        self.all.clear();
        self.ended += 1;
    }

    pub fn is_none(&self) -> bool {
        self.all.is_empty()
    }

    /// The answer to a call at a tick of the clock. None: it is done as usual.
    pub fn answer(&mut self, call: &Call<'_>, tick: u64, random: &mut Rng) -> Option<Answer> {
        let mut answer = None;
        for (trouble, calls) in &mut self.all {
            if !trouble.meets(call) {
                continue;
            }
            let number = *calls;
            *calls += 1;
            let lasts = match &trouble.lasts {
                Lasts::On => true,
                Lasts::Calls(numbers) => numbers.contains(&number),
                Lasts::Ticks(ticks) => ticks.contains(&tick),
                Lasts::Chance(per_mille) => random.u32(..1000) < *per_mille,
            };
            if lasts {
                answer.get_or_insert(trouble.answer);
            }
        }
        self.met += u64::from(answer.is_some());
        answer
    }
}

pub fn error_of(error: Errno) -> io::Error {
    io::Error::from_raw_os_error(error.raw_os_error())
}
