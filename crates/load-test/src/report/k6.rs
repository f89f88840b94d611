//! Samples of k6 on their way to InfluxDB: what a record has of them, and their tables.

use serde::{Deserialize, Serialize};

use super::format::{DASH, Spread, count, megabytes, number, spread};
use super::record::{Kpis, RunRecord, SubjectRecord};
use super::table::Table;
use super::tables::{notes_of, subject_label};

/// The ends of a subject's way, beside its own figures. An unknown figure is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct K6Figures {
    /// `generator`, or `k6` with its version.
    pub source: String,
    /// `InfluxDB` with its version, or `sink`.
    pub database: String,
    /// HTTP requests of the script, and samples of all metrics, for each second of the load.
    pub requests_per_s: Option<f64>,
    pub samples_per_s: Option<f64>,
    /// CPU time from the load's beginning to the last arrival, for each second of the load.
    pub source_cpu_cores: Option<f64>,
    pub source_memory_max_bytes: Option<f64>,
    pub database_cpu_cores: Option<f64>,
    pub database_memory_max_bytes: Option<f64>,
    /// Writes of the source: requests, or appends to its file.
    pub flushes: Option<u64>,
    pub flushes_failed: Option<u64>,
    pub flush_mean_ms: Option<f64>,
    pub flush_max_ms: Option<f64>,
    pub counters: Vec<K6Counter>,
}

/// One counter of k6: the sum of its samples at both ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct K6Counter {
    pub name: String,
    pub generated: Option<f64>,
    pub stored: Option<f64>,
}

impl K6Counter {
    /// Below zero where there is more in the database.
    pub fn missing(&self) -> Option<f64> {
        Some(self.generated? - self.stored?)
    }
}

type Entry<'a> = (&'a RunRecord, &'a SubjectRecord);
type Column = (&'static str, fn(&Entry<'_>) -> String);

const COLUMNS: [Column; 16] = [
    ("Version/Test", label),
    ("Requests/sec", |(_, of)| figure(of, |k6| k6.requests_per_s, 0)),
    ("Samples/sec", |(_, of)| figure(of, |k6| k6.samples_per_s, 0)),
    ("k6 CPU", |(_, of)| figure(of, |k6| k6.source_cpu_cores, 2)),
    ("Subject CPU", |(_, of)| kpi(of, |kpis| kpis.cpu_cores, 2)),
    ("InfluxDB CPU", |(_, of)| figure(of, |k6| k6.database_cpu_cores, 2)),
    ("k6 MB", |(_, of)| figure(of, |k6| megabytes(k6.source_memory_max_bytes), 0)),
    ("Subject MB", |(_, of)| kpi(of, |kpis| megabytes(kpis.memory_max_bytes), 0)),
    ("InfluxDB MB", |(_, of)| figure(of, |k6| megabytes(k6.database_memory_max_bytes), 0)),
    ("Flush ms", |(_, of)| figure(of, |k6| k6.flush_mean_ms, 1)),
    ("Max flush ms", |(_, of)| figure(of, |k6| k6.flush_max_ms, 1)),
    ("Flushes failed", |(_, of)| failed(of)),
    ("Missing requests", |(_, of)| count(of.total(|kpis| kpis.lost))),
    ("Missing %", |(_, of)| kpi(of, missing_percent, 2)),
    ("Too many", |(_, of)| count(of.total(|kpis| kpis.doubled))),
    ("Drain s", |(_, of)| kpi(of, |kpis| kpis.drain_s, 1)),
];

fn label((record, subject): &Entry<'_>) -> String {
    let mark = if subject.measured_elsewhere.is_some() { " *" } else { "" };
    let interrupted = if record.interrupted { " †" } else { "" };
    format!("{} · {}{mark}{interrupted}", record.scenario.name, subject_label(subject))
}

/// A figure of the turns that know it.
fn figure(subject: &SubjectRecord, of: fn(&K6Figures) -> Option<f64>, decimals: usize) -> String {
    let turns = subject.turns.iter().filter_map(|turn| of(turn.k6.as_ref()?));
    spread(Spread::of(turns), decimals)
}

fn kpi(subject: &SubjectRecord, of: fn(&Kpis) -> Option<f64>, decimals: usize) -> String {
    spread(subject.spread(of), decimals)
}

fn missing_percent(kpis: &Kpis) -> Option<f64> {
    let offered = kpis.offered.filter(|offered| *offered > 0)?;
    Some(100.0 * kpis.lost? as f64 / offered as f64)
}

/// `3 of 60`.
fn failed(subject: &SubjectRecord) -> String {
    let sum = |of: fn(&K6Figures) -> Option<u64>| -> Option<u64> {
        let turns = subject.turns.iter().map(|turn| of(turn.k6.as_ref()?));
        turns.sum::<Option<u64>>().filter(|_| !subject.turns.is_empty())
    };
    match (sum(|k6| k6.flushes_failed), sum(|k6| k6.flushes)) {
        (Some(failed), Some(all)) => format!("{failed} of {all}"),
        _ => DASH.to_owned(),
    }
}

const NOTE: &str = "CPU is in cores: the time until everything had arrived, for each second of \
                    the load. Memory is the highest. A flush is a write of k6: a request, or an \
                    append to its file. Missing requests: of the counter that lacks most, as a \
                    share of all requests.";

pub(super) fn tables(records: &[&RunRecord]) -> Vec<Table> {
    let entries: Vec<Entry<'_>> = records
        .iter()
        .flat_map(|&record| record.subjects.iter().map(move |subject| (record, subject)))
        .collect();
    let mut all = Table::of("From k6 to InfluxDB", &COLUMNS, entries.iter().copied());
    all.notes.extend(notes_of(entries.iter().copied()));
    let all = all.with_note(NOTE);
    [all].into_iter().chain(counters(&entries)).collect()
}

/// The sums of each counter at both ends, turn by turn.
fn counters(entries: &[Entry<'_>]) -> Option<Table> {
    let mut rows = Vec::new();
    for entry in entries {
        for turn in &entry.1.turns {
            for counter in turn.k6.iter().flat_map(|k6| &k6.counters) {
                let whole = |value: Option<f64>| number(value, 0);
                let [generated, stored, missing] =
                    [counter.generated, counter.stored, counter.missing()].map(whole);
                let names = [label(entry), turn.number.to_string(), counter.name.clone()];
                rows.push(names.into_iter().chain([generated, stored, missing]).collect());
            }
        }
    }
    let heads = ["Version/Test", "Turn", "Counter", "Sum at k6", "Sum in InfluxDB", "Missing"];
    Table::new("Counters", &heads, rows).unless_empty()
}

#[cfg(test)]
mod tests {
    use super::super::record::{Scenario, Target, Turn};
    use super::super::{fixtures, to_csv, to_html, to_markdown};
    use super::*;

    fn subject(name: &str, k6: K6Figures, kpis: Kpis) -> SubjectRecord {
        let turn = Turn { number: 1, kpis, k6: Some(k6), ..Turn::default() };
        SubjectRecord { name: name.to_owned(), turns: vec![turn], ..SubjectRecord::default() }
    }

    fn record() -> RunRecord {
        let counter =
            |stored| K6Counter { name: "http_reqs".to_owned(), generated: Some(1_000.0), stored };
        let known = K6Figures {
            requests_per_s: Some(100.0),
            flushes: Some(10),
            flushes_failed: Some(2),
            counters: vec![counter(Some(900.0))],
            ..K6Figures::default()
        };
        let unknown = K6Figures { counters: vec![counter(None)], ..K6Figures::default() };
        let kpis = Kpis { offered: Some(1_000), lost: Some(100), ..Kpis::default() };
        let absent = SubjectRecord {
            name: "telegraf".to_owned(),
            cannot: Some("no program `telegraf` in PATH".to_owned()),
            ..SubjectRecord::default()
        };
        let scenario =
            Scenario { target: Target::K6, name: "here".to_owned(), ..fixtures::single().scenario };
        let subjects = vec![
            subject("direct", known, kpis),
            subject("sluice", unknown, Kpis::default()),
            absent,
        ];
        RunRecord { scenario, subjects, ..fixtures::single() }
    }

    /// Guarantee: a figure that is not known is a dash, and no row is lost for it; a subject that
    /// is not there has a row, and the reason.
    #[test]
    fn a_missing_cell_loses_no_row() {
        let text = to_markdown(&[record()]);
        let line = |name: &str| {
            let begins = |line: &&str| line.starts_with('|') && line.contains(name);
            let line = text.lines().find(begins).unwrap_or_else(|| panic!("{name}: {text}"));
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert!(line("here · direct").starts_with("| here · direct | 100 | – | – | – |"));
        assert!(line("here · direct").contains("| 2 of 10 | 100 | 10.00 | – | – |"));
        assert_eq!(line("here · sluice").matches('–').count(), COLUMNS.len() - 1, "{text}");
        assert_eq!(line("here · telegraf").matches('–').count(), COLUMNS.len() - 1, "{text}");
        assert!(text.contains("telegraf was not run: no program"), "{text}");
        assert!(text.contains("## k6 to InfluxDB\n"), "{text}");
    }

    /// Guarantee: each counter of a turn has its sums, and none is made up.
    #[test]
    fn counters_have_a_row_each() {
        let text = to_markdown(&[record()]);
        let (_, counters) = text.split_once("### Counters").expect("a table");
        let rows: Vec<String> = counters
            .lines()
            .filter(|line| line.contains("http\\_reqs"))
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(rows[0], "| here · direct | 1 | http\\_reqs | 1000 | 900 | 100 |");
        assert_eq!(rows[1], "| here · sluice | 1 | http\\_reqs | 1000 | – | – |");
    }

    /// Guarantee: the other reports have these runs too.
    #[test]
    fn a_record_is_read_again_and_has_all_reports() {
        let record = record();
        let again: RunRecord = serde_json::from_str(&record.to_json()).expect("a record");
        assert_eq!(again, record);
        assert!(to_html(std::slice::from_ref(&record)).contains("From k6 to InfluxDB"));
        assert!(to_csv(&[record]).contains(",k6,here,"));
    }
}
