//! Deliveries, policies and budgets from the components.

use std::collections::BTreeSet;

use sluice_config::Diagnostics;
use sluice_config::document::{Acknowledge, Document, OverflowPolicy, Placed};
use sluice_exporters::sending::Sizer;
use sluice_log::format::READERS_LIMIT;
use sluice_otlp::Signal;
use sluice_processors::{BatchLimits, ProcessorConfig};

use super::disk::{self, DiskPlan};
use super::dispatch::{self, Setting};
use super::read::Read;
use super::routes::{self, Path};
use super::{
    DeliveryPlan, ExporterPlan, MIB, MemoryPlan, OwnTelemetryPlan, Plan, ReceiverPlan, checkpoints,
    warnings,
};
use super::{ports, remembering};
use crate::delivery::{DeliveryId, Policy};
use crate::process;

pub(super) fn build(document: &Document, mut read: Read, diagnostics: &mut Diagnostics) -> Plan {
    let connectors: BTreeSet<String> =
        document.connectors.iter().map(|connector| connector.id.to_string()).collect();
    let paths = routes::paths(&read.pipelines, |id| connectors.contains(id));
    // One path to each delivery, in their order.
    let mut known = BTreeSet::new();
    let first_paths: Vec<_> = paths.iter().filter(|path| known.insert(&path.delivery)).collect();
    let holds = |path: &Path| !read.exporters[&path.delivery.exporter].config.is_best_effort();
    let holding = first_paths.iter().filter(|path| holds(path)).count();
    let (ack, settings) = disk::settings(document, &read, diagnostics);
    let telemetry_directory = settings.as_ref().map(|(directory, _)| directory.as_path());
    checkpoints::place(document, &mut read, telemetry_directory, diagnostics);
    let dead_letters_bytes = document.buffer.dead_letters_limit_mib.map(|mib| mib * MIB);
    // With a directory, dead letters take no memory.
    let dead_letters_bytes = if settings.is_some() { Some(0) } else { dead_letters_bytes };
    let (limit_bytes, spike_bytes) = memory_limit_bytes(document, &read);
    let own_telemetry = OwnTelemetryPlan::new(&document.telemetry, diagnostics);
    let own_bytes = own_telemetry.bytes();
    let keepers = read.receivers.iter_mut().filter(|receiver| receiver.config.keeps_memory());
    let keepers: Vec<&mut ReceiverPlan> = keepers.collect();
    let keeping = read.exporters.values_mut().filter(|exporter| exporter.config.keeps_memory());
    let keeping: Vec<&mut ExporterPlan> = keeping.collect();
    let memory = MemoryPlan::new(
        limit_bytes,
        holding,
        dead_letters_bytes,
        spike_bytes,
        own_bytes,
        keepers.len() + keeping.len(),
    );
    keeping.into_iter().for_each(|exporter| exporter.keep(memory.kept_bytes));
    keepers.into_iter().for_each(|receiver| receiver.keep(memory.kept_bytes));
    if memory.limit_bytes > limit_bytes {
        let (given, used) = (limit_bytes / MIB, memory.limit_bytes / MIB);
        let message = format!("a memory limit of {given} MiB is too small: {used} MiB are used");
        diagnostics.warning(None, message);
    }
    ports::check(document, &read, &memory, diagnostics);
    let disk = settings.map(|settings| {
        let names = first_paths.iter().map(|path| (path.signal, path.delivery.to_string()));
        let names: Vec<_> = names.collect();
        DiskPlan::new(settings, document, &memory, holding, &names, diagnostics)
    });
    let planner =
        Planner { document, read: &read, paths: &paths, memory, disk: disk.as_ref(), ack };
    let deliveries: Vec<DeliveryPlan> =
        first_paths.iter().map(|path| planner.delivery(&path.delivery, path.signal)).collect();
    if disk.is_some() {
        check_readers(&deliveries, diagnostics);
    }
    let disk_bytes = disk.as_ref().map(|disk| disk.backlog_bytes);
    warnings::of_own_limits(document, memory.backlog_bytes, disk_bytes, diagnostics);
    warnings::of_queue_options(&read, &deliveries, diagnostics);
    warnings::of_context_after_batch(document, &read, diagnostics);
    remembering::check(document, &read, &paths, diagnostics);
    remembering::check_emitters(document, &read, &paths, ack, diagnostics);
    if disk.is_none() {
        warnings::of_files_without_directory(document, &read, &paths, diagnostics);
    }
    warnings::of_ack_without_effect(document, &paths, &deliveries, diagnostics);
    if let Some(disk) = &disk {
        warnings::of_credentials_on_disk(document, &read, &disk.directory, diagnostics);
    }
    Plan {
        ack,
        memory,
        disk,
        deliveries,
        receivers: read.receivers,
        exporters: read.exporters,
        extensions: read.extensions,
        pipelines: read.pipelines,
        paths,
        steps: read.steps,
        metrics: super::metrics(document, &own_telemetry.attributes),
        logging: document.telemetry.logs.clone(),
        own_telemetry,
    }
}

/// A frame on disk names all of its deliveries.
fn check_readers(deliveries: &[DeliveryPlan], diagnostics: &mut Diagnostics) {
    for signal in Signal::ALL {
        let count = deliveries.iter().filter(|delivery| delivery.signal == signal).count();
        if count > READERS_LIMIT {
            let message = format!(
                "{count} deliveries of {signal}: a frame on disk can be for {READERS_LIMIT}; \
                 share them between two processes"
            );
            diagnostics.error(None, message);
        }
    }
}

/// The limit: `buffer.memory`, the smallest `memory_limiter` with its spike, or the default.
fn memory_limit_bytes(document: &Document, read: &Read) -> (u64, Option<u64>) {
    let available = process::available_bytes();
    let used: BTreeSet<&String> =
        read.pipelines.iter().flat_map(|pipeline| &pipeline.processors).collect();
    let limiter = used.iter().filter_map(|id| match read.processors.get(*id)? {
        ProcessorConfig::Memory(limit) => Some(limit.resolve(available)),
        _ => None,
    });
    let own = document.buffer.memory_limit_mib.map(|mib| mib * MIB);
    match (own, limiter.min()) {
        (Some(own), _) => (own, None),
        (None, Some((limit, soft))) => (limit, Some(limit - soft)),
        (None, None) => (MemoryPlan::default_limit_bytes(available), None),
    }
}

struct Planner<'a> {
    document: &'a Document,
    read: &'a Read,
    paths: &'a [Path],
    memory: MemoryPlan,
    disk: Option<&'a DiskPlan>,
    ack: Acknowledge,
}

impl Planner<'_> {
    fn delivery(&self, id: &DeliveryId, signal: Signal) -> DeliveryPlan {
        let exporter = &self.read.exporters[&id.exporter].config;
        let best_effort = exporter.is_best_effort();
        let fan_out = self.fan_out(id);
        let pipeline = self.document.pipelines.iter().find(|pipeline| pipeline.id == id.pipeline);
        let own = pipeline.map(|pipeline| pipeline.buffer.clone()).unwrap_or_default();
        let policy = match own.policy.or(self.document.buffer.policy) {
            _ if best_effort => Policy::DropOldest,
            Some(OverflowPolicy::Backpressure) => Policy::Backpressure,
            Some(OverflowPolicy::DropOldest) => Policy::DropOldest,
            Some(OverflowPolicy::Isolate) => Policy::Isolate,
            None if fan_out > 1 => Policy::Isolate,
            None => Policy::Backpressure,
        };
        let queue = &exporter.sending().queue;
        let waits = self.ack == Acknowledge::Delivered || queue.makes_senders_wait();
        let senders_wait = waits && policy == Policy::Backpressure;
        let bytes = |limit: Option<Placed<u64>>| limit.map(|mib| mib.value * MIB);
        let (memory_bytes, disk_bytes) = (bytes(own.memory_limit_mib), bytes(own.disk_limit_mib));
        let (pool_bytes, own_bytes, lease_bytes) = match self.disk {
            None => (self.memory.backlog_bytes, memory_bytes, u64::MAX),
            Some(DiskPlan { backlog_bytes, lease_bytes, .. }) => {
                let lease_bytes = memory_bytes.map_or(*lease_bytes, |own| own.min(*lease_bytes));
                (*backlog_bytes, disk_bytes, lease_bytes)
            }
        };
        let queue_bytes = queue.queue_size.filter(|_| queue.sizer == Sizer::Bytes);
        let best_effort_bytes = best_effort.then_some(self.memory.best_effort_bytes);
        let limits = [own_bytes, queue_bytes, best_effort_bytes];
        let budget_bytes = limits.into_iter().flatten().fold(pool_bytes, u64::min);
        let setting = Setting {
            senders_wait,
            lingers: senders_wait || self.ack == Acknowledge::DeliveredOrDurable && !best_effort,
            is_sole: fan_out == 1 && self.has_senders(id),
            linger: self.document.buffer.linger,
            request_limit_bytes: exporter.request_limit_bytes(),
            items: exporter.batch_items(),
        };
        // The keys of `batch.metadata_keys` and `sending_queue.batch.partition`.
        let batch = self.batch_processor(id);
        let of_processor = batch.map(|batch| &batch.metadata_keys).into_iter();
        let of_queue = queue.batch.as_ref().map(|batch| &batch.metadata_keys);
        DeliveryPlan {
            id: id.clone(),
            signal,
            policy,
            best_effort,
            senders_wait,
            is_read_again: self.receivers_of(id).all(ReceiverPlan::reads_again)
                && !self.paths_to(id).any(|path| path.emits(&self.read.steps)),
            budget_bytes,
            lease_bytes,
            metadata_keys: of_processor.chain(of_queue).flatten().cloned().collect(),
            dispatch: dispatch::policy(exporter.sending(), batch, setting),
        }
    }

    /// The most deliveries, best-effort ones left out, that a receiver of this delivery feeds.
    fn fan_out(&self, id: &DeliveryId) -> usize {
        let fed = self.paths_to(id).map(|path| {
            let is_beside = |other: &&Path| {
                (&other.receiver, other.signal) == (&path.receiver, path.signal)
                    && !self.read.exporters[&other.delivery.exporter].config.is_best_effort()
            };
            let beside = self.paths.iter().filter(is_beside).map(|other| &other.delivery);
            beside.collect::<BTreeSet<_>>().len()
        });
        fed.max().unwrap_or(1)
    }

    /// Whether all receivers that feed the delivery have senders, which can be told of a refusal.
    fn has_senders(&self, id: &DeliveryId) -> bool {
        self.receivers_of(id).all(|receiver| receiver.config.has_senders())
    }

    fn receivers_of(&self, id: &DeliveryId) -> impl Iterator<Item = &ReceiverPlan> {
        routes::receivers_of(&self.read.receivers, self.paths, id)
    }

    fn paths_to(&self, id: &DeliveryId) -> impl Iterator<Item = &Path> {
        routes::paths_to(self.paths, id)
    }

    /// The last `batch` on the path.
    fn batch_processor(&self, id: &DeliveryId) -> Option<&BatchLimits> {
        let mut processors = self.paths_to(id).next()?.processors.iter().rev();
        processors.find_map(|processor| match self.read.processors.get(processor)? {
            ProcessorConfig::Batch(limits) => Some(limits),
            _ => None,
        })
    }
}
