//! A receiver that runs as one task.

use std::sync::Arc;

use sluice_flow::BoxFuture;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::receiver::{ReceiverCounters, StartedReceiver, Streams};

pub(crate) struct Running<C> {
    pub(crate) counters: Arc<C>,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<()>,
}

impl<C: ReceiverCounters + 'static> StartedReceiver for Running<C> {
    fn counters(&self) -> Arc<dyn ReceiverCounters> {
        Arc::clone(&self.counters) as _
    }

    fn shutdown(self: Box<Self>) -> BoxFuture<'static, Streams> {
        Box::pin(async move {
            self.stop.cancel();
            // Until its last requests are in the log.
            let _ = self.task.await;
            Streams::default()
        })
    }
}
