//! The process, and the memory of requests that are being read.

use std::sync::atomic::Ordering;
use std::time::Instant;

use sluice_flow::overload::PoolState;
use sluice_telemetry::row;
use sluice_telemetry::table::{Number, Table};

use crate::process;
use crate::receiving::ReceivingBudget;
use crate::status::Reloads;

/// Read from the moment of the start.
pub(super) const PROCESS: Table<Instant> = Table {
    title: "Process",
    labels: &[],
    metrics: &[
        row!(Gauge "target_info", |_| 1.0,
            "Always 1. Its labels are the attributes of the process, such as service_name, \
             service_version and service_instance_id."),
        row!(Counter "otelcol_process_uptime" in "seconds",
            |started: &Instant| started.elapsed().as_secs_f64(), "Time since the process started."),
        row!(Gauge "sluice_build_info" by ["version"],
            |_: &Instant, series| series.add(&[env!("CARGO_PKG_VERSION")], 1.0),
            "Always 1; the label has the version."),
        // In the Collector the name itself ends in the unit, whatever the naming.
        row!(Counter "otelcol_process_cpu_seconds", |_| process::cpu_seconds(),
            "User and system CPU time of the process in seconds."),
        row!(Gauge "otelcol_process_memory_rss" in "bytes", |_| process::resident_bytes() as f64,
            "Resident memory in bytes."),
    ],
};

pub(super) const CONFIGURATION: Table<Reloads> = Table {
    title: "Configuration",
    labels: &[],
    metrics: &[
        row!(Counter "sluice_configuration_reloads" by ["result"],
            |it: &Reloads, series| {
                series.add(&["succeeded"], it.succeeded.value());
                series.add(&["failed"], it.failed.value());
            },
            "Reloads by result. After one that failed the old configuration goes on."),
        row!(Gauge "sluice_configuration_last_reload_failed",
            |it: &Reloads| it.has_failed.load(Ordering::Relaxed).value(),
            "1 if the last reload failed: the configuration in use is not the one in the file."),
    ],
};

pub(super) const RECEIVING: Table<ReceivingBudget> = Table {
    title: "Receiving",
    labels: &[],
    metrics: &[
        row!(Gauge "sluice_receiving_memory" in "bytes",
            |it: &ReceivingBudget| it.used_bytes() as f64,
            "Memory of requests that are being read."),
        row!(Gauge "sluice_receiving_memory_limit" in "bytes",
            |it: &ReceivingBudget| it.limit_bytes() as f64,
            "Limit of the memory for requests that are being read."),
    ],
};

type Sample = PoolState;

pub(super) const POOL: Table<PoolState> = Table {
    title: "Backlogs",
    labels: &[],
    metrics: &[
        row!(Gauge "sluice_backlog_pool" in "bytes" = used_bytes,
            "Size of the backlogs of all deliveries together, in memory or, with a directory, on \
             disk."),
        row!(Gauge "sluice_backlog_pool_limit" in "bytes" = room_bytes,
            "Limit of the backlogs of all deliveries together. It is lower while the file system \
             has less room."),
    ],
};

#[cfg(test)]
mod tests {
    use sluice_telemetry::exposition::{Exposition, Naming};

    use super::*;

    #[test]
    fn names_are_the_collectors_without_units() {
        let naming = Naming { without_units: true, ..Naming::default() };
        let mut exposition = Exposition::new(&naming);
        exposition.write(&PROCESS, &[], &Instant::now());
        let text = exposition.render();
        for name in
            ["otelcol_process_uptime", "otelcol_process_cpu_seconds", "otelcol_process_memory_rss"]
        {
            assert!(text.contains(&format!("\n{name} ")), "{name}: {text}");
        }
    }
}
