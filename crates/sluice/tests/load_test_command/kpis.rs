//! Each figure, against a subject whose behaviour is known.

use serde_json::{Value, json};

use crate::support::{
    BURNT, QUEUE, REQUEST_ITEMS, count, kpis, run_relay, run_relay_with, stderr, warnings,
};

#[test]
fn a_subject_that_answers_and_stores_nothing_has_lost_everything_and_fails_the_threshold() {
    let (output, record) = run_relay("discards", &["--fail-if", "lost>0"]);
    let kpis = kpis(&record);
    assert!(kpis["accepted"].as_u64().unwrap() >= 10 * REQUEST_ITEMS, "{kpis}");
    assert_eq!(kpis["lost"], kpis["accepted"], "{kpis}");
    assert_eq!(
        (&kpis["exported_per_s"], &kpis["drain_s"], &kpis["latency_p99_ms"]),
        (&json!(0.0), &Value::Null, &Value::Null)
    );
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let verdict = &record["verdicts"][0];
    assert_eq!(
        (verdict["failed"].as_bool(), verdict["value"].as_f64()),
        (Some(true), kpis["lost"].as_f64())
    );
}

#[test]
fn every_tenth_request_doubled_is_reported_to_the_item_and_nothing_is_lost() {
    let (output, record) = run_relay("doubles", &["--fail-if", "lost>0"]);
    let kpis = kpis(&record);
    let requests = kpis["accepted"].as_u64().unwrap() / REQUEST_ITEMS;
    assert!(requests >= 10, "{kpis}");
    assert_eq!(kpis["doubled"], json!(requests.div_ceil(10) * REQUEST_ITEMS), "{kpis}");
    assert_eq!((&kpis["lost"], &kpis["refused"]), (&json!(0), &json!(0)), "{kpis}");
    assert!(
        kpis["wire_out_bytes"].as_u64() > kpis["wire_in_bytes"].as_u64(),
        "the doubled ones went out too: {kpis}"
    );
    assert!(
        kpis["cpu_s_per_million"].as_f64().unwrap() > 0.0 && kpis["drain_s"].is_number(),
        "{kpis}"
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_subject_that_delays_shows_in_the_latency_and_has_a_sample_a_second() {
    let (_, record) = run_relay("delays", &[]);
    let kpis = kpis(&record);
    assert!(kpis["latency_p50_ms"].as_f64().unwrap() >= 400.0, "{kpis}");
    assert!(kpis["latency_p999_ms"].as_f64() >= kpis["latency_p50_ms"].as_f64(), "{kpis}");
    assert_eq!(kpis["lost"], json!(0));
    assert!(
        record["subjects"][0]["turns"][0]["samples"].as_array().unwrap().len() >= 2,
        "{record}"
    );
}

#[test]
fn every_tenth_item_doubled_is_reported_to_the_item() {
    let (_, record) = run_relay("repeats", &[]);
    let kpis = kpis(&record);
    let accepted = count(kpis, "accepted");
    assert!(accepted >= 10 * REQUEST_ITEMS, "{kpis}");
    assert_eq!((count(kpis, "doubled"), count(kpis, "lost")), (accepted.div_ceil(10), 0), "{kpis}");
}

#[test]
fn every_seventh_request_dropped_is_lost_to_the_item() {
    let (output, record) = run_relay("drops", &["--fail-if", "lost>0"]);
    let kpis = kpis(&record);
    let requests = count(kpis, "accepted") / REQUEST_ITEMS;
    assert!(requests >= 10, "{kpis}");
    assert_eq!(count(kpis, "lost"), requests.div_ceil(7) * REQUEST_ITEMS, "{kpis}");
    assert_eq!(count(kpis, "doubled"), 0);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

#[test]
fn what_is_refused_is_neither_accepted_nor_lost() {
    let (output, record) = run_relay("refuses", &["--fail-if", "lost>0", "--fail-if", "refused>0"]);
    let kpis = kpis(&record);
    assert_eq!((count(kpis, "accepted"), count(kpis, "lost")), (0, 0), "{kpis}");
    assert!(count(kpis, "refused") >= 10 * REQUEST_ITEMS, "{kpis}");
    // A retry that was in flight at the deadline has no answer.
    let not_refused = count(kpis, "unanswered") + count(kpis, "never_sent");
    assert_eq!(
        count(kpis, "refused") + not_refused,
        count(kpis, "offered"),
        "nothing is left out: {kpis}"
    );
    let failed: Vec<_> =
        record["verdicts"].as_array().unwrap().iter().map(|verdict| &verdict["failed"]).collect();
    assert_eq!(failed, [&json!(false), &json!(true)]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

#[test]
fn the_bytes_on_both_wires_are_counted() {
    // The relay forwards all that it gets. Backends do not count the five bytes before each
    // message.
    let (_, record) = run_relay("forwards", &[]);
    let plain = kpis(&record);
    let requests = count(plain, "accepted") / REQUEST_ITEMS;
    assert_eq!(
        count(plain, "wire_in_bytes"),
        count(plain, "wire_out_bytes") + 5 * requests,
        "{plain}"
    );
    let bytes_per_span = count(plain, "wire_in_bytes") / count(plain, "accepted");
    assert!((1_800..2_000).contains(&bytes_per_span), "{bytes_per_span}");
    for compression in ["gzip", "zstd"] {
        let (_, record) = run_relay("forwards", &["--compression", compression]);
        let packed = kpis(&record);
        assert_eq!(
            (count(packed, "lost"), count(packed, "doubled")),
            (0, 0),
            "each item is its own: {packed}"
        );
        assert!(count(packed, "accepted") >= 10 * REQUEST_ITEMS, "{packed}");
        let bytes_per_span = count(packed, "wire_in_bytes") / count(packed, "accepted");
        assert!((300..800).contains(&bytes_per_span), "{compression}: {bytes_per_span}");
    }
}

#[test]
fn cpu_time_is_the_subjects_own() {
    let (_, record) = run_relay("burns", &[]);
    let kpis = kpis(&record);
    let burnt = BURNT.as_secs_f64() / REQUEST_ITEMS as f64 * 1e6;
    let found = kpis["cpu_s_per_million"].as_f64().unwrap();
    // Forwarding costs something too, and the kernel counts in hundredths of a second.
    assert!((0.9 * burnt..4.0 * burnt).contains(&found), "burnt {burnt}, found {found}");
    let offered_per_s = 10.0;
    let cores = kpis["cpu_cores"].as_f64().unwrap();
    assert!(cores >= 0.8 * offered_per_s * BURNT.as_secs_f64(), "{cores}");
}

#[test]
fn what_arrives_after_the_load_is_drained_and_not_lost() {
    let (_, record) = run_relay_with(
        "lags",
        &["-r", "5120", "-d", "2", "--drain-within", "20", "--fail-if", "lost>0"],
    );
    let kpis = kpis(&record);
    // The last request is sent up to a tenth of a second before the load ends, and forwarded 1.5 s
    // after that.
    assert!(kpis["drain_s"].as_f64().unwrap() >= 1.0, "{kpis}");
    assert!(kpis["latency_p50_ms"].as_f64().unwrap() >= 1_490.0, "{kpis}");
    assert_eq!(count(kpis, "lost"), 0, "{kpis}");
    let received = kpis["received_per_s"].as_f64().unwrap();
    assert!(
        kpis["exported_per_s"].as_f64().unwrap() < received,
        "only what came while the load lasted: {kpis}"
    );
    let samples = record["subjects"][0]["turns"][0]["samples"].as_array().unwrap();
    let backlog = samples.last().unwrap()["backlog_items"].as_f64().unwrap();
    assert!(backlog >= 5.0 * REQUEST_ITEMS as f64, "what is on its way is seen: {backlog}");
}

#[test]
fn the_queue_is_the_subjects_own_word() {
    let (_, record) = run_relay("forwards", &["--fail-if", "queue>=7"]);
    let kpis = kpis(&record);
    assert_eq!(
        (kpis["queue"].as_f64(), kpis["queue_max"].as_f64()),
        (Some(QUEUE as f64), Some(QUEUE as f64))
    );
    assert_eq!(record["verdicts"][0]["failed"], json!(true));
}

#[test]
fn rates_are_of_the_time_that_was_asked_for() {
    let (_, record) = run_relay_with("forwards", &["-r", "5120", "-d", "4"]);
    let kpis = kpis(&record);
    assert_eq!(record["scenario"]["load_s"], json!(4.0));
    assert_eq!(
        count(kpis, "offered"),
        40 * REQUEST_ITEMS,
        "ten requests a second for four seconds"
    );
    let received = kpis["received_per_s"].as_f64().unwrap();
    // A window other than these four seconds would give another number.
    assert!((0.75 * 5_120.0..=1.1 * 5_120.0).contains(&received), "{kpis}");
    assert_eq!(
        count(kpis, "accepted") + count(kpis, "never_sent") + count(kpis, "refused"),
        count(kpis, "offered")
    );
}

#[test]
fn requests_that_are_sent_late_are_told_and_warned_of() {
    // One request at a time, each answered after 0.4 s, cannot be ten a second.
    let (_, record) = run_relay("delays", &["--connections", "1", "--streams", "1"]);
    let kpis = kpis(&record);
    assert!(count(kpis, "never_sent") >= 10 * REQUEST_ITEMS, "{kpis}");
    let late = record["subjects"][0]["turns"][0]["bench"]["late_requests"].as_u64().unwrap();
    assert!(late >= 2, "{late}");
    // Late is not slow: each takes its 0.4 s from its own sending on.
    assert!(kpis["latency_p50_ms"].as_f64().unwrap() < 2_000.0, "{kpis}");
    let warnings = warnings(&record).join("\n");
    assert!(warnings.contains("50 ms late") && warnings.contains("never sent"), "{warnings}");
}
