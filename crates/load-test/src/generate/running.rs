//! A load that runs.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::load::{Load, LoadError};
use super::report::{LoadReport, Progress};
use super::template::Template;
use super::worker::Shared;

impl Load {
    /// Sends it all and reports the outcome.
    pub async fn run(self) -> Result<LoadReport, LoadError> {
        self.start()?.finish().await
    }

    /// Begins to send in the background.
    pub fn start(self) -> Result<RunningLoad, LoadError> {
        self.check()?;
        let template = Template::new(&self.shape, self.encoding);
        let request = self.request();
        let shared = Shared::new(self, template, request);
        let (progress, stop) = (Arc::clone(&shared.progress), shared.stopper());
        Ok(RunningLoad { progress, stop, task: tokio::spawn(shared.run()) })
    }
}

/// A load on its way.
pub struct RunningLoad {
    progress: Arc<Progress>,
    stop: watch::Sender<Option<Instant>>,
    task: JoinHandle<LoadReport>,
}

impl RunningLoad {
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Ends it early; what is in flight is still waited for, as long as `grace`.
    pub fn stop(&self) {
        self.stop.send_if_modified(|stopped| {
            let is_first = stopped.is_none();
            stopped.get_or_insert_with(Instant::now);
            is_first
        });
    }

    /// Waits for the end.
    pub async fn finish(mut self) -> Result<LoadReport, LoadError> {
        self.join().await
    }

    /// Waits for the end. To be called once.
    pub(crate) async fn join(&mut self) -> Result<LoadReport, LoadError> {
        (&mut self.task).await.map_err(|error| LoadError::Broken(error.to_string()))
    }
}
