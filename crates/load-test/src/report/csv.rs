//! The report as CSV (RFC 4180), for other programs: a line a turn, and one for each of its pipelines.

use super::format::utc;
use super::record::{FoundLimit, Kpis, PipelineKpis, RunRecord, SubjectRecord, Turn};

type Figure = (&'static str, fn(&Kpis) -> Option<f64>);

const FIGURES: [Figure; 25] = [
    ("received_per_s", |kpis| kpis.received_per_s),
    ("exported_per_s", |kpis| kpis.exported_per_s),
    ("queue", |kpis| kpis.queue),
    ("queue_max", |kpis| kpis.queue_max),
    ("memory_bytes", |kpis| kpis.memory_bytes),
    ("memory_max_bytes", |kpis| kpis.memory_max_bytes),
    ("cpu_cores", |kpis| kpis.cpu_cores),
    ("restarts", |kpis| whole(kpis.restarts)),
    ("offered", |kpis| whole(kpis.offered)),
    ("accepted", |kpis| whole(kpis.accepted)),
    ("refused", |kpis| whole(kpis.refused)),
    ("unanswered", |kpis| whole(kpis.unanswered)),
    ("never_sent", |kpis| whole(kpis.never_sent)),
    ("lost", |kpis| whole(kpis.lost)),
    ("doubled", |kpis| whole(kpis.doubled)),
    ("latency_p50_ms", |kpis| kpis.latency_p50_ms),
    ("latency_p99_ms", |kpis| kpis.latency_p99_ms),
    ("latency_p999_ms", |kpis| kpis.latency_p999_ms),
    ("cpu_s_per_million", |kpis| kpis.cpu_s_per_million),
    ("wire_in_bytes", |kpis| whole(kpis.wire_in_bytes)),
    ("wire_out_bytes", |kpis| whole(kpis.wire_out_bytes)),
    ("received_bytes_per_s", |kpis| kpis.received_bytes_per_s),
    ("exported_bytes_per_s", |kpis| kpis.exported_bytes_per_s),
    ("buffer_bytes", |kpis| kpis.buffer_bytes),
    ("drain_s", |kpis| kpis.drain_s),
];

const FACTS: [&str; 12] = [
    "started",
    "target",
    "name",
    "multi",
    "backpressure",
    "rate_per_s",
    "interrupted",
    "subject",
    "version",
    "measured_elsewhere",
    "turn",
    "pipeline",
];

/// What a search found, the same in all of a subject's lines.
const LIMITS: [&str; 3] = ["limit_per_s", "limit_held_always_per_s", "limit_failed_per_s"];

fn whole(count: Option<u64>) -> Option<f64> {
    count.map(|count| count as f64)
}

/// Units are in the columns' names. What is not known is empty. A subject that did not run has a line without figures.
pub fn to_csv(records: &[RunRecord]) -> String {
    let head: Vec<String> =
        FACTS.iter().copied().chain(FIGURES.iter().map(|(name, _)| *name)).chain(LIMITS).map(str::to_owned).collect();
    let mut lines = vec![line(&head)];
    for record in records {
        for subject in &record.subjects {
            if subject.turns.is_empty() {
                lines.push(turn_line(record, subject, None, "", &Kpis::default()));
            }
            for (number, turn) in subject.turns.iter().enumerate() {
                lines.extend(turn_lines(record, subject, number + 1, turn));
            }
        }
    }
    lines.concat()
}

fn turn_lines(record: &RunRecord, subject: &SubjectRecord, number: usize, turn: &Turn) -> Vec<String> {
    let mut lines = vec![turn_line(record, subject, Some(number), "", &turn.kpis)];
    lines.extend(
        turn.kpis
            .pipelines
            .iter()
            .map(|pipeline| turn_line(record, subject, Some(number), &pipeline.name, &as_kpis(pipeline))),
    );
    lines
}

fn as_kpis(pipeline: &PipelineKpis) -> Kpis {
    Kpis {
        exported_per_s: pipeline.exported_per_s,
        queue: pipeline.queue,
        lost: pipeline.lost,
        doubled: pipeline.doubled,
        latency_p99_ms: pipeline.latency_p99_ms,
        ..Kpis::default()
    }
}

fn turn_line(record: &RunRecord, subject: &SubjectRecord, turn: Option<usize>, pipeline: &str, kpis: &Kpis) -> String {
    let scenario = &record.scenario;
    let target = clap::ValueEnum::to_possible_value(&scenario.target).expect("no target is hidden");
    let mut cells = vec![
        utc(record.started_unix_ms),
        target.get_name().to_owned(),
        scenario.name.clone(),
        scenario.multi.to_string(),
        scenario.backpressure.to_string(),
        scenario.rate_per_s.map(|rate| rate.to_string()).unwrap_or_default(),
        record.interrupted.to_string(),
        subject.name.clone(),
        subject.version.clone().unwrap_or_default(),
        subject.measured_elsewhere.clone().unwrap_or_default(),
        turn.map(|turn| turn.to_string()).unwrap_or_default(),
        pipeline.to_owned(),
    ];
    cells.extend(FIGURES.iter().map(|(_, figure)| figure(kpis).map(|value| value.to_string()).unwrap_or_default()));
    cells.extend(limit_cells(subject));
    line(&cells)
}

fn limit_cells(subject: &SubjectRecord) -> [String; 3] {
    let limit = subject.limit.as_ref();
    let rate = |value: fn(&FoundLimit) -> Option<f64>| {
        limit.and_then(value).map(|value| value.to_string()).unwrap_or_default()
    };
    [rate(|limit| limit.rate_per_s), rate(|limit| limit.held_always_per_s), rate(|limit| limit.failed_per_s)]
}

fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| quote(cell)).collect();
    cells.join(",") + "\r\n"
}

fn quote(cell: &str) -> String {
    if cell.contains([',', '"', '\r', '\n']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{self, golden};
    use super::*;

    #[test]
    fn every_turn_and_pipeline_has_its_line() {
        // Read back with one kind of line end, as the golden files are kept.
        golden("merged.csv", &to_csv(&fixtures::merged()).replace("\r\n", "\n"));
    }

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let mut record = fixtures::single();
        record.scenario.name = "a, \"b\"\nc".to_owned();
        assert!(to_csv(&[record]).contains(",\"a, \"\"b\"\"\nc\","));
    }
}
