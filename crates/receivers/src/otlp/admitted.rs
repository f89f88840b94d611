//! Memory for a body that is on its way, and what becomes of a body that does not get on while others need that memory.

use std::time::Duration;

use bytes::Bytes;
use sluice_flow::Refusal;
use sluice_flow::intake::Permit;
use sluice_net::server::{BodyReader, ServerResources};
use tokio::time::Instant;

use super::refusal::Refused;

/// So often it is asked whether a body gets on. Shorter than others wait for memory before they are refused.
const INTERVAL: Duration = Duration::from_millis(500);
/// While the CPU is the bottleneck it may be this process that does not get on.
const CPU_BOUND_INTERVAL: Duration = Duration::from_secs(2);
/// A body gets on if this part of what it was admitted for arrives in an interval: all of it in ten seconds.
const PART: usize = 20;

pub(super) struct Admitted {
    permit: Box<dyn Permit>,
    resources: ServerResources,
    bytes: usize,
    look_at: Instant,
    /// When the body last got on, and what of it had arrived by then.
    got_on: (Instant, usize),
}

impl Admitted {
    pub(super) fn new(permit: Box<dyn Permit>, bytes: usize, resources: &ServerResources) -> Self {
        let now = Instant::now();
        Admitted { permit, resources: resources.clone(), bytes, look_at: now + INTERVAL, got_on: (now, 0) }
    }

    /// The next piece of a body of which so much has arrived. It is given up if it does not get on and others wait for memory: to announce
    /// a length, or to hold back the last byte, costs a sender nothing.
    pub(super) async fn next(&mut self, body: &mut BodyReader, arrived: usize) -> Result<Option<Bytes>, Refused> {
        loop {
            if let Some(piece) = body.next_before(self.look_at).await? {
                return Ok(piece);
            }
            self.look(arrived)?;
        }
    }

    fn look(&mut self, arrived: usize) -> Result<(), Refusal> {
        let now = Instant::now();
        self.look_at = now + INTERVAL;
        let (since, arrived_then) = self.got_on;
        if arrived - arrived_then > self.bytes / PART {
            self.got_on = (now, arrived);
            return Ok(());
        }
        let patience = if self.resources.is_cpu_bound() { CPU_BOUND_INTERVAL } else { INTERVAL };
        match self.permit.asked_back() {
            Some(refusal) if now - since >= patience => Err(refusal),
            _ => Ok(()),
        }
    }

    /// Asks for more memory if the body is longer than it was admitted for: for twice as much, so that it seldom asks.
    pub(super) fn reach(&mut self, length: usize) -> Result<(), Refusal> {
        if length > self.bytes {
            let more = (length - self.bytes).max(self.bytes);
            self.permit.grow(more)?;
            self.bytes += more;
        }
        Ok(())
    }

    pub(super) fn into_permit(self) -> Box<dyn Permit> {
        self.permit
    }
}
