//! The number of files that a plan may have open beside the connections of its receivers.

use std::collections::HashMap;

use sluice_net::server::ConnectionBudget;
use sluice_otlp::Signal;

use crate::admin::{AdminPlan, PLACES};
use crate::plan::Plan;

/// The runtime, signals, the log's output, look-ups of names, files that are read now and then.
const OF_THE_PROCESS: usize = 40;
/// Segments that are written, read and rewritten, and the list of cursor files.
const OF_A_LOG: usize = 6;
/// The cursor file, and the dead letters with their own.
const OF_A_DELIVERY: usize = 3;
/// A connection, and the one that replaces it.
const OF_A_PUSH: usize = 2;

fn needed(plan: &Plan) -> usize {
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
    let pushes = (own.readers.len() + own.processors.len()) * OF_A_PUSH;
    let stored = match &plan.disk {
        Some(_) => Signal::ALL.len() * OF_A_LOG + plan.deliveries.len() * OF_A_DELIVERY,
        None => 0,
    };
    OF_THE_PROCESS + listeners + admin + exporters + pushes + stored
}

/// Leaves to everything else what it may need of the files that may be open. Warns if connections
/// would not leave that, or would be few.
pub(super) fn reserve(plan: &Plan, connections: &ConnectionBudget) {
    let needed = needed(plan);
    let share = connections.reserve_files(needed);
    if share.is_short {
        tracing::warn!(
            limit = share.limit,
            connections = share.connections,
            needed,
            "the limit on open files is low: connections of senders may take a quarter of it, and \
             what files, backends and probes may need is more than the rest; raise the hard limit \
             (`ulimit -Hn`, LimitNOFILE)"
        );
    }
}

#[cfg(test)]
mod tests {
    use sluice_config::SystemEnvironment;

    use super::*;

    /// The files that a plan with this exporter and these buffers needs.
    fn needed_with(exporter: &str, buffer: &str) -> usize {
        let text = format!(
            "receivers: {{otlp: {{protocols: {{grpc: {{}}}}}}}}\nexporters: {{{exporter}}}\n\
             buffer: {{{buffer}}}\nservice:\n  pipelines:\n    \
             traces: {{receivers: [otlp], exporters: [{}]}}\n",
            exporter.split(':').next().unwrap_or_default()
        );
        let (plan, said) = crate::plan::load(&[format!("yaml:{text}")], &SystemEnvironment);
        needed(&plan.unwrap_or_else(|| panic!("{}", said.render(false))))
    }

    /// Guarantee: connections to backends count as the exporter's options bound them, and a
    /// directory with its logs and its deliveries.
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
            assert_eq!(needed_with(exporter, ""), none + expected, "{exporter}");
        }
        let directory = std::env::temp_dir().display().to_string();
        let stored = needed_with("nop:", &format!("directory: {directory}"));
        assert_eq!(stored, none + 1 + 3 * OF_A_LOG + OF_A_DELIVERY);
    }
}
