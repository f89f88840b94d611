//! A receiver that fetches, while it runs: one task, ended by a token.

use std::sync::Arc;

use sluice_flow::BoxFuture;
use sluice_receivers::{ReceiverCounters, StartedReceiver, Streams};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) struct Started {
    counters: Arc<dyn ReceiverCounters>,
    stop: CancellationToken,
    task: JoinHandle<Streams>,
}

impl Started {
    /// Runs `fetch` until its token is cancelled. It returns its streams.
    pub(crate) fn new<F: Future<Output = Streams> + Send + 'static>(
        counters: Arc<dyn ReceiverCounters>,
        fetch: impl FnOnce(CancellationToken) -> F,
    ) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(fetch(stop.clone()));
        Started { counters, stop, task }
    }
}

impl StartedReceiver for Started {
    fn counters(&self) -> Arc<dyn ReceiverCounters> {
        self.counters.clone()
    }

    fn shutdown(self: Box<Self>) -> BoxFuture<'static, Streams> {
        Box::pin(async move {
            self.stop.cancel();
            self.task.await.unwrap_or_default()
        })
    }
}
