//! Flags that are refused, in one sentence with the remedy, and flags that are taken.

use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::support::{load_test, stderr};

#[test]
fn what_cannot_be_done_is_refused_in_one_sentence_that_says_what_helps() {
    let folder = TempDir::new().unwrap();
    let broken = json!({ "name": "broken", "command": ["/nonexistent/engine"] });
    std::fs::write(folder.path().join("subject.json"), broken.to_string()).unwrap();
    let broken = folder.path().display().to_string();
    let cases: [(&[&str], &str); 26] = [
        (&["-t", "logagent", "--compression", "gzip"], "--compression is about OTLP requests"),
        (&["--subject", "vector"], "no program `vector` in PATH"),
        (&["--subject-dir", &broken], "no program at /nonexistent/engine"),
        (&["-s", "100"], "-t logs-otel"),
        (&["-d", "0"], "1 second or more"),
        (&["-d", "soon"], "give a number of seconds"),
        (&["-d", "100000"], "give 0 to 86400 seconds"),
        (&["-r", "0"], "give a number of items above 0"),
        (&["-r", "100", "--closed-loop"], "cannot be used with"),
        (&["-m", "maybe"], "[possible values: true, false]"),
        (&["--protocol", "udp"], "[possible values: grpc, http]"),
        (&["--compression", "snappy"], "[possible values: none, gzip, zstd]"),
        (&["--batch-size", "0"], "1..=100000"),
        (&["--connections", "0"], "1..=100000"),
        (&["--streams", "100000", "--batch-size", "10000"], "smaller --batch-size"),
        (&["--connections", "100000", "--streams", "1", "--batch-size", "1"], "ulimit -n"),
        (&["--fault-share", "0.5"], "add -b"),
        (&["--fault-delay", "1"], "add -b"),
        (&["--find-limit", "--turns", "3"], "cannot be used with"),
        (&["--find-limit", "--closed-loop"], "cannot be used with"),
        (&["--find-limit-within", "60"], "add --find-limit"),
        (
            &["--find-limit", "--find-limit-within", "20"],
            "give 40 s or more, or shorten the tries with -d",
        ),
        (&["--find-limit", "--find-limit-precision", "5"], "0.01 to 1"),
        (&["--fail-if", "limit<1000"], "add --find-limit"),
        (&["--fail-if", "losst>0"], "no figure `losst`"),
        (&["--json", "/nonexistent/folder/run.json"], "name a file in a folder that is there"),
    ];
    for (args, expected) in cases {
        let output = load_test(args).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        assert!(stderr(&output).contains(expected), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

/// The output of a dry run.
fn dry_run(args: &[&str]) -> String {
    let output = load_test(args).arg("--dry-run").output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn without_arguments_there_is_a_canonical_run_of_a_minute() {
    let expected = "Traces, Single Pipeline\nName: 0.1.0\nLoad: as fast as it is answered for 60 \
    s, 1 pipeline(s), 512 items a request, \
                    gRPC, not compressed, 2 connection(s) of 10 stream(s)\nSubjects: \
                    sluice\nTurns of each: 1\n";
    assert_eq!(dry_run(&[]), expected);
}

#[test]
fn every_part_of_the_load_can_be_set() {
    let plan = dry_run(&[
        "-t",
        "logs-otel",
        "-n",
        "1.2",
        "-r",
        "2500",
        "-s",
        "500",
        "-d",
        "30s",
        "--protocol",
        "http",
        "--compression",
        "zstd",
        "--batch-size",
        "50",
        "--connections",
        "3",
        "--streams",
        "7",
        "-m",
        "-b",
        "--fault-delay",
        "1",
    ]);
    for part in [
        "Logs (OTLP), Multi Pipeline Backpressure",
        "Name: 1.2",
        "Load: 2500 items/s for 30 s, 3 pipeline(s), 50 items a request, bodies of 500 bytes, \
         HTTP, zstd, 3 connection(s) of 7 stream(s)",
        "Faults: 70 % of requests answered 503; 70 % of requests delayed by 1 s",
    ] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    let plan = dry_run(&["-t", "metrics", "--closed-loop", "-m", "false", "-b", "false"]);
    assert!(
        plan.contains("Single Pipeline\n")
            && plan.contains("as fast as it is answered for 60 s, 1 pipeline(s)"),
        "{plan}"
    );
    let plan = dry_run(&["--find-limit", "--find-limit-within", "300"]);
    assert!(
        plan.contains("rates searched in tries of 10 s") && plan.contains("at most 300 s"),
        "{plan}"
    );
}

/// Runs the script that has the Kyma load test's name and flags.
fn script(arguments: &str) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/load-tests/run-load-test.sh");
    let mut command = Command::new("bash");
    // As a shell splits what the published instructions show.
    command.arg(script).args(arguments.split_whitespace().map(|word| word.trim_matches('"')));
    command.env("SLUICE", env!("CARGO_BIN_EXE_sluice"));
    // A dry run looks for the subjects' programs, and starts none.
    command.env("SLUICE_TEST_OTELCOL", "/bin/true").env("SLUICE_TEST_FLUENT_BIT", "/bin/true");
    command
}

#[test]
fn the_published_commands_of_the_kyma_load_test_are_taken_as_they_stand() {
    let cases = [
        ("-t traces -n \"0.92\"", "Traces, Single Pipeline\n"),
        ("-t traces -n \"0.92\" -b true", "Traces, Single Pipeline Backpressure\n"),
        ("-t traces -n \"0.92\" -m true", "Traces, Multi Pipeline\n"),
        ("-t traces -n \"0.92\" -m true -b true", "Traces, Multi Pipeline Backpressure\n"),
        ("-t metrics -n \"0.92\"", "Metrics, Single Pipeline\n"),
        ("-t metrics -n \"0.92\" -b true", "Metrics, Single Pipeline Backpressure\n"),
        ("-t metrics -n \"0.92\" -m true", "Metrics, Multi Pipeline\n"),
        ("-t metrics -n \"0.92\" -m true -b true", "Metrics, Multi Pipeline Backpressure\n"),
        ("-t metricagent -n \"0.92\"", "Metric agent, Single Pipeline\n"),
        ("-t metricagent -n \"0.92\" -b true", "Metric agent, Single Pipeline Backpressure\n"),
        ("-t logs-fluentbit -n \"2.2.1\"", "Logs (Fluent Bit), Single Pipeline\n"),
        (
            "-t logs-fluentbit -n \"2.2.1\" -b true",
            "Logs (Fluent Bit), Single Pipeline Backpressure\n",
        ),
        ("-t logs-fluentbit -n \"2.2.1\" -m true", "Logs (Fluent Bit), Multi Pipeline\n"),
        (
            "-t logs-fluentbit -n \"2.2.1\" -m true -b true",
            "Logs (Fluent Bit), Multi Pipeline Backpressure\n",
        ),
        ("-t logs-otel", "Logs (OTLP), Single Pipeline\n"),
        ("-t logs-otel -r 2000", "Logs (OTLP), Single Pipeline\n"),
        (
            "-t logs-otel -n \"0.92\" -m true -b true -d 600",
            "Logs (OTLP), Multi Pipeline Backpressure\n",
        ),
    ];
    for (arguments, title) in cases {
        let output = script(arguments).arg("--dry-run").output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", stderr(&output));
        let plan = String::from_utf8(output.stdout).unwrap();
        let lasts = if arguments.contains("-d 600") { "for 600 s" } else { "for 1200 s" };
        assert!(plan.starts_with(title) && plan.contains(lasts), "{arguments}: {plan}");
        if arguments.contains("0.92") {
            assert!(plan.contains("Name: 0.92\n"), "{arguments}: {plan}");
        }
    }
}
