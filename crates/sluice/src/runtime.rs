//! The runtimes of this process: one for pipelines, and a plain one for load tests.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use sluice_net::server::ReadScheduler;
use tokio::runtime::{Builder, Runtime};

/// A blocking thread keeps memory that other threads free for it until it works again or ends.
const BLOCKING_THREAD_IDLE: Duration = Duration::from_millis(100);

/// Tasks that a busy thread runs before it looks for I/O; an idle one looks at once. With tokio's
/// 61, large requests are read ahead of work that has begun: beside a flood of them on disk, the
/// 99th percentile of small ones was 23 ms instead of 17.
const TASKS_BEFORE_IO: u32 = 500;

/// A runtime whose threads read from connections when they have nothing else to do.
pub(crate) fn runtime(threads: Option<u16>, scheduler: &Arc<ReadScheduler>) -> Result<Runtime> {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let mut builder = runtime_builder(threads.map_or(available, usize::from));
    builder.thread_keep_alive(BLOCKING_THREAD_IDLE).event_interval(TASKS_BEFORE_IO);
    scheduler.install(&mut builder).context("cannot start the runtime")
}

/// One thread needs no scheduler that coordinates several.
pub(crate) fn runtime_builder(threads: usize) -> Builder {
    let mut builder =
        if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(threads).enable_all();
    builder
}
