//! The runtime of the servers under test: their connections are read as those of `sluice run`.

use std::sync::Arc;

use sluice_net::server::ReadScheduler;
use tokio::runtime::{Builder, Runtime};

const THREADS: usize = 2;

/// Ended when it is dropped.
pub(crate) struct ServerRuntime {
    runtime: Option<Runtime>,
    scheduler: Arc<ReadScheduler>,
}

impl ServerRuntime {
    pub(crate) fn start() -> Self {
        let scheduler = ReadScheduler::new();
        let mut builder = Builder::new_multi_thread();
        let runtime =
            scheduler.install(builder.worker_threads(THREADS).enable_all()).expect("a runtime");
        ServerRuntime { runtime: Some(runtime), scheduler }
    }

    pub(crate) fn scheduler(&self) -> Arc<ReadScheduler> {
        Arc::clone(&self.scheduler)
    }

    /// Runs a task on it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let runtime = self.runtime.as_ref().expect("is there until it is dropped");
        runtime.spawn(task).await.expect("ends")
    }
}

impl Drop for ServerRuntime {
    fn drop(&mut self) {
        // To wait for its threads is not allowed within another runtime.
        self.runtime.take().expect("is dropped once").shutdown_background();
    }
}
