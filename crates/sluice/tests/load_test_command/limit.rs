//! The search for the highest rate that is held, against a subject whose limit is known.

use serde_json::{Value, json};

use crate::support::{
    PACED_REQUESTS_PER_S, kpis, load_test, record, relay_folder, run_relay_with, stderr,
};

/// With this many the relay's limit is 1,000 items a second.
const ITEMS: u64 = 10;
const LIMIT_PER_S: f64 = (PACED_REQUESTS_PER_S * ITEMS) as f64;
/// The relay's limit is a fifth above the second rate that is tried, and a fifth below the third,
/// so that a busy machine decides nothing.
const SEARCH: [&str; 15] = [
    "--find-limit",
    "--find-limit-precision",
    "0.6",
    "--batch-size",
    "10",
    "--connections",
    "4",
    "--streams",
    "10",
    "-d",
    "5",
    "--drain-within",
    "5",
    "-r",
    "534",
];

fn rate(limit: &Value, name: &str) -> f64 {
    limit[name].as_f64().unwrap_or_else(|| panic!("{name} is not known: {limit}"))
}

#[test]
fn the_limit_of_a_relay_that_keeps_time_lies_in_the_stated_interval() {
    let (output, record) = run_relay_with(
        "paced",
        &[&SEARCH[..], &["--fail-if", "limit<500", "--fail-if", "limit>1000"]].concat(),
    );
    let limit = &record["subjects"][0]["limit"];
    let (held, failed) = (rate(limit, "held_always_per_s"), rate(limit, "failed_per_s"));
    assert!(held <= LIMIT_PER_S && LIMIT_PER_S <= failed, "{limit}");
    assert!(
        rate(limit, "rate_per_s") <= LIMIT_PER_S && limit["held"].as_u64() >= Some(3),
        "{limit}"
    );
    assert_eq!(
        (&limit["bench_was_limit"], &limit["ended_early"]),
        (&json!(false), &Value::Null),
        "{limit}"
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // The turns are those at the limit, with all their figures.
    let turns = record["subjects"][0]["turns"].as_array().unwrap();
    assert_eq!(turns.len() as u64, limit["held"].as_u64().unwrap());
    assert!(turns.iter().all(|turn| turn["kpis"]["lost"] == json!(0)), "{record}");
    let markdown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        markdown.contains("### Limits")
            && markdown.contains(&format!("between {held:.0} and {failed:.0}")),
        "{markdown}"
    );
    assert!(stderr(&output).contains("try 1 at 534/s"), "{}", stderr(&output));
}

#[test]
fn a_subject_that_holds_nothing_has_a_row_and_its_time_is_bounded() {
    let search = [
        "--find-limit",
        "--find-limit-within",
        "10",
        "-d",
        "2",
        "--drain-within",
        "1",
        "-r",
        "1000",
    ];
    let (output, record) = run_relay_with("discards", &search);
    let limit = &record["subjects"][0]["limit"];
    assert_eq!((&limit["rate_per_s"], &limit["held"]), (&Value::Null, &json!(0)), "{limit}");
    assert_eq!(limit["ended_early"], "the time for the search was over");
    assert!(record["duration_s"].as_f64().unwrap() < 40.0, "{record}");
    let reasons: Vec<_> =
        limit["tries"].as_array().unwrap().iter().map(|tried| tried["reason"].as_str()).collect();
    assert!(
        reasons.len() >= 2
            && reasons.iter().all(|reason| reason.is_some_and(|reason| reason.contains("lost")))
    );
    assert!(kpis(&record)["lost"].as_u64() > Some(0), "the last try is reported: {record}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("below "), "{}", stderr(&output));
}

#[test]
fn two_subjects_are_searched_side_by_side_without_a_start() {
    let (one, other) = (relay_folder("forwards"), relay_folder("discards"));
    let json = one.path().join("out.json");
    let mut command = load_test(&[
        "--find-limit",
        "--find-limit-within",
        "8",
        "-d",
        "2",
        "--drain-within",
        "1",
        "--streams",
        "1",
        "--connections",
        "1",
        "--batch-size",
        "10",
    ]);
    command
        .arg("--subject-dir")
        .arg(one.path())
        .arg("--subject-dir")
        .arg(other.path())
        .arg("--json")
        .arg(&json);
    let output = command.output().unwrap();
    let record = record(&json);
    let limits: Vec<_> = (0..2).map(|index| &record["subjects"][index]["limit"]).collect();
    assert!(
        limits.iter().all(|limit| limit["tries"].as_array().is_some_and(|tries| !tries.is_empty())),
        "{limits:?}"
    );
    assert!(stderr(&output).contains("forwards, what it answers at most"), "{}", stderr(&output));
    assert!(limits[1]["rate_per_s"].is_null(), "{limits:?}");
}
