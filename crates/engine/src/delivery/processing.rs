//! The steps that are left of the paths to a delivery, run over a frame or over slices of it.

use std::sync::Arc;

use sluice_flow::Payload;
use sluice_otlp::{Detached, Encoding, Halving, PartRef, SplitLimits};

use super::content::{Content, Recipe};
use super::feed::{Feed, Left};
use super::leased::Leased;
use super::prepare::{Lease, Preparer, Unsendable};
use crate::entry::Entry;
use crate::shared_work::Processed;
use crate::steps::{
    self, Chain, Failure, Unprocessed, are_repeatable, check_size, inflated, next_slice,
};

/// The result of the steps of a path for a frame, or for this slice of it.
type Made = (Processed, Option<Detached<PartRef>>);

impl Preparer {
    /// Runs the steps of the frame's paths and returns what comes next. None after the last path.
    pub(super) fn next_made(
        &self,
        feed: &mut Feed,
        limits: SplitLimits,
    ) -> Option<Result<Made, Unsendable>> {
        let leased = feed.leased.clone();
        let (entry, frame) = (&leased.entry, &leased.entry.frame);
        let paths = self.paths_of(entry);
        loop {
            if let Some((_, Left::Here(slices))) = &mut feed.slices {
                let steps = paths[feed.next_path - 1].remaining(&entry.origin.prepared);
                let limits = (!are_repeatable(&steps)).then_some(limits);
                let (signal, metadata) = (frame.signal, &frame.metadata);
                if let Some(next) = next_slice(slices, limits, &steps, signal, metadata) {
                    let unsendable = |Unprocessed { bytes, items, reason }| Unsendable {
                        payload: Payload::identity(bytes),
                        items,
                        reason,
                    };
                    let made = next.map(|(slice, made)| (made, Some(slice.detached())));
                    return Some(made.map_err(unsendable));
                }
                feed.slices = None;
            }
            let chain = paths.get(feed.next_path)?;
            feed.next_path += 1;
            feed.items_before = 0;
            let reason = match self.process(entry, chain, limits) {
                Ok(processed) => return Some(Ok((processed, None))),
                Err(Failure::Step(reason)) => reason,
                Err(Failure::Grows) => match self.slices(&leased, feed.next_path - 1, limits) {
                    Ok((lease, slices)) => {
                        feed.slices = Some((lease, Left::Here(slices)));
                        continue;
                    }
                    Err(reason) => reason,
                },
            };
            feed.end();
            return Some(Err(Unsendable::whole(frame, reason)));
        }
    }

    /// The result for the whole frame. Where the steps may make something else the next time, a
    /// result that would have to be cut is refused: what they make of slices is sent as a whole.
    fn process(
        &self,
        entry: &Entry,
        chain: &Chain,
        limits: SplitLimits,
    ) -> Result<Processed, Failure> {
        let frame = &entry.frame;
        let remaining = chain.remaining(&entry.origin.prepared);
        if remaining.is_empty() {
            let (payload, items) = (frame.payload.clone(), frame.items);
            return Ok(Processed { payload, items, charged: None });
        }
        let limits = (!are_repeatable(&remaining)).then_some(limits);
        check_size(limits, frame.payload.uncompressed_len_bytes, frame.items)?;
        let compute = || {
            let bytes = inflated(&frame.payload).map_err(Failure::Step)?;
            let (signal, metadata) = (frame.signal, &frame.metadata);
            steps::run_within(limits, &remaining, signal, bytes, frame.items, metadata)
        };
        let Some(shared) = entry.shared.as_ref().filter(|_| chain.sharers > 1) else {
            return compute();
        };
        let identity = steps::identity(&remaining);
        let processed = shared.get_or_compute(identity, chain.sharers, compute)?;
        // It may be that of a delivery with other limits.
        check_size(limits, processed.payload.bytes.len(), processed.items)?;
        Ok(processed)
    }

    /// The input of the steps of a path, with what holds its memory, in slices.
    fn slices(
        &self,
        leased: &Arc<Leased>,
        path: usize,
        limits: SplitLimits,
    ) -> Result<(Lease, Halving), String> {
        let frame = &leased.entry.frame;
        let content = Content::Whole(frame.payload.clone());
        let recipe = Recipe::new(leased.clone(), None, Vec::new(), self.memory.clone());
        let recipe = Some(Arc::new(recipe));
        let (leased, charged, headers, name) = (leased.clone(), None, None, None);
        let mut lease = Lease { leased, content, path, charged, headers, name, recipe };
        self.inflate(&mut lease)?;
        let bytes = lease.content.payload()?.bytes;
        let limits = match limits.allow(bytes.len(), frame.items) {
            true => SplitLimits::half_of(frame.items),
            // Most fit then, with what the steps add.
            false => SplitLimits { max_bytes: limits.max_bytes / 4 * 3, ..limits },
        };
        let slices = Halving::new(frame.signal, &bytes, limits);
        Ok((lease, slices.map_err(|error| error.to_string())?))
    }

    pub(super) fn paths_of(&self, entry: &Entry) -> &[Chain] {
        let receiver =
            entry.receiver().or_else(|| self.receivers.get(&entry.origin.receiver).copied());
        let chains = receiver.and_then(|receiver| self.chains.get(&receiver));
        chains.map_or(&self.orphans, Vec::as_slice)
    }

    /// Fingerprints of all steps that were run over the payload of a lease.
    pub(crate) fn steps_done(&self, lease: &Lease) -> Vec<u64> {
        self.steps_of(&lease.leased.entry, lease.path).collect()
    }

    pub(super) fn steps_of(&self, entry: &Entry, path: usize) -> impl Iterator<Item = u64> {
        let prepared = &entry.origin.prepared;
        let chain = self.paths_of(entry).get(path);
        let remaining = chain.map(|chain| chain.remaining(prepared)).unwrap_or_default();
        let steps = remaining.into_iter().map(|step| step.fingerprint);
        prepared.iter().copied().chain(steps)
    }

    /// Bytes of its own that a delivery may have of a frame, beside those in the log.
    pub(crate) fn own_bytes(&self, entry: &Entry) -> usize {
        let payload = &entry.frame.payload;
        let is_verbatim = payload.encoding == Encoding::Identity
            || self.exporter.passes_through() == Some(payload.encoding);
        let (paths, prepared) = (self.paths_of(entry), &entry.origin.prepared);
        match is_verbatim && paths.iter().all(|path| path.has_run(prepared)) {
            true => 0,
            false => payload.uncompressed_len_bytes,
        }
    }

    /// None if the payload is the frame's own: nothing is let go of.
    pub(super) fn recipe(
        &self,
        leased: &Arc<Leased>,
        path: usize,
        slice: Option<Detached<PartRef>>,
    ) -> Option<Arc<Recipe>> {
        let chain = self.paths_of(&leased.entry).get(path);
        let (payload, prepared) = (&leased.entry.frame.payload, &leased.entry.origin.prepared);
        let has_run = chain.is_none_or(|chain| chain.has_run(prepared));
        if has_run && payload.encoding == Encoding::Identity {
            return None;
        }
        let steps = chain.map(|chain| chain.remaining(prepared)).unwrap_or_default();
        Some(Arc::new(Recipe::new(leased.clone(), slice, steps, self.memory.clone())))
    }
}
