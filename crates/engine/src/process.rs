//! The memory that the process may use, and its use of memory and CPU: from cgroups and /proc.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// The memory available to the process in bytes: the tightest limit of its cgroup and those above
/// (version 1 or 2), otherwise the memory of the machine.
pub(crate) fn available_bytes() -> u64 {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let mut total = memory.lines().filter_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.next().and_then(|kib| kib.split_whitespace().next()?.parse::<u64>().ok());
    let machine = kib.map_or(1 << 30, |kib| kib * 1024);
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = cgroup_limit_bytes("/sys/fs/cgroup", &membership);
    limit.map_or(machine, |limit| limit.min(machine))
}

/// `service.instance.id`: a random UUID (version 4), the same until the process ends.
pub(crate) fn instance_id() -> &'static str {
    static ID: LazyLock<String> = LazyLock::new(|| {
        let id = fastrand::u128(..) & !(0xf << 76) & !(0b11 << 62) | 4 << 76 | 0b10 << 62;
        let digits = format!("{id:032x}");
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
        parts.join("-")
    });
    &ID
}

/// Resident memory of the process, in bytes.
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

/// `mount`: where cgroups are mounted. `membership`: the content of `/proc/self/cgroup`.
fn cgroup_limit_bytes(mount: &str, membership: &str) -> Option<u64> {
    let mut candidates = Vec::new();
    for line in membership.lines() {
        let fields: Vec<&str> = line.splitn(3, ':').collect();
        let [_, controllers, path] = fields[..] else { continue };
        let (mount, file) = match controllers {
            "" => (mount.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (format!("{mount}/memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let groups = Path::new(path).ancestors();
        candidates.extend(groups.map(|group| format!("{mount}{}/{file}", group.display())));
    }
    candidates.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a slice with a limit, with a service below that has none or a higher one.
    /// Guarantee: the tightest counts, in both versions.
    #[test]
    fn a_limit_of_a_group_above_counts() {
        let mount = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = mount.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("creates");
            fs::write(path, text).expect("writes");
        };
        write("team.slice/memory.max", "1000\n");
        write("team.slice/sluice.service/memory.max", "max\n");
        write("memory/a/memory.limit_in_bytes", "2000\n");
        write("memory/a/b/memory.limit_in_bytes", "3000\n");
        let limit =
            |membership| cgroup_limit_bytes(mount.path().to_str().expect("text"), membership);
        assert_eq!(limit("0::/team.slice/sluice.service\n"), Some(1000));
        assert_eq!(limit("5:cpu:/a\n4:memory,x:/a/b\n0::/\n"), Some(2000));
        assert_eq!(limit("0::/\n"), None);
    }

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
