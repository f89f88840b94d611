//! Chains of processors, and the rest of a chain for a frame.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use sluice_flow::{Metadata, Payload};
use sluice_net::compress::decompress;
use sluice_otlp::{Encoding, Signal, count};
use sluice_processors::Processor;

use crate::shared_work::Processed;

pub(crate) struct Step {
    pub id: String,
    /// Hash of kind and configuration: two steps with the same fingerprint do the same.
    pub fingerprint: u64,
    pub processor: Box<dyn Processor>,
    /// A reload hands them on to the step of this name in the new plan.
    pub counters: ArcSwap<StepCounters>,
}

/// Items, each time that a step ran.
#[derive(Default)]
pub(crate) struct StepCounters {
    pub incoming: AtomicU64,
    pub outgoing: AtomicU64,
}

/// The processors between a receiver and a delivery, in order.
#[derive(Clone)]
pub(crate) struct Chain {
    pub steps: Arc<[Arc<Step>]>,
    /// Number of deliveries that need exactly this result.
    pub sharers: usize,
}

impl Chain {
    /// The steps that did not run before the log, perhaps under an older configuration: steps that
    /// already ran are left out, wherever they are in the chain.
    pub(crate) fn remaining(&self, prepared: &[u64]) -> Vec<Arc<Step>> {
        let is_prefix = prepared.len() <= self.steps.len()
            && prepared.iter().zip(self.steps.iter()).all(|(done, step)| *done == step.fingerprint);
        if is_prefix {
            return self.steps[prepared.len()..].to_vec();
        }
        self.steps.iter().filter(|step| !prepared.contains(&step.fingerprint)).cloned().collect()
    }
}

/// The uncompressed request. It was valid on receipt: only a fault of ours can make this fail.
pub(crate) fn inflated(payload: &Payload) -> Result<Bytes, String> {
    if payload.encoding == Encoding::Identity {
        return Ok(payload.bytes.clone());
    }
    decompress(payload.encoding, &payload.bytes, payload.uncompressed_len_bytes)
        .map_err(|error| format!("cannot inflate a frame that was valid on receipt: {error}"))
}

/// The identity of a list of steps, by their fingerprints.
pub(crate) fn identity(steps: &[Arc<Step>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for step in steps {
        step.fingerprint.hash(&mut hasher);
    }
    hasher.finish()
}

pub(crate) fn common_prefix(chains: &[Vec<Arc<Step>>]) -> Vec<Arc<Step>> {
    let mut prefix = chains.first().cloned().unwrap_or_default();
    for chain in chains {
        let pairs = prefix.iter().zip(chain);
        let common = pairs.take_while(|(one, other)| one.fingerprint == other.fingerprint).count();
        prefix.truncate(common);
    }
    prefix
}

/// Runs steps over an uncompressed request. With zero items there is nothing left to send. Says
/// which processor failed, and why.
pub(crate) fn run(
    steps: &[Arc<Step>],
    signal: Signal,
    mut bytes: Bytes,
    mut items: u32,
    metadata: &Metadata,
) -> Result<Processed, String> {
    for step in steps {
        let failed = |error| format!("processor {}: {error}", step.id);
        let counters = step.counters.load();
        counters.incoming.fetch_add(u64::from(items), Ordering::Relaxed);
        if let Some(edited) = step.processor.process(signal, &bytes, metadata).map_err(failed)? {
            items = count(signal, &edited).map_err(failed)?;
            bytes = edited;
        }
        counters.outgoing.fetch_add(u64::from(items), Ordering::Relaxed);
    }
    Ok(Processed { payload: Payload::identity(bytes), items, charged: None })
}
