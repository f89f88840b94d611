//! A processor of own log lines: batches of what waits in its queue.

use std::sync::Arc;
use std::time::Duration;

use sluice_telemetry::logging::LogQueue;
use sluice_telemetry::otlp::{Resource, logs};
use tokio::time::sleep;

use super::sender::{Request, Source};

pub(super) struct Lines {
    pub queue: Arc<LogQueue>,
    pub resource: Resource,
    pub delay: Duration,
    pub batch_max: usize,
}

impl Source for Lines {
    type Kept = Vec<Arc<[u8]>>;

    async fn ready(&self) {
        while self.queue.is_empty() {
            self.queue.first.notified().await;
        }
        while self.queue.len() < self.batch_max {
            tokio::select! {
                () = sleep(self.delay) => return,
                () = self.queue.full.notified() => {}
            }
        }
    }

    fn take(&self) -> Option<Request<Self::Kept>> {
        let kept = self.queue.take(self.batch_max);
        if kept.is_empty() {
            return None;
        }
        let body = logs::request(&self.resource, &kept);
        Some(Request { body, items: kept.len() as u32, kept })
    }

    fn put_back(&self, kept: Self::Kept) {
        self.queue.put_back(kept);
    }
}
