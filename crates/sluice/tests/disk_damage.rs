//! Damage of what is on disk, as an operator sees and repairs it.

mod disk;
mod gateway;
#[path = "../../log/tests/support/mounted.rs"]
mod mounted;

use std::process::Command;
use std::time::Duration;

use disk::dead_backend;
use disk::place::Place;
use gateway::{Gateway, MIB, SOON, alone, assert_arrives_once, eventually};
use sluice_load_test::Backend;
use sluice_otlp::Signal;

const ACK: &str = "delivered_or_durable";

async fn stop(mut gateway: Gateway) {
    gateway.terminate();
    assert!(gateway.ended_within(SOON).await.success(), "{}", gateway.output());
}

/// Exit code and output of `sluice log COMMAND DIRECTORY OPTIONS`.
fn log_command(place: &Place, command: &str, options: &[&str]) -> (Option<i32>, String) {
    let mut sluice = Command::new(env!("CARGO_BIN_EXE_sluice"));
    let ran = sluice.args(["log", command]).arg(place.directory()).args(options).output();
    let ran = ran.expect("it runs");
    (ran.status.code(), String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// Scenario: a file with a backlog is damaged, and is repaired and put back later. Guarantee: what
/// is missing is counted and the file is kept, as all that shows the log says; then the rest, and
/// nothing else, arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_damaged_file_has_arrives_when_it_was_repaired_and_put_back() {
    let _alone = alone().await;
    let dead = dead_backend().await;
    let place = Place::folder();
    let config = disk::config(&place.directory(), ACK, &[("a", &dead)], "");
    let gateway = Gateway::start(&config).await;
    let report = gateway.accepts(5_000).await;
    gateway.holds("otlp/a", 5_000).await;
    stop(gateway).await;
    let segment = disk::segments(&place.directory()).into_iter().next().expect("a segment");
    let whole = std::fs::read(&segment).expect("a file");
    let mut damaged = whole.clone();
    damaged[50_000..80_000].fill(7);
    std::fs::write(&segment, damaged).expect("a file");

    dead.faults().clear();
    let gateway = Gateway::start(&config).await;
    let is_told = async || gateway.metric("sluice_delivery_lost_items", &[]).await > 0.0;
    assert!(eventually(SOON, is_told).await, "{:?}", dead.counts());
    let lost = gateway.metric("sluice_delivery_lost_items", &[]).await;
    assert_eq!(dead.counts().items as f64 + lost, 5_000.0);
    let is_set_aside = async || gateway.metric("sluice_log_set_aside_files", &[]).await == 1.0;
    assert!(eventually(SOON, is_set_aside).await, "{}", gateway.output());
    let aside = format!("{}.damaged", segment.display());
    gateway.wait_for_output("could not be read or was not there", 1).await;
    gateway.wait_for_output("are kept as `….seg.damaged`", 1).await;
    assert!(gateway.health().await.expect("an answer").1.contains(&aside));
    assert!(gateway::get(gateway.metrics, "/log").await.expect("an answer").1.contains(&aside));
    for (command, says) in [("ls", "set aside: "), ("verify", "damaged: ")] {
        let (_, output) = log_command(&place, command, &[]);
        assert!(output.contains(&format!("{says}{aside}")), "{command}: {output}");
    }
    stop(gateway).await;

    std::fs::write(&aside, whole).expect("a file");
    let put_back = format!("put back: {aside}: ");
    let steps: [(&[&str], i32, &str); 3] = [
        (&[], 1, "nothing was changed"),
        (&["--yes"], 0, &put_back),
        (&["--yes"], 0, "no file was set aside"),
    ];
    for (options, code, says) in steps {
        let (ended, output) = log_command(&place, "repair", options);
        assert!(ended == Some(code) && output.contains(says), "{options:?}: {output}");
    }
    let gateway = Gateway::start(&config).await;
    assert_arrives_once(&report, &dead, SOON).await;
    let is_gone = async || gateway.metric("sluice_log_disk_bytes", &[]).await <= MIB as f64;
    assert!(eventually(SOON, is_gone).await, "{:?}", disk::segments(&place.directory()));
}

/// A gateway has stopped with 2,000 items on disk: its place, configuration and backend.
async fn backlog_of_a_dead_backend() -> (Place, String, Backend) {
    let dead = dead_backend().await;
    let place = Place::folder();
    let config = disk::config(&place.directory(), ACK, &[("a", &dead)], "");
    let gateway = Gateway::start(&config).await;
    gateway.accepts(2_000).await;
    gateway.holds("otlp/a", 2_000).await;
    stop(gateway).await;
    (place, config, dead)
}

/// Scenario: the segment of a backlog is emptied while nothing runs. Guarantee: `ls`, `verify` and
/// the log of the start say the same number of frames; the items count as lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_segment_that_was_emptied_is_told_of_by_all() {
    let _alone = alone().await;
    let (place, config, _dead) = backlog_of_a_dead_backend().await;
    let (_, before) = log_command(&place, "verify", &[]);
    let frames = before.split(" whole frame").next().expect("a summary");
    let frames = frames.rsplit(' ').next().expect("a number").trim_start_matches('(').to_owned();
    let segment = disk::segments(&place.directory()).into_iter().next().expect("a segment");
    std::fs::write(&segment, []).expect("emptied");

    let missing = format!("{frames} frames that traces/a → otlp/a waits for");
    for (command, code) in [("ls", 0), ("verify", 1)] {
        let (ended, output) = log_command(&place, command, &[]);
        assert!(output.contains(&missing), "{command}: {output}, before: {before}");
        assert!(output.contains(&segment.display().to_string()), "{command}: {output}");
        assert_eq!(ended, Some(code), "{command}");
    }
    let gateway = Gateway::start(&config).await;
    gateway.wait_for_output("is in no file on disk", 1).await;
    assert!(gateway.output().contains(&format!("frames={frames}")), "{}", gateway.output());
    let is_lost = async || gateway.metric("sluice_delivery_lost_items", &[]).await == 2_000.0;
    assert!(eventually(SOON, is_lost).await, "{}", gateway.output());
    stop(gateway).await;
}

/// Scenario: a cursor file is removed by hand. Guarantee: nothing on disk is removed, and all that
/// shows the log says what is lost; the backlog can be written to a file, and dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_for_a_delivery_whose_cursor_is_gone_is_kept() {
    let _alone = alone().await;
    let (place, config, _dead) = backlog_of_a_dead_backend().await;
    let folder = place.directory().join("traces/cursors");
    let mut cursors = std::fs::read_dir(folder).expect("a folder").flatten();
    let cursor = cursors.next().expect("a cursor file").path();
    std::fs::remove_file(&cursor).expect("removed");
    let lost = format!("{}.damaged", cursor.file_name().expect("a name").to_string_lossy());

    let gateway = Gateway::start(&config).await;
    gateway.wait_for_output("everything on disk is kept for them", 1).await;
    assert_eq!(gateway.metric("sluice_log_lost_cursors", &[]).await, 1.0);
    assert!(gateway.health().await.expect("an answer").1.contains(&lost));
    assert!(gateway::get(gateway.metrics, "/log").await.expect("an answer").1.contains(&lost));
    gateway.accepts(100).await;
    gateway.holds("otlp/a", 100).await;
    stop(gateway).await;
    let (code, verified) = log_command(&place, "verify", &[]);
    assert!(code == Some(1) && verified.contains(&lost), "{verified}");
    let (_, kept) =
        log_command(&place, "replay", &["--delivery", &lost, "--backlog", "--to-file", "-"]);
    assert_eq!(kept.matches("\"spanId\"").count(), 2_100);
    assert_eq!(log_command(&place, "drop", &["--delivery", &lost, "--yes"]).0, Some(0));
    assert_eq!(log_command(&place, "verify", &[]).0, Some(0));
}

/// Scenario: the directory is removed while the gateway runs: its parts, then all of it, which is
/// made again. Guarantee: what is acknowledged afterwards survives a kill; without the directory
/// senders get a retryable refusal, and the gateway makes none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_is_removed_at_run_time_is_made_anew_where_it_was() {
    let _alone = alone().await;
    let dead = dead_backend().await;
    let place = Place::folder();
    let config = disk::config(&place.directory(), "durable", &[("a", &dead)], "");
    let gateway = Gateway::start(&config).await;
    gateway.accepts(1_000).await;
    std::fs::remove_dir_all(place.directory().join("traces")).expect("removed");
    gateway.accepts(1_000).await;

    std::fs::remove_dir_all(place.directory()).expect("removed");
    let mut load = gateway.load(Signal::Traces).items(1_000);
    load.timeout = Duration::from_secs(5);
    let refused = load.run().await.expect("a load");
    assert!(refused.refused > 0 && refused.accepted == 0, "{:?}", refused.messages);
    assert!(!place.directory().exists());
    std::fs::create_dir(place.directory()).expect("made again");
    let accepts = async || {
        let report = gateway.load(Signal::Traces).items(1_000).run().await.expect("a load");
        report.accepted == 1_000
    };
    assert!(eventually(SOON, accepts).await, "{}", gateway.output());
    let report = gateway.accepts(1_000).await;
    gateway.kill().await;
    dead.faults().clear();
    let _gateway = Gateway::start(&config).await;
    let arrives = async || report.missing_at(&dead) == 0;
    assert!(eventually(SOON, arrives).await, "{} missing", report.missing_at(&dead));
}
