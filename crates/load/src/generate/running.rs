//! A load that runs: its figures so far, its early end, and the task that becomes its report.

use std::any::Any;
use std::sync::Arc;

use anyhow::anyhow;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::LoadError;
use super::report::LoadReport;
use crate::identity::next_generator;

/// How far a load is, and when it was asked to end early.
#[derive(Debug)]
pub struct Progress {
    report: Mutex<LoadReport>,
    stopped_at: watch::Sender<Option<Instant>>,
}

impl Progress {
    pub(super) fn new() -> Arc<Progress> {
        let report = LoadReport { generator: next_generator(), ..LoadReport::default() };
        Arc::new(Progress { report: Mutex::new(report), stopped_at: watch::Sender::new(None) })
    }

    /// The figures so far, for changing them.
    pub(super) fn report(&self) -> MutexGuard<'_, LoadReport> {
        self.report.lock()
    }

    /// Items acknowledged so far.
    pub fn accepted(&self) -> u64 {
        self.report().accepted
    }

    /// Items offered so far: sent at least once.
    pub fn offered(&self) -> u64 {
        self.report().offered
    }

    /// Items that were refused or failed so far.
    pub fn turned_away(&self) -> u64 {
        let report = self.report();
        report.refused + report.failed
    }

    pub(super) fn stopped_at(&self) -> Option<Instant> {
        *self.stopped_at.borrow()
    }

    pub(super) async fn wait_for_stop(&self) {
        // The sender is here: no error.
        let _ = self.stopped_at.subscribe().wait_for(Option::is_some).await;
    }
}

/// A load on its way. What it offers, such as files that are not read yet, outlives the load and is
/// removed when this is dropped.
pub struct RunningLoad {
    progress: Arc<Progress>,
    task: JoinHandle<Result<LoadReport, LoadError>>,
    _offered: Box<dyn Any + Send>,
}

impl RunningLoad {
    pub(super) fn new(
        progress: Arc<Progress>,
        task: JoinHandle<Result<LoadReport, LoadError>>,
        offered: impl Any + Send,
    ) -> RunningLoad {
        RunningLoad { progress, task, _offered: Box::new(offered) }
    }

    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Ends it early; what is in flight is still waited for, as long as `grace`.
    pub fn stop(&self) {
        self.progress.stopped_at.send_modify(|at| {
            at.get_or_insert_with(Instant::now);
        });
    }

    /// Waits for the end. Targets and files end when they are stopped.
    pub async fn finish(mut self) -> Result<LoadReport, LoadError> {
        self.join().await
    }

    /// The same; what the load offers stays. To be called once.
    pub async fn join(&mut self) -> Result<LoadReport, LoadError> {
        let ended = (&mut self.task).await.map_err(LoadError::from).and_then(|report| report);
        ended.map_err(|error| anyhow!("the load stopped before its end: {error:#}"))
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        self.stop();
    }
}
