//! One life of a subject: a process with all that it starts.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::limits::{ControlGroup, Limits};
use super::ready::Ready;

pub(super) const SHELL: &str = "/bin/sh";
pub(super) const OUTPUT_FILE: &str = "output.log";

/// Puts itself into the control groups named before `--`, then becomes the rest. So whatever the
/// subject starts, however early, is within its limits. The bench adds it once more, and so learns
/// whether it may.
const JOIN: &str = r#"
while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done 2>/dev/null
shift
exec "$@""#;

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
    /// CPU quota and memory limit; not set where the machine does not allow it, see
    /// [`Subject::warnings`](super::Subject::warnings).
    pub limits: Limits,
    /// When the subject is up; `None`: at once.
    pub ready: Option<Ready>,
    /// How long that may take; `None`: 30 s.
    pub ready_within: Option<Duration>,
    /// It is started again after its end: at once the first time, then after this delay, which
    /// doubles each time. A kubelet has 10 s. `None`: it is not.
    pub restart_delay: Option<Duration>,
}

/// Its whole process group is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Process(pub(super) Child);

impl Process {
    /// Starts the process. What it writes is appended to the output of the lives before.
    pub(super) fn begin(
        spec: &SubjectSpec,
        folder: &Path,
        group: &ControlGroup,
    ) -> io::Result<Process> {
        let dir = folder.display().to_string();
        let config_path =
            folder.join(if spec.config_file.is_empty() { "config" } else { &spec.config_file });
        fs::write(&config_path, spec.config.replace("{dir}", &dir))?;
        let output = OpenOptions::new().create(true).append(true).open(folder.join(OUTPUT_FILE))?;
        // Fails here, with the binary's own name, rather than in a wrapper.
        fs::metadata(&spec.binary)?;
        let fill = |text: &str| {
            text.replace("{config}", &config_path.display().to_string()).replace("{dir}", &dir)
        };
        let mut words = wrappers(&spec.cpus, group);
        words.push(spec.binary.display().to_string());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .args(spec.args.iter().map(|arg| fill(arg)))
            .envs(spec.env.iter().map(|(name, value)| (name, fill(value))))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        command.spawn().map(Process)
    }

    /// Of the process, and of its group.
    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Sends a signal to the whole group.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.pid().cast_signed()) {
            // An error means that the group is gone.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        // An error means that it has been waited for.
        let _ = self.0.wait();
    }
}

/// Commands of util-linux that change what they start and then become it: the subject dies with
/// this process, and runs on its CPUs and in its control groups from its first thread on.
fn wrappers(cpus: &[usize], group: &ControlGroup) -> Vec<String> {
    let mut words = Vec::new();
    if !group.folders().is_empty() && Path::new(SHELL).exists() {
        words.extend([SHELL, "-c", JOIN, "sluice-load-test-join"].map(str::to_owned));
        words.extend(group.folders().iter().map(|folder| folder.display().to_string()));
        words.push("--".to_owned());
    }
    let path = std::env::var_os("PATH");
    let mut folders = path.iter().flat_map(std::env::split_paths);
    if folders.any(|folder| folder.join("setpriv").exists()) {
        words.extend(["setpriv", "--pdeathsig", "KILL"].map(str::to_owned));
    }
    if !cpus.is_empty() {
        let list = cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        words.extend(["taskset".to_owned(), "--cpu-list".to_owned(), list]);
    }
    words
}
