//! `buffer:`: Sluice's own additions, for the whole process and for one pipeline.

use std::time::Duration;

use crate::fields::Fields;
use crate::source::Span;

/// When a sender is answered OK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// When the data is in memory, as the Collector does.
    Memory,
    /// When it is delivered wherever the delivery's policy is backpressure.
    Delivered,
    /// When it is delivered everywhere or on disk, whichever comes first. Needs a directory.
    DeliveredOrDurable,
    /// As `DeliveredOrDurable`, and everything is written at once. Needs a directory.
    Durable,
}

/// What happens when a delivery's budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverflowPolicy {
    /// Senders are told to come back later.
    Backpressure,
    /// The oldest data of this delivery is dropped, counted, without slowing anybody else.
    DropOldest,
    /// The oldest data of this delivery is dropped as long as another one keeps up; where all are full senders are told to come back.
    /// Senders that wait for their answers are slowed before that, if the backend works.
    Isolate,
}

/// A value and where it stands in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<T> {
    pub value: T,
    pub span: Span,
}

/// `buffer:` at the top level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Where telemetry is held on disk. Unset: what `sending_queue.storage` says, or in memory only.
    pub directory: Option<Placed<String>>,
    /// Unset: `DeliveredOrDurable` with a directory, `Memory` without.
    pub ack: Option<Placed<Acknowledge>>,
    /// How long data waits for its deliveries before it is written.
    pub flush_after: Option<Placed<Duration>>,
    /// How long the oldest frame of a batch waits at most for company while a sender waits for its delivery.
    pub linger: Duration,
    /// Memory for all telemetry that is held; unset: what `memory_limiter` says, or the engine's default.
    pub memory_limit_mib: Option<u64>,
    pub disk: DiskBounds,
    /// For all deliveries whose pipeline says nothing; unset: the engine's default by fan-out.
    pub policy: Option<OverflowPolicy>,
    pub dead_letters: DeadLetters,
}

/// How much of the disk may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskBounds {
    /// For everything together; unset: a part of what the file system has.
    pub limit_mib: Option<Placed<u64>>,
    /// Length of a segment file.
    pub segment_mib: Option<Placed<u64>>,
}

/// Bounds of what was finally refused, for each delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadLetters {
    /// Unset: the engine's default.
    pub limit_mib: Option<u64>,
}

/// `service.pipelines.<id>.buffer`: what differs for one pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipelineBuffer {
    /// For each delivery of the pipeline.
    pub memory_limit_mib: Option<Placed<u64>>,
    /// For each delivery of the pipeline.
    pub disk_limit_mib: Option<Placed<u64>>,
    pub policy: Option<OverflowPolicy>,
}

impl Buffer {
    pub const FLUSH_AFTER: Duration = Duration::from_millis(20);
    pub const SEGMENT_MIB: u64 = 64;
}

impl Default for Buffer {
    fn default() -> Self {
        Buffer {
            directory: None,
            ack: None,
            flush_after: None,
            linger: Duration::from_millis(5),
            memory_limit_mib: None,
            disk: DiskBounds::default(),
            policy: None,
            dead_letters: DeadLetters::default(),
        }
    }
}

const MEMORY_LIMIT_MIB: u64 = 1 << 24;
const DISK_LIMIT_MIB: u64 = 1 << 30;

pub(super) fn read(fields: &mut Fields<'_>) -> Buffer {
    let default = Buffer::default();
    let directory = fields.optional_string(
        "directory",
        "Directory in which telemetry is held until it is delivered, so that it survives a crash. One process owns it. \
         Unset: the directory of the `file_storage` that a `sending_queue.storage` names, or in memory only.",
    );
    if directory.as_deref() == Some("") {
        fields.error_at("directory", "must not be empty");
    }
    let flush_after = fields.duration_in(
        "flush_after",
        Buffer::FLUSH_AFTER,
        Duration::from_millis(1)..=Duration::from_secs(60),
        "With a directory: how long data waits for its deliveries before it is written. While a delivery lags it is written at once; \
         what every delivery has taken by then is never written.",
    );
    Buffer {
        directory: place(fields, "directory", directory),
        ack: read_ack(fields),
        flush_after: place(fields, "flush_after", Some(flush_after)),
        linger: fields.duration_in(
            "linger",
            default.linger,
            Duration::ZERO..=Duration::from_secs(1),
            "Where no `timeout` of a batch holds: how long the oldest data of a batch waits for company while others are in flight. With nothing in flight it goes at once.",
        ),
        memory_limit_mib: read_memory(
            fields,
            "Memory in MiB for all telemetry that is held. Unset: what `memory_limiter` says.",
        )
        .map(|placed| placed.value),
        disk: read_disk(fields),
        policy: read_policy(fields),
        dead_letters: read_dead_letters(fields),
    }
}

pub(super) fn read_for_pipeline(fields: &mut Fields<'_>) -> PipelineBuffer {
    PipelineBuffer {
        memory_limit_mib: read_memory(
            fields,
            "Memory in MiB that each delivery of this pipeline may hold; the others share the rest. With a directory it bounds what is being sent.",
        ),
        disk_limit_mib: fields.section_or_default("disk", "With a directory: how much may be held.", |fields| {
            let doc =
                "Disk in MiB that each delivery of this pipeline may hold. Unset: its part of `buffer.disk.limit_mib`.";
            let limit = fields.optional_integer("limit_mib", 1..=DISK_LIMIT_MIB, doc);
            place(fields, "limit_mib", limit)
        }),
        policy: read_policy(fields),
    }
}

/// The value with its place, if the file has it.
fn place<T>(fields: &Fields<'_>, key: &str, value: Option<T>) -> Option<Placed<T>> {
    let span = fields.span_of(key)?;
    value.map(|value| Placed { value, span })
}

fn read_ack(fields: &mut Fields<'_>) -> Option<Placed<Acknowledge>> {
    let choices = [
        ("memory", Acknowledge::Memory),
        ("delivered", Acknowledge::Delivered),
        ("delivered_or_durable", Acknowledge::DeliveredOrDurable),
        ("durable", Acknowledge::Durable),
    ];
    let doc = "When a sender is answered OK. `memory`: at once, as the Collector does. `delivered`: when the data was delivered \
               wherever the policy is `backpressure`. `delivered_or_durable`: when it was delivered everywhere or is on disk, which it is \
               after `flush_after` at the latest. `durable`: the same, but everything is written at once. Unset: `delivered_or_durable` \
               with a directory, `memory` without.";
    let chosen = fields.optional_choice("ack", &choices, doc);
    place(fields, "ack", chosen)
}

fn read_memory(fields: &mut Fields<'_>, doc: &str) -> Option<Placed<u64>> {
    fields.section_or_default("memory", "How much may be held.", |fields| {
        let limit = fields.optional_integer("limit_mib", 1..=MEMORY_LIMIT_MIB, doc);
        place(fields, "limit_mib", limit)
    })
}

fn read_disk(fields: &mut Fields<'_>) -> DiskBounds {
    fields.section_or_default("disk", "With a directory: how much of the disk may be used.", |fields| {
        let doc = "Disk in MiB for everything together, shared out among the deliveries. Unset: half of what the file system has left.";
        let limit = fields.optional_integer("limit_mib", 64..=DISK_LIMIT_MIB, doc);
        let doc = "Length of a segment file in MiB. Space comes free in whole segments.";
        let segment = fields.integer("segment_mib", Buffer::SEGMENT_MIB, 1..=4096, doc);
        DiskBounds {
            limit_mib: place(fields, "limit_mib", limit),
            segment_mib: place(fields, "segment_mib", Some(segment)),
        }
    })
}

fn read_policy(fields: &mut Fields<'_>) -> Option<OverflowPolicy> {
    let choices = [
        ("backpressure", OverflowPolicy::Backpressure),
        ("drop_oldest", OverflowPolicy::DropOldest),
        ("isolate", OverflowPolicy::Isolate),
    ];
    let doc = "What happens when a delivery's budget is spent: its senders are told to come back (`backpressure`); its oldest data is \
               dropped and counted (`drop_oldest`); or its oldest data is dropped as long as another delivery of its receiver keeps \
               up, but where all are full that still move their senders are told to come back (`isolate`: while its backend works, and \
               is only slower, answers are held back for up to 0.75 s beforehand, which slows senders that wait for them). Unset: `backpressure` where a receiver \
               feeds one delivery, `isolate` where it feeds several.";
    fields.optional_choice("policy", &choices, doc)
}

fn read_dead_letters(fields: &mut Fields<'_>) -> DeadLetters {
    let doc = "What was finally refused, with the reason, kept for each delivery.";
    fields.section_or_default("dead_letters", doc, |fields| DeadLetters {
        limit_mib: fields.optional_integer(
            "limit_mib",
            0..=MEMORY_LIMIT_MIB,
            "MiB for each delivery; beyond it the oldest goes first. Without a directory it is memory, at most half of the delivery's share. \
             Unset: 64 with a directory, else an eighth of the delivery's share, at most 32.",
        ),
    })
}
