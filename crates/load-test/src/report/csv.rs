//! The report as CSV (RFC 4180), for other programs: a line a turn, and one for each of its pipelines.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::format::utc;
use super::record::{FoundLimit, Kpis, RunRecord, SubjectRecord, Turn};

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

/// The names of the figures, as the record has them; those of each pipeline have lines of their own.
fn figures() -> Vec<String> {
    fields(&Kpis::default()).into_iter().map(|(name, _)| name).filter(|name| name != "pipelines").collect()
}

fn fields(kpis: &impl Serialize) -> Map<String, Value> {
    json!(kpis).as_object().cloned().unwrap_or_default()
}

/// Units are in the columns' names. What is not known is empty. A subject that did not run has a line without figures.
pub fn to_csv(records: &[RunRecord]) -> String {
    let texts = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let head = [texts(&FACTS), figures(), texts(&LIMITS)].concat();
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
    let of_pipelines = turn.kpis.pipelines.iter();
    lines.extend(of_pipelines.map(|pipeline| turn_line(record, subject, Some(number), &pipeline.name, pipeline)));
    lines
}

fn turn_line(
    record: &RunRecord,
    subject: &SubjectRecord,
    turn: Option<usize>,
    pipeline: &str,
    kpis: &impl Serialize,
) -> String {
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
    let fields = fields(kpis);
    let known = |name: &String| fields.get(name)?.as_f64().map(|value| value.to_string());
    cells.extend(figures().iter().map(|name| known(name).unwrap_or_default()));
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
