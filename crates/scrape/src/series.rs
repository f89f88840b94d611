//! The series of a target, by the raw bytes that they have on its page.
//!
//! Most pages list the same series in the same order each time. Each series therefore remembers
//! which one came next: one hash of its bytes recognises it, and its labels are not even read.

use twox_hash::XxHash3_128;

use crate::metadata::Role;
use crate::table::{Key, NONE, Table};

/// Stands for the raw bytes of a series, which take far more memory. That two of a million series
/// share it is as likely as one in 10^26. A target that makes such bytes harms its own series only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint {
    len: u32,
    hash: [u32; 4],
}

impl Fingerprint {
    pub(crate) fn of(raw: &[u8]) -> Fingerprint {
        let hash = XxHash3_128::oneshot(raw);
        let word = |number: u32| (hash >> (32 * number)) as u32;
        Fingerprint { len: raw.len() as u32, hash: [word(0), word(1), word(2), word(3)] }
    }

    /// The length of the raw bytes.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }
}

impl Key for Fingerprint {
    fn owned_bytes(&self) -> usize {
        0
    }
}

/// The place of the samples of a series.
#[derive(Debug)]
pub(crate) enum Use {
    /// Relabelling drops them.
    Dropped,
    /// They cannot be a part of the metric to which they belong.
    Unusable,
    /// Its labels are attributes of this resource.
    TargetInfo {
        resource: u32,
        attributes: Box<[(Box<str>, Box<str>)]>,
    },
    Sample {
        group: u32,
        role: Role,
        boundary: f64,
    },
}

#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) used: Use,
    /// The version of metadata for which `used` holds.
    pub(crate) version: u32,
    next: u32,
    /// On this page.
    seen: bool,
    /// Expected on the next page, as it had a sample without a time on this or the last one.
    live: bool,
    was_live: bool,
}

/// How a page ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Taken,
    /// The page is as none, but what is known of its series is kept: the next one may have them.
    Failed,
    /// The page is as none, and so is all that is known.
    Forget,
}

#[derive(Debug, Default)]
pub(crate) struct AllSeries {
    table: Table<Series, Fingerprint>,
    first: u32,
    last: u32,
    /// Series after the last scrape that did not fail.
    successful: usize,
    /// Bytes in labels of `target_info`.
    info_bytes: usize,
}

impl AllSeries {
    /// Begins a page. The order of a page of another format means nothing.
    pub(crate) fn begin(&mut self, same_format: bool) {
        self.last = NONE;
        if !same_format {
            self.first = NONE;
            for id in 0..self.table.end() {
                if let Some(series) = self.table.value_mut(id) {
                    series.next = NONE;
                }
            }
        }
    }

    pub(crate) fn expected_id(&self) -> u32 {
        if self.last == NONE { self.first } else { self.table.get(self.last).next }
    }

    /// The series that should come next, if one is known.
    pub(crate) fn expected(&self) -> Option<&Fingerprint> {
        self.table.key_if_any(self.expected_id())
    }

    /// The series of these bytes.
    pub(crate) fn find(&self, raw: &[u8]) -> Option<u32> {
        let of_raw = Fingerprint::of(raw);
        let is_expected = self.expected() == Some(&of_raw);
        if is_expected { Some(self.expected_id()) } else { self.table.find(&of_raw) }
    }

    /// Notes that a series is on the page; false if it is not for the first time.
    pub(crate) fn see(&mut self, id: u32) -> bool {
        let before = std::mem::replace(&mut self.last, id);
        match before {
            NONE => self.first = id,
            // A page that has a series twice has an order nevertheless.
            before => self.table.get_mut(before).next = id,
        }
        !std::mem::replace(&mut self.table.get_mut(id).seen, true)
    }

    pub(crate) fn add(&mut self, raw: &[u8], used: Use, version: u32) -> u32 {
        self.info_bytes += info_bytes(&used);
        let series =
            Series { used, version, next: NONE, seen: false, live: false, was_live: false };
        self.table.add(Fingerprint::of(raw), series)
    }

    /// Gives a known series another use; answers the one that it had.
    pub(crate) fn change(&mut self, id: u32, used: Use, version: u32) -> Use {
        self.info_bytes += info_bytes(&used);
        let series = self.table.get_mut(id);
        series.version = version;
        let old = std::mem::replace(&mut series.used, used);
        self.info_bytes -= info_bytes(&old);
        old
    }

    pub(crate) fn get(&self, id: u32) -> &Series {
        self.table.get(id)
    }

    /// When the series is gone, its end is to be told.
    pub(crate) fn keep_live(&mut self, id: u32) {
        self.table.get_mut(id).live = true;
    }

    /// Ends a page: `gone` gets the series that were live and are no more, `freed` the use of each
    /// series that is forgotten.
    pub(crate) fn end(&mut self, end: End, mut gone: impl FnMut(&Use), mut freed: impl FnMut(Use)) {
        let failed = end != End::Taken;
        let keep = end == End::Failed && self.table.len() <= 2 * self.successful + 1000;
        for id in 0..self.table.end() {
            let Some(series) = self.table.value_mut(id) else { continue };
            let live = std::mem::take(&mut series.live) && !failed;
            if series.was_live && !live {
                gone(&series.used);
            }
            series.was_live = live;
            let seen = std::mem::take(&mut series.seen);
            if !(keep || seen && end != End::Forget)
                && let Some((_, series)) = self.table.release(id)
            {
                self.info_bytes -= info_bytes(&series.used);
                freed(series.used);
            }
        }
        if !failed {
            self.successful = self.table.len();
        }
        self.table.trim();
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes that it takes, about.
    pub(crate) fn memory(&self) -> usize {
        self.table.memory() + self.info_bytes
    }
}

fn info_bytes(used: &Use) -> usize {
    let Use::TargetInfo { attributes, .. } = used else { return 0 };
    attributes.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
}
