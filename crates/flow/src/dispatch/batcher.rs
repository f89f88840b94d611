//! Gathers units into batches, which are bounded in bytes and in items.
//! `docs/decisions/001-an-idle-exporter-sends-at-once.md` has the reason for not waiting.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::{Batch, Unit};

/// When a batch that is not full is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Senders wait for the delivery: at once if nothing is in flight, otherwise when a slot is
    /// free and the oldest unit has waited this long.
    Linger(Duration),
    /// No sender waits: when the oldest unit is this old (the Collector's `timeout`).
    Timeout(Duration),
}

impl Trigger {
    fn wait(self) -> Duration {
        match self {
            Trigger::Linger(wait) | Trigger::Timeout(wait) => wait,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPolicy {
    pub trigger: Trigger,
    /// A batch of this many items is full (`send_batch_size`; 0: never by items).
    pub full_items: usize,
    pub full_bytes: usize,
    /// No batch has more items than this (`send_batch_max_size`; 0: no bound by items).
    pub max_items: usize,
    /// No batch of several units has more bytes than this.
    pub max_bytes: usize,
    /// At most this many groups are gathered at a time; for one more, the oldest batch is sent as
    /// it is (`metadata_cardinality_limit`, which in the Collector refuses the data).
    pub max_groups: usize,
}

/// Open batches, one a metadata group, and closed batches that wait for a slot.
pub(super) struct Batcher<L> {
    pub(super) policy: BatchPolicy,
    /// By group, with the time of the first unit.
    open: HashMap<u64, (Instant, Batch<L>)>,
    ready: VecDeque<Batch<L>>,
    /// Units of all batches, open and closed.
    units: usize,
}

impl<L> Batcher<L> {
    pub(super) fn new(policy: BatchPolicy) -> Self {
        Batcher { policy, open: HashMap::new(), ready: VecDeque::new(), units: 0 }
    }

    pub(super) fn push(&mut self, unit: Unit<L>, now: Instant) {
        let group = unit.group;
        self.units += 1;
        if unit.alone {
            self.ready.push_back(Batch::new(vec![unit]));
            return;
        }
        if self.open.get(&group).is_some_and(|(_, batch)| self.would_exceed(batch, &unit)) {
            self.close(group);
        }
        if self.open.len() >= self.policy.max_groups && !self.open.contains_key(&group) {
            let oldest = self.open.iter().min_by_key(|(_, (since, _))| *since);
            oldest.map(|(&group, _)| group).into_iter().for_each(|oldest| self.close(oldest));
        }
        let (_, batch) = self.open.entry(group).or_insert_with(|| (now, Batch::new(Vec::new())));
        batch.push(unit);
        let BatchPolicy { full_items, full_bytes, .. } = self.policy;
        let is_full_by_items = full_items > 0 && batch.items >= full_items as u64;
        if is_full_by_items || batch.bytes >= full_bytes {
            self.close(group);
        }
    }

    fn would_exceed(&self, batch: &Batch<L>, unit: &Unit<L>) -> bool {
        let items = batch.items + u64::from(unit.items);
        batch.bytes + unit.bytes > self.policy.max_bytes
            || (self.policy.max_items > 0 && items > self.policy.max_items as u64)
    }

    fn close(&mut self, group: u64) {
        self.ready.extend(self.open.remove(&group).map(|(_, batch)| batch));
    }

    pub(super) fn close_due(&mut self, now: Instant) {
        let wait = self.policy.trigger.wait();
        let due = self.open.extract_if(|_, (since, _)| now >= *since + wait);
        self.ready.extend(due.map(|(_, (_, batch))| batch));
    }

    /// Closes every open batch, to be sent without waiting (drain).
    pub(super) fn close_all(&mut self) {
        self.ready.extend(self.open.drain().map(|(_, (_, batch))| batch));
    }

    pub(super) fn pop(&mut self) -> Option<Batch<L>> {
        let batch = self.ready.pop_front()?;
        self.units -= batch.units.len();
        Some(batch)
    }

    /// Takes one unit out of the closed batches: at this place, from 0 for the oldest to 1 for the
    /// newest.
    pub(super) fn pop_unit(&mut self, place: f64) -> Option<Batch<L>> {
        let index = (place * self.ready.len() as f64) as usize;
        let index = index.min(self.ready.len().checked_sub(1)?);
        let len = self.ready[index].units.len();
        let taken = self.ready[index].take_unit(((place * len as f64) as usize).min(len - 1))?;
        if len == 1 {
            self.ready.remove(index);
        }
        self.units -= 1;
        Some(taken)
    }

    pub(super) fn units_mut(&mut self) -> impl Iterator<Item = &mut Unit<L>> {
        let open = self.open.values_mut().map(|(_, batch)| batch);
        self.ready.iter_mut().chain(open).flat_map(|batch| &mut batch.units)
    }

    /// Units that wait to be sent.
    pub(super) fn units_len(&self) -> usize {
        self.units
    }

    pub(super) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.open.is_empty()
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.open.values().map(|(since, _)| *since + self.policy.trigger.wait()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> BatchPolicy {
        BatchPolicy {
            trigger: Trigger::Timeout(Duration::from_millis(200)),
            full_items: 100,
            full_bytes: 1000,
            max_items: 150,
            max_bytes: 2000,
            max_groups: 100,
        }
    }

    fn unit(items: u32, bytes: usize) -> Unit<()> {
        Unit { lease: (), items, bytes, alone: false, group: 0 }
    }

    #[test]
    fn a_batch_closes_when_full_by_items_or_bytes() {
        let now = Instant::now();
        let mut batcher = Batcher::new(policy());
        batcher.push(unit(60, 10), now);
        assert_eq!(batcher.ready_len(), 0);
        batcher.push(unit(60, 10), now);
        assert_eq!(batcher.pop().map(|batch| (batch.items, batch.bytes)), Some((120, 20)));
        batcher.push(unit(1, 1000), now);
        assert_eq!(batcher.pop().map(|batch| batch.bytes), Some(1000));
    }

    #[test]
    fn a_unit_that_would_break_a_maximum_opens_the_next_batch() {
        let now = Instant::now();
        let mut batcher = Batcher::new(policy());
        batcher.push(unit(90, 10), now);
        batcher.push(unit(90, 10), now);
        assert_eq!(batcher.pop().map(|batch| batch.items), Some(90));
        batcher.push(unit(5, 1995), now);
        assert_eq!(batcher.pop().map(|batch| batch.items), Some(90));
        assert_eq!(batcher.pop().map(|batch| batch.bytes), Some(1995));
    }

    #[test]
    fn the_number_of_groups_is_bounded_and_nothing_is_refused() {
        let now = Instant::now();
        let mut batcher = Batcher::new(BatchPolicy { max_groups: 2, ..policy() });
        for group in 0..5 {
            batcher.push(Unit { group, ..unit(1, 1) }, now + Duration::from_millis(group));
        }
        assert_eq!((batcher.open.len(), batcher.ready_len()), (2, 3));
        assert_eq!(batcher.pop().map(|batch| batch.units[0].group), Some(0), "the oldest first");
    }

    #[test]
    fn a_partial_batch_waits_for_its_time_and_groups_never_mix() {
        let now = Instant::now();
        let mut batcher = Batcher::new(policy());
        batcher.push(unit(1, 1), now);
        batcher.push(Unit { group: 7, ..unit(1, 1) }, now + Duration::from_millis(50));
        assert_eq!(batcher.next_due(), Some(now + Duration::from_millis(200)));
        batcher.close_due(now + Duration::from_millis(199));
        assert_eq!(batcher.ready_len(), 0);
        batcher.close_due(now + Duration::from_millis(200));
        assert_eq!(batcher.ready_len(), 1);
        batcher.close_due(now + Duration::from_millis(250));
        assert_eq!(batcher.ready_len(), 2);
        assert_eq!(batcher.next_due(), None);
    }
}
