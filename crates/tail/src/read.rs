//! A file's turn: it is read from the place where its last turn ended.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::file::{File, Place};
use crate::find::version;
use crate::identity::{Head, Inode};
use crate::shown::Shown;
use crate::split::End;
use crate::window;
use crate::{FileId, Tail};

/// A file that was removed is closed when it had nothing new for this long. One that was renamed
/// is followed while it has a name, unless there are too many.
pub(crate) const AWAY_TIME: Duration = Duration::from_secs(30);
/// Files that have left are looked at this often, as the kernel does not tell their changes. Those
/// that had nothing new for long are looked at up to so much later.
const AWAY_INTERVAL: Duration = Duration::from_millis(500);
const AWAY_INTERVAL_MAX: Duration = Duration::from_secs(10);
const AWAY_SHARE: u32 = 60;
/// A compressed file waits so long for others that are read.
const PLACE_PAUSE: Duration = Duration::from_millis(200);

/// A record of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'t> {
    /// In the encoding of the file: see [`crate::Charset::decode`].
    pub text: &'t [u8],
    /// Its first byte in the content.
    pub offset: u64,
    /// Counted from 1.
    pub number: u64,
}

/// The result of [`Tail::fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// [`Tail::line`] may have records.
    Lines,
    /// The next record may need a window of this many bytes.
    Wider(usize),
    /// Nothing more for now.
    Over,
}

impl Tail {
    /// Begins the file's turn. Returns the id of the content to read, which may be another one if
    /// it turns out that the file goes on with a known content. `None`: there is nothing to read.
    pub fn turn(&mut self, id: FileId, now: Instant) -> Option<FileId> {
        self.window.clear();
        self.flushes = false;
        if self.place_of(id)? == Place::Missing || !self.open(id, now) {
            return None;
        }
        let file = self.files.get_mut(&id)?;
        let open = file.open.as_ref()?;
        let size = match open.metadata() {
            Ok(metadata) => {
                file.version = version(&metadata);
                metadata.len()
            }
            Err(error) => {
                self.close(id);
                self.failed(id, &error, now);
                return None;
            }
        };
        if file.rare.failed_size.is_some_and(|failed| failed == size) {
            self.rest_damaged(id, now);
            return None;
        }
        file.rare.failed_size = None;
        if file.rare.held.is_none() {
            file.size = size;
        }
        // Those that have begun are read to their end first: what is not kept is inflated anew.
        let schedule = &self.schedule;
        if file.is_gzip && !self.window.has_place(id, |of| schedule.has(of)) {
            self.schedule.at(id, now + PLACE_PAUSE);
            return None;
        }
        if self.options.locks && flock(open, FlockOperation::NonBlockingLockExclusive).is_err() {
            self.schedule.at(id, now + self.options.poll_interval);
            return None;
        }
        if file.is_identified && !file.is_verified && !self.verify(id, now) {
            return None;
        }
        let file = self.files.get(&id)?;
        if file.is_identified {
            return Some(id);
        }
        match self.identify(id, now) {
            Ok(Some(id)) => Some(id),
            Ok(None) => {
                self.rest(id, now);
                self.unlock(id);
                None
            }
            Err(error) => {
                self.unlock(id);
                self.failed(id, &error, now);
                None
            }
        }
    }

    /// Ends a turn. `is_over`: all that is there was read.
    pub fn end_turn(&mut self, id: FileId, is_over: bool) {
        self.unlock(id);
        let reached = self.files.get_mut(&id).map(|file| {
            file.rare.release();
            file.mark.offset
        });
        match reached.filter(|_| self.window.holds(id)) {
            Some(offset) => self.window.end_turn(offset),
            None => self.window.clear(),
        }
        if !is_over && self.place_of(id).is_some_and(|place| place != Place::Missing) {
            self.schedule.soon(id);
        }
    }

    fn unlock(&self, id: FileId) {
        let open = self.files.get(&id).and_then(|file| file.open.as_ref());
        if let Some(open) = open.filter(|_| self.options.locks) {
            let _ = flock(open, FlockOperation::Unlock);
        }
    }

    /// Reads on, into a window of at most this many bytes.
    pub fn fill(&mut self, id: FileId, window_bytes: usize, now: Instant) -> Turn {
        let is_first = !self.window.holds(id);
        if !is_first && !self.is_drained {
            return Turn::Lines;
        }
        self.sum_up(id);
        let (Some(file), window) = (self.files.get_mut(&id), &mut self.window) else {
            return Turn::Over;
        };
        let Some(open) = &file.open else { return Turn::Over };
        if !is_first {
            let waiting = window.from(file.mark.offset).len();
            if window.is_end {
                return self.at_end(id, now);
            }
            let most = self.options.splitter.window_bytes();
            if waiting >= window_bytes && window_bytes < most {
                return Turn::Wider((window_bytes * 2).min(most));
            }
        }
        let offset = file.mark.offset;
        let is_truncated = !file.is_gzip && file.size < offset;
        if is_first && is_truncated {
            self.replaced(id, now);
            return Turn::Over;
        }
        let gzip = file.is_gzip.then_some(file.version);
        if let Err(error) = window.read(id, open, gzip, offset, window_bytes) {
            self.failed(id, &error, now);
            return Turn::Over;
        }
        self.is_drained = false;
        if is_first && !file.mark.fits(window.lead(offset)) {
            self.replaced(id, now);
            return Turn::Over;
        }
        // Bytes behind the place are told by the fingerprint only.
        if is_first && offset < u64::from(file.head.len) {
            match window::peek(open, file.is_gzip, 0, file.head.len as usize) {
                Ok(head) if file.head.begins(&head) => {}
                Ok(_) => {
                    self.changed_unread(id, now);
                    return Turn::Over;
                }
                Err(error) => {
                    self.failed(id, &error, now);
                    return Turn::Over;
                }
            }
        }
        file.is_verified = true;
        if (file.head.len as usize) < self.options.head_bytes
            && file.size > u64::from(file.head.len)
            && let Ok(head) = window::peek(open, file.is_gzip, 0, self.options.head_bytes)
            && file.head.begins(&head)
        {
            file.head = Head::of(&head);
        }
        Turn::Lines
    }

    /// The file has another content than the one whose beginning was seen.
    fn changed_unread(&mut self, id: FileId, now: Instant) {
        match self.files.get_mut(&id) {
            Some(file) if file.mark.offset == 0 && file.rare.begun.is_empty() => {
                (file.is_identified, file.head) = (false, Head::default());
                file.rare.sent.reset();
                self.schedule.soon(id);
            }
            _ => self.replaced(id, now),
        }
    }

    /// The next record in the window.
    pub fn line(&mut self, id: FileId) -> Option<Line<'_>> {
        let stop = self.sum.as_ref().and_then(|sum| sum.stop);
        let file = self.files.get_mut(&id).filter(|_| self.window.holds(id))?;
        let end = match (self.window.is_end, self.flushes) {
            (false, _) => End::Open,
            (true, false) => End::Here,
            (true, true) => End::Flush,
        };
        while stop.is_none_or(|stop| file.mark.offset < stop) {
            let bytes = self.window.from(file.mark.offset);
            let cut = self.options.splitter.next(bytes, end, file.mark.is_within);
            let Some(cut) = cut else {
                self.is_drained = true;
                return None;
            };
            let offset = file.mark.offset;
            file.mark.offset += cut.consumed as u64;
            file.mark.is_within = cut.is_within;
            let Some((start, stop)) = cut.text else { continue };
            file.mark.records += 1;
            if start < stop {
                let text = &self.window.from(offset)[start..stop];
                return Some(Line { text, offset, number: file.mark.records });
            }
        }
        None
    }

    /// All bytes of the file are in the window.
    fn at_end(&mut self, id: FileId, now: Instant) -> Turn {
        let flush_after = self.options.flush_after;
        let Some(file) = self.files.get_mut(&id) else { return Turn::Over };
        file.is_cut = self.window.is_cut;
        let left = self.window.from(file.mark.offset).len();
        // Half of a unit cannot be flushed.
        let left = if left < self.options.splitter.charset.unit() { 0 } else { left as u64 };
        let end = file.mark.offset + left;
        let is_new = file.rare.partial.is_none_or(|(before, _)| before != end);
        if left == 0 {
            file.rare.partial = None;
            file.rare.inflated_size = if file.is_gzip { file.size } else { 0 };
        } else if is_new {
            (file.rare.partial, file.active) = (Some((end, now)), now);
        }
        if let Some((_, since)) = file.rare.partial {
            let is_quiet = file.place == Place::Away && now >= file.active + AWAY_TIME;
            let is_due = !flush_after.is_zero() && now >= since + flush_after;
            if (is_due || is_quiet) && !self.flushes {
                file.rare.partial = None;
                self.flushes = true;
                return Turn::Lines;
            }
            if !flush_after.is_zero() {
                self.schedule.at(id, since + flush_after);
            }
        }
        self.rest(id, now);
        Turn::Over
    }

    /// Notes that something was read of the file.
    pub fn progressed(&mut self, id: FileId, now: Instant) {
        if let Some(file) = self.files.get_mut(&id) {
            file.active = now;
        }
    }

    /// Nothing more can be read of the file now.
    fn rest(&mut self, id: FileId, now: Instant) {
        let Some(file) = self.files.get(&id) else { return };
        let is_settled =
            is_resolved(file) && file.rare.partial.is_none() && file.rare.held.is_none();
        if self.options.deletes_after.is_some()
            && file.place == Place::Listed
            && file.is_identified
            && file.mark.offset > 0
            && self.is_deleted(id, is_settled, now)
        {
            return;
        }
        let Some(file) = self.files.get(&id).filter(|it| it.place == Place::Away) else { return };
        let idle = now.saturating_duration_since(file.active);
        if idle < AWAY_TIME {
            self.schedule.at(id, now + AWAY_INTERVAL);
            return;
        }
        let metadata = file.open.as_ref().and_then(|open| open.metadata().ok());
        let has_name = metadata.is_none_or(|it| it.nlink() > 0);
        if !is_settled || (has_name && !self.has_many_away()) {
            let pause = (idle / AWAY_SHARE).clamp(AWAY_INTERVAL, AWAY_INTERVAL_MAX);
            self.schedule.at(id, now + pause);
            return;
        }
        self.away.retain(|it| *it != id);
        let Some(file) = self.files.get_mut(&id) else { return };
        file.is_over = true;
        let (path, is_identified) = (Shown(&file.path).to_string(), file.is_identified);
        if has_name {
            self.counts.closed += 1;
            if self.is_news("closed".to_owned()) {
                tracing::warn!(
                    path,
                    "more files were renamed than are followed \
                    (half of max_concurrent_files): those that had nothing new for 30 s are no \
                    longer followed"
                );
            }
        }
        if is_identified { self.set_missing(id) } else { self.forget(id) }
    }

    /// The file is damaged, and did not change. If it has left, it will not.
    fn rest_damaged(&mut self, id: FileId, now: Instant) {
        let Some(file) = self.files.get(&id).filter(|it| it.place == Place::Away) else { return };
        if now < file.active + AWAY_TIME {
            self.schedule.at(id, now + AWAY_INTERVAL_MAX);
            return;
        }
        self.away.retain(|it| *it != id);
        self.give_up(id);
    }

    /// Deletes a file of which everything is resolved and that had nothing new for a poll interval.
    fn is_deleted(&mut self, id: FileId, is_settled: bool, now: Instant) -> bool {
        let Some(pause) = self.options.deletes_after else { return false };
        let pause = self.options.poll_interval.max(pause);
        let Some(file) = self.files.get_mut(&id) else { return false };
        let is_whole = is_settled && file.place == Place::Listed && !file.is_cut;
        let whole = file.rare.whole.filter(|(size, _)| is_whole && *size == file.size);
        match whole {
            Some((_, since)) if now >= since + pause => return self.delete(id, now),
            Some((_, since)) => self.schedule.at(id, since + pause),
            None => {
                file.rare.whole = is_whole.then_some((file.size, now));
                // One that is cut goes on when it changes.
                if !file.is_cut {
                    self.schedule.at(id, now + pause);
                }
            }
        }
        false
    }

    fn delete(&mut self, id: FileId, now: Instant) -> bool {
        let Some(file) = self.files.get(&id) else { return false };
        let is_there = fs::metadata(&file.path).is_ok_and(|metadata| {
            Inode::of(&metadata) == file.inode
                && metadata.len() == file.size
                && (file.is_gzip || file.size == file.mark.offset)
        });
        if !is_there {
            return false;
        }
        if let Err(error) = fs::remove_file(&file.path) {
            let path = Shown(&file.path).to_string();
            if self.is_news(format!("delete {path}")) {
                tracing::error!(path, %error, "cannot delete the file, which was read");
            }
            return false;
        }
        // A writer that still has it open may go on.
        if let Some(file) = self.files.get_mut(&id) {
            file.is_deleted = true;
        }
        self.leave(id, now);
        true
    }
}

/// Nothing before the place that was reached is under way. A range may have begun there.
fn is_resolved(file: &File) -> bool {
    file.rare.begun.front().is_none_or(|mark| mark.offset == file.mark.offset)
}
