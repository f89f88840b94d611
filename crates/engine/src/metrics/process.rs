//! The process, and the memory of requests that are being read.

use std::time::Instant;

use sluice_flow::overload::PoolState;
use sluice_telemetry::table::{Metric, Table};

use super::{Number, row};
use crate::memory;
use crate::receiving::ReceivingBudget;

/// Read from the moment of the start.
pub(super) const PROCESS: Table<Instant> = Table {
    title: "Process",
    labels: &[],
    metrics: &[
        Metric::counter(
            "otelcol_process_uptime",
            "Time since the process started.",
            |started: &Instant| started.elapsed().as_secs_f64(),
        )
        .unit("seconds"),
        Metric::counter(
            "otelcol_process_cpu",
            "CPU time that the process has used, user and system.",
            |_| memory::cpu_seconds(),
        )
        .unit("seconds"),
        Metric::gauge("otelcol_process_memory_rss", "Resident memory in bytes.", |_| {
            memory::resident_bytes() as f64
        })
        .unit("bytes"),
    ],
};

pub(super) const RECEIVING: Table<ReceivingBudget> = Table {
    title: "Receiving",
    labels: &[],
    metrics: &[
        Metric::gauge(
            "sluice_receiving_memory",
            "Memory of requests that are being read.",
            |budget: &ReceivingBudget| budget.used_bytes() as f64,
        )
        .unit("bytes"),
        Metric::gauge(
            "sluice_receiving_memory_limit",
            "Memory that requests may take while they are read.",
            |budget: &ReceivingBudget| budget.limit_bytes() as f64,
        )
        .unit("bytes"),
    ],
};

type Sample = PoolState;

pub(super) const POOL: Table<PoolState> = Table {
    title: "Backlogs",
    labels: &[],
    metrics: &[
        row!(gauge "sluice_backlog_pool" = used_bytes,
            "Memory, or disk with a directory, that the backlogs of all deliveries take together.")
        .unit("bytes"),
        row!(gauge "sluice_backlog_pool_limit" = limit_bytes,
            "What the backlogs of all deliveries may take together.")
        .unit("bytes"),
    ],
};
