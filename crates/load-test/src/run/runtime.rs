//! Runtimes of their own for parts of the bench, whose threads' names tell their CPU time apart.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// Ends without waiting when it is dropped, as is needed within another runtime.
pub(super) struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    /// `name` has at most 15 bytes, as `cpu_of_threads` reads it.
    pub(super) fn start(threads: usize, name: &'static str) -> io::Result<OwnRuntime> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads).thread_name(name).enable_all().build()?;
        Ok(OwnRuntime(Some(runtime)))
    }

    pub(super) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.0.as_ref().expect("it is there until it is dropped").spawn(future)
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
