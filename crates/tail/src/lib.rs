//! Files as sources that grow, rotate and go away: found, told apart, read and cut into records.
//!
//! Knows nothing of OTLP or of receivers. No file is read beyond what its user asks for, and
//! nothing is forgotten of a file before its user says that it is resolved.
//!
//! The life of a line:
//!
//! 1. *find*: `glob` and `select` say which paths are meant, `watch` what changed in which of the
//!    `directories`, `find` sees a path and the inode behind it.
//! 2. *open*: `open` does, and bounds how many files are open; `identify` tells whether the inode
//!    holds a content that is known: under another name, on another inode, compressed; `copies`
//!    which files may be about to take the place of others, and wait.
//! 3. *read*: `schedule` gives each file its turn, `read` fills the one `window` that all share.
//! 4. *split*: `split` cuts records off, `charset` knows their characters.
//! 5. *checkpoint*: `checkpoint` keeps what is resolved, `journal` what changed of it, `sent` the
//!    names of what is on its way.
//!
//! A [`FileId`] stands for a content, not for a path or an inode: when a file is truncated, its
//! inode gets a new one; when a content is copied or compressed, its id goes with it.

mod charset;
mod checkpoint;
mod copies;
mod directories;
mod file;
mod find;
mod glob;
mod gone;
mod identify;
mod identity;
mod ids;
mod inflate;
mod journal;
mod known;
mod listing;
mod open;
mod read;
mod schedule;
mod select;
mod sent;
mod shown;
mod split;
mod told;
mod watch;
mod whole_read;
mod window;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use charset::Charset;
pub use checkpoint::{Checkpoint, decode, encode};
pub use glob::{Found, Glob};
pub use identity::{Head, Inode, Mark};
pub use journal::{Journal, Write};
pub use known::Known;
pub use read::{Line, Turn};
pub use select::{Ordering, ParseTime, SortBy, SortKind};
pub use sent::{Name, Sent};
pub use shown::Shown;
pub use split::{Boundary, Cut, End, Splitter};
pub use window::WINDOW_BYTES;

use file::{File, Place};
use ids::IdMap;
use journal::{in_order, resolved_mark};
use listing::Listings;
use schedule::Schedule;
use sent::Sum;
use told::Told;
use watch::Watcher;
use window::Window;

/// A content that is known at the start may be found this late, under another name or compressed.
const VANISHED_PATIENCE: Duration = Duration::from_secs(30);

/// A content. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// Compressed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    /// All of them are.
    Gzip,
    /// Those that begin as gzip does.
    Auto,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub include: Vec<Glob>,
    pub exclude: Vec<Glob>,
    /// Files that are not known yet and older than this are not read.
    pub exclude_older_than: Option<Duration>,
    pub ordering: Option<Ordering>,
    /// Where to begin in files that are there at the first look, if nothing is known of any file.
    pub starts_at_end: bool,
    /// Bytes of a fingerprint.
    pub head_bytes: usize,
    /// Files that are open at a time, at least 2. Half of them may be files that have left.
    pub max_open: usize,
    pub poll_interval: Duration,
    /// Whether the kernel may tell changes. Without, files are looked at every `poll_interval`.
    pub watches: bool,
    /// A last record without its end is one after this time without anything new. Zero: never.
    pub flush_after: Duration,
    pub splitter: Splitter,
    pub compression: Compression,
    /// Files are removed once all of them is resolved and nothing came for so long, or for
    /// `poll_interval`. What their writers add afterwards is read as long as they do so.
    pub deletes_after: Option<Duration>,
    /// Files are only read while others do not lock them.
    pub locks: bool,
}

/// Counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files that left before they were read to their end and could not be kept open, or before
    /// all that was read was delivered, or while no process ran.
    pub lost_files: u64,
    /// Bytes of theirs that were not delivered, as far as known.
    pub lost_bytes: u64,
    /// Contents that were replaced within their file.
    pub truncated: u64,
    /// Files that left their path while they were open.
    pub rotated: u64,
    /// Files that could not be read when they were tried.
    pub failed: u64,
    /// Files that left their path, and are no longer followed although they may be written to:
    /// there were too many of them.
    pub closed: u64,
    /// Contents of the checkpoint that were forgotten, as too many files were missing.
    pub forgotten: u64,
    /// Files that were shorter at the start than they were read, and are read on at their end.
    pub shortened: u64,
}

/// Files that are tailed. Blocks on the disk: for a thread of its own.
pub struct Tail {
    options: Options,
    files: IdMap<Box<File>>,
    by_inode: HashMap<Inode, FileId>,
    /// Paths, and the targets of links, of files that are there.
    by_path: HashMap<Arc<Path>, FileId>,
    /// Contents without a file, by their heads.
    missing: HashMap<Head, Vec<FileId>>,
    /// The same in the order in which they were lost.
    missing_order: BTreeSet<(u64, FileId)>,
    /// Those of them whose file was removed or written anew.
    over_order: BTreeSet<(u64, FileId)>,
    missing_count: u64,
    schedule: Schedule,
    watcher: Watcher,
    window: Window,
    /// [`Tail::line`] has found no whole record in the window.
    is_drained: bool,
    /// Of the range that began last, if it is wanted.
    sum: Option<Sum>,
    run: Option<u128>,
    next_name: u64,
    /// The rest of the window, behind its last record, is one too.
    flushes: bool,
    /// Found, and without a turn yet.
    new_files: Vec<FileId>,
    /// Files that are open, or were, the first opened first.
    open: VecDeque<FileId>,
    /// Files that have left and are followed, or were.
    away: VecDeque<FileId>,
    open_count: usize,
    next_id: u64,
    next_scan: Instant,
    /// When contents that were known at the start and are not found are counted.
    count_vanished_at: Option<Instant>,
    looks: u64,
    listings: Listings,
    begins_at_end: bool,
    told: Told,
    pub counts: Counts,
}

impl Tail {
    /// `known`: contents that were read before. `None`: there was no checkpoint.
    pub fn new(mut options: Options, known: Option<Vec<Known>>, now: Instant) -> Tail {
        options.max_open = open::most_open(options.max_open);
        let watcher = Watcher::new(options.watches);
        let begins_at_end = options.starts_at_end && known.is_none();
        let count_vanished_at = known.as_ref().map(|_| now + VANISHED_PATIENCE);
        let mut tail = Tail {
            options,
            files: IdMap::default(),
            by_inode: HashMap::new(),
            by_path: HashMap::new(),
            missing: HashMap::new(),
            missing_order: BTreeSet::new(),
            over_order: BTreeSet::new(),
            missing_count: 0,
            flushes: false,
            new_files: Vec::new(),
            schedule: Schedule::default(),
            watcher,
            window: Window::default(),
            is_drained: true,
            sum: None,
            run: sent::new_run(),
            next_name: 0,
            open: VecDeque::new(),
            away: VecDeque::new(),
            open_count: 0,
            next_id: 1,
            next_scan: now,
            count_vanished_at,
            looks: 0,
            listings: Listings::default(),
            begins_at_end,
            told: Told::default(),
            counts: Counts::default(),
        };
        for known in known.into_iter().flatten() {
            let id = tail.remember(known, Vec::new());
            if let Some(file) = tail.files.get_mut(&id) {
                file.is_from_disk = true;
            }
        }
        tail
    }

    /// Adds a content that was read before, with the beginnings of its ranges that are not
    /// resolved. Call it before the first look. Of several contents of an inode, the last one is
    /// the one that it has.
    pub fn remember(&mut self, known: Known, begun: Vec<Mark>) -> FileId {
        self.begins_at_end = false;
        let id = self.new_id();
        let before = self.by_inode.insert(known.inode, id);
        // Numbers of inodes are given again: one at another path is no content of this file.
        let is_here = |id: &FileId| self.files.get(id).is_some_and(|it| *it.path == *known.path);
        let before = before.filter(is_here);
        let mut file = File::known(known, begun);
        file.is_anew = before.is_some();
        if let Some(before) = before {
            self.set_present(before);
            self.files.get_mut(&before).into_iter().for_each(|file| file.is_over = true);
            self.set_missing(before);
        }
        self.files.insert(id, Box::new(file));
        self.set_missing(id);
        id
    }

    /// The next file with something to read, whose turn begins with [`Tail::turn`].
    pub fn next(&mut self, now: Instant) -> Option<FileId> {
        self.schedule.next(now)
    }

    /// When there is something to do, if nothing changes before.
    pub fn next_due(&self) -> Instant {
        self.schedule.next_due().map_or(self.next_scan, |due| due.min(self.next_scan))
    }

    /// Readable when something has changed.
    pub fn changes(&self) -> Option<BorrowedFd<'_>> {
        self.watcher.fd()
    }

    /// The file's turn comes again after this time, whether or not it changes.
    pub fn again(&mut self, id: FileId, now: Instant, after: Duration) {
        self.schedule.at(id, now + after);
    }

    /// The place from which reading goes on, to be told back to [`Tail::rewind`] and
    /// [`Tail::resolved`]: a range of the content begins here.
    pub fn begin_range(&mut self, id: FileId) -> u64 {
        self.sum = None;
        let window = &self.window;
        let Some(file) = self.files.get_mut(&id) else { return 0 };
        file.seal(window, id);
        file.rare.begun.push_back(file.mark);
        file.mark.offset
    }

    /// The first bytes of a content whose turn it is, at most so many, and whether its last line,
    /// if it has no end, is whole by now.
    ///
    /// # Errors
    /// Its file cannot be read.
    pub fn beginning(&self, id: FileId, max_bytes: usize) -> std::io::Result<(Vec<u8>, bool)> {
        let file = self.files.get(&id);
        let Some((open, file)) = file.and_then(|file| Some((file.open.as_ref()?, file))) else {
            return Ok((Vec::new(), false));
        };
        Ok((window::peek(open, file.is_gzip, 0, max_bytes)?, self.flushes))
    }

    /// Reading goes on at this offset, which is in the window, if it has not come so far: what is
    /// before it is no record.
    pub fn skip_to(&mut self, id: FileId, offset: u64) {
        self.is_drained = true;
        if let Some(file) = self.files.get_mut(&id).filter(|file| file.mark.offset < offset) {
            (file.mark.offset, file.mark.is_within) = (offset, false);
        }
    }

    /// The end of the range that began last. Nothing was read if it is where it began.
    pub fn end_range(&mut self, id: FileId) -> u64 {
        self.sum_up(id);
        let window = &self.window;
        let Some(file) = self.files.get_mut(&id) else { return 0 };
        file.seal(window, id);
        if file.rare.begun.back().is_some_and(|mark| mark.offset == file.mark.offset) {
            file.rare.begun.pop_back();
        }
        file.mark.offset
    }

    /// The place before a record that [`Tail::line`] has just given.
    pub fn place_before(&self, record: (u64, u64)) -> Mark {
        let (offset, number) = record;
        let lead = identity::hash(self.window.lead(offset));
        Mark { offset, records: number - 1, lead, is_within: false }
    }

    /// Ends the range that began last at an earlier place within it, and begins another there.
    /// Returns whether that leaves something of both.
    pub fn cut_range(&mut self, id: FileId, at: Mark) -> bool {
        let Some(file) = self.files.get_mut(&id) else { return false };
        let is_within = file.rare.begun.back().is_some_and(|start| start.offset < at.offset)
            && at.offset < file.mark.offset;
        if is_within {
            file.rare.begun.push_back(at);
        }
        is_within
    }

    /// Reads again from an offset at which a range began, or the last one ended.
    pub fn rewind(&mut self, id: FileId, offset: u64) {
        self.window.clear();
        let Some(file) = self.files.get_mut(&id) else { return };
        if let Some(at) = file.rare.begun.iter().position(|mark| mark.offset == offset) {
            file.mark = file.rare.begun[at];
            file.rare.begun.truncate(at);
        }
    }

    /// Everything before this offset is resolved: it is where a range began or the last one ended.
    pub fn resolved(&mut self, id: FileId, offset: u64) {
        let Some(file) = self.files.get_mut(&id) else { return };
        while file.rare.begun.front().is_some_and(|mark| mark.offset < offset) {
            file.rare.begun.pop_front();
        }
        if file.rare.begun.is_empty() && file.rare.begun.capacity() > 0 {
            file.rare.begun = VecDeque::new();
        }
        let resolved = resolved_mark(file).offset;
        file.rare.sent.forget_before(resolved);
        file.rare.release();
    }

    /// Everything that is read of a file is resolved, or given up.
    pub fn is_settled(&self, id: FileId) -> bool {
        self.files.get(&id).is_none_or(|file| file.rare.begun.is_empty())
    }

    /// All contents with the marks up to which they are resolved.
    pub fn known(&self) -> Vec<Known> {
        let known = |file: &File| file.known_with_sent(resolved_mark(file));
        in_order(self, File::is_kept).iter().map(|(_, file)| known(file)).collect()
    }

    /// All contents with the marks up to which they are read, and the beginnings of what is not
    /// resolved of them, in the order of [`Tail::remember`]. Call it before [`Tail::take_left`].
    pub fn contents(&self) -> impl Iterator<Item = (FileId, Known, Vec<Mark>)> {
        let contents = in_order(self, |file| file.is_kept() || file.open.is_some());
        contents.into_iter().map(|(id, file)| {
            (id, file.known_with_sent(file.mark), file.rare.begun.iter().copied().collect())
        })
    }

    /// Whether the content's file is gone.
    pub fn is_missing(&self, id: FileId) -> bool {
        self.place_of(id).is_none_or(|place| place == Place::Missing)
    }

    /// Records are cut at this length from now on.
    pub fn limit_records(&mut self, bytes: usize) {
        let splitter = &mut self.options.splitter;
        splitter.max_bytes = splitter.max_bytes.min(bytes);
    }

    /// The path at which the content was seen last.
    pub fn path(&self, id: FileId) -> Option<&std::path::Path> {
        self.files.get(&id).map(|file| &*file.path)
    }

    /// The open file.
    pub fn metadata(&self, id: FileId) -> Option<std::fs::Metadata> {
        self.files.get(&id)?.open.as_ref()?.metadata().ok()
    }

    pub fn open_files(&self) -> usize {
        self.open_count
    }

    pub fn is_open(&self, id: FileId) -> bool {
        self.files.get(&id).is_some_and(|file| file.open.is_some())
    }

    /// Bytes of the files that are there which were not read, as of when each was last looked at.
    /// Those of a compressed file are compressed. Looks at every file that is known.
    pub fn unread_bytes(&self) -> u64 {
        let there = self.files.values().filter(|file| file.place != Place::Missing);
        there.map(|file| file.unread()).fold(0, u64::saturating_add)
    }

    /// Looks how large open files are, for a last checkpoint.
    pub fn note_sizes(&mut self) {
        for file in self.files.values_mut().filter(|file| file.rare.held.is_none()) {
            if let Some(Ok(metadata)) = file.open.as_ref().map(fs::File::metadata) {
                file.size = metadata.len();
            }
        }
    }

    /// The number of looks at all files.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// Files that are there.
    pub fn present_files(&self) -> usize {
        self.files.len() - self.missing_order.len() - self.over_order.len()
    }

    fn new_id(&mut self) -> FileId {
        self.next_id += 1;
        FileId(self.next_id - 1)
    }

    /// Whether a problem is to be told: see [`Told`].
    fn is_news(&mut self, problem: String) -> bool {
        self.told.is_news(problem, Instant::now())
    }

    fn place_of(&self, id: FileId) -> Option<Place> {
        self.files.get(&id).map(|file| file.place)
    }
}

#[cfg(test)]
mod tests;
