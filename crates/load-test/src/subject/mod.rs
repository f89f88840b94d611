//! Subjects: the processes under test, started with their own configuration, pinned, watched and reliably ended.

mod config;
mod limits;
mod usage;

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use thiserror::Error;

pub use config::{Dialect, GatewayConfig, nginx_relay};
pub use limits::{ControlGroup, LimitError, Limits, pin_this_thread};
pub(crate) use usage::cpu_of_threads;
pub use usage::{Usage, usage_of_group, usage_of_process};

/// A process to start.
#[derive(Clone, Debug, Default)]
pub struct SubjectSpec {
    /// For messages.
    pub name: String,
    pub binary: PathBuf,
    /// `{config}` stands for the configuration file's path, `{dir}` for the temporary folder.
    pub args: Vec<String>,
    /// Contents of the configuration file. `{dir}` stands for the temporary folder.
    pub config: String,
    /// For instance `config.yaml`.
    pub config_file: String,
    pub env: Vec<(String, String)>,
    /// CPUs to run on; empty: all.
    pub cpus: Vec<usize>,
    /// CPU quota and memory limit; not set where the machine does not allow it, see [`Subject::warnings`].
    pub limits: Limits,
    /// The subject is up when this accepts a connection.
    pub ready: Option<SocketAddr>,
}

#[derive(Debug, Error)]
pub enum SubjectError {
    #[error("{name}: cannot start {binary}: {source}")]
    Start { name: String, binary: PathBuf, source: io::Error },
    #[error("{name}: something else listens on {addr} already: end it or choose another port")]
    PortInUse { name: String, addr: SocketAddr },
    #[error("{name} ended at once ({status}); the end of its output:\n{output}")]
    Ended { name: String, status: ExitStatus, output: String },
    #[error("{name} does not accept connections on {addr} after {waited:?}; the end of its output:\n{output}")]
    NotReady { name: String, addr: SocketAddr, waited: Duration, output: String },
}

/// How long a subject may take to accept connections.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A running subject. Its whole process group is killed when this is dropped, and its folder removed.
#[derive(Debug)]
pub struct Subject {
    name: String,
    child: Child,
    folder: TempDir,
    warnings: Vec<String>,
    /// After `child`: a group can be removed only when its processes are gone.
    _group: ControlGroup,
}

impl Subject {
    /// Starts the process and waits until it is ready.
    pub async fn start(spec: SubjectSpec) -> Result<Subject, SubjectError> {
        let failed = |source| SubjectError::Start { name: spec.name.clone(), binary: spec.binary.clone(), source };
        if let Some(addr) = spec.ready
            && tokio::net::TcpStream::connect(addr).await.is_ok()
        {
            return Err(SubjectError::PortInUse { name: spec.name, addr });
        }
        let folder = TempDir::with_prefix("sluice-load-test-").map_err(failed)?;
        let child = spawn(&spec, folder.path()).map_err(failed)?;
        let mut subject =
            Subject { name: spec.name.clone(), child, folder, warnings: Vec::new(), _group: ControlGroup::default() };
        subject.confine(spec.limits);
        if let Some(addr) = spec.ready {
            subject.wait_until_ready(addr).await?;
        }
        Ok(subject)
    }

    fn confine(&mut self, limits: Limits) {
        let name = format!("sluice-load-test-{}", self.child.id());
        match ControlGroup::create(&name, limits) {
            Ok(group) => {
                self.warnings.extend(group.add(self.child.id()).err().map(|error| error.to_string()));
                self._group = group;
            }
            Err(error) => self.warnings.push(format!("{} runs without its limits: {error}", self.name)),
        }
    }

    async fn wait_until_ready(&mut self, addr: SocketAddr) -> Result<(), SubjectError> {
        let began = Instant::now();
        while began.elapsed() < READY_WITHIN {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(SubjectError::Ended { name: self.name.clone(), status, output: self.output_tail() });
            }
            if tokio::net::TcpStream::connect(addr).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let output = self.output_tail();
        Err(SubjectError::NotReady { name: self.name.clone(), addr, waited: READY_WITHIN, output })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The temporary folder, with the configuration and `output.log`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Limits that could not be set.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// CPU and memory of the process and those that it has started; `None` when it is gone.
    pub fn usage(&self) -> Option<Usage> {
        usage_of_group(self.child.id())
    }

    /// The last lines that it wrote.
    pub fn output_tail(&self) -> String {
        let output = fs::read(self.folder.path().join("output.log")).unwrap_or_default();
        String::from_utf8_lossy(&output[output.len().saturating_sub(2000)..]).into_owned()
    }

    /// All that it wrote.
    pub fn output(&self) -> String {
        let output = fs::read(self.folder.path().join("output.log")).unwrap_or_default();
        String::from_utf8_lossy(&output).into_owned()
    }

    /// Asks it to end (SIGTERM), waits that long, then kills it. The status says which it was.
    pub async fn stop(mut self, patience: Duration) -> io::Result<ExitStatus> {
        self.terminate();
        if let Some(status) = self.wait(patience).await? {
            return Ok(status);
        }
        self.signal(Signal::KILL);
        self.child.wait()
    }

    /// Waits for its end, at most that long; `None` where it still runs. What it wrote can be read afterwards.
    pub async fn wait(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let began = Instant::now();
        loop {
            let status = self.child.try_wait()?;
            if status.is_some() || began.elapsed() >= patience {
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// SIGTERM: asks it to end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGHUP: asks it to read its configuration again.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// Sends a signal to the whole group.
    pub fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            // An error means that the group is gone.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        // An error means that it has been waited for.
        let _ = self.child.wait();
    }
}

fn spawn(spec: &SubjectSpec, folder: &Path) -> io::Result<Child> {
    let dir = folder.display().to_string();
    let config_path = folder.join(if spec.config_file.is_empty() { "config" } else { &spec.config_file });
    fs::write(&config_path, spec.config.replace("{dir}", &dir))?;
    let output = File::create(folder.join("output.log"))?;
    // Fails here, with the binary's own name, rather than in a wrapper.
    fs::metadata(&spec.binary)?;
    let mut words = wrappers(&spec.cpus);
    words.push(spec.binary.display().to_string());
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .args(
            spec.args
                .iter()
                .map(|arg| arg.replace("{config}", &config_path.display().to_string()).replace("{dir}", &dir)),
        )
        .envs(spec.env.iter().cloned())
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0);
    command.spawn()
}

/// Commands of util-linux that change what they start and then become it: the subject dies with this process, and runs
/// on its CPUs from its first thread on.
fn wrappers(cpus: &[usize]) -> Vec<String> {
    let mut words = Vec::new();
    if is_installed("setpriv") {
        words.extend(["setpriv", "--pdeathsig", "KILL"].map(str::to_owned));
    }
    if !cpus.is_empty() {
        let list = cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        words.extend(["taskset".to_owned(), "--cpu-list".to_owned(), list]);
    }
    words
}

fn is_installed(command: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(command).exists()))
}

/// A port of the loopback interface that was free a moment ago.
pub fn free_addr() -> io::Result<SocketAddr> {
    std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()
}

#[cfg(test)]
mod tests;
