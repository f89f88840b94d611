//! Backends that are made sick on the command line.

use serde_json::{Value, json};

use crate::support::{
    REQUEST_ITEMS, count, kpis, load_test, relay_folder, run_relay, run_relay_with, stderr,
};

fn windows(record: &Value) -> &Value {
    &record["subjects"][0]["turns"][0]["fault_windows"]
}

#[test]
fn the_share_of_refusals_is_what_was_asked_for() {
    // About 600 requests of one item. Three in ten are refused and sent again. A stream that waits
    // for its retry is busy, so there are many streams.
    let args =
        ["-r", "150", "-d", "3", "--batch-size", "1", "--streams", "100", "--drain-within", "5"];
    let (output, record) =
        run_relay_with("forwards", &[&args[..], &["-b", "true", "--fault-share", "0.3"]].concat());
    let pipeline = &kpis(&record)["pipelines"][0];
    let (requests, refused) =
        (count(pipeline, "backend_requests"), count(pipeline, "backend_refused"));
    assert!(requests >= 400, "{record}");
    let share = refused as f64 / requests as f64;
    // Five standard deviations for this number of requests.
    let off = 5.0 * (0.3 * 0.7 / requests as f64).sqrt();
    assert!((share - 0.3).abs() < off, "{refused} of {requests}");
    assert_eq!(
        *windows(&record),
        json!([{
            "from_s": 0.0,
            "to_s": windows(&record)[0]["to_s"],
            "label": "30 % of requests answered 503",
        }])
    );
    let markdown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        markdown.contains(&format!("of {requests} requests to its backends {refused} (")),
        "{markdown}"
    );
    assert!(
        kpis(&record)["exported_per_s"].as_f64().unwrap() > 0.0,
        "exports go on under -b: {record}"
    );
}

#[test]
fn an_outage_is_when_it_was_asked_for_and_what_was_accepted_arrives() {
    let (_, record) = run_relay_with(
        "forwards",
        &["-r", "5120", "-d", "4", "--drain-within", "20", "--fault", "outage,from=1,to=2"],
    );
    let kpis = kpis(&record);
    assert_eq!(
        *windows(&record),
        json!([{ "from_s": 1.0, "to_s": 2.0, "label": "connections refused" }])
    );
    assert_eq!(record["scenario"]["backpressure"], json!(true));
    assert_eq!((count(kpis, "lost"), count(kpis, "refused")), (0, 0), "senders try again: {kpis}");
    assert_eq!(
        count(kpis, "accepted") + count(kpis, "never_sent") + count(kpis, "unanswered"),
        count(kpis, "offered")
    );
    let samples = record["subjects"][0]["turns"][0]["samples"].as_array().unwrap();
    let lowest = samples
        .iter()
        .filter_map(|sample| sample["exported_per_s"].as_f64())
        .fold(f64::MAX, f64::min);
    assert!(lowest < 0.6 * 5_120.0, "one second saw the outage: {samples:?}");
}

#[test]
fn stalls_resets_throttling_and_delays_are_had_as_scheduled() {
    let faults = [
        "stall,from=1,to=2",
        "reset,share=0.2",
        "throttle,retry-after=0,share=0.2",
        "delay,by=0.1",
    ];
    let mut args = vec!["-r", "5120", "-d", "3", "--drain-within", "10"];
    args.extend(faults.iter().flat_map(|fault| ["--fault", fault]));
    let (output, record) = run_relay_with("forwards", &args);
    let kpis = kpis(&record);
    let pipeline = &kpis["pipelines"][0];
    assert!(
        count(pipeline, "backend_refused") > 0 && count(pipeline, "backend_resets") > 0,
        "{pipeline}"
    );
    assert!(kpis["latency_p50_ms"].as_f64().unwrap() >= 100.0, "{kpis}");
    assert!(kpis["latency_p999_ms"].as_f64().unwrap() >= 300.0, "what was stalled waited: {kpis}");
    assert_eq!(count(kpis, "lost"), 0, "{kpis}");
    assert!(count(kpis, "accepted") >= 10 * REQUEST_ITEMS, "{kpis}");
    assert_eq!(windows(&record).as_array().unwrap().len(), 4);
    let words = record["scenario"]["faults"].as_str().unwrap();
    let expected = "all requests never answered from 1 to 2 s; 20 % of requests reset in \
    mid-answer; \
                    20 % of requests answered 429 with Retry-After 0 s; all requests delayed by \
                    0.1 s";
    assert_eq!(words, expected, "{}", stderr(&output));
}

#[test]
fn a_fault_of_one_pipeline_is_not_the_others() {
    // The relay knows one backend only, the first: a fault of the second changes nothing for it.
    let (_, record) = run_relay("forwards", &["-m", "--fault", "outage,pipeline=1+2"]);
    let pipelines = kpis(&record)["pipelines"].as_array().unwrap();
    let requests: Vec<_> =
        pipelines.iter().map(|pipeline| count(pipeline, "backend_requests")).collect();
    assert!(requests[0] >= 10 && requests[1..] == [0, 0], "{requests:?}");
    assert_eq!(windows(&record)[0]["label"], "connections refused (pipelines 1, 2)");
}

#[test]
fn a_fault_that_cannot_be_had_is_refused_with_the_part_that_is_wrong() {
    let folder = relay_folder("forwards");
    let cases: [(&[&str], &str); 8] = [
        (&["--fault", "stal"], "there are refuse, throttle, delay, stall, reset and outage"),
        (&["--fault", "stall,form=1"], "`form`: stall takes share, from, to, pipeline"),
        (
            &["--fault", "refuse,share=70"],
            "`share=70`: give a share of the requests above 0, up to 1",
        ),
        (&["--fault", "stall,from=70"], "begins at 70 s and the load ends at 60 s"),
        (&["-d", "10", "--fault", "stall,to=20"], "leave `to` away"),
        (&["--fault", "stall,pipeline=1"], "add -m"),
        (&["-b", "--fault", "throttle"], "-b is a `refuse` itself"),
        (&["-b", "--fault-share", "0"], "above 0"),
    ];
    for (args, expected) in cases {
        let output = load_test(args).arg("--subject-dir").arg(folder.path()).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        assert!(stderr(&output).contains(expected), "{args:?}: {}", stderr(&output));
    }
}
