//! A delivery's side of the ledger: what became of its items, by name where its exporter knows
//! names (docs/decisions/051-a-ledger-of-samples.md).
//!
//! A frame waits in the log until all of its parts are resolved. Items of parts that are resolved
//! already do not wait any more: they are counted in the frame, and for the delivery.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use sluice_flow::{Exporter, ItemNames, Packed, Payload, Reserved, Tally};
use sluice_log::Offset;

use super::leased::Leased;
use crate::steps::inflated;

/// Items by name, of frames of one time.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub written: Tally,
    /// Taken by the backend's protocol, but not written: its form has no place for them.
    pub left_out: Tally,
    pub dead: Tally,
}

impl Counted {
    fn new(reserved: Reserved) -> Counted {
        let [written, left_out, dead] = std::array::from_fn(|_| Tally::new(reserved));
        Counted { written, left_out, dead }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Items that waited when the delivery began, of an earlier process.
    pub found_items: u64,
    /// Frames before this offset were found.
    found_below: Offset,
    pub of_now: Counted,
    pub of_found: Counted,
    /// Items of dead letters that are stored.
    pub dead_items: AtomicU64,
    /// Resolved items of frames that wait.
    in_part: AtomicU64,
    /// Items that were resolved, and whose frames are sent again from the beginning.
    pub again: AtomicU64,
    /// Digest of what feeds the delivery. None before the first configuration.
    fed_by: Mutex<Option<u64>>,
    /// A reload has changed what feeds it.
    is_fed_anew: AtomicBool,
}

impl Account {
    pub(crate) fn new(found_items: u64, found_below: Offset) -> Account {
        Account { found_items, found_below, ..Account::default() }
    }

    /// The same with rows for these names, before anything is counted.
    pub(super) fn with_rows(&self, reserved: Reserved) -> Account {
        let [of_now, of_found] = std::array::from_fn(|_| Counted::new(reserved));
        Account { of_now, of_found, ..Account::new(self.found_items, self.found_below) }
    }

    /// The frame was there before the delivery began.
    pub(super) fn is_found(&self, offset: Offset) -> bool {
        offset < self.found_below
    }

    fn of(&self, offset: Offset) -> &Counted {
        if self.is_found(offset) { &self.of_found } else { &self.of_now }
    }

    /// The backend has taken a request with items of the frame at this offset, and of others of
    /// the same time.
    pub(super) fn note_written(&self, exporter: &dyn Exporter, offset: Offset, packed: &Packed) {
        let Some(names) = exporter.item_names() else { return };
        let Counted { written, left_out, .. } = self.of(offset);
        names.of_packed(packed, &mut |name, taken| {
            written.add(name, taken.items);
            left_out.add(name, taken.left_out);
        });
    }

    fn release(&self, items: u64) {
        self.in_part.fetch_sub(items, Ordering::Relaxed);
    }

    /// Items that wait, of those that the log has for the delivery.
    pub(crate) fn waiting(&self, held_items: u64) -> u64 {
        held_items.saturating_sub(self.in_part.load(Ordering::Relaxed))
    }

    /// Takes note of what feeds the delivery. `is_start`: its first configuration is the process'.
    pub(crate) fn note_fed_by(&self, digest: u64, is_start: bool) {
        let before = self.fed_by.lock().replace(digest);
        if before.map_or(!is_start, |before| before != digest) {
            self.is_fed_anew.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_fed_anew(&self) -> bool {
        self.is_fed_anew.load(Ordering::Relaxed)
    }
}

/// Items of a frame that were resolved before all of it is.
pub(crate) struct Settled {
    account: Arc<Account>,
    items: AtomicU64,
}

impl Settled {
    pub(super) fn of(account: Arc<Account>) -> Settled {
        Settled { account, items: AtomicU64::new(0) }
    }

    /// It is known what became of these items.
    pub(super) fn add(&self, items: u64) {
        self.items.fetch_add(items, Ordering::Relaxed);
        self.account.in_part.fetch_add(items, Ordering::Relaxed);
    }

    /// The frame waits no more.
    pub(super) fn end(&self) {
        self.account.release(self.items.swap(0, Ordering::Relaxed));
    }
}

impl Drop for Settled {
    /// A frame that is let go of before it is resolved is sent again, all of it.
    fn drop(&mut self) {
        let items = std::mem::take(self.items.get_mut());
        if items > 0 {
            self.account.release(items);
            self.account.again.fetch_add(items, Ordering::Relaxed);
        }
    }
}

/// A part of a frame that becomes a dead letter.
pub(super) struct Death {
    leased: Arc<Leased>,
    items: u64,
    by_name: Vec<(Vec<u8>, u64)>,
}

impl Death {
    pub(super) fn new(
        names: Option<&dyn ItemNames>,
        leased: Arc<Leased>,
        payload: &Payload,
        items: u64,
    ) -> Death {
        let mut by_name = Vec::new();
        if let Some(names) = names
            && let Ok(request) = inflated(payload)
        {
            names.of_request(&request, &mut |name, items| by_name.push((name.to_vec(), items)));
        }
        Death { leased, items, by_name }
    }

    /// Its letter is stored.
    pub(super) fn count(&self, account: &Account) {
        account.dead_items.fetch_add(self.items, Ordering::Relaxed);
        let dead = &account.of(self.leased.offset).dead;
        self.by_name.iter().for_each(|(name, items)| dead.add(name, *items));
        self.leased.settled.add(self.items);
    }

    pub(super) fn leased(self) -> Arc<Leased> {
        self.leased
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Arc<Account> {
        Arc::new(Account::new(7, 3))
    }

    /// Scenario: a part of a frame is written; then the rest is, or the frame is read again.
    /// Guarantee: what is written does not wait, and what is sent again is told.
    #[test]
    fn resolved_parts_of_a_frame_do_not_wait() {
        let account = account();
        let settled = Settled::of(account.clone());
        settled.add(40);
        assert_eq!((account.waiting(100), account.again.load(Ordering::Relaxed)), (60, 0));
        settled.add(60);
        settled.end();
        drop(settled);
        assert_eq!((account.waiting(0), account.again.load(Ordering::Relaxed)), (0, 0));
        let settled = Settled::of(account.clone());
        settled.add(40);
        drop(settled);
        assert_eq!((account.waiting(100), account.again.load(Ordering::Relaxed)), (100, 40));
    }

    /// Guarantee: names that the exporter reserves have rows, also of frames that were found.
    #[test]
    fn an_account_has_the_rows_of_its_exporter() {
        let account = account().with_rows(&["vus"]);
        assert_eq!(
            (account.found_items, account.is_found(2), account.is_found(3)),
            (7, true, false)
        );
        for Counted { written, left_out, dead } in [&account.of_now, &account.of_found] {
            for tally in [written, left_out, dead] {
                (0..300).for_each(|index| tally.add(format!("m{index}").as_bytes(), 1));
                tally.add(b"vus", 1);
                assert_eq!(tally.read().of("vus"), 1);
            }
        }
    }

    #[test]
    fn a_reload_that_feeds_a_delivery_anew_is_known() {
        for (is_start, digests, expected) in
            [(true, &[1, 1][..], false), (true, &[1, 2, 1], true), (false, &[1], true)]
        {
            let account = account();
            digests.iter().for_each(|digest| account.note_fed_by(*digest, is_start));
            assert_eq!(account.is_fed_anew(), expected, "{digests:?}");
        }
        assert!(account().is_found(2) && !account().is_found(3));
    }
}
