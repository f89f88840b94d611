//! The log agent against the real Collector: the same files, through the same receivers with the
//! same options, become the same log records.
//!
//! Each case is a receiver with files of its own. One Collector and one Sluice run all of them, and
//! each sends to a backend of its own. `cases/differing.rs` has what differs on purpose.

mod cases;
mod contents;
#[path = "../gateway/mod.rs"]
mod gateway;
#[path = "../peers/mod.rs"]
mod peers;
mod records;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use cases::Case;
use cases::differing::EXCEPTIONS;
use gateway::Gateway;
use peers::component;
use records::{Logs, difference};
use sluice_load_test::subject::{Subject, SubjectSpec, free_addr};
use sluice_load_test::{Backend, BackendOptions};

/// Operators of the Collector hold an unfinished record for 5 s by default.
const HELD: Duration = Duration::from_millis(6500);
/// Without a new record for so long, a program has read all files.
const QUIET: Duration = Duration::from_millis(1500);
/// Time for both of them, also on a machine that does much else.
const WITHIN: Duration = Duration::from_secs(60);

/// The section `receivers` of both, and the pipelines' list of them.
fn receivers(cases: &[Case], folder: &Path) -> (String, String) {
    let (mut section, mut names) = ("receivers:\n".to_owned(), Vec::new());
    for Case { name, options, .. } in cases {
        let include = folder.join(name).join("**/*.*");
        // Writing to a string cannot fail.
        let _ = write!(
            section,
            "  filelog/{name}:\n    include: ['{}']\n    start_at: beginning\n    \
             resource: {{case: {name}}}\n{options}",
            include.display(),
        );
        names.push(format!("filelog/{name}"));
    }
    (section, names.join(", "))
}

/// One pipeline of all receivers to the backend. Requests arrive in their order.
fn config(cases: &[Case], folder: &Path, backend: &Backend, exporter: &str, more: &str) -> String {
    let (receivers, names) = receivers(cases, folder);
    format!(
        "{receivers}exporters:\n  otlp_grpc:\n    endpoint: {}\n    tls:\n      insecure: true\n\
         {exporter}{more}  pipelines:\n    logs:\n      receivers: [{names}]\n      \
         exporters: [otlp_grpc]\n",
        backend.addr()
    )
}

async fn collector(cases: &[Case], folder: &Path, backend: &Backend, binary: &Path) -> Subject {
    let health = free_addr().expect("a port");
    let exporter = "    sending_queue:\n      enabled: false\n";
    let more = format!(
        "extensions:\n  health_check:\n    endpoint: {health}\nservice:\n  \
         extensions: [health_check]\n  telemetry:\n    metrics:\n      level: none\n    \
         logs:\n      \
         level: error\n"
    );
    let gates = "--feature-gates=filelog.allowHeaderMetadataParsing";
    Subject::start(SubjectSpec {
        name: "otelcol".to_owned(),
        binary: binary.to_owned(),
        args: ["--config", "{config}", gates].map(str::to_owned).to_vec(),
        config: config(cases, folder, backend, exporter, &more),
        config_file: "config.yaml".to_owned(),
        ready: Some(health.into()),
        ..SubjectSpec::default()
    })
    .await
    .unwrap_or_else(|error| panic!("{error}"))
}

async fn sluice(cases: &[Case], folder: &Path, backend: &Backend) -> Gateway {
    let exporter = "    sending_queue:\n      num_consumers: 1\n";
    Gateway::start(&config(cases, folder, backend, exporter, "service:\n")).await
}

async fn backend() -> Backend {
    let options = BackendOptions {
        keep_requests: usize::MAX,
        message_limit_bytes: 64 << 20,
        ..BackendOptions::default()
    };
    Backend::start(options).await.expect("a backend")
}

/// Names of the cases that differ other than `EXCEPTIONS` says, each with the first difference.
fn surprises(cases: &[Case], expected: &Logs, actual: &Logs) -> Vec<String> {
    let excepted: BTreeSet<&str> = EXCEPTIONS.iter().map(|(name, _)| *name).collect();
    let mut surprises = Vec::new();
    for Case { name, is_ordered, .. } in cases {
        let found = difference(expected.of(name), actual.of(name), *is_ordered);
        match (found, excepted.contains(name.as_str())) {
            (Some(found), false) => surprises.push(format!("{name}: {found}")),
            (None, true) => surprises.push(format!("{name}: is an exception, and does not differ")),
            _ => {}
        }
        if expected.of(name).is_empty() && !excepted.contains(name.as_str()) {
            surprises.push(format!("{name}: nothing comes from the Collector"));
        }
    }
    surprises
}

/// Scenario: files of all kinds that are there at the start. Guarantee: the records that arrive are
/// those of the Collector, each file's in order; times of observation do not count.
#[tokio::test]
async fn what_is_read_from_files_is_what_the_collector_reads() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let cases = cases::all();
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len(), "each case has a name of its own");
    for (name, _) in EXCEPTIONS {
        assert!(names.contains(name), "the exception {name} is for no case");
    }
    cases.iter().for_each(|case| case.write(folder.path()));
    let backends = [backend().await, backend().await];
    let collector = collector(&cases, folder.path(), &backends[0], &binary).await;
    let sluice = sluice(&cases, folder.path(), &backends[1]).await;
    let (began, mut changed, mut counts) = (Instant::now(), Instant::now(), [0, 0]);
    let surprises = loop {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let now = [backends[0].items(), backends[1].items()];
        if now != counts {
            (changed, counts) = (Instant::now(), now);
        }
        if changed.elapsed() < QUIET || began.elapsed() < HELD {
            assert!(began.elapsed() < WITHIN, "no end of records: {counts:?}");
            continue;
        }
        let [expected, actual] = [0, 1].map(|index: usize| Logs::of_all(&backends[index].kept()));
        let surprises = surprises(&cases, &expected, &actual);
        // More may come, if the machine is slow.
        if surprises.is_empty() || changed.elapsed() > 6 * QUIET {
            break surprises;
        }
    };
    let said = sluice.output();
    let said: Vec<&str> = said.lines().filter(|line| line.contains(" ERROR ")).collect();
    assert!(
        surprises.is_empty(),
        "{} of {} cases differ:\n{}\n\nthe Collector says:\n{}\nSluice's errors:\n{}",
        surprises.len(),
        cases.len(),
        surprises.join("\n"),
        collector.output_tail(),
        said.join("\n"),
    );
}
