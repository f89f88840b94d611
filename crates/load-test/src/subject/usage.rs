//! CPU time and memory of processes, read from /proc.

use std::fs;
use std::time::Duration;

/// CPU time and memory of a process group at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time since the start, of all threads.
    pub cpu: Duration,
    pub rss_bytes: u64,
    /// Highest resident memory since the start.
    pub peak_rss_bytes: u64,
}

/// Usage of one process; `None` when it is gone.
pub fn usage_of_process(pid: u32) -> Option<Usage> {
    let stat = Stat::read(pid)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(Usage {
        cpu: stat.cpu,
        rss_bytes: field_bytes(&status, "VmRSS:").unwrap_or(0),
        peak_rss_bytes: field_bytes(&status, "VmHWM:").unwrap_or(0),
    })
}

/// Usage of a group, with the processes that it has waited for; `None` when none is left. Processes
/// that have ended and were not waited for (`with_ended`) have CPU time only.
pub fn usage_of_group(group: u32, with_ended: bool) -> Option<Usage> {
    let pids = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let stats = pids.filter_map(|pid| Some((pid, Stat::read(pid)?)));
    let is_wanted = |stat: &Stat| stat.group == group && (with_ended || !stat.is_zombie);
    let usages = stats.filter(|(_, stat)| is_wanted(stat)).filter_map(|(pid, stat)| {
        let usage = usage_of_process(pid)?;
        Some(Usage { cpu: usage.cpu + stat.cpu_of_children, ..usage })
    });
    usages.reduce(|sum, one| Usage {
        cpu: sum.cpu + one.cpu,
        rss_bytes: sum.rss_bytes + one.rss_bytes,
        peak_rss_bytes: sum.peak_rss_bytes + one.peak_rss_bytes,
    })
}

/// It has ended and has not been waited for, or is gone.
pub(super) fn has_ended(pid: u32) -> bool {
    Stat::read(pid).is_none_or(|stat| stat.is_zombie)
}

/// CPU time so far of this process's threads of that name.
pub(crate) fn cpu_of_threads(name: &str) -> Duration {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Duration::ZERO };
    let stats =
        threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    let of_that_name = stats.filter(|line| line.contains(&format!("({name})")));
    of_that_name.filter_map(|line| Stat::parse(&line)).map(|stat| stat.cpu).sum()
}

struct Stat {
    group: u32,
    is_zombie: bool,
    cpu: Duration,
    /// CPU time of its children that have ended and that it has waited for.
    cpu_of_children: Duration,
}

impl Stat {
    fn read(pid: u32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The line of proc_pid_stat(5). The name in brackets may contain anything.
    fn parse(line: &str) -> Option<Stat> {
        let fields: Vec<&str> = line[line.rfind(')')? + 1..].split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let duration = |ticks: u64| {
            Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
        };
        Some(Stat {
            group: u32::try_from(number(2)?).ok()?,
            is_zombie: *fields.first()? == "Z",
            cpu: duration(number(11)? + number(12)?),
            cpu_of_children: duration(number(13)? + number(14)?),
        })
    }
}

/// The field of this name, which has the unit kB, in the text of a file such as /proc/meminfo.
pub(crate) fn field_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let line = "42 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 7 3 20 0 1 0 5 1000 1 1844674";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.group, stat.is_zombie), (7, false));
        let ticks =
            |cpu: Duration| cpu.as_secs_f64() * rustix::param::clock_ticks_per_second() as f64;
        assert_eq!((ticks(stat.cpu), ticks(stat.cpu_of_children)), (300.0, 10.0));
    }

    #[test]
    fn this_process_has_memory_and_spends_time() {
        let before = usage_of_process(std::process::id()).unwrap();
        assert!(before.rss_bytes > 0 && before.peak_rss_bytes >= before.rss_bytes);
        let began = std::time::Instant::now();
        while usage_of_process(std::process::id()).unwrap().cpu == before.cpu {
            assert!(began.elapsed() < Duration::from_secs(30), "CPU time must show");
        }
        assert_eq!(usage_of_process(u32::MAX), None);
    }
}
