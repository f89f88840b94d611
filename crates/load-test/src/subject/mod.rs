//! Subjects: the processes under test, configured, pinned, watched and reliably ended.

mod config;
mod limits;
mod ports;
mod process;
mod ready;
mod usage;

use std::fs;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;
use thiserror::Error;

pub use config::{GatewayConfig, nginx_relay};
pub use limits::{Limits, pin_this_thread};
pub use ports::free_addr;
use process::Supervised;
pub use process::{Lives, SubjectSpec, in_path};
pub use ready::Ready;
pub use usage::{Usage, usage_of_group, usage_of_process};
pub(crate) use usage::{cpu_of_threads, field_bytes};

#[derive(Debug, Error)]
pub enum SubjectError {
    #[error(
        "{name} ended ({status}) instead of {ready}: check its command and configuration; the end \
         of its output:\n{output}"
    )]
    Ended { name: String, status: ExitStatus, ready: Ready, output: String },
    /// It could not be started, or did not get ready.
    #[error("{0}")]
    Other(String),
}

/// Time for a subject to be ready, by default.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// A subject that is still ready after this counts as up.
const SETTLED_AFTER: Duration = Duration::from_millis(50);
/// Bytes of the end of the output that messages show.
const TAIL_BYTES: usize = 2000;

/// A running subject. Dropping it kills its process group and removes its folder and control
/// groups. If this process is killed, a reaper process does that.
#[derive(Debug)]
pub struct Subject {
    pub name: String,
    supervised: Arc<Mutex<Supervised>>,
    /// Limits that could not be set.
    pub warnings: Vec<String>,
    folder: TempDir,
}

impl Subject {
    pub async fn start(spec: SubjectSpec) -> Result<Subject, SubjectError> {
        let name = spec.name.clone();
        let other = |problem: String| SubjectError::Other(format!("{name}: {problem}"));
        if let Some(ready) = &spec.ready
            && let Some(addr) = ready.taken_addr().await
        {
            let help = "end it or choose another port";
            return Err(other(format!("something else listens on {addr} already: {help}")));
        }
        let folder = TempDir::with_prefix("sluice-load-test-").map_err(|error| {
            let help = "TMPDIR must name a folder that can be written to";
            other(format!("no folder for its configuration: {error}: {help}"))
        })?;
        let (ready, is_restarted) = (spec.ready.clone(), spec.restart_delay.is_some());
        let within = spec.ready_within.unwrap_or(READY_WITHIN);
        let binary = spec.binary.clone();
        let (supervised, warnings) = Supervised::start(spec, folder.path()).map_err(|error| {
            let (binary, help) = (binary.display(), "a file that this machine can execute");
            other(format!("cannot start {binary}: {error}: it must be {help}"))
        })?;
        let supervised = Arc::new(Mutex::new(supervised));
        let subject = Subject { name, supervised, warnings, folder };
        if let Some(ready) = ready {
            subject.wait_until(ready, within).await?;
        }
        // One that ends before it is ready is not started again: that would not help.
        if is_restarted {
            tokio::spawn(process::supervise(Arc::downgrade(&subject.supervised)));
        }
        Ok(subject)
    }

    async fn wait_until(&self, ready: Ready, within: Duration) -> Result<(), SubjectError> {
        let (began, output) = (Instant::now(), self.folder().join(process::OUTPUT_FILE));
        let mut was_up = false;
        while began.elapsed() < within {
            if let Some(status) = self.lives().last_end {
                let (name, output) = (self.name.clone(), self.output_tail());
                return Err(SubjectError::Ended { name, status, ready, output });
            }
            // Checked twice: some engines listen, read on in their configuration, and end.
            let is_up = ready.holds(&output).await;
            if is_up && was_up {
                return Ok(());
            }
            was_up = is_up;
            tokio::time::sleep(if is_up { SETTLED_AFTER } else { Duration::from_millis(10) }).await;
        }
        Err(SubjectError::Other(format!(
            "{} is not {ready} after {within:?}: check its configuration, or give it more time; \
             the end of its output:\n{}",
            self.name,
            self.output_tail()
        )))
    }

    /// Id of the process and of its group. It changes with a restart.
    pub fn pid(&self) -> u32 {
        self.supervised.lock().pid
    }

    /// The temporary folder, with the configuration and `output.log`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Limits that could be set.
    pub fn limits(&self) -> Limits {
        self.supervised.lock().group.limits
    }

    /// Number of its processes that the kernel has killed for the memory limit, if known.
    pub fn oom_kills(&self) -> Option<u64> {
        self.supervised.lock().group.oom_kills()
    }

    pub fn lives(&self) -> Lives {
        self.supervised.lock().lives()
    }

    /// Usage of it and its children, with CPU of earlier lives; `None`: it has ended for good.
    pub fn usage(&self) -> Option<Usage> {
        self.supervised.lock().usage()
    }

    pub fn output(&self) -> String {
        let output = fs::read(self.folder().join(process::OUTPUT_FILE)).unwrap_or_default();
        String::from_utf8_lossy(&output).into_owned()
    }

    /// The end of its output, without colours.
    pub fn output_tail(&self) -> String {
        let output = self.output().into_bytes();
        let tail = String::from_utf8_lossy(&output[output.len().saturating_sub(TAIL_BYTES)..]);
        console::strip_ansi_codes(&tail).into_owned()
    }

    /// The last line of its output, without colours.
    pub fn last_words(&self) -> Option<String> {
        let tail = self.output_tail();
        tail.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.supervised.lock().end();
    }
}

#[cfg(test)]
mod tests;
