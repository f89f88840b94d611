//! Limits of a subject: the CPUs to which it is pinned, and a pod's quota and memory limit.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const MOUNT: &str = "/sys/fs/cgroup";
/// The period over which a CPU quota is counted, the kernel's default.
const PERIOD_US: u64 = 100_000;
/// Files that limit swap, in cgroup v1 and v2.
const SWAP_FILES: [&str; 2] = ["memory.memsw.limit_in_bytes", "memory.swap.max"];
/// Files that count processes killed for the memory limit, in cgroup v1 and v2.
const OOM_FILES: [&str; 2] = ["memory.oom_control", "memory.events"];
/// The kernel takes no shorter quota.
const QUOTA_MIN_US: f64 = 1000.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Cores, for instance 0.5.
    pub cpu_cores: Option<f64>,
    pub memory_bytes: Option<u64>,
}

/// Control groups of one subject, v1 or v2. Removed when dropped; the processes must be gone then.
#[derive(Debug, Default)]
pub(super) struct ControlGroup {
    pub(super) folders: Vec<PathBuf>,
    /// Limits that could be set.
    pub(super) limits: Limits,
}

/// The place where groups can be made.
struct Hierarchy {
    /// v1: the folder that has one for each controller. v2: candidates, of which the first allowed.
    parents: Vec<PathBuf>,
    is_v2: bool,
}

impl ControlGroup {
    /// Makes groups with these limits, as far as this machine allows, and says which are missing.
    pub(super) fn create(name: &str, limits: Limits) -> (ControlGroup, Vec<String>) {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        ControlGroup::create_in(&Hierarchy::find(Path::new(MOUNT), &own), name, limits)
    }

    fn create_in(hierarchy: &Hierarchy, name: &str, limits: Limits) -> (ControlGroup, Vec<String>) {
        let (mut group, mut missing) = (ControlGroup::default(), Vec::new());
        let mut limit = |what, controller, files: Vec<(&str, String)>| {
            let set = group.limit(hierarchy, controller, name, &files);
            set.map_err(|why| missing.push(format!("it runs without {what}: {why}"))).is_ok()
        };
        let has_quota = |cores: &f64| limit("a CPU quota", "cpu", hierarchy.cpu_files(*cores));
        let cpu_cores = limits.cpu_cores.filter(has_quota);
        let is_bounded =
            |bytes: &u64| limit("a memory limit", "memory", hierarchy.memory_files(*bytes));
        let memory_bytes = limits.memory_bytes.filter(is_bounded);
        group.limits = Limits { cpu_cores, memory_bytes };
        (group, missing)
    }

    /// Writes these files of the group's folder for a controller. Makes it where there is none.
    fn limit(
        &mut self,
        hierarchy: &Hierarchy,
        controller: &str,
        name: &str,
        files: &[(&str, String)],
    ) -> Result<(), String> {
        let mut made = Err(no_controller(controller));
        for parent in hierarchy.parents(controller) {
            let enabled = if hierarchy.is_v2 { enable(&parent, controller) } else { Ok(()) };
            made = enabled.and_then(|()| self.make(parent.join(name)));
            if made.is_ok() {
                break;
            }
        }
        let folder = made?;
        let files = files.iter().map(|(file, value)| (folder.join(file), file, value));
        // The files of swap exist only if the kernel accounts for swap.
        let mut there = files.filter(|(path, file, _)| !SWAP_FILES.contains(file) || path.exists());
        there.try_for_each(|(path, _, value)| write(&path, value))
    }

    fn make(&mut self, folder: PathBuf) -> Result<PathBuf, String> {
        if !self.folders.contains(&folder) {
            fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            self.folders.push(folder.clone());
        }
        Ok(folder)
    }

    /// Moves a process into the group, with what it starts. If that is denied it has no limits.
    pub(super) fn add(&mut self, pid: u32) -> Result<(), String> {
        self.add_again(pid).map_err(|why| {
            self.limits = Limits::default();
            format!("it runs without limits: {why}")
        })
    }

    /// The same for a later life of the subject.
    pub(super) fn add_again(&self, pid: u32) -> Result<(), String> {
        let mut folders = self.folders.iter();
        folders.try_for_each(|folder| write(&folder.join("cgroup.procs"), &pid.to_string()))
    }

    /// Processes that the kernel has ended for the memory limit; `None`: not known.
    pub(super) fn oom_kills(&self) -> Option<u64> {
        self.limits.memory_bytes?;
        let files = |folder: &PathBuf| OOM_FILES.map(|file| folder.join(file));
        self.folders.iter().flat_map(files).find_map(|file| {
            let text = fs::read_to_string(file).ok()?;
            text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
        })
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            // A group is busy for a moment after its last process has gone.
            for _ in 0..50 {
                if fs::remove_dir(folder).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
}

impl Hierarchy {
    /// `own_groups` as in /proc/self/cgroup.
    fn find(mount: &Path, own_groups: &str) -> Hierarchy {
        if !mount.join("cgroup.controllers").exists() {
            return Hierarchy { parents: vec![mount.to_owned()], is_v2: false };
        }
        // Beside our own group where the root is not ours: controllers are on there already. Below
        // our own group is no place, because it has processes (cgroup v2).
        let own = own_groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let own = mount.join(own);
        let is_below = |parent: &&Path| parent.starts_with(mount) && *parent != mount;
        let beside = own.parent().filter(is_below);
        let parents = [mount].into_iter().chain(beside).map(Path::to_owned).collect();
        Hierarchy { parents, is_v2: true }
    }

    /// Folders in which a group for this controller may be; the first allowed one is used.
    fn parents(&self, controller: &str) -> Vec<PathBuf> {
        if self.is_v2 {
            return self.parents.clone();
        }
        let names = [controller.to_owned(), format!("{controller},cpuacct")];
        let mut folders = names.iter().map(|name| self.parents[0].join(name));
        folders.find(|folder| folder.join("cgroup.procs").exists()).into_iter().collect()
    }

    /// A CPU quota, as files and their contents.
    fn cpu_files(&self, cores: f64) -> Vec<(&'static str, String)> {
        let quota_us = (cores * PERIOD_US as f64).max(QUOTA_MIN_US) as u64;
        if self.is_v2 {
            return vec![("cpu.max", format!("{quota_us} {PERIOD_US}"))];
        }
        let quota = ("cpu.cfs_quota_us", quota_us.to_string());
        vec![("cpu.cfs_period_us", PERIOD_US.to_string()), quota]
    }

    /// A memory limit without swap: with swap it would be none.
    fn memory_files(&self, bytes: u64) -> Vec<(&'static str, String)> {
        let (limit, swap, swap_bytes) = match self.is_v2 {
            false => ("memory.limit_in_bytes", SWAP_FILES[0], bytes),
            true => ("memory.max", SWAP_FILES[1], 0),
        };
        vec![(limit, bytes.to_string()), (swap, swap_bytes.to_string())]
    }
}

fn no_controller(controller: &str) -> String {
    format!("no cgroup controller `{controller}` is mounted below {MOUNT}")
}

/// Lets the groups below `parent` have this controller (cgroup v2).
fn enable(parent: &Path, controller: &str) -> Result<(), String> {
    let has = |file: &str| {
        fs::read_to_string(parent.join(file))
            .is_ok_and(|text| text.split_whitespace().any(|word| word == controller))
    };
    if has("cgroup.subtree_control") {
        Ok(())
    } else if has("cgroup.controllers") {
        write(&parent.join("cgroup.subtree_control"), &format!("+{controller}"))
    } else {
        Err(no_controller(controller))
    }
}

fn write(path: &Path, value: &str) -> Result<(), String> {
    fs::write(path, value).map_err(|error| format!("{}: {error}", path.display()))
}

/// Pins the calling thread, and every thread that it starts from now on, to these CPUs.
pub fn pin_this_thread(cpus: &[usize]) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests;
