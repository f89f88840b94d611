//! Records that have left operators and are refused for good: found, and left out.
//!
//! A request of theirs is read again after a refusal, as all others. What leaves the operators then
//! is submitted record by record near the place, until the one at fault is alone. It is known by
//! its origin, and left out when it comes again.

use std::collections::{HashMap, VecDeque};

use sluice_flow::source::Position;
use sluice_operators::{Origin, Record};

use super::Operators;

/// Records that are known to be refused.
const LEFT_OUT_MAX: usize = 100;
/// Files with a place near which records are submitted one by one.
const CAREFUL_MAX: usize = 1000;

#[derive(Default)]
pub(super) struct Refused {
    left_out: VecDeque<Origin>,
    /// Records that were left out since the last look.
    count: u64,
    /// Of each file, the end of the place near which records are submitted one by one.
    careful: HashMap<u64, u64>,
}

impl Refused {
    /// Whether records have to be looked at.
    pub(super) fn knows_some(&self) -> bool {
        !self.left_out.is_empty() || self.is_careful_somewhere()
    }

    /// Whether some records have requests of their own.
    pub(super) fn is_careful_somewhere(&self) -> bool {
        !self.careful.is_empty()
    }

    /// Leaves those out that are known to be refused. Returns whether there are some.
    pub(super) fn leave_out(&mut self, records: &mut Vec<Record>) -> bool {
        let before = records.len();
        if !self.left_out.is_empty() {
            records.retain(|record| !self.left_out.contains(&record.origin));
        }
        self.count += (before - records.len()) as u64;
        records.len() < before
    }

    /// Whether the record has a request of its own.
    fn is_careful(&mut self, Origin { stream, range }: &Origin) -> bool {
        let Some(end) = self.careful.get(stream) else { return false };
        let is_near = range.start < *end;
        if !is_near {
            self.careful.remove(stream);
        }
        is_near
    }
}

/// The records of one request, in case it is refused.
pub(in super::super) struct Part {
    /// The origin of all of them, if it is one.
    pub sole: Option<Origin>,
    /// Of each file, the end of the last one.
    ends: HashMap<u64, u64>,
}

impl Operators {
    /// Records that were left out since the last call.
    pub(in super::super) fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.refused.count)
    }

    /// Keeps the records of the next request and puts the others off. Returns whether there are
    /// others. `each`: every record has a request of its own.
    pub(in super::super) fn part(&mut self, each: bool) -> bool {
        if self.rest.is_empty() {
            if !each && !self.refused.is_careful_somewhere() {
                return false;
            }
            self.rest = std::mem::take(&mut self.records).into();
        }
        let mut length: usize = 0;
        for (index, record) in self.rest.iter().enumerate() {
            let is_same = index > 0 && self.rest[index - 1].origin == record.origin;
            let is_alone = each || self.refused.is_careful(&record.origin);
            if index > 0 && is_alone && !is_same {
                break;
            }
            length = index + 1;
            let next = self.rest.get(length).map(|it| &it.origin);
            if is_alone && next != Some(&record.origin) {
                break;
            }
        }
        self.records.extend(self.rest.drain(..length));
        !self.rest.is_empty()
    }

    /// Describes the records of the next request.
    pub(in super::super) fn described(&self) -> Part {
        let mut ends = HashMap::new();
        let (mut first, mut is_sole) = (None, true);
        for origin in self.origins() {
            first.get_or_insert(origin);
            is_sole &= first == Some(origin);
            let end = ends.entry(origin.stream).or_insert(0);
            *end = origin.range.end.max(*end);
        }
        Part { sole: first.filter(|_| is_sole).cloned(), ends }
    }

    /// A request of these records is refused for good. Returns whether it is known which one is at
    /// fault: it is left out.
    pub(in super::super) fn refused(&mut self, part: Part) -> bool {
        let refused = &mut self.refused;
        let Some(origin) = part.sole else {
            if refused.careful.len() >= CAREFUL_MAX {
                refused.careful.clear();
            }
            refused.careful.extend(part.ends);
            return false;
        };
        if refused.left_out.len() >= LEFT_OUT_MAX {
            refused.left_out.pop_front();
        }
        refused.left_out.push_back(origin);
        true
    }

    /// Drops what has left and is in no request yet, with the positions of all that has left: it is
    /// read again.
    pub(in super::super) fn drop_left(&mut self) {
        // Each of them shares the position of its range, which ends unresolved.
        self.records.extend(self.rest.drain(..));
        drop::<Vec<Position>>(self.released(None));
        drop(self.finish());
    }
}
