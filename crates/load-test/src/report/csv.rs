//! The report as CSV (RFC 4180): a line a turn, and one for each of its pipelines.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::format::utc;
use super::record::{FoundLimit, Kpis, RunRecord, SubjectRecord};

/// The source of a line. `turn` is counted from 1.
struct Line<'a> {
    record: &'a RunRecord,
    subject: &'a SubjectRecord,
    turn: Option<usize>,
    pipeline: &'a str,
    figures: Map<String, Value>,
}

/// A column's head, and its value in a line.
type Fact = (&'static str, fn(&Line<'_>) -> String);

/// Columns before the figures.
const FACTS: [Fact; 12] = [
    ("started", |line| utc(line.record.started_unix_ms)),
    ("target", |line| line.record.scenario.target.to_string()),
    ("name", |line| line.record.scenario.name.clone()),
    ("multi", |line| line.record.scenario.multi.to_string()),
    ("backpressure", |line| line.record.scenario.backpressure.to_string()),
    ("rate_per_s", |line| text(line.record.scenario.rate_per_s)),
    ("interrupted", |line| line.record.interrupted.to_string()),
    ("subject", |line| line.subject.name.clone()),
    ("version", |line| text(line.subject.version.as_ref())),
    ("measured_elsewhere", |line| text(line.subject.measured_elsewhere.as_ref())),
    ("turn", |line| text(line.turn)),
    ("pipeline", |line| line.pipeline.to_owned()),
];

/// Columns after the figures: the result of a search, the same in all lines of a subject.
const LIMITS: [Fact; 3] = [
    ("limit_per_s", |line| of_limit(line, |limit| limit.rate_per_s)),
    ("limit_held_always_per_s", |line| of_limit(line, |limit| limit.held_always_per_s)),
    ("limit_failed_per_s", |line| of_limit(line, |limit| limit.failed_per_s)),
];

fn of_limit(line: &Line<'_>, rate: fn(&FoundLimit) -> Option<f64>) -> String {
    text(line.subject.limit.as_ref().and_then(rate))
}

/// An unknown value is an empty cell. A subject that did not run has a line without figures.
pub fn to_csv(records: &[RunRecord]) -> String {
    // Figures have the record's names. Those of each pipeline have lines of their own.
    let mut figures: Vec<String> =
        fields(&Kpis::default()).into_iter().map(|(name, _)| name).collect();
    figures.retain(|name| name != "pipelines");
    let names =
        |facts: &[Fact]| facts.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>();
    let mut csv = joined([names(&FACTS), figures.clone(), names(&LIMITS)].concat());
    for line in records.iter().flat_map(lines) {
        let cells = |facts: &[Fact]| facts.iter().map(|(_, fact)| fact(&line)).collect::<Vec<_>>();
        let figure = |name: &String| text(line.figures.get(name).and_then(Value::as_f64));
        let figures = figures.iter().map(figure).collect();
        csv += &joined([cells(&FACTS), figures, cells(&LIMITS)].concat());
    }
    csv
}

fn lines(record: &RunRecord) -> impl Iterator<Item = Line<'_>> {
    record.subjects.iter().flat_map(move |subject| {
        let line = move |turn, pipeline, figures| Line { record, subject, turn, pipeline, figures };
        let mut lines = Vec::new();
        if subject.turns.is_empty() {
            lines.push(line(None, "", Map::new()));
        }
        for (number, turn) in (1..).zip(&subject.turns) {
            lines.push(line(Some(number), "", fields(&turn.kpis)));
            let pipelines = turn.kpis.pipelines.iter();
            lines.extend(pipelines.map(|one| line(Some(number), &one.name, fields(one))));
        }
        lines
    })
}

fn fields(kpis: &impl Serialize) -> Map<String, Value> {
    json!(kpis).as_object().cloned().unwrap_or_default()
}

fn text(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn joined(cells: Vec<String>) -> String {
    let quoted = cells.into_iter().map(|cell| match cell.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    });
    quoted.collect::<Vec<_>>().join(",") + "\r\n"
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
