//! What a subject may take: the CPUs it is pinned to, and a quota and memory limit as a pod would have.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a limit could not be set. The run can go on without, with a warning.
#[derive(Debug, Error)]
pub enum LimitError {
    #[error("no cgroup controller `{0}` is mounted below /sys/fs/cgroup")]
    NoController(&'static str),
    #[error("{path}: {source} (limits need root, or a delegated cgroup)")]
    Denied { path: PathBuf, source: io::Error },
}

/// Limits of a control group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Cores, for instance 0.5.
    pub cpu_cores: Option<f64>,
    pub memory_bytes: Option<u64>,
}

/// Control groups made for one subject, cgroup v1 or v2. Removed when dropped, for which the processes must be gone.
#[derive(Debug, Default)]
pub struct ControlGroup {
    folders: Vec<PathBuf>,
}

/// The period over which a CPU quota is counted, the kernel's default.
const PERIOD_US: u64 = 100_000;

impl ControlGroup {
    /// Makes groups with these limits; a process joins by [`ControlGroup::add`].
    pub fn create(name: &str, limits: Limits) -> Result<Self, LimitError> {
        let root = Path::new("/sys/fs/cgroup");
        let mut group = ControlGroup::default();
        let is_v2 = root.join("cgroup.controllers").exists();
        if let Some(cores) = limits.cpu_cores {
            let quota_us = (cores * PERIOD_US as f64).max(1000.0) as u64;
            if is_v2 {
                group.limit(root, name, "cpu.max", &format!("{quota_us} {PERIOD_US}"))?;
            } else {
                let controller = v1_controller(root, "cpu")?;
                group.limit(&controller, name, "cpu.cfs_period_us", &PERIOD_US.to_string())?;
                group.limit(&controller, name, "cpu.cfs_quota_us", &quota_us.to_string())?;
            }
        }
        if let Some(bytes) = limits.memory_bytes {
            if is_v2 {
                group.limit(root, name, "memory.max", &bytes.to_string())?;
            } else {
                let controller = v1_controller(root, "memory")?;
                group.limit(&controller, name, "memory.limit_in_bytes", &bytes.to_string())?;
            }
        }
        Ok(group)
    }

    fn limit(&mut self, controller: &Path, name: &str, file: &str, value: &str) -> Result<(), LimitError> {
        let folder = controller.join(name);
        if !self.folders.contains(&folder) {
            fs::create_dir(&folder).map_err(|source| LimitError::Denied { path: folder.clone(), source })?;
            self.folders.push(folder.clone());
        }
        let path = folder.join(file);
        fs::write(&path, value).map_err(|source| LimitError::Denied { path, source })
    }

    /// Moves a process, with all its threads, into the group. What it starts afterwards is in it as well.
    pub fn add(&self, pid: u32) -> Result<(), LimitError> {
        self.folders.iter().try_for_each(|folder| {
            let path = folder.join("cgroup.procs");
            fs::write(&path, pid.to_string()).map_err(|source| LimitError::Denied { path, source })
        })
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            // Busy for a moment after the last process has gone.
            for _ in 0..50 {
                if fs::remove_dir(folder).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
}

fn v1_controller(root: &Path, name: &'static str) -> Result<PathBuf, LimitError> {
    let folders = [root.join(name), root.join(format!("{name},cpuacct"))];
    folders.into_iter().find(|folder| folder.join("cgroup.procs").exists()).ok_or(LimitError::NoController(name))
}

/// Pins the calling thread, and every thread that it starts from now on, to these CPUs.
pub fn pin_this_thread(cpus: &[usize]) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}
