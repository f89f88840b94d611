//! What the run has to go on: the machine's cores, and which of them are the subject's.

use std::fs;

use crate::report::{Machine, Warning};
use crate::subject::pin_this_thread;

/// Cores kept apart. Where they cannot be, both are empty and a warning says so.
#[derive(Clone, Debug, Default)]
pub struct Cores {
    pub subject: Vec<usize>,
    pub bench: Vec<usize>,
    pub(super) warning: Option<Warning>,
}

impl Cores {
    /// Divides the cores that this process may use, and puts the calling thread, with all threads
    /// that it starts from now on, on the bench's half. To be called before a runtime exists.
    pub fn divide() -> Cores {
        let allowed = allowed_cores();
        let can_pin =
            ["/usr/bin/taskset", "/bin/taskset"].iter().any(|path| fs::metadata(path).is_ok());
        let (subject, bench) = allowed.split_at(allowed.len() / 2);
        let (message, remedy) = if allowed.len() < 2 {
            ("subject and bench share one core", "run on two cores or more")
        } else if !can_pin {
            ("subject and bench share their cores", "install taskset (util-linux)")
        } else if pin_this_thread(bench).is_err() {
            ("the bench could not be pinned to its cores", "allow sched_setaffinity")
        } else {
            return Cores { subject: subject.to_vec(), bench: bench.to_vec(), warning: None };
        };
        let message = format!("{message}: the figures depend on how the kernel divides them");
        Cores { warning: Some(Warning::new(message, remedy)), ..Cores::default() }
    }

    /// All that the run has.
    pub(super) fn all(&self) -> Vec<usize> {
        let divided = [&self.subject[..], &self.bench].concat();
        if divided.is_empty() { allowed_cores() } else { divided }
    }

    /// How many the subject has.
    pub(super) fn of_subject(&self) -> usize {
        if self.subject.is_empty() { allowed_cores().len().max(1) } else { self.subject.len() }
    }

    /// How many generator and backends have.
    pub fn of_bench(&self) -> usize {
        if self.bench.is_empty() { allowed_cores().len().max(1) } else { self.bench.len() }
    }
}

fn allowed_cores() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

/// Names the machine that this runs on.
pub(super) fn describe(cores: &Cores) -> Machine {
    let field = |file: &str, name: &str| {
        let text = fs::read_to_string(file).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let memory_kib = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    Machine {
        cpu_model: field("/proc/cpuinfo", "model name"),
        cores: cores.all().len().max(1) as u32,
        memory_bytes: memory_kib.map(|kib| kib << 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_named_and_no_core_is_on_both_sides() {
        // On a thread of its own, which alone is pinned.
        let cores = std::thread::spawn(Cores::divide).join().unwrap();
        assert!(cores.subject.iter().all(|core| !cores.bench.contains(core)));
        assert_eq!(cores.warning.is_none(), !cores.bench.is_empty());
        let machine = describe(&cores);
        assert!(machine.cores >= 1 && machine.memory_bytes.unwrap() > 1 << 20);
    }
}
