//! A sender that waits until its data is safe.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use sluice_flow::Refusal;
use sluice_log::CursorId;
use tokio::sync::oneshot;

use crate::hop::Mark;

/// Deliveries that a sender waits for, the same for all frames of a route.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Awaited {
    /// Deliveries that must have delivered, whatever else happens.
    pub delivered: Vec<CursorId>,
    /// Deliveries that must have resolved the frame, unless it is on disk by then.
    pub unless_durable: Vec<CursorId>,
}

type Answer = Result<(), Refusal>;

pub(crate) struct Ack {
    awaited: Arc<Awaited>,
    undelivered: AtomicUsize,
    /// Zero too as soon as the frame is durable.
    unresolved: AtomicUsize,
    sender: Mutex<Option<oneshot::Sender<Answer>>>,
    /// The sender was told that a delivery refuses the frame.
    is_refused: AtomicBool,
    /// The ranges of the request, which are known if it is answered OK.
    mark: Option<Arc<Mark>>,
}

impl Ack {
    pub(crate) fn new(awaited: Arc<Awaited>) -> (Self, oneshot::Receiver<Answer>) {
        let (sender, receiver) = oneshot::channel();
        let ack = Ack {
            undelivered: AtomicUsize::new(awaited.delivered.len()),
            unresolved: AtomicUsize::new(awaited.unless_durable.len()),
            awaited,
            sender: Mutex::new(Some(sender)),
            is_refused: AtomicBool::new(false),
            mark: None,
        };
        (ack, receiver)
    }

    pub(crate) fn settles(&mut self, mark: Option<Arc<Mark>>) {
        self.mark = mark;
    }

    /// A delivery has resolved the frame, or refuses it: then its sender gets the refusal at once.
    pub(crate) fn resolve(&self, reader: CursorId, result: Answer) {
        if result.is_err() {
            if self.is_unanswered() {
                self.is_refused.store(true, Ordering::SeqCst);
            }
            return self.answer(result);
        }
        if self.awaited.delivered.contains(&reader) {
            self.undelivered.fetch_sub(1, Ordering::SeqCst);
        } else if self.awaited.unless_durable.contains(&reader) {
            let one_less = |left: usize| left.checked_sub(1);
            let _ = self.unresolved.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
        }
        self.answer_if_safe();
    }

    /// The delivery has gone without resolving the frame: its sender would wait for ever.
    pub(crate) fn abandoned(&self, reader: CursorId) {
        if self.awaited.delivered.contains(&reader) {
            self.answer(Err(Refusal::unconfirmed(
                "a reload has removed a delivery that the sender waits for",
            )));
        }
    }

    /// The sender has no answer yet, and so no acknowledgement.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.sender.lock().is_some()
    }

    /// The sender has the frame, or has given it up: it has no answer, or a delivery's refusal.
    pub(crate) fn is_with_sender(&self) -> bool {
        self.is_refused.load(Ordering::SeqCst) || self.is_unanswered()
    }

    /// The sender has gone without an answer.
    pub(crate) fn is_deserted(&self) -> bool {
        self.sender.lock().as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    pub(crate) fn durable(&self) {
        self.unresolved.store(0, Ordering::SeqCst);
        self.answer_if_safe();
    }

    /// All threads see one order: the one that brings the second counter to zero sees both at zero.
    fn answer_if_safe(&self) {
        if self.undelivered.load(Ordering::SeqCst) == 0
            && self.unresolved.load(Ordering::SeqCst) == 0
        {
            self.answer(Ok(()));
        }
    }

    fn answer(&self, answer: Answer) {
        let sender = self.sender.lock().take();
        if let Some(sender) = sender {
            // Before the answer: it may be followed by a repeat at once.
            if let Some(mark) = &self.mark {
                if answer.is_ok() { mark.keep() } else { mark.forget() }
            }
            // The sender may have gone away.
            let _ = sender.send(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers() -> [CursorId; 3] {
        let log = sluice_log::Log::<()>::default();
        ["a", "b", "c"].map(|name| log.subscribe(sluice_log::Subscription::new(name)))
    }

    #[test]
    fn a_sender_is_answered_by_the_last_delivery_it_waits_for_or_by_the_first_refusal() {
        let [a, b, other] = readers();
        let awaited = Arc::new(Awaited { delivered: vec![a, b], unless_durable: Vec::new() });
        let (ack, mut answer) = Ack::new(awaited.clone());
        ack.resolve(other, Ok(()));
        ack.resolve(a, Ok(()));
        ack.durable();
        assert!(answer.try_recv().is_err(), "on disk is not delivered");
        ack.resolve(b, Ok(()));
        assert_eq!(answer.try_recv(), Ok(Ok(())));

        let (ack, mut answer) = Ack::new(awaited);
        let refusal = Refusal::Rejected { reason: "no".into() };
        ack.resolve(a, Err(refusal.clone()));
        assert_eq!(answer.try_recv(), Ok(Err(refusal)));
        ack.resolve(b, Ok(()));
    }

    #[test]
    fn a_sender_is_answered_when_its_data_is_on_disk_or_resolved_everywhere() {
        let [a, b, _] = readers();
        let awaited = Arc::new(Awaited { delivered: Vec::new(), unless_durable: vec![a, b] });
        let (ack, mut answer) = Ack::new(awaited.clone());
        ack.resolve(a, Ok(()));
        assert!(answer.try_recv().is_err());
        ack.durable();
        assert_eq!(answer.try_recv(), Ok(Ok(())));
        ack.resolve(b, Ok(()));

        let (ack, mut answer) = Ack::new(awaited);
        ack.resolve(a, Ok(()));
        ack.resolve(b, Ok(()));
        assert_eq!(answer.try_recv(), Ok(Ok(())));
        ack.durable();
    }

    #[test]
    fn a_sender_does_not_wait_for_a_delivery_that_is_gone() {
        let [a, b, other] = readers();
        let awaited = Arc::new(Awaited { delivered: vec![a], unless_durable: vec![b] });
        let (ack, mut answer) = Ack::new(awaited);
        ack.abandoned(other);
        ack.abandoned(b);
        assert!(
            answer.try_recv().is_err(),
            "the disk can still answer in the place of the second one"
        );
        ack.abandoned(a);
        assert!(matches!(answer.try_recv(), Ok(Err(Refusal::Unconfirmed { .. }))));
    }

    #[test]
    fn a_delivery_without_a_queue_is_waited_for_beside_the_disk() {
        let [a, b, _] = readers();
        let awaited = Arc::new(Awaited { delivered: vec![a], unless_durable: vec![b] });
        let (ack, mut answer) = Ack::new(awaited.clone());
        ack.durable();
        assert!(answer.try_recv().is_err());
        ack.resolve(a, Ok(()));
        assert_eq!(answer.try_recv(), Ok(Ok(())));

        let (ack, mut answer) = Ack::new(awaited);
        ack.resolve(a, Ok(()));
        assert!(answer.try_recv().is_err());
        ack.resolve(b, Ok(()));
        assert_eq!(answer.try_recv(), Ok(Ok(())));
    }
}
