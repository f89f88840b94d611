//! Counters of files and of their records.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters grow only; files and unread bytes are those of now.
#[derive(Debug, Default)]
pub struct Counters {
    pub accepted_records: AtomicU64,
    pub refused_requests: AtomicU64,
    pub skipped_records: AtomicU64,
    pub read_bytes: AtomicU64,
    pub open_files: AtomicU64,
    pub files: AtomicU64,
    pub unread_bytes: AtomicU64,
    pub rotated_files: AtomicU64,
    pub truncated_files: AtomicU64,
    pub failed_reads: AtomicU64,
    pub lost_files: AtomicU64,
    pub lost_bytes: AtomicU64,
    pub closed_files: AtomicU64,
    pub forgotten_files: AtomicU64,
    pub shortened_files: AtomicU64,
    pub failed_checkpoints: AtomicU64,
    pub operator_errors: AtomicU64,
    pub dropped_records: AtomicU64,
    pub filtered_records: AtomicU64,
    pub let_go_records: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}
