//! What the process may use and what it uses: memory and CPU time, from cgroups and /proc.

use std::fs;

/// The memory available to the process in bytes: the tightest cgroup limit (version 1 or 2),
/// otherwise the memory of the machine.
pub(crate) fn available_bytes() -> u64 {
    let machine = field_kib("/proc/meminfo", "MemTotal:").map_or(1 << 30, |kib| kib * 1024);
    cgroup_limit_bytes().map_or(machine, |limit| limit.min(machine))
}

/// What of its memory is resident, in bytes.
pub fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// CPU seconds (user and system) that the process has used.
pub(crate) fn cpu_seconds() -> f64 {
    let Ok(stat) = fs::read_to_string("/proc/self/stat") else { return 0.0 };
    // The command name may contain spaces and parentheses: fields are counted after its last `)`.
    let Some((_, rest)) = stat.rsplit_once(')') else { return 0.0 };
    let user_and_system = rest.split_whitespace().skip(11).take(2);
    let ticks: u64 = user_and_system.filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

fn field_kib(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

fn cgroup_limit_bytes() -> Option<u64> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut candidates = vec![
        "/sys/fs/cgroup/memory.max".to_owned(),
        "/sys/fs/cgroup/memory/memory.limit_in_bytes".to_owned(),
    ];
    for line in membership.lines() {
        let Some((_, rest)) = line.split_once(':') else { continue };
        let Some((controllers, path)) = rest.split_once(':') else { continue };
        if controllers.is_empty() {
            candidates.push(format!("/sys/fs/cgroup{path}/memory.max"));
        } else if controllers.split(',').any(|controller| controller == "memory") {
            candidates.push(format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes"));
        }
    }
    candidates.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_plausible() {
        let resident = resident_bytes();
        assert!(resident > 1 << 20 && resident < available_bytes(), "{resident}");
        let before = cpu_seconds();
        let mut sum = 0u64;
        while cpu_seconds() - before < 0.03 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
    }
}
