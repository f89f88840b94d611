//! A load that runs.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::load::LoadError;
use super::report::{LoadReport, Progress};

/// When a load was asked to end early, if it was.
#[derive(Clone, Debug)]
pub(super) struct Stop(watch::Sender<Option<Instant>>);

impl Stop {
    pub(super) fn new() -> Stop {
        Stop(watch::Sender::new(None))
    }

    pub(super) fn at(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    pub(super) async fn wait(&self) {
        // The sender is here: no error.
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }

    fn stop(&self) {
        self.0.send_if_modified(|stopped| {
            let is_first = stopped.is_none();
            stopped.get_or_insert_with(Instant::now);
            is_first
        });
    }
}

/// A load on its way. What it offers, such as files that are not read yet, outlives the load and is
/// removed when this is dropped.
pub struct RunningLoad {
    progress: Arc<Progress>,
    stop: Stop,
    task: JoinHandle<Result<LoadReport, LoadError>>,
    _offered: Box<dyn Any + Send>,
}

impl RunningLoad {
    pub(super) fn spawn(
        progress: Arc<Progress>,
        stop: Stop,
        report: impl Future<Output = Result<LoadReport, LoadError>> + Send + 'static,
        offered: impl Any + Send,
    ) -> RunningLoad {
        RunningLoad { progress, stop, task: tokio::spawn(report), _offered: Box::new(offered) }
    }

    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Ends it early; what is in flight is still waited for, as long as `grace`.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// Waits for the end. Targets and files end when they are stopped.
    pub async fn finish(mut self) -> Result<LoadReport, LoadError> {
        self.join().await
    }

    /// The same; what the load offers stays. To be called once.
    pub async fn join(&mut self) -> Result<LoadReport, LoadError> {
        (&mut self.task).await.unwrap_or_else(|error| Err(LoadError::Broken(error.to_string())))
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        self.stop();
    }
}
