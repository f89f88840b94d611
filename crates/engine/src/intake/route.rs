//! Where a receiver's frames go, and for which of their deliveries senders have to wait.

use std::sync::Arc;

use sluice_flow::Refusal;
use sluice_log::{CursorId, Log};
use sluice_otlp::Encoding;

use crate::ack::Awaited;
use crate::delivery::Delivery;
use crate::entry::{Entry, Origin};
use crate::refusals::overloaded;
use crate::steps::Step;
use crate::storage::LogWatch;

/// Where the frames of one receiver and signal go.
pub(crate) struct Route {
    /// Steps that all deliveries share: run once, before the log.
    pub prefix: Vec<Arc<Step>>,
    pub origin: Arc<Origin>,
    pub log: Arc<Log<Entry>>,
    pub deliveries: Arc<[Arc<Delivery>]>,
    pub readers: Arc<[CursorId]>,
    /// The deliveries whose senders are told to come back, if need be: admission looks at their budgets.
    pub refusing: Vec<CursorId>,
    /// Those of them that refuse each on its own; the others do only together.
    pub backpressure: Vec<CursorId>,
    /// What the sender waits for. Nothing where it is answered from memory.
    pub awaited: Arc<Awaited>,
    /// Set where the log goes on on disk.
    pub disk: Option<RouteDisk>,
    /// Encodings that some delivery passes on unchanged.
    pub passes_through: Vec<Encoding>,
    /// Request metadata that something downstream reads: names in lower case.
    pub metadata_keys: Vec<String>,
}

impl Route {
    /// The delivery on whose behalf senders have to wait if deliveries are in this state. One that refuses on its own suffices. The
    /// others wait until none keeps up any more: as long as one does, the rest have slow backends, for which nobody else is held up.
    pub(super) fn held_up_by(&self, state: impl Fn(&Delivery) -> bool) -> Option<&Delivery> {
        let mut deliveries = self.deliveries.iter().map(|delivery| &**delivery);
        let is_alone = |delivery: &Delivery| self.backpressure.contains(&delivery.cursor);
        let is_refusing = |delivery: &Delivery| self.refusing.contains(&delivery.cursor);
        if let Some(alone) = deliveries.clone().find(|delivery| is_alone(delivery) && state(delivery)) {
            return Some(alone);
        }
        let is_together = |delivery: &Delivery| is_refusing(delivery) && !is_alone(delivery);
        // Hardly ever is there one: what the others do is not asked before.
        let together =
            deliveries.clone().rfind(|delivery| is_together(delivery) && state(delivery) && !delivery.is_apart())?;
        let keeps_up = |delivery: &Delivery| is_refusing(delivery) && !delivery.is_apart() && !delivery.is_behind();
        (!deliveries.any(keeps_up)).then_some(together)
    }

    /// A delivery that has to drop soon though nothing is wrong with it: it is only slower than the others, or as sick as they are.
    /// Senders that wait for their answers are slowed down to its pace by answers that are held back, and nothing is lost. Where
    /// one refuses much more than another it is isolated: then others would wait for a sick backend.
    pub(super) fn falls_behind(&self) -> Option<&Delivery> {
        let others = || self.deliveries.iter().filter(|delivery| self.refusing.contains(&delivery.cursor));
        let is_sicker =
            |delivery: &Delivery| others().any(|other| delivery.pulse.takes_less_than_half_of(&other.pulse));
        let mut candidates = others().filter(|delivery| !self.backpressure.contains(&delivery.cursor));
        candidates.find(|delivery| delivery.falls_behind() && !is_sicker(delivery)).map(|delivery| &**delivery)
    }

    /// What the disk may have to take: a frame beyond it never finds room.
    pub(super) fn unwritten_limit_bytes(&self) -> usize {
        self.disk.as_ref().map_or(usize::MAX, |disk| disk.unwritten_limit_bytes as usize)
    }

    /// Sees to it that what is not written yet stays within its memory: where the disk does not keep up, deliveries whose policy is
    /// `drop_oldest` lose frames before anybody's sender has to come back.
    pub(super) fn check_disk(&self, arriving_bytes: u64) -> Result<(), Refusal> {
        let Some(disk) = &self.disk else { return Ok(()) };
        if disk.watch.has_lasting_trouble() {
            self.deliveries.iter().for_each(|delivery| delivery.give_way());
            let waits_in_vain = |delivery: &Arc<Delivery>| {
                self.backpressure.contains(&delivery.cursor)
                    && self.awaited.unless_durable.contains(&delivery.cursor)
                    && delivery.is_late()
            };
            if self.deliveries.iter().any(waits_in_vain) {
                return Err(overloaded(disk.watch.trouble().unwrap_or_default()));
            }
        }
        let limit_bytes = disk.unwritten_limit_bytes;
        if self.log.unwritten_bytes() + arriving_bytes <= limit_bytes / 2 {
            return Ok(());
        }
        self.deliveries.iter().for_each(|delivery| delivery.drop_unwritten(limit_bytes / 4));
        if self.log.unwritten_bytes() + arriving_bytes > limit_bytes {
            return Err(overloaded("the disk does not keep up, and memory for what it has not taken is spent"));
        }
        Ok(())
    }
}

/// What admission looks at where the log goes on on disk.
pub(crate) struct RouteDisk {
    /// Memory for frames that are not written yet.
    pub unwritten_limit_bytes: u64,
    pub watch: Arc<LogWatch>,
}
