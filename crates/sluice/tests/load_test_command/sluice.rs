//! Sluice itself as the subject.

use serde_json::json;
use tempfile::TempDir;

use crate::support::{kpis, load_test, record, stderr};

#[test]
fn requests_of_every_form_arrive_to_the_item() {
    for form in [["http", "none"], ["http", "gzip"], ["grpc", "gzip"], ["grpc", "zstd"]] {
        let folder = TempDir::new().unwrap();
        let mut command = load_test(&[
            "-t",
            "logs-otel",
            "-r",
            "2000",
            "-d",
            "2",
            "--batch-size",
            "50",
            "--fail-if",
            "lost>0",
        ]);
        command
            .args(["--protocol", form[0], "--compression", form[1], "--output"])
            .arg(folder.path());
        let output = command.output().unwrap();
        let record = record(&folder.path().join("run.json"));
        let kpis = kpis(&record);
        assert_eq!(output.status.code(), Some(0), "{form:?}: {}", stderr(&output));
        let of = |name: &str| kpis[name].as_u64().unwrap();
        assert!(
            of("accepted") >= 2_000 && of("doubled") == 0 && of("refused") == 0,
            "{form:?}: {kpis}"
        );
        let bytes_per_record = of("wire_in_bytes") / of("accepted");
        assert_eq!(bytes_per_record < 1_500, form[1] != "none", "{form:?}: {bytes_per_record}");
    }
}

#[test]
fn sluice_under_backpressure_in_three_pipelines_loses_nothing_and_fills_every_report() {
    let folder = TempDir::new().unwrap();
    let mut command = load_test(&[
        "-t", "metrics", "-n", "0.92", "-m", "true", "-b", "true", "-r", "2048", "-d", "3",
    ]);
    let output =
        command.args(["--fail-if", "lost>0", "--output"]).arg(folder.path()).output().unwrap();
    let record = record(&folder.path().join("run.json"));
    let kpis = kpis(&record);
    assert_eq!(output.status.code(), Some(0), "{} {kpis}", stderr(&output));
    assert_eq!(
        (&kpis["lost"], kpis["pipelines"].as_array().unwrap().len()),
        (&json!(0), 3),
        "{kpis}"
    );
    assert!(kpis["received_per_s"].as_f64().unwrap() > 0.0 && kpis["queue"].is_number(), "{kpis}");
    assert_eq!(
        record["subjects"][0]["turns"][0]["fault_windows"][0]["label"],
        "70 % of requests answered 503"
    );
    let markdown = String::from_utf8(output.stdout).unwrap();
    assert!(markdown.contains("0.92"), "{markdown}");
    for report in ["report.md", "report.csv", "report.html"] {
        assert!(folder.path().join(report).exists(), "{report}");
    }
    let merged = load_test(&["report"]).arg(folder.path()).output().unwrap();
    assert!(
        merged.status.success() && String::from_utf8_lossy(&merged.stdout).contains("0.92"),
        "{}",
        stderr(&merged)
    );
}
