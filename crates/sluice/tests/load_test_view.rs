//! The view of `sluice load-test` while it runs: on a real (pseudo) terminal, in a log, and with
//! --quiet.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";

/// Sluice under a small load of logs for this many seconds.
fn arguments(seconds: &'static str) -> [&'static str; 8] {
    ["load-test", "-t", "logs-otel", "-r", "2000", "-d", seconds, "--drain-within=5"]
}

/// `script` (of bsdutils) gives the command a pseudo terminal of 100 columns and 30 rows, and
/// copies its output.
fn on_terminal(seconds: &'static str, before: &str) -> Command {
    let words = arguments(seconds).join(" ");
    let line = format!(
        "stty cols 100 rows 30; {before} exec {} {words} >/dev/null",
        env!("CARGO_BIN_EXE_sluice")
    );
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
    command
        .env("TERM", "xterm")
        .env("LC_ALL", "C.UTF-8")
        .env_remove("NO_COLOR")
        .env("SHELL", "/bin/bash");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The cursor was hidden, and was shown again after the last time.
fn assert_restored(shown: &str) {
    let hidden = shown.rfind(HIDE_CURSOR).expect("a picture was drawn");
    let visible = shown.rfind(SHOW_CURSOR).expect("the cursor is shown again");
    assert!(visible > hidden, "{shown}");
}

#[test]
fn a_terminal_shows_progress_rates_and_what_the_run_came_to_and_is_restored() {
    let output = on_terminal("3", "").output().unwrap();
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert_restored(&shown);
    for part in [
        "Logs (OTLP), Single Pipeline",
        "turn 1 of 1",
        "under load",
        "━",
        "left of 0:03",
        "received",
        "/s",
    ] {
        assert!(shown.contains(part), "{part:?} is missing: {shown}");
    }
    assert!(shown.contains("\x1b[36m"), "colours: {shown}");
    // At most four pictures a second, for the load, the subject's start and its drain, with a
    // picture a note.
    let pictures = shown.matches("sluice load-test").count();
    assert!((4..=60).contains(&pictures), "{pictures} pictures");
    let after = &shown[shown.rfind(SHOW_CURSOR).unwrap()..];
    assert!(!after.contains("under load"), "the picture is taken away at the end: {after:?}");
    assert!(shown.contains("lost 0, doubled 0"), "what the turn came to stays: {shown}");
}

/// Guarantee: on a terminal of 80 columns no line of a report is wider, and all figures are there.
#[test]
fn the_report_fits_the_terminal() {
    let records = concat!(env!("CARGO_MANIFEST_DIR"), "/../load-test/testdata/report/run.json");
    let report = format!("exec {} load-test report {records}", env!("CARGO_BIN_EXE_sluice"));
    let run = |before: &str| {
        let line = format!("{before} {report}");
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
        command.env("LC_ALL", "C.UTF-8").env("SHELL", "/bin/bash").stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stdout));
        text(&output.stdout)
    };
    let [narrow, wide] = ["stty cols 80 rows 30;", "stty cols 1000 rows 30;"].map(run);
    let too_wide = narrow.lines().find(|line| line.trim_end().chars().count() > 80);
    assert_eq!(too_wide, None, "{narrow}");
    assert!(wide.contains("\n| ") && !narrow.contains("\n| "), "{narrow}");
    let rows = wide.lines().filter(|line| line.starts_with("| "));
    let cells = rows.flat_map(|line| line.split('|')).map(str::trim);
    for cell in cells.filter(|cell| !cell.is_empty() && !cell.ends_with("-:")) {
        assert!(narrow.contains(&cell.replace('\\', "")), "{cell}: {narrow}");
    }
}

#[test]
fn no_color_is_heeded() {
    let output = on_terminal("1", "NO_COLOR=1").output().unwrap();
    let shown = text(&output.stdout);
    assert!(
        shown.contains("under load") && !shown.contains("\x1b[36m") && !shown.contains("\x1b[1m"),
        "{shown}"
    );
}

#[test]
fn ctrl_c_ends_the_run_and_restores_the_terminal() {
    let mut child = on_terminal("600", "").spawn().unwrap();
    let mut keyboard = child.stdin.take().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    keyboard.write_all(b"\x03").unwrap();
    let output: Output = child.wait_with_output().unwrap();
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{shown}");
    assert!(shown.contains("interrupted: the load ends"), "{shown}");
    assert_restored(&shown);
}

#[test]
fn a_log_gets_plain_lines_and_quiet_nothing() {
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.args(arguments("6")).args(more).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(
            text(&output.stdout).contains("Receiver Accepted Log Records/sec"),
            "the tables are not part of the view"
        );
        text(&output.stderr)
    };
    let lines = run(&[]);
    assert!(lines.contains("   5 s  sluice: received "), "{lines}");
    assert!(lines.contains("lost 0, doubled 0") && !lines.contains('\x1b'), "{lines}");
    let quiet = run(&["--quiet"]);
    assert!(!quiet.contains("received"), "{quiet}");
}
