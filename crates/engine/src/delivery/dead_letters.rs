//! What a delivery finally could not deliver, with the reason: the newest, bounded in bytes.

use std::collections::VecDeque;
use std::time::SystemTime;

use parking_lot::Mutex;
use sluice_flow::Payload;

#[derive(Clone, Debug)]
pub(crate) struct DeadLetter {
    pub reason: String,
    pub items: u32,
    pub payload: Payload,
    pub at: SystemTime,
}

#[derive(Debug, Default)]
struct Inner {
    letters: VecDeque<DeadLetter>,
    bytes: usize,
    evicted_items: u64,
}

/// A bounded list: the oldest give way, and are counted.
#[derive(Debug)]
pub(crate) struct DeadLetters {
    inner: Mutex<Inner>,
    limit_bytes: usize,
}

/// What the list holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeadLetterTotals {
    pub letters: usize,
    pub items: u64,
    pub bytes: usize,
    pub evicted_items: u64,
}

impl DeadLetters {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        DeadLetters { inner: Mutex::default(), limit_bytes }
    }

    pub(crate) fn push(&self, payload: Payload, items: u32, reason: String) {
        let mut inner = self.inner.lock();
        inner.bytes += payload.bytes.len();
        inner.letters.push_back(DeadLetter { reason, items, payload, at: SystemTime::now() });
        while inner.bytes > self.limit_bytes {
            let Some(evicted) = inner.letters.pop_front() else { break };
            inner.bytes -= evicted.payload.bytes.len();
            inner.evicted_items += u64::from(evicted.items);
        }
    }

    pub(crate) fn totals(&self) -> DeadLetterTotals {
        let inner = self.inner.lock();
        DeadLetterTotals {
            letters: inner.letters.len(),
            items: inner.letters.iter().map(|letter| u64::from(letter.items)).sum(),
            bytes: inner.bytes,
            evicted_items: inner.evicted_items,
        }
    }

    /// The newest letters first.
    pub(crate) fn newest(&self, count: usize) -> Vec<(SystemTime, u32, String)> {
        let inner = self.inner.lock();
        inner.letters.iter().rev().take(count).map(|letter| (letter.at, letter.items, letter.reason.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_list_is_bounded_in_bytes_and_counts_what_it_let_go() {
        let letters = DeadLetters::new(250);
        for index in 0..5u8 {
            letters.push(Payload::identity(Bytes::from(vec![index; 100])), 10, format!("reason {index}"));
        }
        let totals = letters.totals();
        assert_eq!((totals.letters, totals.items, totals.bytes, totals.evicted_items), (2, 20, 200, 30));
        let reasons: Vec<_> = letters.newest(10).into_iter().map(|(_, _, reason)| reason).collect();
        assert_eq!(reasons, ["reason 4", "reason 3"]);
    }

    #[test]
    fn a_letter_larger_than_the_list_is_counted_and_not_kept() {
        let letters = DeadLetters::new(10);
        letters.push(Payload::identity(Bytes::from_static(&[0; 100])), 3, "large".into());
        assert_eq!(letters.totals(), DeadLetterTotals { evicted_items: 3, ..Default::default() });
    }
}
