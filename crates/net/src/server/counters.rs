use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a port's connections. All but `open` only grow.
#[derive(Debug, Default)]
pub struct ServerCounters {
    pub accepted: AtomicU64,
    /// Open now.
    pub open: AtomicU64,
    /// Closed at once: there were as many as `max_connections` or the memory limit allows.
    pub refused: AtomicU64,
    /// Asked to go to make room for a new one: they were idle longest.
    pub evicted: AtomicU64,
    /// Requests refused: the memory for connections had no room for their headers.
    pub refused_streams: AtomicU64,
    /// `accept` failed, for want of file descriptors as a rule.
    pub accept_errors: AtomicU64,
    /// TLS handshakes that failed or took too long.
    pub tls_failures: AtomicU64,
    /// Closed because the HTTP/2 preface or the first request did not come in time.
    pub handshake_timeouts: AtomicU64,
    /// Asked to go because of their age.
    pub aged: AtomicU64,
    /// Asked to go because they were idle.
    pub idled: AtomicU64,
    /// Ended by an error: protocol violations, floods, unanswered pings, resets.
    pub failed: AtomicU64,
    /// Cut off while a request was in flight: at the end of the age's grace or of the drain.
    pub cut_off: AtomicU64,
}

impl ServerCounters {
    /// Connections that were closed for want of room.
    pub(super) fn crowded_out(&self) -> u64 {
        self.refused.load(Ordering::Relaxed) + self.evicted.load(Ordering::Relaxed)
    }

    /// The events, by their names in metrics.
    pub fn events(&self) -> [(&'static str, &AtomicU64); 11] {
        [
            ("accepted", &self.accepted),
            ("refused", &self.refused),
            ("evicted", &self.evicted),
            ("refused_stream", &self.refused_streams),
            ("accept_error", &self.accept_errors),
            ("tls_failure", &self.tls_failures),
            ("handshake_timeout", &self.handshake_timeouts),
            ("aged", &self.aged),
            ("idled", &self.idled),
            ("failed", &self.failed),
            ("cut_off", &self.cut_off),
        ]
    }

    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
