//! A request that is too large to pass the steps as a whole: one slice of it after another.

use std::sync::Arc;

use bytes::Bytes;
use sluice_flow::Metadata;
use sluice_otlp::{Detached, Halving, Malformed, PartRef, Signal, SplitLimits};

use super::{Failure, Step, allowance, run_within};
use crate::shared_work::Processed;

/// The results of steps over a request that grows too much to be processed as a whole, or would not
/// fit into one: one slice of it after another, each halved until its result is in proportion.
pub(crate) struct Slices(Halving);

/// A slice of a request, of which the steps can make nothing.
pub(crate) struct Unprocessed {
    pub bytes: Bytes,
    pub items: u32,
    pub reason: String,
}

impl Slices {
    /// The first slices are within `limits`.
    pub(crate) fn new(
        signal: Signal,
        request: &Bytes,
        limits: SplitLimits,
    ) -> Result<Slices, String> {
        let slices = Halving::new(signal, request, limits).map(Slices);
        slices.map_err(|error| error.to_string())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_over()
    }

    pub(crate) fn detached(&self) -> Detached<Halving> {
        self.0.detached()
    }

    /// # Errors
    /// [`Malformed`] if the request is another one.
    pub(crate) fn attached(
        slices: &Detached<Halving>,
        request: &Bytes,
    ) -> Result<Slices, Malformed> {
        slices.attached(request).map(Slices)
    }

    /// The next slice, and what the steps make of it: within `limits` if it has several items.
    pub(crate) fn next(
        &mut self,
        limits: Option<SplitLimits>,
        steps: &[Arc<Step>],
        signal: Signal,
        metadata: &Metadata,
    ) -> Option<Result<(PartRef, Processed), Unprocessed>> {
        loop {
            let part = match self.0.next()? {
                Ok(part) => part,
                Err(error) => {
                    let (bytes, items, reason) = (Bytes::new(), 0, error.to_string());
                    return Some(Err(Unprocessed { bytes, items, reason }));
                }
            };
            let (bytes, items) = (part.bytes(), part.sizes.items);
            let processed = run_within(limits, steps, signal, bytes.clone(), items, metadata);
            let reason = match processed {
                Ok(processed) => return Some(Ok((part, processed))),
                Err(Failure::Step(reason)) => reason,
                Err(Failure::Grows) if self.0.halve(&part) => continue,
                Err(Failure::Grows) => {
                    let limit_bytes = allowance(bytes.len(), items);
                    format!("its processors make one item larger than {limit_bytes} bytes")
                }
            };
            return Some(Err(Unprocessed { bytes, items, reason }));
        }
    }
}
