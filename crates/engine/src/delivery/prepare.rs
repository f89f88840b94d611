//! From an entry of the log to units that can be sent: the steps that are left, and cuts at the
//! limits. And from the units of a batch to the request that goes over the wire.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_flow::dispatch::{Batch, Unit};
use sluice_flow::{Exporter, Metadata, Packed, Payload};
use sluice_log::Offset;
use sluice_otlp::{Encoding, Part, Signal, SplitLimits, split};

use crate::entry::Entry;
use crate::private_memory::{ChargedCopy, PrivateMemory};
use crate::shared_work::Processed;
use crate::steps::{self, Chain, inflated};

/// The fate of a part of a frame, the best first. A frame has the worst fate of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// Delivered, or among the dead letters.
    Taken,
    /// Dropped, as a policy declares.
    GivenUp,
    /// Handed back to its sender, with a refusal.
    Returned,
}

/// A frame that a delivery has read from the log, until all that was made of it is resolved.
pub(crate) struct Leased {
    pub offset: Offset,
    pub entry: Arc<Entry>,
    /// The number of unresolved parts, and the worst fate of the resolved ones.
    parts: Mutex<(usize, Fate)>,
}

impl Leased {
    /// A frame of one part, until units are made of it.
    pub(crate) fn new(offset: Offset, entry: Arc<Entry>) -> Arc<Self> {
        Arc::new(Leased { offset, entry, parts: Mutex::new((1, Fate::Taken)) })
    }

    /// Takes note that a part is resolved. The fate of the frame if it was the last.
    pub(crate) fn resolve_part(&self, fate: Fate) -> Option<Fate> {
        let (left, worst) = &mut *self.parts.lock();
        *left -= 1;
        *worst = fate.max(*worst);
        (*left == 0).then_some(*worst)
    }
}

/// The content of a unit: its frame, and the bytes to send.
#[derive(Clone)]
pub(crate) struct Lease {
    pub leased: Arc<Leased>,
    pub payload: Payload,
    /// Index of the path to this delivery that it took.
    path: usize,
    /// The memory of the payload, where it is not the frame's own.
    charged: Option<Arc<ChargedCopy>>,
}

/// The units of a frame or of a unit, or the reason for which it becomes a dead letter.
type Units = Result<Vec<Unit<Lease>>, String>;

pub(crate) struct Preparer {
    pub exporter: Arc<dyn Exporter>,
    /// Memory that units take beside their frames.
    pub memory: Arc<PrivateMemory>,
    /// Metadata by which units are told apart: for the exporter, and `batch.metadata_keys`.
    pub metadata_keys: Vec<String>,
    /// By receiver: the paths from it to this delivery (several where a connector joins pipelines).
    pub chains: HashMap<u16, Vec<Chain>>,
    /// Indices of receivers by their ids, for frames that were read from disk.
    pub receivers: HashMap<String, u16>,
    /// For frames whose receiver does not lead here any more: the steps of the own pipeline.
    pub orphans: [Chain; 1],
}

impl Preparer {
    /// The units of an entry. None at all if its items were filtered out.
    pub(crate) fn units(&self, leased: &Arc<Leased>, limits: SplitLimits) -> Units {
        let frame = &leased.entry.frame;
        if let Some(reason) = self.exporter.refuses(&frame.metadata) {
            return Err(reason);
        }
        let mut units = Vec::new();
        for (path, chain) in self.paths_of(&leased.entry).iter().enumerate() {
            let Processed { payload, items, charged } = self.process(&leased.entry, chain)?;
            if items == 0 && frame.items > 0 {
                continue;
            }
            let lease = Lease { leased: leased.clone(), payload, path, charged };
            self.cut(lease, items, limits, &mut units)?;
        }
        leased.parts.lock().0 = units.len();
        Ok(units)
    }

    fn paths_of(&self, entry: &Entry) -> &[Chain] {
        let receiver =
            entry.receiver().or_else(|| self.receivers.get(&entry.origin.receiver).copied());
        let chains = receiver.and_then(|receiver| self.chains.get(&receiver));
        chains.map_or(&self.orphans, Vec::as_slice)
    }

    /// Fingerprints of all steps that were run over the payload of a lease.
    pub(crate) fn steps_done(&self, lease: &Lease) -> Vec<u64> {
        let entry = &lease.leased.entry;
        let prepared = &entry.origin.prepared;
        let chain = self.paths_of(entry).get(lease.path);
        let remaining = chain.map(|chain| chain.remaining(prepared)).unwrap_or_default();
        let steps = remaining.iter().map(|step| step.fingerprint);
        prepared.iter().copied().chain(steps).collect()
    }

    fn process(&self, entry: &Entry, chain: &Chain) -> Result<Processed, String> {
        let frame = &entry.frame;
        let remaining = chain.remaining(&entry.origin.prepared);
        if remaining.is_empty() {
            let (payload, items) = (frame.payload.clone(), frame.items);
            return Ok(Processed { payload, items, charged: None });
        }
        let compute = || {
            let bytes = inflated(&frame.payload)?;
            steps::run(&remaining, frame.signal, bytes, frame.items, &frame.metadata)
        };
        let Some(shared) = entry.shared.as_ref().filter(|_| chain.sharers > 1) else {
            return compute();
        };
        shared.get_or_compute(steps::identity(&remaining), chain.sharers, compute)
    }

    fn cut(
        &self,
        mut lease: Lease,
        items: u32,
        limits: SplitLimits,
        units: &mut Vec<Unit<Lease>>,
    ) -> Result<(), String> {
        let payload = &lease.payload;
        let fits = payload.uncompressed_len_bytes <= limits.max_bytes
            && items as usize <= limits.max_items;
        let verbatim = payload.encoding != Encoding::Identity
            && self.exporter.passes_through() == Some(payload.encoding)
            && payload.bytes.len() <= self.exporter.pass_through_limit_bytes();
        let alone = fits && verbatim;
        if !alone {
            self.inflate(&mut lease)?;
        }
        match fits {
            true => units.push(self.unit(lease, items, alone)),
            false => units.extend(self.parts(&lease, limits)?),
        }
        Ok(())
    }

    /// Inflates the payload of a lease. It is charged once, whatever the number of deliveries.
    fn inflate(&self, lease: &mut Lease) -> Result<(), String> {
        if lease.payload.encoding != Encoding::Identity {
            let inflate = || inflated(&lease.payload);
            let copy = match &lease.leased.entry.shared {
                Some(shared) => shared.inflated(&self.memory, inflate)?,
                None => ChargedCopy::new(inflate()?, &self.memory),
            };
            lease.payload = Payload::identity(copy.bytes.clone());
            lease.charged = Some(copy);
        }
        Ok(())
    }

    /// Drops the inflated copy of a whole frame: `pack` inflates it again. False if the lease has
    /// no such copy.
    pub(crate) fn let_go(&self, lease: &mut Lease) -> bool {
        let entry = &lease.leased.entry;
        let stored = &entry.frame.payload;
        let chain = self.paths_of(entry).get(lease.path);
        // A payload that `pack` would pass on as it is stored stays inflated.
        let is_inflated = lease.payload.encoding != stored.encoding
            && lease.payload.bytes.len() == stored.uncompressed_len_bytes
            && chain.is_some_and(|chain| chain.remaining(&entry.origin.prepared).is_empty())
            && self.exporter.passes_through() != Some(stored.encoding);
        if is_inflated {
            (lease.payload, lease.charged) = (stored.clone(), None);
        }
        is_inflated
    }

    fn unit(&self, lease: Lease, items: u32, alone: bool) -> Unit<Lease> {
        let (frame, payload) = (&lease.leased.entry.frame, &lease.payload);
        let is_stored = is_part(&frame.payload.bytes, &payload.bytes);
        // No part of a payload that is charged as a whole is charged again.
        let charged = lease.charged.filter(|copy| is_part(&copy.bytes, &payload.bytes));
        let own = || ChargedCopy::new(payload.bytes.clone(), &self.memory);
        let charged = if is_stored { None } else { Some(charged.unwrap_or_else(own)) };
        Unit {
            items,
            bytes: payload.uncompressed_len_bytes,
            alone,
            group: group(&self.metadata_keys, &frame.metadata),
            lease: Lease { charged, ..lease },
        }
    }

    fn parts(&self, lease: &Lease, limits: SplitLimits) -> Units {
        let parts = split(lease.leased.entry.frame.signal, &lease.payload.bytes, limits)
            .map_err(|error| format!("cannot cut a frame that was valid on receipt: {error}"))?;
        let unit = |Part { bytes, items }| {
            self.unit(Lease { payload: Payload::identity(bytes), ..lease.clone() }, items, false)
        };
        Ok(parts.into_iter().map(unit).collect())
    }

    /// Cuts a unit that the backend found too large or refused.
    pub(crate) fn divide(&self, unit: Unit<Lease>, limits: SplitLimits) -> Units {
        let mut lease = unit.lease;
        self.inflate(&mut lease)?;
        let parts = self.parts(&lease, limits)?;
        lease.leased.parts.lock().0 += parts.len() - 1;
        Ok(parts)
    }
}

pub(super) fn payloads(batch: &Batch<Lease>) -> Vec<Payload> {
    batch.units.iter().map(|unit| unit.lease.payload.clone()).collect()
}

pub(super) fn pack(
    exporter: &dyn Exporter,
    signal: Signal,
    items: u32,
    sources: Vec<Payload>,
    metadata: Arc<Metadata>,
) -> Result<Packed, String> {
    if let [Payload { bytes, encoding, .. }] = sources.as_slice()
        && *encoding != Encoding::Identity
        && exporter.passes_through() == Some(*encoding)
    {
        let chunks = vec![bytes.clone()];
        return Ok(Packed::new(signal, items, chunks, *encoding, metadata));
    }
    let chunks = sources.iter().map(inflated).collect::<Result<_, _>>()?;
    let (chunks, encoding) = exporter.pack(signal, chunks)?;
    Ok(Packed::new(signal, items, chunks, encoding, metadata))
}

/// True if `part` lies within `whole`, so that it costs nothing.
fn is_part(whole: &Bytes, part: &Bytes) -> bool {
    let (whole, part) = (whole.as_ptr_range(), part.as_ptr_range());
    whole.start <= part.start && part.end <= whole.end
}

/// Units that differ in the metadata that their exporter reads are of different groups.
fn group(keys: &[String], metadata: &Metadata) -> u64 {
    if keys.is_empty() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    for key in keys {
        let values = metadata.headers.iter().filter(|(name, _)| name == key);
        values.for_each(|header| header.hash(&mut hasher));
    }
    hasher.finish()
}
