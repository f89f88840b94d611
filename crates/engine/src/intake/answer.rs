//! What the sender of a request has to wait for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_flow::Refusal;

use super::Route;
use crate::ack::Ack;
use crate::backlog::Backlog;
use crate::delivery::Delivery;
use crate::refusals::overloaded;
use crate::storage::LogWatch;

/// How long a sender waits for a disk before it is asked whether the disk works at all.
const DISK_PATIENCE: Duration = Duration::from_secs(1);

/// The answer to a sender, once it is known.
pub(super) struct Answer {
    answer: tokio::sync::oneshot::Receiver<Result<(), Refusal>>,
    disk: Option<WaitsForDisk>,
}

/// The disk that may have to answer, and the deliveries that may make that unnecessary.
struct WaitsForDisk {
    watch: Arc<LogWatch>,
    backlog: Arc<Backlog>,
    deliveries: Arc<[Arc<Delivery>]>,
}

impl Answer {
    /// What the route's entries tell their senders. `None`: they are answered from memory.
    pub(super) fn awaited(route: &Route) -> (Option<Ack>, Option<Answer>) {
        if route.awaited.is_nothing() {
            return (None, None);
        }
        let (ack, answer) = Ack::new(route.awaited.clone());
        let disk = route.disk.as_ref().filter(|_| !route.awaited.unless_durable.is_empty());
        let disk = disk.map(|disk| WaitsForDisk {
            watch: disk.watch.clone(),
            backlog: route.backlog.clone(),
            deliveries: route.deliveries.clone(),
        });
        (Some(ack), Some(Answer { answer, disk }))
    }

    pub(super) async fn given(self) -> Result<(), Refusal> {
        let Answer { mut answer, disk } = self;
        let result = match disk {
            None => answer.await,
            Some(WaitsForDisk { watch, backlog, deliveries }) => loop {
                match tokio::time::timeout(DISK_PATIENCE, &mut answer).await {
                    Ok(result) => break result,
                    Err(_) if watch.has_lasting_trouble() => {
                        backlog.give_up_unwritten(&deliveries, Instant::now());
                        // The frame stays, and may be delivered. But nothing tells when it is safe.
                        break answer.try_recv().or_else(|_| Ok(Err(overloaded(watch.trouble().unwrap_or_default()))));
                    }
                    Err(_) => {}
                }
            },
        };
        // The log let go of the entry: the process is shutting down before the backend took the
        // frame, or the frame is on disk while the sender waits for the delivery.
        result.unwrap_or_else(|_| Err(overloaded("given up before it was delivered")))
    }
}
