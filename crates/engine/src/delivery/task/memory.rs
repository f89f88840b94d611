//! The memory that a delivery takes beside the log: when more may be made or sent, and when what
//! waits lets go of its payload.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sluice_flow::Packed;
use sluice_flow::dispatch::{Batch, State, Unit};

use super::Task;
use crate::delivery::Delivery;
use crate::delivery::feed::Feed;
use crate::delivery::prepare::Lease;
use crate::private_memory::ChargedMemory;

/// A frame that waits for memory that others use looks again after this time.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl Task {
    /// One request may always be in flight, and more while the memory for their copies has room.
    pub(super) fn may_send(&self) -> bool {
        self.in_flight.is_empty() || self.delivery.has_room_to_send()
    }

    /// Data that is read only to find some that the backend takes may take no memory that is short.
    pub(super) fn may_read(&self) -> bool {
        let Delivery { private, private_limits, .. } = &*self.delivery;
        let has_memory = || !private_limits.is_short(private);
        self.dispatcher.wants_more() && (!self.dispatcher.only_looks_ahead() || has_memory())
    }

    /// Units take as much memory as they may: something is to be resolved first.
    pub(super) fn is_short_of_memory(&self) -> bool {
        let Delivery { private, private_limits, .. } = &*self.delivery;
        private_limits.is_spent(private) && !self.dispatcher.is_idle()
    }

    /// Memory for the copy that the next unit of a frame may need, if none of them has one. Without
    /// it the task looks again soon: others use it.
    pub(super) fn reserve(&mut self, feed: &Feed) -> Option<ChargedMemory> {
        let own_bytes = match feed.has_begun && !feed.is_let_go() {
            true => 0,
            false => self.preparer.own_bytes(&feed.leased.entry),
        };
        let Delivery { private, private_limits, .. } = &*self.delivery;
        let reserved = private_limits.reserve(private, own_bytes);
        self.looks_again = reserved.is_none().then(|| Instant::now() + LOOK_AGAIN);
        reserved
    }

    /// The backend has not taken a request, and memory is short: what waits is made again when it
    /// is sent. If the backend takes some requests, only what would wait the longest.
    pub(super) fn let_go_of_queue(&mut self) {
        let Delivery { private, private_limits, .. } = &*self.delivery;
        if !private_limits.is_short(private) {
            return;
        }
        self.feed.iter_mut().for_each(|feed| self.preparer.let_go_of_feed(feed));
        if *self.dispatcher.state() != State::Open {
            for unit in self.dispatcher.queued_mut() {
                self.preparer.let_go(&mut unit.lease);
            }
        }
    }

    /// The backend has not taken these units. If memory is short, they are made again when they are
    /// sent: then true.
    pub(super) fn let_go_if_short(&self, units: &mut [Unit<Lease>]) -> bool {
        let Delivery { private, private_limits, .. } = &*self.delivery;
        let is_short = private_limits.is_short(private);
        if is_short {
            for unit in units {
                self.preparer.let_go(&mut unit.lease);
            }
        }
        is_short
    }

    /// Keeps the packed request for the next attempt, if memory allows it. If memory is short, lets
    /// go even of payloads. Returns the bytes that the request is charged.
    pub(super) fn keep_packed(
        &mut self,
        batch: &mut Batch<Lease>,
        packed: Option<Packed>,
    ) -> usize {
        if self.let_go_if_short(&mut batch.units) {
            return 0;
        }
        let Some(packed) = packed else { return 0 };
        let copied = packed.copied_bytes;
        let limit_bytes = self.delivery.packed_limit_bytes.load(Ordering::Relaxed) as usize;
        let waiting = self.packed_waiting.bytes() + copied;
        if waiting > limit_bytes {
            return 0;
        }
        self.packed_waiting.set(waiting);
        batch.packed = Some(packed);
        copied
    }
}
