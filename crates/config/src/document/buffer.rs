//! `buffer:`: Sluice's own additions, for the whole process and for one pipeline.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::fields::Fields;
use crate::source::Span;

/// When a sender is answered OK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// When the data is in memory, as the Collector does.
    Memory,
    /// After every delivery whose policy is backpressure has delivered it.
    Delivered,
    /// After every delivery has delivered it, or once it is on disk. Needs a directory.
    DeliveredOrDurable,
    /// As `DeliveredOrDurable`, but all data is written at once. Needs a directory.
    Durable,
}

/// The reaction when a delivery's budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverflowPolicy {
    /// Senders get a retryable refusal.
    Backpressure,
    /// The oldest data of this delivery is dropped and counted.
    DropOldest,
    /// The oldest data is dropped while another delivery of the same receiver keeps up; once none
    /// does, senders get a retryable refusal. While the backend works, answers are delayed first.
    Isolate,
}

/// A value and its position in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<T> {
    pub value: T,
    pub span: Span,
}

/// `buffer:` at the top level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// The directory for telemetry. Unset: that of `sending_queue.storage`, or memory only.
    pub directory: Option<Placed<String>>,
    /// Unset: `DeliveredOrDurable` with a directory, `Memory` without.
    pub ack: Option<Placed<Acknowledge>>,
    /// Data waits this long for its deliveries before it is written.
    pub flush_after: Option<Placed<Duration>>,
    /// The oldest frame of a batch waits this long for more data while its sender waits.
    pub linger: Duration,
    /// Memory limit of the process; unset: that of `memory_limiter`, or the engine's default.
    pub memory_limit_mib: Option<u64>,
    /// Limit of the disk, for everything together; unset: a part of the file system's free space.
    pub disk_limit_mib: Option<Placed<u64>>,
    /// Length of a segment file.
    pub segment_mib: Option<Placed<u64>>,
    /// For pipelines without a policy of their own; unset: the engine's default by fan-out.
    pub policy: Option<OverflowPolicy>,
    /// Limit of the dead letters of each delivery; unset: the engine's default.
    pub dead_letters_limit_mib: Option<u64>,
}

/// `service.pipelines.<id>.buffer`: settings of one pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipelineBuffer {
    /// For each delivery of the pipeline, as is the next.
    pub memory_limit_mib: Option<Placed<u64>>,
    pub disk_limit_mib: Option<Placed<u64>>,
    pub policy: Option<OverflowPolicy>,
}

impl Buffer {
    pub const FLUSH_AFTER: Duration = Duration::from_millis(20);
    pub const LINGER: Duration = Duration::from_millis(5);
    pub const SEGMENT_MIB: u64 = 64;
}

const MEMORY_LIMIT_MIB: u64 = 1 << 24;
const DISK_LIMIT_MIB: u64 = 1 << 30;

pub(super) fn read(fields: &mut Fields<'_>) -> Buffer {
    let mut buffer = Buffer::default();
    let doc = "Directory in which telemetry is stored until it is delivered, so that it survives a \
               crash. Only one process can use it. Unset: the directory of the `file_storage` that \
               a `sending_queue.storage` names; without one, telemetry is in memory only.";
    let directory = fields.optional_string("directory", doc);
    if directory.as_deref() == Some("") {
        fields.error_at("directory", "must not be empty");
    }
    buffer.directory = place(fields, "directory", directory);
    let doc = "With a directory: how long data waits for its deliveries before it is written. Data \
               that every delivery took by then is never written. While a delivery is behind, all \
               data is written at once.";
    let range = Duration::from_millis(1)..=Duration::from_secs(60);
    let flush_after = fields.duration_in("flush_after", Buffer::FLUSH_AFTER, range, doc);
    buffer.flush_after = place(fields, "flush_after", Some(flush_after));
    buffer.ack = read_ack(fields);
    let doc = "Without a batch `timeout`: how long the oldest data of a batch waits for more data \
               while other requests are in flight. With nothing in flight, a batch is sent at \
               once.";
    let range = Duration::ZERO..=Duration::from_secs(1);
    buffer.linger = fields.duration_in("linger", Buffer::LINGER, range, doc);
    let doc = "Memory limit of the process in MiB. Unset: the limit of `memory_limiter`. Without \
               `memory_limiter`: half of the available memory, at most 1024.";
    buffer.memory_limit_mib = read_memory(fields, doc).map(|placed| placed.value);
    let doc = "With a directory: limits of the disk.";
    fields.section_or_default("disk", doc, |fields| {
        let doc = "Limit in MiB for the files of the log: backlogs, for which all deliveries share \
                   it, and dead letters. Unset: half of the file system's free space, where the \
                   log's own files count as free; more if the log already needs more.";
        buffer.disk_limit_mib = read_mib(fields, 64..=DISK_LIMIT_MIB, doc);
        let doc = "Length of a segment file in MiB. Space is freed in whole segments.";
        let segment = fields.integer("segment_mib", Buffer::SEGMENT_MIB, 1..=4096, doc);
        buffer.segment_mib = place(fields, "segment_mib", Some(segment));
    });
    buffer.policy = read_policy(fields);
    let doc = "Data that backends rejected for good, kept for each delivery with the reason.";
    buffer.dead_letters_limit_mib = fields.section_or_default("dead_letters", doc, |fields| {
        let doc = "Limit for each delivery, in MiB. Beyond it the oldest dead letters are deleted. \
                   With a directory: 64 if unset, and at most a quarter of the disk limit for all \
                   deliveries together. Without: dead letters share memory with backlogs. They get \
                   at most half of it for all deliveries together; if unset, an eighth, and at \
                   most 32 MiB for each delivery.";
        fields.optional_integer("limit_mib", 0..=MEMORY_LIMIT_MIB, doc)
    });
    buffer
}

pub(super) fn read_for_pipeline(fields: &mut Fields<'_>) -> PipelineBuffer {
    let doc = "Limit of the backlog of each delivery in this pipeline, in MiB of memory. Unset: \
               only the limit that all backlogs share. With a directory: limit of the delivery's \
               data that is in memory while it is sent.";
    let memory_limit_mib = read_memory(fields, doc);
    let doc = "With a directory: limits of the disk.";
    let disk_limit_mib = fields.section_or_default("disk", doc, |fields| {
        let doc = "Limit of the backlog of each delivery in this pipeline, in MiB of disk. Unset: \
                   only the limit that all backlogs share.";
        read_mib(fields, 1..=DISK_LIMIT_MIB, doc)
    });
    PipelineBuffer { memory_limit_mib, disk_limit_mib, policy: read_policy(fields) }
}

/// The value with its position, if the file has it.
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
    let doc = "When senders get OK for their data. `memory`: as soon as the data is in memory, \
               like the Collector. `delivered`: when every delivery whose policy is `backpressure` \
               has delivered it. `delivered_or_durable`: when every delivery has delivered it, or \
               when it is on disk; it is written after `flush_after`. `durable`: the same, but all \
               data is written at once. Unset: `delivered_or_durable` with a directory, `memory` \
               without.";
    let chosen = fields.optional_choice("ack", &choices, doc);
    place(fields, "ack", chosen)
}

fn read_memory(fields: &mut Fields<'_>, doc: &str) -> Option<Placed<u64>> {
    fields.section_or_default("memory", "Limits of memory.", |fields| {
        read_mib(fields, 1..=MEMORY_LIMIT_MIB, doc)
    })
}

fn read_mib(fields: &mut Fields<'_>, range: RangeInclusive<u64>, doc: &str) -> Option<Placed<u64>> {
    let limit = fields.optional_integer("limit_mib", range, doc);
    place(fields, "limit_mib", limit)
}

fn read_policy(fields: &mut Fields<'_>) -> Option<OverflowPolicy> {
    let choices = [
        ("backpressure", OverflowPolicy::Backpressure),
        ("drop_oldest", OverflowPolicy::DropOldest),
        ("isolate", OverflowPolicy::Isolate),
    ];
    let doc = "Applies when a delivery's backlog reaches its limit, or is the largest while all \
               backlogs together are near theirs. `backpressure`: senders wait, then get a \
               retryable refusal. `drop_oldest`: the delivery's oldest data is dropped and \
               counted. `isolate`: if the delivery's own backend is the reason and another \
               delivery of the same receiver keeps up, the oldest data that another delivery has \
               taken is dropped; else as `backpressure`. For a backend that is only slow, \
               `isolate` first delays answers by up to 0.75 s, which slows down senders that wait \
               for them. Unset: `backpressure` where a receiver feeds one delivery, `isolate` \
               where it feeds several.";
    fields.optional_choice("policy", &choices, doc)
}
