//! The number of files that a plan may have open beside the connections of its receivers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sluice_log::Log;
use sluice_net::server::ConnectionBudget;
use sluice_otlp::Signal;

use crate::admin::{AdminPlan, PLACES};
use crate::entry::Entry;
use crate::plan::Plan;
use crate::storage::Storage;

/// The runtime, signals, the log's output, look-ups of names, files that are read now and then.
const OF_THE_PROCESS: usize = 40;
/// A file that is written in whole blocks: it is opened a second time, to bypass the page cache.
const OF_A_WRITTEN_FILE: usize = 2;
/// The segment that is written; one that is rewritten, with the new one; one that is looked
/// through; a cursor file, or their list, that is replaced; two directories that are synced.
const OF_A_LOG: usize = OF_A_WRITTEN_FILE + (1 + OF_A_WRITTEN_FILE) + 1 + OF_A_WRITTEN_FILE + 2;
/// The cursor file, which stays open, and the segment in which the reader has its place. The blocks
/// of a cursor bypass the page cache only if the allocator aligns them.
const OF_A_READER: usize = OF_A_WRITTEN_FILE + 1;
/// The state, as a cursor, and the file that is written. Both stay open.
const OF_DEAD_LETTERS: usize = 2 * OF_A_WRITTEN_FILE;
/// A connection, and the one that replaces it.
const OF_A_PUSH: usize = 2;

/// `orphans`: readers of the logs that have a backlog and no delivery.
fn needed(plan: &Plan, orphans: usize) -> usize {
    let listeners: usize = plan.receivers.iter().map(|it| it.config.listening().len()).sum();
    let admin = AdminPlan::all(plan).len() * (1 + PLACES);
    let mut in_flight = HashMap::<&str, usize>::new();
    for delivery in &plan.deliveries {
        *in_flight.entry(&delivery.id.exporter).or_default() += delivery.dispatch.concurrency.max;
    }
    let of_exporter = |(id, requests): (&&str, &usize)| {
        plan.exporters.get(*id).map_or(0, |it| it.config.open_files(*requests))
    };
    let exporters: usize = in_flight.iter().map(of_exporter).sum();
    let own = &plan.own_telemetry;
    let read: usize = plan.receivers.iter().map(|it| it.config.open_files()).sum();
    let pushes = (own.readers.len() + own.processors.len()) * OF_A_PUSH;
    let stored = match &plan.disk {
        Some(_) => {
            let readers = plan.deliveries.len() + orphans;
            Signal::ALL.len() * OF_A_LOG
                + readers * OF_A_READER
                + plan.deliveries.len() * OF_DEAD_LETTERS
        }
        None => 0,
    };
    OF_THE_PROCESS + listeners + admin + exporters + read + pushes + stored
}

/// At a start the readers of the plan have no delivery yet. Lost ones have no file.
fn orphans(plan: &Plan, logs: &[Arc<Log<Entry>>]) -> usize {
    let planned: HashSet<String> = plan.deliveries.iter().map(|it| it.id.to_string()).collect();
    let orphans = logs.iter().flat_map(|log| log.orphans());
    orphans.filter(|orphan| !orphan.is_lost && !planned.contains(&orphan.name)).count()
}

/// Leaves to everything else what it may need of the files that may be open. Warns if connections
/// would not leave that, or would be few.
pub(super) fn reserve(plan: &Plan, storage: &Storage, connections: &ConnectionBudget) {
    let needed = needed(plan, orphans(plan, &storage.logs));
    let share = connections.reserve_files(needed);
    if share.is_short {
        tracing::warn!(
            limit = share.limit,
            connections = share.connections,
            needed,
            "the limit on open files is low: senders' connections keep a quarter; files, backends \
             and probes may need more than the other three; raise the hard limit (`ulimit -Hn`, \
             LimitNOFILE)"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_config::SystemEnvironment;
    use sluice_log::disk::RealDisk;
    use sluice_log::{OpenOptions, Subscription};

    use super::*;
    use crate::delivery::tests::append;

    fn plan_with(exporter: &str, buffer: &str) -> Plan {
        let text = format!(
            "receivers: {{otlp: {{protocols: {{grpc: {{}}}}}}}}\nexporters: {{{exporter}}}\n\
             buffer: {{{buffer}}}\nservice:\n  pipelines:\n    \
             traces: {{receivers: [otlp], exporters: [{}]}}\n",
            exporter.split(':').next().unwrap_or_default()
        );
        let (plan, said) = crate::plan::load(&[format!("yaml:{text}")], &SystemEnvironment);
        plan.unwrap_or_else(|| panic!("{}", said.render(false)))
    }

    /// The files that a plan with this exporter and these buffers needs.
    fn needed_with(exporter: &str, buffer: &str, orphans: usize) -> usize {
        needed(&plan_with(exporter, buffer), orphans)
    }

    /// Guarantee: connections to backends count as the exporter's options bound them, and a
    /// directory with its logs, its deliveries, and backlogs without a delivery.
    #[test]
    fn a_plan_needs_files_for_all_that_it_may_have_open() {
        // A receiver's port, and that of metrics with its connections.
        let none = OF_THE_PROCESS + 1 + 33;
        for (exporter, expected) in [
            ("nop:", 1),
            ("otlp: {endpoint: 'a:1'}", 8),
            ("otlp: {endpoint: 'a:1', connections: 3}", 24),
            ("otlp: {endpoint: 'a:1', connections: 3, balancer_name: pick_first}", 3),
            ("otlphttp: {endpoint: 'http://a'}", 64),
            ("otlphttp: {endpoint: 'http://a', sending_queue: {num_consumers: 5}}", 5),
            ("otlphttp: {endpoint: 'http://a', max_conns_per_host: 2}", 2),
        ] {
            assert_eq!(needed_with(exporter, "", 0), none + expected, "{exporter}");
        }
        let directory = std::env::temp_dir().display().to_string();
        let on_disk = format!("directory: {directory}");
        let stored = needed_with("nop:", &on_disk, 0);
        assert_eq!(stored, none + 1 + 3 * OF_A_LOG + 7);
        assert_eq!(needed_with("nop:", &on_disk, 10), stored + 10 * OF_A_READER);
    }

    /// Guarantee: a backlog whose delivery the plan does not have keeps its files, and one that
    /// waits for its delivery to start is not counted twice.
    #[test]
    fn a_backlog_without_a_delivery_keeps_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let options = OpenOptions::new(Arc::new(RealDisk), directory.path(), "traces");
            Arc::new(Log::<Entry>::open(options).unwrap().0)
        };
        let plan = plan_with("nop:", "");
        let own = plan.deliveries[0].id.to_string();
        let log = open();
        let readers = [own.as_str(), "traces/gone", "traces/gone/too"];
        let readers = readers.map(|name| log.subscribe(Subscription::new(name)));
        append(&log, &readers, None);
        assert!(log.close(Duration::from_secs(10)).frames == 0);
        drop(log);
        assert_eq!(orphans(&plan, &[open()]), 2);
    }
}
