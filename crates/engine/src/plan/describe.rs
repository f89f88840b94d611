//! A plan in words: the topology, every budget, and what each delivery promises.

use std::fmt::Write as _;
use std::time::Duration;

use sluice_flow::dispatch::{RetryPolicy, Trigger};
use sluice_net::server::ConnectionBudget;

use super::{AckMode, DeliveryPlan, DiskPlan, Plan};
use crate::delivery::Policy;

/// A rate to give a feeling for the size of a budget, in bytes a millisecond.
const EXAMPLE_RATE: u64 = 4_000;

impl Plan {
    /// The text of `sluice plan`.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        self.describe_memory(&mut text);
        self.describe_topology(&mut text);
        for delivery in &self.deliveries {
            self.describe_delivery(&mut text, delivery);
        }
        text
    }

    fn describe_memory(&self, text: &mut String) {
        let memory = &self.memory;
        let _ = writeln!(text, "Memory: {} in all", bytes(memory.limit_bytes));
        let connections = ConnectionBudget::connections(memory.connections_bytes as usize);
        let _ = writeln!(
            text,
            "  {} for connections: {connections} idle ones, fewer with TLS or with requests, more while backlogs leave memory",
            bytes(memory.connections_bytes)
        );
        let _ = writeln!(
            text,
            "  {} for requests while they are read, {} for what senders may send before",
            bytes(memory.receiving_bytes),
            bytes(memory.windows_bytes)
        );
        let _ = match &self.disk {
            None => writeln!(
                text,
                "  {} for the backlogs of all deliveries together, {} for each delivery's dead letters",
                bytes(memory.backlog_bytes),
                bytes(memory.dead_letters_bytes)
            ),
            Some(disk) => writeln!(
                text,
                "  {} for the newest data, {} for what each delivery is sending",
                bytes(disk.tail_bytes),
                bytes(disk.lease_bytes + disk.read_ahead_bytes)
            ),
        };
        let answered = match self.ack {
            AckMode::Memory => "when its data is in memory (buffer.ack: memory)",
            AckMode::Delivered => {
                "when its data is delivered wherever the policy is `backpressure` (buffer.ack: delivered)"
            }
            AckMode::DeliveredOrDurable => {
                "when its data is delivered everywhere or on disk, whichever comes first (buffer.ack: delivered_or_durable)"
            }
            AckMode::Durable => "when its data is on disk (buffer.ack: durable)",
        };
        if let Some(disk) = &self.disk {
            describe_disk(text, disk);
            self.describe_found(text);
        }
        let _ = writeln!(text, "A sender is answered {answered}.\n");
    }

    fn describe_topology(&self, text: &mut String) {
        for (receiver, signal) in super::routes::by_receiver(&self.ways).keys() {
            let ways: Vec<_> =
                self.ways.iter().filter(|way| way.receiver == *receiver && way.signal == *signal).collect();
            let _ = writeln!(text, "{receiver} ({signal})");
            for (index, way) in ways.iter().enumerate() {
                let branch = if index + 1 == ways.len() { "└─" } else { "├─" };
                let mut steps = String::new();
                for processor in &way.processors {
                    let _ = write!(steps, "{processor} → ");
                }
                let _ = writeln!(text, "  {branch} {}: {steps}{}", way.delivery.pipeline, way.delivery.exporter);
            }
        }
        text.push('\n');
    }

    fn describe_delivery(&self, text: &mut String, delivery: &DeliveryPlan) {
        let _ = writeln!(text, "{}", delivery.id);
        let _ = writeln!(text, "  {}", self.promise(delivery));
        let _ = writeln!(text, "  {}", batching(delivery));
        let _ = writeln!(text, "  {}\n", retrying(delivery));
    }

    /// What a delivery promises, in one plain sentence.
    fn promise(&self, delivery: &DeliveryPlan) -> String {
        if delivery.best_effort {
            return "Best effort: may lose data rather than hold anybody up.".to_owned();
        }
        let crash = match (&self.disk, self.ack) {
            (Some(_), ack) if ack.is_durable() => "Survives kill -9 and power loss".to_owned(),
            (Some(disk), AckMode::Memory) if !delivery.senders_wait => format!(
                "Survives kill -9 and power loss but for the last {}",
                duration(disk.flush_after().unwrap_or_default())
            ),
            (Some(_), AckMode::Delivered) if !delivery.senders_wait => {
                "Survives kill -9 and power loss but for what no delivery had taken when it was answered".to_owned()
            }
            _ if delivery.senders_wait => "Survives a crash, as senders are answered only after delivery".to_owned(),
            _ => "Is lost in a crash (memory only)".to_owned(),
        };
        let time = duration(Duration::from_millis(delivery.budget_bytes / EXAMPLE_RATE));
        let place = if self.disk.is_some() { " on disk" } else { "" };
        let is_alone = self.deliveries.iter().filter(|other| !other.best_effort).count() == 1;
        let shared = match delivery.has_own_limit {
            true => " (its own limit)",
            false if is_alone => "",
            false => ", shared with the other deliveries",
        };
        let lag = format!("may lag by up to {}{place}{shared}, about {time} at 4 MB/s", bytes(delivery.budget_bytes));
        let then = match delivery.policy {
            Policy::Backpressure => "then its senders wait and are told to come back",
            Policy::DropOldest => "then drops its oldest, without slowing the others",
            Policy::Isolate => {
                "then, if its backend is the reason and another delivery keeps up, drops its oldest \
                 that another has taken, without slowing the others; else its senders wait and are \
                 told to come back"
            }
        };
        format!("{crash}; {lag}; {then}.")
    }
}

fn describe_disk(text: &mut String, disk: &DiskPlan) {
    let _ = writeln!(text, "Disk: {} in all, in {}", bytes(disk.limit_bytes), disk.directory.display());
    let _ = writeln!(
        text,
        "  {} for the backlogs of all deliveries together, {} for each delivery's dead letters, in segments of {}",
        bytes(disk.backlog_bytes),
        bytes(disk.dead_letters_bytes),
        bytes(disk.segment_bytes)
    );
    let when = match disk.flush_after() {
        Some(after) => {
            format!("what was not delivered after {}, and everything while a delivery lags", duration(after))
        }
        None => "everything at once".to_owned(),
    };
    let _ = writeln!(text, "  Written: {when}.");
}

fn batching(delivery: &DeliveryPlan) -> String {
    let batch = &delivery.dispatch.batch;
    let when = match batch.trigger {
        Trigger::Linger(wait) => format!("after at most {} when a request may go out", duration(wait)),
        Trigger::Timeout(wait) => format!("after at most {}", duration(wait)),
    };
    let items = if batch.full_items > 0 { format!("{} items or ", batch.full_items) } else { String::new() };
    let max_items = if batch.max_items > 0 { format!(" and {} items", batch.max_items) } else { String::new() };
    format!(
        "Batches go out at {items}{}, or {when}; none is larger than {}{max_items}; at most {} requests in flight.",
        bytes(batch.full_bytes as u64),
        bytes(batch.max_bytes as u64),
        delivery.dispatch.concurrency.max
    )
}

fn retrying(delivery: &DeliveryPlan) -> String {
    match delivery.dispatch.retry {
        RetryPolicy::Disabled => "What fails once becomes a dead letter (retry_on_failure is disabled).".to_owned(),
        RetryPolicy::Adaptive { backoff, ceiling_while_delivering } => format!(
            "Retries after {}, {} where the backend takes little, up to every {} in an outage, without end.",
            duration(backoff.initial),
            duration(ceiling_while_delivering),
            duration(backoff.max)
        ),
        RetryPolicy::Explicit { backoff, max_elapsed } => {
            let end = match max_elapsed {
                Some(elapsed) => format!("gives up after {}: then it is a dead letter", duration(elapsed)),
                None => "without end".to_owned(),
            };
            format!("Retries after {}, growing to {}, {end}.", duration(backoff.initial), duration(backoff.max))
        }
    }
}

fn bytes(count: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    match count {
        GIB.. => format!("{:.1} GiB", count as f64 / GIB as f64),
        MIB.. => format!("{} MiB", count / MIB),
        KIB.. => format!("{} KiB", count / KIB),
        _ => format!("{count} bytes"),
    }
}

fn duration(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..120_000 => format!("{} s", milliseconds / 1000),
        _ => format!("{} minutes", milliseconds / 60_000),
    }
}
