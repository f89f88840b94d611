//! What a configuration asks for and does not get, or gets otherwise than it may think.

use std::collections::BTreeSet;

use sluice_config::document::Document;
use sluice_config::{Diagnostic, Diagnostics};
use sluice_exporters::sending::Sizer;

use super::read::Read;
use super::routes::Way;
use super::{AckMode, DeliveryPlan};

const MIB: u64 = 1 << 20;

/// Options of `sending_queue` that mean something else here, or nothing.
pub(super) fn of_queue_options(read: &Read, deliveries: &[DeliveryPlan], diagnostics: &mut Diagnostics) {
    for (id, exporter) in &read.exporters {
        let queue = &exporter.config.sending().queue;
        let path = format!("exporters.{id}.sending_queue");
        let mut warn = |message: String, hint: &str| {
            diagnostics.push(Diagnostic::warning(exporter.span, message).with_hint(hint));
        };
        let own = || deliveries.iter().filter(|delivery| delivery.id.exporter == *id);
        match queue.queue_size {
            // A number of requests says nothing about memory.
            Some(_) if queue.sizer != Sizer::Bytes => warn(
                format!(
                    "{path}.queue_size has no effect: a backlog is bounded in bytes, by memory_limiter, buffer.memory.limit_mib and buffer.disk.limit_mib"
                ),
                "`sluice plan` shows by how many; `sizer: bytes` makes `queue_size` a bound in bytes",
            ),
            Some(size) => {
                if let Some(less) = own().find(|delivery| delivery.budget_bytes < size) {
                    warn(
                        format!(
                            "{path}.queue_size is {} MiB, but {} has {} MiB for its backlog",
                            size / MIB,
                            less.id,
                            less.budget_bytes / MIB
                        ),
                        "raise `buffer.memory.limit_mib` or `buffer.disk.limit_mib`",
                    );
                }
            }
            None => {}
        }
        if queue.block_on_overflow {
            warn(
                format!(
                    "{path}.block_on_overflow has no effect: senders are held up for a second at most, then refused"
                ),
                "they come back, and nothing that was acknowledged is lost",
            );
        }
        let option = if queue.enabled { "wait_for_result: true" } else { "enabled: false" };
        let asks = queue.makes_senders_wait();
        if let Some(unheeded) = own().find(|delivery| asks && !delivery.senders_wait && !delivery.best_effort) {
            warn(
                format!(
                    "{path}.{option} has no effect in pipeline {}: with its policy no sender waits for {id}",
                    unheeded.id.pipeline
                ),
                "`buffer: {policy: backpressure}` in the pipeline makes senders wait for its deliveries",
            );
        }
    }
}

/// `buffer.ack: delivered` where senders wait for nobody.
pub(super) fn of_waiting_for_nobody(
    document: &Document,
    ack: AckMode,
    ways: &[Way],
    deliveries: &[DeliveryPlan],
    diagnostics: &mut Diagnostics,
) {
    let Some(said) = document.buffer.ack.as_ref().filter(|_| ack == AckMode::Delivered) else { return };
    let is_awaited = |way: &Way| deliveries.iter().any(|delivery| delivery.id == way.delivery && delivery.senders_wait);
    let waits: BTreeSet<_> = ways.iter().filter(|way| is_awaited(way)).map(|way| (&way.receiver, way.signal)).collect();
    let all: BTreeSet<_> = ways.iter().map(|way| (&way.receiver, way.signal)).collect();
    for (receiver, signal) in all.difference(&waits) {
        let message = format!(
            "buffer.ack: delivered has no effect on {signal} of {receiver}: none of its deliveries has the policy `backpressure`, and \
             senders are answered when their data is in memory"
        );
        let hint = "`buffer: {policy: backpressure}`, here or in a pipeline; where a receiver feeds several deliveries it is not the default";
        diagnostics.push(Diagnostic::warning(said.span, message).with_hint(hint));
    }
}
