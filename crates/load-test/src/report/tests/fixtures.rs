//! Records with every shape that a report must support, and golden files.

use std::path::Path;

use super::record::*;

fn kpis(rate: f64) -> Kpis {
    Kpis {
        received_per_s: Some(rate),
        exported_per_s: Some(rate),
        queue: Some(0.0),
        queue_max: Some(3.0),
        memory_bytes: Some(48.4 * 1048576.0),
        memory_max_bytes: Some(52.0 * 1048576.0),
        cpu_cores: Some(0.247),
        restarts: Some(0),
        offered: Some(600_000),
        accepted: Some(600_000),
        refused: Some(0),
        unanswered: Some(0),
        never_sent: Some(0),
        lost: Some(0),
        doubled: Some(0),
        latency_p50_ms: Some(1.24),
        latency_p99_ms: Some(7.5),
        latency_p999_ms: Some(21.0),
        cpu_s_per_million: Some(3.704),
        wire_in_bytes: Some(1_140_000_000),
        wire_out_bytes: Some(1_141_000_000),
        drain_s: Some(0.04),
        ..Kpis::default()
    }
}

/// One minute of a wave, with one unknown value and one fault window.
fn turn(rate: f64) -> Turn {
    let sample = |second: u32| {
        let t_s = f64::from(second);
        let wave = 1.0 + 0.08 * (t_s / 4.0).sin();
        let sick = (20..35).contains(&second);
        let exported = if sick { 0.3 } else { 1.0 };
        Sample {
            t_s,
            received_per_s: Some((rate * wave).round()),
            exported_per_s: (second != 45).then_some((rate * wave * exported).round()),
            queue: Some(if sick { f64::from(second - 19) * 14.0 } else { 2.0 }),
            backlog_items: Some(if sick { f64::from(second - 19) * 7_000.0 } else { 512.0 }),
            memory_bytes: Some(((40.0 + if sick { t_s } else { 8.0 * wave }) * 1048576.0).round()),
            cpu_cores: Some((rate / 80_000.0 * wave * 1000.0).round() / 1000.0),
            latency_p99_ms: Some(if sick { 900.0 } else { (7.0 * wave * 100.0).round() / 100.0 }),
        }
    };
    Turn {
        number: 1,
        kpis: kpis(rate),
        samples: (0..=60).map(sample).collect(),
        fault_windows: vec![FaultWindow {
            from_s: 20.0,
            to_s: Some(35.0),
            label: "70 % 503".to_owned(),
        }],
        bench: BenchCost {
            generator_cpu_cores: Some(0.31),
            backend_cpu_cores: Some(0.22),
            memory_max_bytes: Some(90.0 * 1048576.0),
            late_requests: Some(2),
        },
        prometheus: None,
        k6: None,
    }
}

fn subject(name: &str, version: &str, rates: &[f64]) -> SubjectRecord {
    SubjectRecord {
        name: name.to_owned(),
        version: Some(version.to_owned()),
        limits: SubjectLimits {
            cpu_cores: Some(1.0),
            memory_bytes: Some(500 << 20),
            pinned_cores: vec![0],
        },
        turns: rates
            .iter()
            .enumerate()
            .map(|(index, &rate)| Turn { number: index + 1, ..turn(rate) })
            .collect(),
        limit: None,
        cannot: None,
        measured_elsewhere: None,
    }
}

fn record(name: &str, started_unix_ms: u64, subjects: Vec<SubjectRecord>) -> RunRecord {
    RunRecord {
        format: FORMAT,
        tool_version: "0.1.0".to_owned(),
        machine: Machine {
            architecture: Some("x86_64".to_owned()),
            cores: 4,
            memory_bytes: Some(16 << 30),
        },
        started_unix_ms,
        duration_s: 61.5,
        interrupted: false,
        scenario: Scenario {
            target: Target::Traces,
            name: name.to_owned(),
            multi: false,
            backpressure: false,
            faults: None,
            load_s: 60.0,
            rate_per_s: Some(10_000.0),
            find_limit: false,
            body_bytes: None,
            items_per_request: Some(512),
            pipelines: 1,
            carried: Some("gRPC, not compressed, 2 connection(s) of 10 stream(s)".to_owned()),
            command: Some(format!("sluice load-test -t traces -n {name}")),
        },
        subjects,
        warnings: Vec::new(),
        verdicts: Vec::new(),
    }
}

/// One subject, one turn, one of everything.
pub(super) fn single() -> RunRecord {
    let mut record =
        record("0.1.0", 1_772_323_200_000, vec![subject("sluice", "0.1.0", &[10_000.0])]);
    record.scenario.backpressure = true;
    record.scenario.faults = Some("70 % of requests answered 503".to_owned());
    record.warnings.push(Warning {
        subject: Some("sluice".to_owned()),
        message: "The generator took 0.95 of its core.".to_owned(),
        remedy: Some("Give it another core.".to_owned()),
    });
    let verdict = |fail_if: &str, value, failed| Verdict {
        subject: "sluice".to_owned(),
        fail_if: fail_if.to_owned(),
        value,
        failed,
    };
    record.verdicts =
        vec![verdict("lost>0", Some(0.0), false), verdict("p99>5ms", Some(7.5), true)];
    record
}

/// Two subjects in turn, three pipelines.
pub(super) fn multi() -> RunRecord {
    let subjects = vec![
        subject("sluice", "0.1.0", &[10_000.0, 9_000.0]),
        subject("otelcol", "0.160.0", &[6_000.0, 6_100.0]),
    ];
    let mut record = record("0.1.0", 1_772_326_800_000, subjects);
    record.scenario.multi = true;
    record.scenario.pipelines = 3;
    record.subjects[1].turns[1].kpis.lost = None;
    record.subjects[1].turns[1].kpis.latency_p99_ms = None;
    for (number, subject) in record.subjects.iter_mut().enumerate() {
        let pipeline = |name: &str| PipelineKpis {
            name: name.to_owned(),
            exported_per_s: Some(3_300.0 - 1_000.0 * number as f64),
            queue: (number == 0).then_some(0.0),
            lost: Some(0),
            ..PipelineKpis::default()
        };
        subject.turns[0].kpis.pipelines = vec![pipeline("traces/one"), pipeline("traces/two")];
    }
    record
}

/// Versions, a run made again, an interrupted one, a subject that did not start, published figures,
/// and another target.
pub(super) fn merged() -> Vec<RunRecord> {
    let mut again = single();
    again.started_unix_ms += 60_000;
    again.interrupted = true;
    let mut published =
        record("0.147", 1_772_300_000_000, vec![subject("otelcol", "0.147.0", &[])]);
    published.subjects[0].measured_elsewhere = Some("the Kyma telemetry load test".to_owned());
    let figures =
        Kpis { received_per_s: Some(22_458.0), exported_per_s: Some(22_285.0), ..Kpis::default() };
    published.subjects[0].turns =
        vec![Turn { kpis: Kpis { queue: Some(2.0), ..figures }, ..Turn::default() }];
    let mut absent = record("0.1.0", 1_772_330_000_000, vec![subject("rotel", "0.2.1", &[])]);
    absent.machine = Machine { cores: 2, ..Machine::default() };
    let mut bytes =
        record("3.0.3", 1_772_340_000_000, vec![subject("fluent-bit", "3.0.3", &[0.0])]);
    bytes.scenario.target = Target::LogsFluentBit;
    bytes.subjects[0].turns[0].kpis = Kpis {
        received_bytes_per_s: Some(9_483.0 * 1024.0),
        exported_bytes_per_s: Some(22_042.0 * 1024.0),
        buffer_bytes: Some(53_251.0 * 1024.0),
        ..Kpis::default()
    };
    vec![published, single(), again, multi(), absent, bytes]
}

/// Compares with `testdata/NAME`. `UPDATE_GOLDEN=1` writes it instead: look at the difference
/// before you keep it.
pub(super) fn golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/report").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(found == expected, "{} differs; it would be:\n{found}", path.display());
}
