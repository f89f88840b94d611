//! Counters of accepted and refused requests. They only grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sluice_net::server::ServerCounters;
use sluice_otlp::Signal;

use super::refusal::{REMEDIES, Refused, RefusedReason};
use crate::refused::{Remedies, remedy};
use crate::untold::Untold;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    Grpc,
    Http,
}

impl Transport {
    pub const ALL: [Transport; 2] = [Transport::Grpc, Transport::Http];

    /// As the Collector labels its metrics.
    pub const fn as_str(self) -> &'static str {
        ["grpc", "http"][self as usize]
    }
}

/// Counters of one signal over one transport.
#[derive(Debug, Default)]
pub struct SignalCounters {
    pub accepted_requests: AtomicU64,
    pub accepted_items: AtomicU64,
    /// Bytes as sent, compressed or not.
    pub accepted_bytes: AtomicU64,
    /// Strings that were not UTF-8 and were changed.
    pub repaired_strings: AtomicU64,
    /// Items of requests that were refused after they had been counted.
    pub refused_items: AtomicU64,
    refused_requests: [AtomicU64; RefusedReason::ALL.len()],
}

impl SignalCounters {
    pub fn refused_requests(&self, reason: RefusedReason) -> u64 {
        self.refused_requests[reason as usize].load(Ordering::Relaxed)
    }

    pub(super) fn count_accepted(&self, items: u32, bytes: usize) {
        self.accepted_requests.fetch_add(1, Ordering::Relaxed);
        self.accepted_items.fetch_add(u64::from(items), Ordering::Relaxed);
        self.accepted_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn count_refused(&self, refused: &Refused, items: u32) {
        self.refused_requests[refused.reason as usize].fetch_add(1, Ordering::Relaxed);
        self.refused_items.fetch_add(u64::from(items), Ordering::Relaxed);
    }
}

/// The cells that a kind of receivers counts in, and the words of its log.
pub(crate) struct About {
    /// By transport and signal.
    pub cells: &'static [(Transport, Signal)],
    pub transports: &'static [Transport],
    pub remedies: &'static Remedies,
    /// About requests to no known path.
    pub unknown: &'static str,
}

pub(super) static OTLP: About = About {
    cells: &{
        let mut cells = [(Transport::Grpc, Signal::Traces); 6];
        let mut index = 0;
        while index < cells.len() {
            cells[index] = (Transport::ALL[index % 2], Signal::ALL[index / 2]);
            index += 1;
        }
        cells
    },
    transports: &Transport::ALL,
    remedies: REMEDIES,
    unknown: "refuses requests that are no OTLP requests: look at the senders' endpoint and \
              protocol",
};

/// The counters of a receiver.
pub struct Counters {
    pub(super) about: &'static About,
    cells: [[SignalCounters; 2]; 3],
    untold: [[Untold; RefusedReason::ALL.len()]; 2],
    untold_unknown: Untold,
    /// Requests to no known method or path, or with another HTTP method.
    pub unknown_requests: AtomicU64,
    connections: [Arc<ServerCounters>; 2],
}

impl Default for Counters {
    fn default() -> Self {
        Counters::of_kind(&OTLP)
    }
}

impl Counters {
    pub(crate) fn of_kind(about: &'static About) -> Self {
        let (cells, untold, untold_unknown) = Default::default();
        let (unknown_requests, connections) = Default::default();
        Counters { about, cells, untold, untold_unknown, unknown_requests, connections }
    }

    /// Kinds are told apart by their place: each has one static of its own.
    pub(crate) fn is_of(&self, about: &'static About) -> bool {
        std::ptr::eq(self.about, about)
    }

    pub fn of(&self, signal: Signal, transport: Transport) -> &SignalCounters {
        &self.cells[signal as usize][transport as usize]
    }

    /// Counts a request to no known method or path, and logs such requests now and then.
    pub(super) fn refuse_unknown(&self, receiver: &str, peer: Option<&str>, what: &str) {
        self.unknown_requests.fetch_add(1, Ordering::Relaxed);
        if let Some(requests) = self.untold_unknown.count(Instant::now()) {
            tracing::warn!(receiver, peer, requests, what, "{}", self.about.unknown);
        }
    }

    /// Counts a refused request, and logs such refusals now and then.
    pub(super) fn refuse(
        &self,
        (receiver, peer): (&str, Option<&str>),
        (signal, transport): (Signal, Transport),
        refused: &Refused,
        items: u32,
    ) {
        let Refused { reason, message, .. } = refused;
        self.of(signal, transport).count_refused(refused, items);
        let untold = &self.untold[transport as usize][*reason as usize];
        if let Some(requests) = untold.count(Instant::now()) {
            tracing::warn!(
                receiver, transport = transport.as_str(), %signal, peer, requests,
                reason = reason.as_str(), answer = message,
                "refuses requests: {}", remedy(self.about.remedies, *reason)
            );
        }
    }

    pub fn connections(&self, transport: Transport) -> &Arc<ServerCounters> {
        &self.connections[transport as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: two kinds of receivers with the same cells and words. Guarantee: the counters of
    /// one are not taken for those of the other.
    #[test]
    fn kinds_are_not_told_apart_by_their_words() {
        static OTHER: About = About {
            cells: &[],
            transports: &[],
            remedies: &[],
            unknown: "refuses requests that are no OTLP requests: look at the senders' endpoint \
                      and protocol",
        };
        assert_eq!(OTHER.unknown, OTLP.unknown);
        assert!(Counters::default().is_of(&OTLP) && Counters::of_kind(&OTHER).is_of(&OTHER));
        assert!(!Counters::default().is_of(&OTHER) && !Counters::of_kind(&OTHER).is_of(&OTLP));
    }
}
