//! The memory of requests in flight beside their frames: packed copies, and payloads that are
//! inflated to be packed. A backend that hangs holds it until its timeout.

use std::sync::atomic::Ordering;

use sluice_flow::dispatch::{Batch, Unit};
use sluice_flow::{Exporter, Outcome, Payload};
use sluice_otlp::Encoding;

use super::Delivery;
use super::content::Content;
use super::prepare::{Lease, dominant_header_bytes};
use crate::private_memory::ChargedMemory;

impl Delivery {
    /// The last request may exceed the share and the common part: its size is not known before it
    /// is taken.
    pub(super) fn has_room_to_send(&self) -> bool {
        self.would_have_room([self.sending.used_bytes(), self.sending.all_used_bytes()])
    }

    fn would_have_room(&self, [own_bytes, all_bytes]: [u64; 2]) -> bool {
        own_bytes < self.sending_limit_bytes.load(Ordering::Relaxed)
            || all_bytes < self.common_sending_limit_bytes.load(Ordering::Relaxed)
    }

    /// Gives back all but these bytes, and wakes the delivery's task if it may wait for that.
    pub(super) fn lower(&self, charged: &mut ChargedMemory, bytes: usize) {
        let before = charged.set(bytes);
        if !self.would_have_room(before) {
            self.wake.notify_one();
        }
    }
}

/// Bytes that packing a batch takes beside its frames, at most.
pub(super) fn packing_bytes(batch: &Batch<Lease>, exporter: &dyn Exporter) -> usize {
    let contents = || batch.units.iter().map(|unit| &unit.lease.content);
    let payloads =
        || contents().filter_map(|it| if let Content::Whole(it) = it { Some(it) } else { None });
    let is_packed = |payload: &&Payload| payload.encoding != Encoding::Identity;
    let is_passed_on = batch.units.len() == 1
        && payloads().filter(is_packed).any(|it| exporter.passes_through() == Some(it.encoding));
    if is_passed_on {
        return 0;
    }
    let inflated = payloads().filter(is_packed).map(|it| it.uncompressed_len_bytes);
    let packed_bytes = exporter.packing_bytes(batch.bytes, batch.items as usize);
    packed_bytes + inflated.sum::<usize>() + contents().map(Content::copied_bytes).sum::<usize>()
}

/// Bytes and items of the work on units: a part that was let go of takes work on all of its frame.
pub(super) fn work_of(units: &[Unit<Lease>]) -> [usize; 2] {
    let frames = units.iter().filter(|unit| unit.lease.content.is_let_go());
    let frames = frames.map(|unit| &unit.lease.leased.entry.frame);
    let of_frames = frames.map(|it| [it.payload.uncompressed_len_bytes, it.items as usize]);
    let sum = |[bytes, items]: [usize; 2], unit: &Unit<Lease>| {
        [bytes + unit.bytes, items + unit.items as usize]
    };
    let of_units = units.iter().fold([0; 2], sum);
    of_frames.fold(of_units, |one, other| std::array::from_fn(|at| one[at].max(other[at])))
}

/// Whether parts of a refused request can be sent alone. `returns`: rejections go to the senders,
/// and no frame is cut for them.
pub(super) fn can_be_cut(outcome: &Outcome, batch: &Batch<Lease>, returns: bool) -> bool {
    match &batch.units[..] {
        [unit] if matches!(outcome, Outcome::TooLarge { .. }) => {
            unit.items > 1 && dominant_header_bytes(unit).is_none()
        }
        [unit] => unit.items > 1 && !returns,
        units => units.len() > 1,
    }
}
