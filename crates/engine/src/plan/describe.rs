//! A plan in words: the topology, every budget, what each delivery promises, and the present
//! content of its directory. Reads only, also while a process runs on it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sluice_config::document::Acknowledge;
use sluice_config::size::rounded;
use sluice_exporters::NamedTarget;
use sluice_flow::dispatch::{RetryPolicy, Trigger};
use sluice_log::disk::{Disk, RealDisk};
use sluice_log::inspect::{self, LogOverview};
use sluice_net::server::{ConnectionBudget, Listening};

use super::routes::{paths_to, receivers_of};
use super::{DeliveryPlan, DiskPlan, Plan, ReceiverPlan};
use crate::delivery::{DeliveryId, Policy};

/// A rate to give a feeling for the size of a budget, in bytes a millisecond.
const EXAMPLE_RATE: u64 = 4_000;

impl Plan {
    pub fn describe(&self) -> String {
        let mut text = String::new();
        self.describe_memory(&mut text);
        self.own_telemetry.describe(&mut text);
        self.describe_addresses(&mut text);
        self.describe_topology(&mut text);
        for delivery in &self.deliveries {
            let (promise, batches) = (self.promise(delivery), batching(delivery));
            let retries = self.retrying(delivery);
            let _ = writeln!(text, "{}\n  {promise}\n  {batches}\n  {retries}", delivery.id);
            if let Some(once) = self.sends_once(delivery) {
                let _ = writeln!(text, "  {once}");
            }
            text.push('\n');
        }
        text
    }

    fn describe_memory(&self, text: &mut String) {
        let memory = &self.memory;
        let idle = ConnectionBudget::connections(memory.connections_bytes as usize);
        let _ = writeln!(
            text,
            "Memory: {} in all\n  \
             {} for connections: {idle} idle ones, fewer with TLS or with requests, \
             more while backlogs leave memory\n  \
             {} for requests while they are read, \
             {} for the bytes that waiting requests have already sent",
            rounded(memory.limit_bytes),
            rounded(memory.connections_bytes),
            rounded(memory.receiving_bytes),
            rounded(memory.receiving_bytes)
        );
        let (one, other) = match &self.disk {
            None => (memory.backlog_bytes, memory.dead_letters_bytes),
            Some(disk) => (disk.tail_bytes, disk.lease_bytes + disk.read_ahead_bytes),
        };
        let (of_one, of_other) = match &self.disk {
            None => ("the backlogs of all deliveries together", "each delivery's dead letters"),
            Some(_) => ("the newest data", "what each delivery is sending"),
        };
        let _ =
            writeln!(text, "  {} for {of_one}, {} for {of_other}", rounded(one), rounded(other));
        if memory.kept_bytes > 0 {
            let kept = rounded(memory.kept_bytes);
            let _ = writeln!(
                text,
                "  {kept} for series of each receiver that scrapes, and exporter that is scraped"
            );
        }
        if let Some(disk) = &self.disk {
            describe_disk(text, disk);
            self.describe_found(text, &disk.directory);
        }
        let answered = match self.ack {
            Acknowledge::Memory => "when its data is in memory (buffer.ack: memory)",
            Acknowledge::Delivered => {
                "when its data is delivered wherever the policy is `backpressure` \
                 (buffer.ack: delivered)"
            }
            Acknowledge::DeliveredOrDurable => {
                "when its data is delivered everywhere or on disk, whichever comes first \
                 (buffer.ack: delivered_or_durable)"
            }
            Acknowledge::Durable => "when its data is on disk (buffer.ack: durable)",
        };
        let _ = writeln!(text, "A sender is answered {answered}.\n");
    }

    /// Where it listens and sends, and how that is secured.
    fn describe_addresses(&self, text: &mut String) {
        for receiver in &self.receivers {
            for listening in receiver.config.listening() {
                let (tls, auth) = secured(&listening);
                let (address, protocol) = (listening.address, listening.protocol);
                // The most that the option lets in and that memory has room for.
                let most = (listening.request_limit.1 as u64).min(self.memory.receiving_bytes);
                let most = rounded(most);
                let _ = writeln!(
                    text,
                    "{} receives at {address} ({protocol}; {tls}; {auth}; requests up to {most})",
                    receiver.id
                );
            }
            if let Some(once) = self.stores_once(receiver) {
                let _ = writeln!(text, "{once}");
            }
        }
        for (id, exporter) in &self.exporters {
            if let Some(listening) = exporter.config.listening() {
                let (tls, auth) = secured(&listening);
                let (address, protocol) = (listening.address, listening.protocol);
                let _ = writeln!(text, "{id} serves at {address} ({protocol}; {tls}; {auth})");
            }
            let auth = exporter.config.client().map(|client| {
                client.authenticator.as_deref().unwrap_or("no authentication").to_owned()
            });
            for NamedTarget { text: place, tls, .. } in exporter.config.destinations() {
                let tls = tls.map(|tls| if tls { "TLS" } else { "no TLS" }.to_owned());
                let how: Vec<String> = tls.into_iter().chain(auth.clone()).collect();
                let how = match how.as_slice() {
                    [] => String::new(),
                    how => format!(" ({})", how.join("; ")),
                };
                let _ = writeln!(text, "{id} sends to {place}{how}");
            }
        }
        if let Some(metrics) = &self.metrics {
            let _ = writeln!(text, "Metrics: http://{}/metrics", metrics.endpoint);
        }
        for endpoint in self.health_endpoints() {
            let _ = writeln!(text, "Health: http://{endpoint}");
        }
        text.push('\n');
    }

    fn describe_topology(&self, text: &mut String) {
        for ((receiver, signal), paths) in super::routes::by_receiver(&self.paths) {
            let _ = writeln!(text, "{receiver} ({signal})");
            for (index, path) in paths.iter().enumerate() {
                let branch = if index + 1 == paths.len() { "└─" } else { "├─" };
                let steps: String = path.processors.iter().map(|it| format!("{it} → ")).collect();
                let DeliveryId { pipeline, exporter } = &path.delivery;
                let _ = writeln!(text, "  {branch} {pipeline}: {steps}{exporter}");
            }
        }
        text.push('\n');
    }

    fn promise(&self, delivery: &DeliveryPlan) -> String {
        if delivery.best_effort {
            return "Best effort: may lose data rather than hold up a sender.".to_owned();
        }
        let emitting = self.emitting(delivery);
        let crash = match (&self.disk, self.ack) {
            (Some(_), _) if self.is_ack_durable() => "Survives kill -9 and power loss".to_owned(),
            _ if delivery.is_read_again => {
                "Survives kill -9 and power loss, as its receivers read again what was not \
                 delivered"
                    .to_owned()
            }
            (Some(disk), Acknowledge::Memory) if !delivery.senders_wait => format!(
                "Survives kill -9 and power loss but for the last {}",
                duration(disk.flush_after)
            ),
            (Some(_), Acknowledge::Delivered) if !delivery.senders_wait => {
                "Survives kill -9 and power loss except data that was acknowledged before any \
                 backend had it"
                    .to_owned()
            }
            _ if delivery.senders_wait && (self.disk.is_some() || emitting.is_empty()) => {
                "Survives a crash, as senders are answered only after delivery".to_owned()
            }
            _ => {
                let again = self.readers_again(delivery);
                let but = if again.is_empty() { "" } else { ", but for what is read again by " };
                format!("Is lost in a crash (memory only){but}{}", again.join(", "))
            }
        };
        let crash = match &self.disk {
            Some(disk) if !emitting.is_empty() => {
                let by = emitting.join(", ");
                let recent = match disk.flush_after {
                    Duration::ZERO => String::new(),
                    after => format!(" and what it wrote in the last {}", duration(after)),
                };
                format!("{crash}, but for open buckets of {by}{recent}")
            }
            _ => crash,
        };
        let time = duration(Duration::from_micros(delivery.budget_bytes * 1000 / EXAMPLE_RATE));
        let place = if self.disk.is_some() { " on disk" } else { "" };
        let is_alone = self.deliveries.iter().filter(|other| !other.best_effort).count() == 1;
        let shared = match delivery.budget_bytes < self.pool_bytes() {
            true => " (its own limit)",
            false if is_alone => "",
            false => ", shared with the other deliveries",
        };
        let lag = format!(
            "may lag by up to {}{place}{shared}, about {time} at 4 MB/s",
            rounded(delivery.budget_bytes)
        );
        let mut receivers = receivers_of(&self.receivers, &self.paths, &delivery.id);
        let wait = match receivers.all(ReceiverPlan::reads_again) {
            true => "its receivers wait, and read on later",
            false => "its senders wait, and get a retryable refusal",
        };
        let then = match delivery.policy {
            Policy::Backpressure => format!("then {wait}"),
            Policy::DropOldest => "then drops its oldest, without slowing the others".to_owned(),
            Policy::Isolate => format!(
                "then, if its backend is the reason and another delivery keeps up, drops its \
                 oldest requests that another has taken, without slowing the others; else {wait}"
            ),
        };
        format!("{crash}; {lag}; {then}.")
    }

    /// Those of a delivery's receivers that read again after a crash what was not resolved, unless
    /// something else was made of it.
    fn readers_again(&self, delivery: &DeliveryPlan) -> Vec<&str> {
        let is_changed = |receiver: &ReceiverPlan| {
            let mut paths = paths_to(&self.paths, &delivery.id);
            paths.any(|path| path.receiver == receiver.id && path.emits(&self.steps))
        };
        let receivers = receivers_of(&self.receivers, &self.paths, &delivery.id);
        let readers = receivers.filter(|it| it.reads_again() && !is_changed(it));
        readers.map(|it| it.id.as_str()).collect()
    }

    /// Processors before a delivery that give out points by themselves.
    fn emitting(&self, delivery: &DeliveryPlan) -> Vec<&str> {
        let paths = paths_to(&self.paths, &delivery.id);
        let all = paths.flat_map(|path| path.emitting(&self.steps));
        let ids: BTreeSet<&str> = all.map(|(_, id)| id.as_str()).collect();
        ids.into_iter().collect()
    }

    /// The logs of an earlier run, by delivery, and whether they can be read.
    fn describe_found(&self, text: &mut String, directory: &Path) {
        use rustix::fs::{Access, access};
        if !directory.exists() {
            return;
        }
        let real: Arc<dyn Disk> = Arc::new(RealDisk);
        match inspect::overview(&real, directory) {
            Ok(logs) => logs.iter().for_each(|log| self.describe_log(text, log)),
            Err(error) => {
                let _ = writeln!(text, "  It cannot be read: {error}");
            }
        }
        // A directory that cannot be written to is better known before the start.
        let all = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        if let Err(error) = access(directory, all) {
            let _ = writeln!(text, "  It cannot be used by this user: {error}");
        }
    }

    fn describe_log(&self, text: &mut String, log: &LogOverview) {
        for segment in &log.segments {
            if let Err(error) = &segment.info {
                let _ = writeln!(text, "  {}: {error}", segment.path.display());
            }
        }
        for cursor in &log.cursors {
            let items = cursor.held.items;
            let _ = match &cursor.state {
                Err(error) => writeln!(text, "  {}: {error}", cursor.path.display()),
                Ok(_) if cursor.held.frames == 0 => Ok(()),
                Ok(state) if self.deliveries.iter().any(|it| it.id.to_string() == state.name) => {
                    writeln!(text, "  Holds {items} items for {}.", state.name)
                }
                Ok(state) => writeln!(
                    text,
                    "  Holds {items} items for {}, which this configuration does not have.",
                    state.name
                ),
            };
        }
    }
}

fn describe_disk(text: &mut String, disk: &DiskPlan) {
    let when = if disk.flush_after.is_zero() {
        "everything at once".to_owned()
    } else {
        let after = duration(disk.flush_after);
        format!("what was not delivered after {after}, and everything while a delivery lags")
    };
    let _ = writeln!(
        text,
        "Disk: {} in all, in {}\n  {} for the backlogs of all deliveries together, \
         {} for each delivery's dead letters, in segments of {}\n  Written: {when}.",
        rounded(disk.limit_bytes),
        disk.directory.display(),
        rounded(disk.backlog_bytes),
        rounded(disk.dead_letters_bytes),
        rounded(disk.segment_bytes)
    );
}

fn batching(delivery: &DeliveryPlan) -> String {
    let batch = &delivery.dispatch.batch;
    let when = match batch.trigger {
        Trigger::Linger(wait) => {
            format!("after at most {} when a request may go out", duration(wait))
        }
        Trigger::Timeout(wait) => format!("after at most {}", duration(wait)),
    };
    let (full, most) = (rounded(batch.full_bytes as u64), rounded(batch.max_bytes as u64));
    let full = match batch.full_items {
        0 => full,
        items => format!("{items} items or {full}"),
    };
    let most = match batch.max_items {
        0 => most,
        items => format!("{most} and {items} items"),
    };
    let in_flight = delivery.dispatch.concurrency.max;
    format!(
        "Batches go out at {full}, or {when}; none is larger than {most}; \
         at most {in_flight} requests in flight."
    )
}

impl Plan {
    /// The fate of a request that is not sent again.
    fn fate(&self, delivery: &DeliveryPlan) -> &'static str {
        let letters_bytes = self
            .disk
            .as_ref()
            .map_or(self.memory.dead_letters_bytes, |disk| disk.dead_letters_bytes);
        match () {
            () if delivery.dispatch.return_rejections => "its sender gets the refusal",
            () if letters_bytes == 0 => "it is dropped (there is no room for dead letters)",
            () => "it becomes a dead letter",
        }
    }

    fn retrying(&self, delivery: &DeliveryPlan) -> String {
        let fate = self.fate(delivery);
        retrying(delivery, fate)
    }
}

fn retrying(delivery: &DeliveryPlan, fate: &str) -> String {
    match delivery.dispatch.retry {
        RetryPolicy::Disabled => {
            format!(
                "A request that fails is not sent again (retry_on_failure is disabled): {fate}."
            )
        }
        RetryPolicy::Adaptive { backoff, ceiling_while_delivering } => format!(
            "Retries after {}, {} where the backend takes little, up to every {} in an outage, \
             without end.",
            duration(backoff.initial),
            duration(ceiling_while_delivering),
            duration(backoff.max)
        ),
        RetryPolicy::Explicit { backoff, max_elapsed } => {
            let (initial, max) = (duration(backoff.initial), duration(backoff.max));
            let end = max_elapsed.map(duration).map_or("without end".to_owned(), |elapsed| {
                format!("gives up after {elapsed}: then {fate}")
            });
            let then = if backoff.initial < backoff.max { "growing to" } else { "then every" };
            format!("Retries after {initial}, {then} {max}, {end}.")
        }
    }
}

fn duration(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    match milliseconds {
        0 if !duration.is_zero() => "less than 1 ms".to_owned(),
        0..1_000 => format!("{milliseconds} ms"),
        1_000..120_000 => format!("{} s", milliseconds / 1000),
        _ => format!("{} minutes", milliseconds / 60_000),
    }
}

/// TLS and authentication of a listener.
fn secured<'a>(listening: &Listening<'a>) -> (&'static str, &'a str) {
    let tls = match listening.tls {
        None => "no TLS",
        Some(tls) if tls.authorities.is_some() => "mutual TLS",
        Some(_) => "TLS",
    };
    (tls, listening.authenticator.unwrap_or("no authentication"))
}

#[cfg(test)]
mod tests {
    use sluice_config::SystemEnvironment;

    /// Guarantee: what receivers with a checkpoint on disk read again is not said to be lost in a
    /// crash, and all else is.
    #[test]
    fn a_plan_says_which_data_is_read_again_after_a_crash() {
        let (lost, survives) = ("Is lost in a crash (memory only)", "Survives kill -9 and power");
        let (again, files) = (", but for what is read again by filelog;", "storage: file_storage");
        for (receivers, storage, buffer, expected, others) in [
            ("filelog", files, "", survives, "then its receivers wait"),
            ("filelog", files, "ack: delivered", survives, "then its receivers wait"),
            ("filelog", files, "directory: /nonexistent, ack: memory", survives, "receivers wait"),
            ("filelog", "", "", lost, "; may lag"),
            ("filelog, syslog", files, "", lost, again),
            ("syslog", files, "", lost, "then its senders wait"),
        ] {
            let text = format!(
                "receivers:\n  filelog: {{include: [/x], {storage}}}\n  \
                 syslog: {{protocol: rfc5424, udp: {{listen_address: '127.0.0.1:0'}}}}\n\
                 exporters: {{otlp: {{endpoint: 'x:1'}}}}\nbuffer: {{{buffer}}}\n\
                 extensions: {{file_storage: {{directory: /nonexistent, create_directory: \
                 true}}}}\nservice: {{extensions: [file_storage], \
                 pipelines: {{logs: {{receivers: [{receivers}], exporters: [otlp]}}}}}}\n"
            );
            let (plan, said) = crate::plan::load(&[format!("yaml:{text}")], &SystemEnvironment);
            let plan = plan.unwrap_or_else(|| panic!("{}", said.render(false))).describe();
            let promise = plan.lines().find(|line| line.contains(expected));
            assert!(promise.is_some_and(|it| it.contains(others)), "{receivers} {buffer}\n{plan}");
        }
    }

    /// Scenario: files before a processor that keeps points back. Guarantee: a plan does not say
    /// that they are read again; it says and warns of the loss in memory only, names the remedy,
    /// and with a directory says what a kill costs still.
    #[test]
    fn what_was_aggregated_is_not_said_to_be_read_again() {
        let (again, lost) = ("as its receivers read again", "Is lost in a crash (memory only);");
        let kept = "Survives kill -9 and power loss, but for open buckets of interval";
        for (processors, buffer, expected, warns) in [
            ("interval", "", lost, true),
            ("interval", "ack: delivered", lost, true),
            ("interval", "directory: /nonexistent/d", kept, false),
            ("", "", again, false),
        ] {
            let text = format!(
                "receivers: {{k6: {{include: [/x], storage: file_storage}}}}\n\
                 processors: {{interval: }}\nexporters: {{otlp: {{endpoint: 'x:1'}}}}\n\
                 buffer: {{{buffer}}}\n\
                 extensions: {{file_storage: {{directory: /nonexistent, create_directory: \
                 true}}}}\nservice: {{extensions: [file_storage], pipelines: {{metrics: \
                 {{receivers: [k6], processors: [{processors}], exporters: [otlp]}}}}}}\n"
            );
            let (plan, said) = crate::plan::load(&[format!("yaml:{text}")], &SystemEnvironment);
            let plan = plan.unwrap_or_else(|| panic!("{}", said.render(false)));
            let (all, said) = (plan.describe(), said.render(false));
            assert!(all.contains(expected) && all.contains("its receivers wait"), "{all}");
            assert_eq!(plan.deliveries[0].is_read_again, processors.is_empty(), "{buffer}");
            assert_eq!(all.contains(again), expected == again, "{all}");
            assert_eq!(said.contains("from `k6` for good"), warns, "{said}");
            assert_eq!(said.contains("`buffer.directory` keeps it"), warns, "{said}");
        }
    }
}
