//! The memory of an idle gateway on a machine of many cores.

mod gateway;

use gateway::{Gateway, Options, fan_out};
use sluice_load_test::Backend;
use sluice_otlp::Signal;

const THREADS: u64 = 16;
const ANONYMOUS_KIB: u64 = 8 << 10;

/// The figure behind this name in `/proc/PID/status`, in the unit that stands there.
fn status_figure(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the gateway runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let figure = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    figure.unwrap_or_else(|| panic!("no {name} in {status}"))
}

/// Scenario: a gateway with sixteen threads, as on a machine of as many cores. Guarantee: a thread
/// costs the memory that it touched, not the huge pages of 2 MiB that the kernel would give its
/// allocator (37 MiB for these).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_costs_no_huge_page() {
    let backend = Backend::healthy().await.expect("a backend");
    let options =
        Options { args: vec!["--threads".to_owned(), THREADS.to_string()], ..Options::default() };
    let gateway =
        Gateway::start_with(&fan_out(Signal::Traces, 256, &[("backend", &backend)]), options).await;
    let pid = gateway.pid();
    let threads = status_figure(pid, "Threads");
    assert!(threads >= THREADS, "{threads}");
    assert_eq!(status_figure(pid, "THP_enabled"), 0);
    let anonymous_kib = status_figure(pid, "RssAnon");
    assert!(anonymous_kib <= ANONYMOUS_KIB, "{anonymous_kib} KiB");
}
