//! A load test that is killed leaves nothing of its subject.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sluice_load_test::subject::usage_of_group;
use tempfile::TempDir;

use crate::support::{load_test, relay_command, relay_folder, wait_for_child};

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

/// Control groups that this bench made for its first subject.
fn groups(bench: u32) -> Vec<String> {
    let name = format!("sluice-load-test-{bench}-0");
    let below = ["", "cpu", "cpu,cpuacct", "memory"]
        .map(|controller| Path::new("/sys/fs/cgroup").join(controller).join(&name));
    below.iter().filter(|path| path.exists()).map(|path| path.display().to_string()).collect()
}

#[test]
fn a_load_test_that_is_killed_leaves_no_process_no_folder_and_no_control_group() {
    // The subject has a child that would outlive it.
    let relay = relay_command()
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap().to_owned())
        .collect::<Vec<_>>();
    let script = format!("sleep 600 & exec '{}'", relay.join("' '"));
    let folder = relay_folder(json!({ "command": ["/bin/sh", "-c", script] }));
    let temporary = TempDir::new().unwrap();
    let mut command = load_test(&["-r", "512", "-d", "600", "--cpus", "0.5"]);
    command.arg("--subject-dir").arg(folder.path()).env("TMPDIR", temporary.path());
    let mut bench = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let bench_pid = bench.id();
    let subject = wait_for_child(bench.id(), "relay_process");
    wait_for_child(subject, "sleep");
    wait_for_child(bench.id(), "sluice-load-test-keeper");
    std::thread::sleep(Duration::from_millis(500));
    let is_left = || {
        let files = fs::read_dir(temporary.path()).unwrap().count();
        (usage_of_group(subject, false).is_some(), files > 0, groups(bench_pid))
    };
    let (runs, has_folder, made) = is_left();
    assert!(runs && has_folder, "there is something to clean up");
    kill(bench.id());
    bench.wait().unwrap();
    let began = Instant::now();
    while is_left() != (false, false, Vec::new()) {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "left (process, folder, groups): {:?}; were: {made:?}",
            is_left()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
