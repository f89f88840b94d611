//! Whose turn it is.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Instant;

use crate::FileId;

/// Files for which memory is kept while none has something to read.
const KEPT: usize = 64;

/// Files that have something to read, in order, and those that have at a time.
#[derive(Default)]
pub(crate) struct Schedule {
    ready: VecDeque<FileId>,
    timers: BTreeSet<(Instant, FileId)>,
    /// The time of a file's turn. `None`: as soon as those before it had theirs.
    due: HashMap<FileId, Option<Instant>>,
}

impl Schedule {
    /// As soon as possible.
    pub(crate) fn soon(&mut self, id: FileId) {
        match self.due.insert(id, None) {
            Some(None) => return,
            Some(Some(at)) => drop(self.timers.remove(&(at, id))),
            None => {}
        }
        self.ready.push_back(id);
    }

    /// At a time, if not before.
    pub(crate) fn at(&mut self, id: FileId, at: Instant) {
        match self.due.get(&id) {
            Some(None) => return,
            Some(Some(before)) if *before <= at => return,
            Some(Some(before)) => drop(self.timers.remove(&(*before, id))),
            None => {}
        }
        self.timers.insert((at, id));
        self.due.insert(id, Some(at));
    }

    pub(crate) fn forget(&mut self, id: FileId) {
        match self.due.remove(&id) {
            Some(Some(at)) => drop(self.timers.remove(&(at, id))),
            Some(None) => self.ready.retain(|it| *it != id),
            None => {}
        }
    }

    pub(crate) fn has(&self, id: FileId) -> bool {
        self.due.contains_key(&id)
    }

    /// Files whose turn is due, in order.
    pub(crate) fn ready(&mut self, now: Instant) -> impl Iterator<Item = FileId> {
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id));
            self.due.insert(id, None);
            self.ready.push_back(id);
        }
        self.ready.iter().copied()
    }

    pub(crate) fn next(&mut self, now: Instant) -> Option<FileId> {
        let id = self.ready(now).next()?;
        self.ready.pop_front();
        self.due.remove(&id);
        // At the start all files are due.
        if self.ready.is_empty() && self.ready.capacity() > KEPT {
            self.ready = VecDeque::new();
            self.due.shrink_to(2 * self.due.len());
        }
        Some(id)
    }

    /// A time in the past if something is ready.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        if !self.ready.is_empty() {
            return Some(Instant::now());
        }
        self.timers.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_file_has_its_turn_once_at_its_earliest_time() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let [a, b, c] = [1, 2, 3].map(FileId);
        schedule.soon(a);
        schedule.soon(a);
        schedule.at(a, at(5));
        schedule.at(b, at(20));
        schedule.at(b, at(10));
        schedule.at(b, at(30));
        schedule.at(c, at(10));
        assert_eq!((schedule.next(start), schedule.next(start)), (Some(a), None));
        assert_eq!(schedule.next_due(), Some(at(10)));
        schedule.forget(c);
        assert_eq!((schedule.next(at(40)), schedule.next(at(40))), (Some(b), None));
        assert_eq!(schedule.next_due(), None);
    }
}
