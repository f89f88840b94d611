//! The machine's cores, their division between subject and bench, and the noise on them: time that
//! the hypervisor takes, and work of other processes.

use std::fs;
use std::time::Duration;

use crate::report::{Machine, Warning};
use crate::subject::{field_bytes, in_path, pin_this_thread};

/// Separate cores for subject and bench. If that is impossible, both are empty, with a warning.
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
        let (subject, bench) = allowed.split_at(allowed.len() / 2);
        let (message, remedy) = if allowed.len() < 2 {
            ("subject and bench share one core", "run on two cores or more")
        } else if in_path("taskset").is_none() {
            ("subject and bench share their cores", "install taskset (util-linux)")
        } else if pin_this_thread(bench).is_err() {
            ("the bench could not be pinned to its cores", "allow sched_setaffinity")
        } else {
            return Cores { subject: subject.to_vec(), bench: bench.to_vec(), warning: None };
        };
        let message = format!("{message}: the figures depend on how the kernel divides them");
        Cores { warning: Some(Warning::new(message, remedy)), ..Cores::default() }
    }

    pub(super) fn all(&self) -> Vec<usize> {
        let divided = [&self.subject[..], &self.bench].concat();
        if divided.is_empty() { allowed_cores() } else { divided }
    }

    /// Number of cores of the subject.
    pub(super) fn of_subject(&self) -> usize {
        if self.subject.is_empty() { allowed_cores().len().max(1) } else { self.subject.len() }
    }

    /// Number of cores of generator and backends.
    pub fn of_bench(&self) -> usize {
        if self.bench.is_empty() { allowed_cores().len().max(1) } else { self.bench.len() }
    }
}

fn allowed_cores() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

pub(super) fn describe(cores: &Cores) -> Machine {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    Machine {
        architecture: Some(std::env::consts::ARCH.to_owned()),
        cores: cores.all().len().max(1) as u32,
        memory_bytes: field_bytes(&memory, "MemTotal:"),
    }
}

/// Time of some cores since the machine's start (proc_stat(5)), as a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CoreTimes {
    /// Time of processes in user and kernel mode. Interrupts belong to no process: not included.
    pub(super) busy: Duration,
    /// Time in which the hypervisor ran something else.
    pub(super) stolen: Duration,
    pub(super) all: Duration,
}

impl CoreTimes {
    /// Times of these cores; `None` where the kernel does not report them.
    pub(super) fn of(cores: &[usize]) -> Option<CoreTimes> {
        CoreTimes::parse(&fs::read_to_string("/proc/stat").ok()?, cores)
    }

    fn parse(text: &str, cores: &[usize]) -> Option<CoreTimes> {
        let tick_s = 1.0 / rustix::param::clock_ticks_per_second() as f64;
        let mut sum = CoreTimes::default();
        for core in cores {
            let name = format!("cpu{core} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&name))?;
            let fields = line.split_ascii_whitespace();
            let ticks: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
            let [user, nice, system, _, _, _, _, stolen, ..] = ticks[..] else { return None };
            let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 * tick_s);
            sum.busy += time(user + nice + system);
            sum.stolen += time(stolen);
            // Time of guests is in `user` already.
            sum.all += time(ticks.iter().take(8).sum());
        }
        Some(sum)
    }
}

/// Disturbance of a run, as shares of the time of all its cores.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Noise {
    pub(super) stolen: f64,
    /// Taken by processes that are neither the subject nor the bench.
    pub(super) others: f64,
}

impl Noise {
    /// `own` is the CPU time of subject and bench between the two readings.
    pub(super) fn between(before: CoreTimes, after: CoreTimes, own: Duration) -> Noise {
        let passed = |of: fn(CoreTimes) -> Duration| of(after).saturating_sub(of(before));
        let all_s = passed(|times| times.all).as_secs_f64();
        let share = |time: Duration| if all_s > 0.0 { time.as_secs_f64() / all_s } else { 0.0 };
        let others = passed(|times| times.busy).saturating_sub(own);
        Noise { stolen: share(passed(|times| times.stolen)), others: share(others) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  9 9 9 9 9 9 9 9 9 9\n\
        cpu0 100 0 100 800 0 0 0 0 0 0\n\
        cpu1 0 0 0 1000 0 0 0 0 0 0\n\
        cpu10 5 5 5 5 5 5 5 5 0 0\n\
        ";
    const AFTER: &str = "cpu  9 9 9 9 9 9 9 9 9 9\n\
        cpu0 400 100 200 1100 0 50 50 100 0 0\n\
        cpu1 0 0 0 2000 0 0 0 0 0 0\n\
        cpu10 5 5 5 5 5 5 5 5 0 0\n\
        ";

    #[test]
    fn stolen_time_and_the_work_of_others_are_told_from_our_own() {
        let of = |text| CoreTimes::parse(text, &[0]).unwrap();
        let second = |ticks: u64| {
            Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
        };
        // Of 1,000 ticks 500 were busy, 100 stolen, 100 of interrupts, 300 idle; 350 of the busy
        // ones are our own.
        let noise = Noise::between(of(BEFORE), of(AFTER), second(350));
        assert!(
            (noise.stolen - 0.1).abs() < 1e-9 && (noise.others - 0.15).abs() < 1e-9,
            "{noise:?}"
        );
        // Over two cores it is half of that; another core's lines do not count.
        let both = |text| CoreTimes::parse(text, &[0, 1]).unwrap();
        let noise = Noise::between(both(BEFORE), both(AFTER), second(350));
        assert!((noise.stolen - 0.05).abs() < 1e-9, "{noise:?}");
        assert_eq!(Noise::between(of(BEFORE), of(BEFORE), Duration::ZERO), Noise::default());
    }

    #[test]
    fn this_machine_says_it_and_a_core_that_is_not_there_is_not_known() {
        assert!(CoreTimes::of(&[0]).unwrap().all > Duration::ZERO);
        assert_eq!(CoreTimes::of(&[1 << 20]), None);
    }

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
