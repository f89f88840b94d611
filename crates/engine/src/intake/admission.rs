//! Who may enter, when, and what waits: admission before a body is read, and answers that are held back.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sluice_flow::Refusal;
use sluice_flow::source::{Connection, Permit};

use super::ReceiverRoute;
use crate::delivery::Delivery;
use crate::refusals::overloaded;

/// How long a request may wait for memory before it is refused. HTTP/2 flow control holds its sender meanwhile.
const ADMISSION_WAIT: Duration = Duration::from_millis(250);
/// How long a request is paced, or its answer held back, if the delivery does not catch up. Then it is admitted as far as budgets
/// allow, or answered.
const PACE_WAIT: Duration = Duration::from_millis(750);
/// So often it is asked whether the CPU still is the bottleneck, and a backend still works.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// What a request that waits has sent already, at most: the window that every connection has. Larger ones have a share of memory of
/// their own.
const HELD_MAX_BYTES: usize = 64 * 1024;

impl ReceiverRoute {
    /// Asks for memory for a body of `bytes`. Waits a bounded time for it, if its connection lets it.
    pub(super) async fn admit_soon(&self, bytes: usize, connection: &dyn Connection) -> Result<Permit, Refusal> {
        let (receiving, resources) = (&self.door.receiving, &self.door.resources);
        let paced_until = Instant::now() + PACE_WAIT;
        let deadline = paced_until + ADMISSION_WAIT;
        let (mut waiting, mut place) = (None, None);
        loop {
            let is_paced = Instant::now() < paced_until && self.is_behind();
            let admitted = if is_paced { Err(overloaded("deliveries are behind")) } else { self.try_admit(bytes) };
            let refusal = match admitted {
                Ok(permit) => {
                    if waiting.is_some() {
                        receiving.note_freed(self.signal);
                    }
                    return Ok(permit);
                }
                Err(refusal) => refusal,
            };
            if !matches!(refusal, Refusal::Retry { .. }) || Instant::now() >= deadline {
                return Err(refusal);
            }
            if !is_paced {
                receiving.note_wanted();
            }
            if waiting.is_none() {
                waiting = receiving.try_wait(bytes.min(HELD_MAX_BYTES));
                if waiting.is_none() {
                    return if is_paced { self.try_admit(bytes) } else { Err(refusal) };
                }
            }
            // Memory may be what others of the connection hold who do not get on. Not where the CPU is the bottleneck: then
            // somebody gets on, and to refuse what has come already would only bring it again.
            if place.is_none() && !resources.is_cpu_bound() {
                place = connection.try_wait(bytes);
                if place.is_none() {
                    return Err(refusal);
                }
            }
            let until = match (is_paced, &place) {
                (true, _) => paced_until,
                (false, None) => deadline.min(Instant::now() + LOOK_AGAIN),
                (false, Some(_)) => deadline,
            };
            let _ = tokio::time::timeout_at(until.into(), receiving.freed(self.signal).notified()).await;
        }
    }

    /// Whether what comes now had better wait with its sender: receiving takes the CPU that sending needs.
    fn is_behind(&self) -> bool {
        let is_behind = |delivery: &Delivery| delivery.is_behind() && !delivery.is_apart();
        self.door.resources.is_cpu_bound() && self.route.held_up_by(is_behind).is_some()
    }

    fn try_admit(&self, bytes: usize) -> Result<Permit, Refusal> {
        self.door.check_open()?;
        self.check_fits(bytes)?;
        // What others were admitted for and has not arrived yet counts too.
        // So does what connections have borrowed.
        let arriving = self.door.receiving.used_bytes() + bytes + self.door.resources.connections.borrowed_bytes();
        if let Some(full) = self.route.held_up_by(|delivery| delivery.is_full(arriving as u64)) {
            return Err(overloaded(format!("the budget of delivery {} is spent", full.id)));
        }
        self.route.check_disk((self.door.receiving.used_bytes() + bytes) as u64)?;
        self.door.receiving.try_admit(bytes).inspect_err(|_| self.door.resources.note_memory_short())
    }

    /// Refuses for good what no waiting would make room for.
    fn check_fits(&self, bytes: usize) -> Result<(), Refusal> {
        let (receiving, unwritten) = (self.door.receiving.limit_bytes(), self.route.unwritten_limit_bytes());
        let (limit, what) = if receiving <= unwritten {
            (receiving, "the memory for receiving")
        } else {
            (unwritten, "the memory for what is not on disk yet")
        };
        if bytes <= limit {
            return Ok(());
        }
        Err(Refusal::TooLarge { reason: format!("a request of {bytes} bytes exceeds {what} ({limit} bytes)") })
    }

    /// Holds an answer back while a delivery falls behind: senders that wait for their answers then send no faster than it takes.
    /// What they sent is in the log already, and no other delivery waits. Senders with a rate of their own are soon let go.
    pub(super) async fn hold_back(&self) {
        let began = Instant::now();
        let until = began + PACE_WAIT;
        let mut at_first = None;
        loop {
            let Some(delivery) = self.route.falls_behind() else { return };
            let (now, held_bytes) = (Instant::now(), delivery.log.held_bytes(delivery.cursor));
            let (cursor, bytes) = *at_first.get_or_insert_with(|| {
                delivery.stats.held_back_answers.fetch_add(1, Ordering::Relaxed);
                (delivery.cursor, held_bytes)
            });
            if self.door.is_closed() {
                return;
            }
            if now >= until {
                return delivery.pulse.note_waited(began, now, cursor == delivery.cursor && held_bytes > bytes);
            }
            delivery.wait_for_room(until.min(now + LOOK_AGAIN)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use sluice_flow::source::{Ingress as _, IngressRoute};
    use sluice_otlp::Signal;

    use super::super::tests::{empty_route, ingress};
    use super::*;

    /// A connection with others that are being read, or without.
    struct Peer {
        lets_wait: bool,
    }

    impl Connection for Peer {
        fn try_wait(&self, _: usize) -> Option<Box<dyn Send>> {
            self.lets_wait.then(|| Box::new(()) as Box<dyn Send>)
        }
    }

    fn route(receiving_bytes: usize) -> Arc<dyn IngressRoute> {
        let ingress = ingress(receiving_bytes);
        ingress.set_routes([(Signal::Traces, empty_route())]);
        ingress.route(Signal::Traces).expect("there is one")
    }

    #[tokio::test]
    async fn a_request_waits_for_memory_if_its_connection_lets_it() {
        let route = route(400_000);
        let (waits, busy) = (Peer { lets_wait: true }, Peer { lets_wait: false });
        let admit = |connection| route.admit(300_000, connection);
        let Some(Ok(first)) = admit(&busy).now_or_never() else { panic!("there is memory") };
        let mut second = pin!(admit(&waits));
        assert!(second.as_mut().now_or_never().is_none());
        let Some(Err(Refusal::Retry { .. })) = admit(&busy).now_or_never() else { panic!("it is refused at once") };
        drop(first);
        assert!(second.now_or_never().expect("it was told").is_ok());
    }

    #[tokio::test]
    async fn a_request_that_never_fits_does_not_wait() {
        let route = route(400_000);
        let refused = route.admit(400_001, &Peer { lets_wait: true }).now_or_never();
        assert!(matches!(refused, Some(Err(Refusal::TooLarge { .. }))));
    }
}
