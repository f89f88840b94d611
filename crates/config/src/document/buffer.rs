//! `buffer:`: Sluice's own additions, for the whole process and for one pipeline.

use std::time::Duration;

use crate::fields::Fields;

/// When a sender is answered OK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Acknowledge {
    /// When the data is in memory, as the Collector does.
    #[default]
    Memory,
    /// When it is delivered wherever the delivery's policy is backpressure.
    Delivered,
}

/// What happens when a delivery's budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverflowPolicy {
    /// Senders are told to come back later.
    Backpressure,
    /// The oldest data of this delivery is dropped, counted, without slowing anybody else.
    DropOldest,
}

/// `buffer:` at the top level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    pub ack: Acknowledge,
    /// How long the oldest frame of a batch waits at most for company while a sender waits for its delivery.
    pub linger: Duration,
    /// Memory for all telemetry that is held; unset: what `memory_limiter` says, or the engine's default.
    pub memory_limit_mib: Option<u64>,
    /// For all deliveries whose pipeline says nothing; unset: the engine's default by fan-out.
    pub policy: Option<OverflowPolicy>,
    pub dead_letters: DeadLetters,
}

/// Bounds of what was finally refused, for each delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadLetters {
    pub limit_mib: u64,
}

/// `service.pipelines.<id>.buffer`: what differs for one pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipelineBuffer {
    /// For each delivery of the pipeline.
    pub memory_limit_mib: Option<u64>,
    pub policy: Option<OverflowPolicy>,
}

impl Default for DeadLetters {
    fn default() -> Self {
        DeadLetters { limit_mib: 16 }
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Buffer {
            ack: Acknowledge::default(),
            linger: Duration::from_millis(5),
            memory_limit_mib: None,
            policy: None,
            dead_letters: DeadLetters::default(),
        }
    }
}

const LATER: &str = "holding telemetry on disk comes with the next release";
const MEMORY_LIMIT_MIB: u64 = 1 << 24;

pub(super) fn read(fields: &mut Fields<'_>) -> Buffer {
    let default = Buffer::default();
    fields.not_yet("directory", LATER);
    fields.no_effect("flush_after", "this build holds telemetry in memory only, so there is nothing to flush to");
    Buffer {
        ack: read_ack(fields),
        linger: fields.duration_in(
            "linger",
            default.linger,
            Duration::ZERO..=Duration::from_secs(1),
            "Where no `timeout` of a batch holds: how long the oldest data of a batch waits for company while others are in flight. With nothing in flight it goes at once.",
        ),
        memory_limit_mib: read_memory(
            fields,
            "Memory in MiB for all telemetry that is held. Unset: what `memory_limiter` says.",
        ),
        policy: read_policy(fields),
        dead_letters: read_dead_letters(fields),
    }
}

pub(super) fn read_for_pipeline(fields: &mut Fields<'_>) -> PipelineBuffer {
    fields.not_yet("directory", LATER);
    PipelineBuffer {
        memory_limit_mib: read_memory(fields, "Memory in MiB that each delivery of this pipeline may hold."),
        policy: read_policy(fields),
    }
}

fn read_ack(fields: &mut Fields<'_>) -> Acknowledge {
    let choices = [
        ("memory", Some(Acknowledge::Memory)),
        ("delivered", Some(Acknowledge::Delivered)),
        ("durable", None),
        ("delivered_or_durable", None),
    ];
    let doc = "When a sender is answered OK. `memory`: at once, as the Collector does. `delivered`: when the data was delivered \
               wherever the policy is `backpressure`. `durable` and `delivered_or_durable` need a directory and are not in this build.";
    let chosen = fields.choice("ack", Some(Acknowledge::Memory), &choices, doc);
    if chosen.is_none() {
        let message = format!("is a value that is not in this build of Sluice: {LATER}");
        fields.error_at_with_hint("ack", &message, "`delivered` loses nothing either, as long as senders try again");
    }
    chosen.unwrap_or_default()
}

fn read_memory(fields: &mut Fields<'_>, doc: &str) -> Option<u64> {
    fields.section_or_default("memory", "How much may be held.", |fields| {
        fields.optional_integer("limit_mib", 1..=MEMORY_LIMIT_MIB, doc)
    })
}

fn read_policy(fields: &mut Fields<'_>) -> Option<OverflowPolicy> {
    let choices = [("backpressure", OverflowPolicy::Backpressure), ("drop_oldest", OverflowPolicy::DropOldest)];
    let doc = "What happens when a delivery's budget is spent: its senders are told to come back, or its oldest data is dropped and \
               counted. Unset: `backpressure` where a receiver feeds one delivery, `drop_oldest` where it feeds several.";
    fields.optional_choice("policy", &choices, doc)
}

fn read_dead_letters(fields: &mut Fields<'_>) -> DeadLetters {
    let default = DeadLetters::default();
    let doc = "What was finally refused, with the reason, kept for each delivery.";
    fields.section_or_default("dead_letters", doc, |fields| DeadLetters {
        limit_mib: fields.integer(
            "limit_mib",
            default.limit_mib,
            0..=MEMORY_LIMIT_MIB,
            "Memory in MiB, at most half of the delivery's share; beyond it the oldest goes first.",
        ),
    })
}
