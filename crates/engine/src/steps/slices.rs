//! A request that is too large to pass the steps as a whole: one slice of it after another.

use std::sync::Arc;

use bytes::Bytes;
use sluice_flow::Metadata;
use sluice_otlp::{Halving, PartRef, Signal, SplitLimits};

use super::{Failure, Step, allowance, run_within};
use crate::shared_work::Processed;

/// A slice of a request, of which the steps can make nothing.
pub(crate) struct Unprocessed {
    pub bytes: Bytes,
    pub items: u32,
    pub reason: String,
}

/// The next slice of a request that grows too much to be processed as a whole, or would have to be
/// cut afterwards, with the result of the steps. It is halved until that is in proportion, and
/// within `limits` if it has several items.
pub(crate) fn next_slice(
    slices: &mut Halving,
    limits: Option<SplitLimits>,
    steps: &[Arc<Step>],
    signal: Signal,
    metadata: &Metadata,
) -> Option<Result<(PartRef, Processed), Unprocessed>> {
    loop {
        let part = match slices.next()? {
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
            Err(Failure::Grows) if slices.halve(&part) => continue,
            Err(Failure::Grows) => {
                let limit_bytes = allowance(bytes.len(), items);
                format!("its processors make one item larger than {limit_bytes} bytes")
            }
        };
        return Some(Err(Unprocessed { bytes, items, reason }));
    }
}
