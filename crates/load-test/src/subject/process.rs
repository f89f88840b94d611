//! The lives of a subject: each is a process with its children. A subject that ends is started
//! again as a pod is: at once the first time, after growing delays later.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use sluice_load::reaper::{Reaper, SHELL};

use super::limits::{ControlGroup, Limits};
use super::ready::Ready;
use super::usage::{Usage, has_ended, usage_of_group, usage_of_process};

pub(super) const OUTPUT_FILE: &str = "output.log";

/// Joins the control groups named before `--`, then executes the rest: all children of the subject
/// are within its limits. The bench adds it once more, to learn whether that is allowed.
const JOIN: &str = r#"
while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done 2>/dev/null
shift
exec "$@""#;

/// The longest delay of a kubelet.
const DELAY_MAX: Duration = Duration::from_secs(300);
/// After a life this long a kubelet begins its delays anew.
const LONG_LIFE: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, Default)]
pub struct SubjectSpec {
    /// Name in messages.
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
    /// Limits, as far as the machine allows: see [`Subject::warnings`](super::Subject).
    pub limits: Limits,
    /// Condition under which the subject is up; `None`: at once.
    pub ready: Option<Ready>,
    /// Time for that; `None`: 30 s.
    pub ready_within: Option<Duration>,
    /// It is started again after its end: at once the first time, then after this delay, which
    /// doubles each time. A kubelet has 10 s. `None`: it is not.
    pub restart_delay: Option<Duration>,
}

/// Its whole process group is killed when this is dropped.
#[derive(Debug)]
struct Process(Child);

impl Process {
    /// Starts the process. Its output is appended to that of earlier lives.
    fn begin(spec: &SubjectSpec, folder: &Path, group: &ControlGroup) -> io::Result<Process> {
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

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn kill(&self) {
        if let Some(group) = Pid::from_raw(self.pid().cast_signed()) {
            // An error means that the group is gone.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        // An error means that it has been waited for.
        let _ = self.0.wait();
    }
}

/// Commands that change their own process and then execute the subject in it: it dies with this
/// process, and runs on its CPUs and in its control groups from its first thread on.
fn wrappers(cpus: &[usize], group: &ControlGroup) -> Vec<String> {
    let mut words = Vec::new();
    if !group.folders.is_empty() && Path::new(SHELL).exists() {
        words.extend([SHELL, "-c", JOIN, "sluice-load-test-join"].map(str::to_owned));
        words.extend(group.folders.iter().map(|folder| folder.display().to_string()));
        words.push("--".to_owned());
    }
    if in_path("setpriv").is_some() {
        words.extend(["setpriv", "--pdeathsig", "KILL"].map(str::to_owned));
    }
    if !cpus.is_empty() {
        let list = cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        words.extend(["taskset".to_owned(), "--cpu-list".to_owned(), list]);
    }
    words
}

pub fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Delay between a subject's end and its next start, after this many restarts in a row.
fn delay_after(restarts: u32, first_delay: Duration) -> Duration {
    let Some(doublings) = restarts.checked_sub(1) else { return Duration::ZERO };
    first_delay.saturating_mul(2_u32.saturating_pow(doublings)).min(DELAY_MAX.max(first_delay))
}

/// Restarts and ends of a subject so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    pub restarts: u64,
    /// Exit status of its last finished life.
    pub last_end: Option<ExitStatus>,
    pub is_down: bool,
}

/// All lives of a subject.
#[derive(Debug)]
pub(super) struct Supervised {
    spec: SubjectSpec,
    folder: PathBuf,
    process: Option<Process>,
    /// Id of the present process, else of the last.
    pub(super) pid: u32,
    began: Instant,
    /// Start of the next life.
    next: Option<Instant>,
    in_a_row: u32,
    lives: Lives,
    /// CPU of the lives before; the highest memory of all.
    past: Usage,
    pub(super) group: ControlGroup,
    reaper: Option<Reaper>,
}

impl Supervised {
    /// Begins the first life. Limits that could not be set are named.
    pub(super) fn start(spec: SubjectSpec, folder: &Path) -> io::Result<(Self, Vec<String>)> {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let (bench, number) = (std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let name = format!("sluice-load-test-{bench}-{number}");
        let (group, mut warnings) = ControlGroup::create(&name, spec.limits);
        let mut supervised = Supervised {
            spec,
            folder: folder.to_owned(),
            pid: 0,
            process: None,
            began: Instant::now(),
            next: None,
            in_a_row: 0,
            lives: Lives::default(),
            past: Usage::default(),
            reaper: Reaper::start(folder, &group.folders),
            group,
        };
        supervised.begin()?;
        warnings.extend(supervised.group.add(supervised.pid).err());
        Ok((supervised, warnings))
    }

    /// Kills it for good, and ends its reaper.
    pub(super) fn end(&mut self) {
        self.spec.restart_delay = None;
        self.process = None;
        self.reaper = None;
    }

    pub(super) fn lives(&mut self) -> Lives {
        // Without a supervisor its end is noticed here first.
        let ended = self.process.as_mut().and_then(|process| process.0.try_wait().ok().flatten());
        let last_end = ended.or(self.lives.last_end);
        Lives { is_down: self.process.is_none() || ended.is_some(), last_end, ..self.lives }
    }

    /// Usage of all lives; `None` when it has ended for good.
    pub(super) fn usage(&mut self) -> Option<Usage> {
        let now = self.process.as_ref().and_then(|process| usage_of_group(process.pid(), false));
        // Between two lives it uses nothing.
        let now = now.or(self.spec.restart_delay.map(|_| Usage::default()))?;
        self.remember_peak(now.peak_rss_bytes);
        let Usage { cpu, peak_rss_bytes, .. } = self.past;
        Some(Usage { cpu: cpu + now.cpu, peak_rss_bytes, ..now })
    }

    fn remember_peak(&mut self, peak_rss_bytes: u64) {
        self.past.peak_rss_bytes = self.past.peak_rss_bytes.max(peak_rss_bytes);
    }

    /// Notices an end, and begins the next life when it is time.
    fn restart_if_ended(&mut self) {
        let Some(first_delay) = self.spec.restart_delay else { return };
        if let Some(process) = self.process.take_if(|process| has_ended(process.pid())) {
            self.reap(process);
            self.next = Some(Instant::now() + delay_after(self.in_a_row, first_delay));
        }
        if self.process.is_none() && self.next.is_some_and(|next| Instant::now() >= next) {
            self.in_a_row = self.in_a_row.saturating_add(1);
            // A failed start is tried again: the binary may be about to be replaced.
            self.next = match self.begin() {
                Ok(()) => {
                    // An error was a warning at the first start already.
                    let _ = self.group.add_again(self.pid);
                    self.lives.restarts += 1;
                    None
                }
                Err(_) => Some(Instant::now() + delay_after(self.in_a_row, first_delay)),
            };
        }
    }

    fn reap(&mut self, mut process: Process) {
        if let Some(last) = usage_of_group(process.pid(), true) {
            self.past.cpu += last.cpu;
            self.remember_peak(last.peak_rss_bytes);
        }
        // Its children end with it, as in a container.
        process.kill();
        self.lives.last_end = process.0.wait().ok();
        if self.began.elapsed() >= LONG_LIFE {
            self.in_a_row = 0;
        }
    }

    fn begin(&mut self) -> io::Result<()> {
        let process = Process::begin(&self.spec, &self.folder, &self.group)?;
        (self.pid, self.began) = (process.pid(), Instant::now());
        if let Some(reaper) = &mut self.reaper {
            reaper.watch(self.pid);
        }
        self.process = Some(process);
        Ok(())
    }
}

/// Starts it again whenever it ends.
pub(super) async fn supervise(supervised: Weak<Mutex<Supervised>>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(supervised) = supervised.upgrade() else { return };
        let mut supervised = supervised.lock();
        supervised.restart_if_ended();
        // Memory can be read while it lives only.
        let usage = usage_of_process(supervised.pid);
        supervised.remember_peak(usage.map_or(0, |usage| usage.peak_rss_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_kubelets_longest() {
        let first = Duration::from_secs(10);
        let seconds = [0, 1, 2, 3, 6, 40].map(|restarts| delay_after(restarts, first).as_secs());
        assert_eq!(seconds, [0, 10, 20, 40, 300, 300]);
    }
}
