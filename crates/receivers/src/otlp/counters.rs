//! Counters of accepted and refused requests. They only grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_net::server::ServerCounters;
use sluice_otlp::Signal;

use super::refusal::{Refused, RefusedReason};

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

    pub(super) fn count_refused(&self, refused: &Refused, items: u32) {
        self.refused_requests[refused.reason as usize].fetch_add(1, Ordering::Relaxed);
        self.refused_items.fetch_add(u64::from(items), Ordering::Relaxed);
    }
}

/// The counters of a receiver.
#[derive(Default)]
pub struct Counters {
    cells: [[SignalCounters; 2]; 3],
    /// Requests to no known method or path, or with another HTTP method.
    pub unknown_requests: AtomicU64,
    connections: [Arc<ServerCounters>; 2],
}

impl Counters {
    pub fn of(&self, signal: Signal, transport: Transport) -> &SignalCounters {
        &self.cells[signal as usize][transport as usize]
    }

    pub(super) fn count_unknown(&self) {
        self.unknown_requests.fetch_add(1, Ordering::Relaxed);
    }

    pub fn connections(&self, transport: Transport) -> &Arc<ServerCounters> {
        &self.connections[transport as usize]
    }
}
