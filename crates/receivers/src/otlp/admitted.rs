//! Memory for a body on its way. A body that makes no progress is refused.

use std::time::Duration;

use bytes::Bytes;
use sluice_flow::source::{IngressRoute, Permit, Refusal};
use sluice_net::server::ReadScheduler;
use tokio::time::Instant;

use super::refusal::Refused;
use super::waiting::Body;

/// Interval of looks at a body's progress. Shorter than other requests wait for memory.
const INTERVAL: Duration = Duration::from_millis(500);
/// While the CPU is the bottleneck it may be this process that makes no progress.
const CPU_BOUND_INTERVAL: Duration = Duration::from_secs(2);
/// A body makes progress if this part of it arrives in an interval: all of it in ten seconds.
const PART: usize = 20;

pub(super) struct Admitted<'a> {
    body: &'a mut Body,
    pub(super) permit: Permit,
    scheduler: &'a ReadScheduler,
    check_at: Instant,
    /// Bytes of the body since it was admitted.
    arrived: usize,
    /// When the body last made progress, and how much of it had arrived by then.
    progressed: (Instant, usize),
}

impl<'a> Admitted<'a> {
    pub(super) fn new(body: &'a mut Body, permit: Permit, scheduler: &'a ReadScheduler) -> Self {
        let now = Instant::now();
        let (check_at, progressed) = (now + INTERVAL, (now, 0));
        Admitted { body, permit, scheduler, check_at, arrived: 0, progressed }
    }

    /// The next piece; `None` at the end. A body that makes no progress is refused if other
    /// requests wait for memory: to announce a length, or to delay the last byte, costs a sender
    /// nothing.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Refused> {
        loop {
            if let Some(piece) = self.body.next(Some(self.check_at)).await? {
                self.arrived += piece.as_ref().map_or(0, Bytes::len);
                return Ok(piece);
            }
            self.check_progress()?;
        }
    }

    fn check_progress(&mut self) -> Result<(), Refusal> {
        let now = Instant::now();
        self.check_at = now + INTERVAL;
        let (since, arrived_then) = self.progressed;
        if self.arrived - arrived_then > self.permit.bytes() / PART {
            self.progressed = (now, self.arrived);
            return Ok(());
        }
        let patience = if self.scheduler.is_cpu_bound() { CPU_BOUND_INTERVAL } else { INTERVAL };
        match self.permit.asked_back() {
            Some(refusal) if now - since >= patience => Err(refusal),
            _ => Ok(()),
        }
    }

    /// Asks for more memory if the body is longer than it was admitted for: for twice as much, so
    /// that it seldom asks, or for exactly the missing bytes if there is no more.
    pub(super) fn reach(&mut self, length: usize, route: &dyn IngressRoute) -> Result<(), Refusal> {
        let bytes = self.permit.bytes();
        if length <= bytes {
            return Ok(());
        }
        let more = length - bytes;
        self.permit.grow(more.max(bytes)).or_else(|_| self.permit.grow(more))?;
        route.judge_again(&self.permit)
    }
}
