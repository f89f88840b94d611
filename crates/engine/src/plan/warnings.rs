//! Warnings about options that have no effect, or another one than their author may expect.

use std::collections::BTreeSet;
use std::path::Path;

use sluice_config::document::{Acknowledge, Document, Pipeline, Placed};
use sluice_config::{Diagnostic, Diagnostics};
use sluice_exporters::sending::Sizer;
use sluice_net::headers::is_credential;
use sluice_processors::ProcessorConfig;

use super::read::{Read, component};
use super::routes::{self, by_receiver};
use super::{DeliveryPlan, MIB, ReceiverPlan};
use crate::delivery::DeliveryId;

/// Limits of pipelines that are higher than the pool of all backlogs, in memory or on disk. They
/// need not add up to it.
pub(super) fn of_own_limits(
    document: &Document,
    memory_bytes: u64,
    disk_bytes: Option<u64>,
    diagnostics: &mut Diagnostics,
) {
    let (option, part) = match disk_bytes {
        None => ("buffer.memory.limit_mib", ", of which about a third is for backlogs"),
        Some(_) => ("buffer.disk.limit_mib", ""),
    };
    let pool_mib = disk_bytes.unwrap_or(memory_bytes) / MIB;
    for Pipeline { id, buffer, .. } in &document.pipelines {
        let own =
            if disk_bytes.is_some() { &buffer.disk_limit_mib } else { &buffer.memory_limit_mib };
        if let Some(Placed { value, span }) = own.as_ref().filter(|own| own.value > pool_mib) {
            let message = format!(
                "`{option}` of {id} is {value} MiB, but all backlogs together may take {pool_mib} \
                 MiB: it has no effect"
            );
            let hint = format!("raise `{option}` of the whole{part}");
            diagnostics.push(Diagnostic::warning(*span, message).with_hint(hint));
        }
    }
}

/// Components that read a header with credentials: it is kept with the request, on disk as well.
pub(super) fn of_credentials_on_disk(
    document: &Document,
    read: &Read,
    directory: &Path,
    diagnostics: &mut Diagnostics,
) {
    let of_step = read.steps.iter().map(|((id, _), step)| (id, step.processor.metadata_keys()));
    let of_batch = read.processors.iter().filter_map(|(id, processor)| match processor {
        ProcessorConfig::Batch(limits) => Some((id, limits.metadata_keys.clone())),
        ProcessorConfig::Memory(_) | ProcessorConfig::Edits(_) => None,
    });
    let of_queue = read.exporters.iter().filter_map(|(id, exporter)| {
        Some((id, exporter.config.sending().queue.batch.as_ref()?.metadata_keys.clone()))
    });
    let of_extension = read.extensions.iter().map(|(id, it)| (id, it.metadata_keys.clone()));
    let places = (of_step.chain(of_batch).map(|place| (&document.processors, place)))
        .chain(of_queue.map(|place| (&document.exporters, place)))
        .chain(of_extension.map(|place| (&document.extensions, place)));
    let mut said = BTreeSet::new();
    for (components, (id, keys)) in places {
        let Some(component) = component(components, id) else { continue };
        for key in keys.iter().filter(|key| is_credential(key)) {
            if !said.insert((&component.path, key.clone())) {
                continue;
            }
            let message = format!(
                "{} reads the senders' header `{key}`: it is written to {} with their requests, \
                 as it was sent",
                component.path,
                directory.display()
            );
            let hint = "if it has credentials, name another header, or protect copies of the \
                        directory as you protect the credentials";
            diagnostics.push(Diagnostic::warning(component.span, message).with_hint(hint));
        }
    }
}

/// Processors that read of the sender after a `batch`. In the Collector a batch has no sender any
/// more: an action yields nothing there and adds an attribute here.
pub(super) fn of_context_after_batch(
    document: &Document,
    read: &Read,
    diagnostics: &mut Diagnostics,
) {
    let mut said = BTreeSet::new();
    for pipeline in &read.pipelines {
        // Headers that are left after the batches so far.
        let mut left: Option<Vec<String>> = None;
        for id in &pipeline.processors {
            if let Some(ProcessorConfig::Batch(limits)) = read.processors.get(id) {
                let keys = limits.metadata_keys.iter();
                let is_left = |key: &&String| left.as_ref().is_none_or(|left| left.contains(key));
                left = Some(keys.filter(is_left).cloned().collect());
            }
            let Some(left) = &left else { continue };
            let Some(step) = read.steps.get(&(id.clone(), pipeline.signal)) else { continue };
            let Some(component) = component(&document.processors, id) else { continue };
            let headers = step.processor.metadata_keys().into_iter();
            let headers = headers.filter(|key| !left.contains(key)).map(|key| {
                let hint = "put it before `batch`, where both yield it, or name the header in \
                            `metadata_keys` of `batch`";
                (format!("the senders' header `{key}`"), hint)
            });
            let address = step.processor.reads_address().then(|| {
                let hint = "put it before `batch`, where both yield it";
                ("the senders' address".to_owned(), hint)
            });
            for (source, hint) in headers.chain(address) {
                let message = format!(
                    "{} reads {source} after a `batch`: Sluice yields it, the Collector would \
                     yield nothing",
                    component.path
                );
                if said.insert(message.clone()) {
                    diagnostics.push(Diagnostic::warning(component.span, message).with_hint(hint));
                }
            }
        }
    }
}

/// Without a directory: processors that give out points by themselves, behind receivers that would
/// read again what is not delivered.
pub(super) fn of_files_without_directory(
    document: &Document,
    read: &Read,
    paths: &[routes::Path],
    diagnostics: &mut Diagnostics,
) {
    let mut said = BTreeSet::new();
    let emitting = |path| routes::Path::emitting(path, &read.steps).map(move |(_, id)| (path, id));
    for (path, id) in paths.iter().flat_map(emitting) {
        let reads_again = |it: &ReceiverPlan| it.id == path.receiver && it.reads_again();
        let exporter = &read.exporters[&path.delivery.exporter].config;
        if exporter.is_best_effort()
            || !read.receivers.iter().any(reads_again)
            || !said.insert((id, &path.receiver))
        {
            continue;
        }
        let Some(component) = component(&document.processors, id) else { continue };
        let message = format!(
            "{} takes what it aggregates from `{}` for good: that is not read again, and what \
             was made of it is in memory only, so that an end while the backend is away loses it",
            component.path, path.receiver
        );
        let hint = "`buffer.directory` keeps it over an orderly end; a kill then loses open \
                    buckets, and what was not on disk yet";
        diagnostics.push(Diagnostic::warning(component.span, message).with_hint(hint));
    }
}

/// Options of `sending_queue` that mean something else here, or nothing.
pub(super) fn of_queue_options(
    read: &Read,
    deliveries: &[DeliveryPlan],
    diagnostics: &mut Diagnostics,
) {
    for (id, exporter) in &read.exporters {
        let queue = &exporter.config.sending().queue;
        let mut warn = |option: &str, message: String, hint: &str| {
            let message = format!("exporters.{id}.sending_queue.{option} {message}");
            diagnostics.push(Diagnostic::warning(exporter.span, message).with_hint(hint));
        };
        let own = || deliveries.iter().filter(|delivery| delivery.id.exporter == *id);
        if let Some(size) = queue.queue_size {
            // A number of requests says nothing about memory.
            if queue.sizer != Sizer::Bytes {
                let message = "has no effect: a backlog is bounded in bytes, by memory_limiter, \
                               buffer.memory.limit_mib and buffer.disk.limit_mib";
                let hint = "`sluice plan` shows by how many; \
                            `sizer: bytes` makes `queue_size` a bound in bytes";
                warn("queue_size", message.to_owned(), hint);
            } else if let Some(less) = own().find(|delivery| delivery.budget_bytes < size) {
                let (size, budget, id) = (size / MIB, less.budget_bytes / MIB, &less.id);
                let message = format!("is {size} MiB, but {id} has {budget} MiB for its backlog");
                let hint = "raise `buffer.memory.limit_mib` or `buffer.disk.limit_mib`";
                warn("queue_size", message, hint);
            }
        }
        if queue.block_on_overflow {
            let message = "has no effect: senders are held up for a second at most, then refused";
            let hint = "they come back, and nothing that was acknowledged is lost";
            warn("block_on_overflow", message.to_owned(), hint);
        }
        let ignores = |delivery: &&DeliveryPlan| !delivery.senders_wait && !delivery.best_effort;
        if queue.makes_senders_wait()
            && let Some(DeliveryPlan { id: DeliveryId { pipeline, .. }, .. }) = own().find(ignores)
        {
            let option = if queue.is_disabled { "enabled: false" } else { "wait_for_result: true" };
            let message = format!(
                "has no effect in pipeline {pipeline}: with its policy no sender waits for {id}"
            );
            let hint = "`buffer: {policy: backpressure}` in the pipeline \
                        makes senders wait for its deliveries";
            warn(option, message, hint);
        }
    }
}

/// `buffer.ack: delivered` where senders wait for no delivery.
pub(super) fn of_ack_without_effect(
    document: &Document,
    paths: &[routes::Path],
    deliveries: &[DeliveryPlan],
    diagnostics: &mut Diagnostics,
) {
    let said = document.buffer.ack.as_ref();
    let Some(said) = said.filter(|said| said.value == Acknowledge::Delivered) else { return };
    for ((receiver, signal), paths) in by_receiver(paths) {
        let is_awaited = |path: &&routes::Path| {
            deliveries.iter().any(|delivery| delivery.id == path.delivery && delivery.senders_wait)
        };
        if paths.iter().any(is_awaited) {
            continue;
        }
        let message = format!(
            "buffer.ack: delivered has no effect on {signal} of {receiver}: none of its \
             deliveries has the policy `backpressure`, and senders are answered when their data \
             is in memory"
        );
        let hint = "`buffer: {policy: backpressure}`, here or in a pipeline; \
                    where a receiver feeds several deliveries it is not the default";
        diagnostics.push(Diagnostic::warning(said.span, message).with_hint(hint));
    }
}

#[cfg(test)]
mod tests {
    use super::super::load;

    /// Warnings about a document whose parts name headers of senders.
    fn warnings(header: &str, buffer: &str) -> Vec<String> {
        let text = format!(
            "receivers: {{otlp: {{protocols: {{grpc: {{include_metadata: true}}}}}}}}\n\
             processors:\n  attributes:\n    \
             actions: [{{key: a, action: insert, from_context: {header}}}]\n  \
             batch: {{metadata_keys: [{header}]}}\n\
             extensions: {{headers_setter: {{headers: [{{key: a, from_context: {header}}}]}}}}\n\
             exporters:\n  otlp:\n    endpoint: localhost:1\n    tls: {{insecure: true}}\n    \
             auth: {{authenticator: headers_setter}}\n    \
             sending_queue: {{batch: {{partition: {{metadata_keys: [{header}]}}}}}}\n\
             buffer: {{{buffer}}}\n\
             service:\n  extensions: [headers_setter]\n  pipelines:\n    \
             traces: {{receivers: [otlp], processors: [attributes, batch], exporters: [otlp]}}\n"
        );
        let (plan, diagnostics) =
            load(&[format!("yaml:{text}")], &sluice_config::SystemEnvironment);
        assert!(plan.is_some(), "{text}");
        let said = diagnostics.items().iter().map(|item| item.message.clone());
        said.filter(|message| message.contains("senders' header")).collect()
    }

    /// Scenario: actions that read of the sender before and after a `batch`. Guarantee: a warning
    /// names what the Collector would not yield there, once.
    #[test]
    fn what_a_batch_hides_in_the_collector_is_named() {
        let header = "processors.attributes reads the senders' header `x-tenant` after a `batch`: \
                      Sluice yields it, the Collector would yield nothing";
        let address = header.replace("header `x-tenant`", "address");
        let (metadata, client) = ("metadata.X-Tenant", "client.address");
        for (context, keys, processors, expected) in [
            (metadata, "", "batch, attributes", Some(header)),
            (metadata, "", "attributes, batch", None),
            (metadata, "", "attributes", None),
            (metadata, "X-Tenant", "batch, attributes", None),
            (metadata, "x-other", "batch, attributes", Some(header)),
            (metadata, "x-tenant", "batch/plain, batch, attributes", Some(header)),
            (client, "x-tenant", "batch, attributes", Some(&*address)),
            (client, "", "attributes, batch", None),
        ] {
            let text = format!(
                "receivers: {{otlp: {{protocols: {{grpc: {{include_metadata: true}}}}}}}}\n\
                 processors:\n  attributes: {{actions: [{{key: a, action: insert, from_context: \
                 {context}}}]}}\n  batch: {{metadata_keys: [{keys}]}}\n  batch/plain:\n\
                 exporters: {{nop: }}\n\
                 service: {{pipelines: {{\
                 traces: {{receivers: [otlp], processors: [{processors}], exporters: [nop]}}, \
                 logs: {{receivers: [otlp], processors: [{processors}], exporters: [nop]}}}}}}\n"
            );
            let (plan, diagnostics) =
                load(&[format!("yaml:{text}")], &sluice_config::SystemEnvironment);
            assert!(plan.is_some(), "{text}");
            let said = diagnostics.items().iter().map(|item| &*item.message);
            let said: Vec<_> = said.filter(|message| message.contains("after a `batch`")).collect();
            assert_eq!(said, expected.into_iter().collect::<Vec<_>>(), "{context} {processors}");
        }
    }

    /// Guarantee: whichever part names a header with credentials, it is said that it goes to disk;
    /// nothing is said of another header, or where nothing is written.
    #[test]
    fn credentials_that_go_to_disk_are_named_with_their_readers() {
        for header in ["authorization", "Cookie", "x-api-key"] {
            let said = warnings(header, "directory: /tmp/d");
            let name = header.to_lowercase();
            for reader in [
                "processors.attributes",
                "processors.batch",
                "extensions.headers_setter",
                "exporters.otlp",
            ] {
                let expected =
                    format!("{reader} reads the senders' header `{name}`: it is written to /tmp/d");
                assert!(said.iter().any(|it| it.starts_with(&expected)), "{expected}: {said:#?}");
            }
            assert_eq!(said.len(), 4);
            assert!(warnings(header, "").is_empty());
        }
        assert!(warnings("x-tenant", "directory: /tmp/d").is_empty());
    }
}
