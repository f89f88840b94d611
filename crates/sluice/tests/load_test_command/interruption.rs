//! A run that is asked to end.

use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use sluice_load_test::subject::usage_of_group;
use tempfile::TempDir;

use crate::support::{kpis, load_test, record, relay_folder, stderr};

/// Starts a long run of a relay, with its temporary files in `folder`, and waits until the relay is
/// there. Its process id.
fn start(folder: &TempDir, args: &[&str]) -> (Child, u32) {
    let mut command = load_test(args);
    command
        .arg("--subject-dir")
        .arg(folder.path())
        .arg("--json")
        .arg(folder.path().join("out.json"));
    command.env("TMPDIR", folder.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let subject = first_child(child.id());
    (child, subject)
}

fn first_child(pid: u32) -> u32 {
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < Duration::from_secs(20), "the subject does not start");
        std::thread::sleep(Duration::from_millis(50));
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        if let Some(child) = children.split_whitespace().next() {
            return child.parse().unwrap();
        }
    }
}

fn send(child: &Child, signal: Signal) {
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap(),
        signal,
    )
    .unwrap();
}

/// Waits for the end; nothing may be left running or on disk.
fn end(child: Child, subject: u32, folder: &TempDir) -> Output {
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(usage_of_group(subject, false).is_none(), "the subject still runs");
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .collect();
    assert!(left.is_empty(), "temporary folders are left: {left:?}");
    output
}

#[test]
fn an_interrupted_run_reports_what_it_has_says_so_and_leaves_nothing_running() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = relay_folder("forwards");
        let faults = ["--fault", "delay,by=0.01", "--fault", "refuse,from=500"];
        let (child, subject) =
            start(&folder, &[&["-r", "5120", "-d", "600"], &faults[..]].concat());
        std::thread::sleep(Duration::from_secs(2));
        send(&child, signal);
        let output = end(child, subject, &folder);
        let record = record(&folder.path().join("out.json"));
        assert_eq!(record["interrupted"], json!(true));
        assert!(kpis(&record)["accepted"].as_u64().unwrap() > 0, "{record}");
        let windows = record["subjects"][0]["turns"][0]["fault_windows"].as_array().unwrap();
        assert_eq!(windows.len(), 1, "a fault that had not begun is not claimed: {windows:?}");
        assert!(windows[0]["to_s"].as_f64().unwrap() < 60.0, "{windows:?}");
        let markdown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(markdown.contains("interrupted"), "{markdown}");
    }
}

#[test]
fn a_search_that_is_interrupted_reports_what_it_has_tried() {
    let folder = relay_folder("forwards");
    let search =
        ["--find-limit", "-r", "100", "--batch-size", "10", "-d", "2", "--drain-within", "1"];
    let (child, subject) = start(&folder, &search);
    // The second subject process is that of the second try.
    let began = Instant::now();
    while usage_of_group(subject, false).is_some() {
        assert!(began.elapsed() < Duration::from_secs(30), "the first try does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    send(&child, Signal::INT);
    end(child, subject, &folder);
    let record = record(&folder.path().join("out.json"));
    let limit = &record["subjects"][0]["limit"];
    assert_eq!(
        (&record["interrupted"], &limit["ended_early"]),
        (&json!(true), &json!("interrupted")),
        "{limit}"
    );
    assert!(!limit["tries"].as_array().unwrap().is_empty(), "{limit}");
}

#[test]
fn a_second_interruption_ends_at_once_and_leaves_nothing_either() {
    // The relay never answers, so that the run would wait for requests in flight.
    let folder = relay_folder("forwards");
    let (child, subject) = start(&folder, &["-r", "5120", "-d", "600", "--fault", "stall"]);
    std::thread::sleep(Duration::from_secs(1));
    send(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(100));
    send(&child, Signal::INT);
    let began = Instant::now();
    end(child, subject, &folder);
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "it waits for nothing: {:?}",
        began.elapsed()
    );
}

#[test]
fn a_subject_that_is_still_starting_does_not_hold_up_the_end() {
    let folder = relay_folder("forwards");
    let path = folder.path().join("subject.json");
    let sleeper = json!({ "name": "sleeper", "command": ["sleep", "600"] });
    std::fs::write(path, sleeper.to_string()).unwrap();
    let (child, subject) = start(&folder, &["-d", "600"]);
    std::thread::sleep(Duration::from_millis(300));
    send(&child, Signal::TERM);
    let began = Instant::now();
    end(child, subject, &folder);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert_eq!(record(&folder.path().join("out.json"))["interrupted"], json!(true));
}
