//! The tables of a report, before they become Markdown or HTML.

use std::collections::BTreeSet;

use sluice_otlp::Signal;

use super::format::{DASH, KIBIBYTE, MEBIBYTE, Spread, count, megabytes, spread, whole};
use super::k6;
use super::limits::limits;
use super::record::{Kpis, PipelineKpis, RunRecord, Scenario, SubjectRecord, Target};
use super::table::Table;

type Figure = fn(&Kpis) -> Option<f64>;
/// Head, figure, its unit, and how many decimals it has.
type Column = (String, Figure, f64, usize);

impl Target {
    pub fn signal(self) -> Signal {
        match self {
            Target::Traces => Signal::Traces,
            Target::Metrics | Target::MetricAgent | Target::K6 => Signal::Metrics,
            Target::LogsOtel | Target::LogAgent | Target::LogsFluentBit => Signal::Logs,
        }
    }

    /// Whether the subject is sent requests: it does not scrape a farm or tail files.
    pub fn takes_requests(self) -> bool {
        matches!(self, Target::Traces | Target::Metrics | Target::LogsOtel)
    }

    pub fn tails_files(self) -> bool {
        matches!(self, Target::LogAgent | Target::LogsFluentBit)
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Target::Traces => "Traces",
            Target::Metrics => "Metrics",
            Target::MetricAgent => "Metric agent",
            Target::LogsOtel => "Logs (OTLP)",
            Target::LogAgent => "Log agent",
            Target::LogsFluentBit => "Logs (Fluent Bit)",
            Target::K6 => "k6 to InfluxDB",
        }
    }

    /// As the tables of the Kyma load test name them.
    fn columns(self) -> [Column; 5] {
        let item = match self.signal() {
            Signal::Traces => "Spans",
            Signal::Metrics => "Metric",
            Signal::Logs => "Log Records",
        };
        let [received, exported, queue]: [Column; 3] = match self {
            Target::LogsFluentBit => {
                let rate = |which| format!("{which} Bytes Processing Rate/sec (KByte)");
                let buffer = "Filesystem Buffer Usage (KByte)".to_owned();
                [
                    (rate("Input"), |kpis| kpis.received_bytes_per_s, KIBIBYTE, 0),
                    (rate("Output"), |kpis| kpis.exported_bytes_per_s, KIBIBYTE, 0),
                    (buffer, |kpis| kpis.buffer_bytes, KIBIBYTE, 0),
                ]
            }
            _ => [
                (format!("Receiver Accepted {item}/sec"), |kpis| kpis.received_per_s, 1.0, 0),
                (format!("Exporter Exported {item}/sec"), |kpis| kpis.exported_per_s, 1.0, 0),
                ("Exporter Queue Size".to_owned(), |kpis| kpis.queue, 1.0, 0),
            ],
        };
        let memory: Column =
            ("Pod Memory Usage(MB)".to_owned(), |kpis| kpis.memory_bytes, MEBIBYTE, 0);
        let cpu: Column = ("Pod CPU Usage".to_owned(), |kpis| kpis.cpu_cores, 1.0, 2);
        [received, exported, queue, memory, cpu]
    }
}

const GROUPS: [&str; 4] = [
    "Single Pipeline",
    "Multi Pipeline",
    "Single Pipeline Backpressure",
    "Multi Pipeline Backpressure",
];

fn group(scenario: &Scenario) -> usize {
    usize::from(scenario.multi) + 2 * usize::from(scenario.backpressure)
}

pub(super) fn group_title(record: &RunRecord) -> &'static str {
    // It has one scenario, whose name is that of its table.
    if record.scenario.target == Target::K6 {
        return "samples on their way";
    }
    GROUPS[group(&record.scenario)]
}

/// For instance `Traces, Multi Pipeline`.
pub fn title(scenario: &Scenario) -> String {
    if scenario.target == Target::K6 {
        return scenario.target.title().to_owned();
    }
    format!("{}, {}", scenario.target.title(), GROUPS[group(scenario)])
}

#[derive(Clone, Copy)]
struct Entry<'a> {
    record: &'a RunRecord,
    subject: &'a SubjectRecord,
}

impl<'a> Entry<'a> {
    /// Entries with the same key share a row.
    fn key(self) -> [Option<&'a str>; 4] {
        let SubjectRecord { name, version, measured_elsewhere, .. } = self.subject;
        let row = &self.record.scenario.name;
        [Some(row), Some(name), version.as_deref(), measured_elsewhere.as_deref()]
    }
}

/// A row: one subject under one name, with at most one run for each group.
struct Row<'a> {
    label: String,
    cells: [Option<Entry<'a>>; 4],
}

impl<'a> Row<'a> {
    fn entries(&self) -> impl Iterator<Item = Entry<'a>> {
        self.cells.iter().copied().flatten()
    }

    fn is_of(&self, entry: Entry<'_>) -> bool {
        self.entries().any(|own| own.key() == entry.key())
    }
}

fn rows<'a>(records: &[&'a RunRecord]) -> Vec<Row<'a>> {
    let entries: Vec<Entry<'a>> = records
        .iter()
        .flat_map(|&record| record.subjects.iter().map(move |subject| Entry { record, subject }))
        .collect();
    let several = entries.iter().any(|entry| entry.subject.name != entries[0].subject.name);
    let mut rows: Vec<Row<'a>> = Vec::new();
    for entry in entries {
        let group = group(&entry.record.scenario);
        let place = rows.iter().position(|row| row.is_of(entry) && row.cells[group].is_none());
        let index = place.unwrap_or_else(|| {
            let times = rows.iter().filter(|row| row.is_of(entry)).count() + 1;
            rows.push(Row { label: label(entry, several, times), cells: [None; 4] });
            rows.len() - 1
        });
        rows[index].cells[group] = Some(entry);
    }
    for row in &mut rows {
        if row.entries().any(|entry| entry.record.interrupted) {
            row.label.push_str(" †");
        }
    }
    rows
}

fn label(entry: Entry<'_>, several_subjects: bool, times: usize) -> String {
    let parts = [
        Some(entry.record.scenario.name.clone()),
        several_subjects.then(|| format!(" · {}", subject_label(entry.subject))),
        (times > 1).then(|| format!(" ({times})")),
        entry.subject.measured_elsewhere.as_ref().map(|_| " *".to_owned()),
    ];
    parts.into_iter().flatten().collect()
}

pub(super) fn subject_label(subject: &SubjectRecord) -> String {
    match &subject.version {
        Some(version) => format!("{} {version}", subject.name),
        None => subject.name.clone(),
    }
}

pub(super) fn by_target(records: &[RunRecord]) -> Vec<(Target, Vec<&RunRecord>)> {
    let mut targets: Vec<Target> = records.iter().map(|record| record.scenario.target).collect();
    targets.sort();
    targets.dedup();
    let of = |target| records.iter().filter(|record| record.scenario.target == target).collect();
    targets.into_iter().map(|target| (target, of(target))).collect()
}

/// All tables of one target's runs; those that would say nothing are left out.
pub(super) fn tables(target: Target, records: &[&RunRecord]) -> Vec<Table> {
    if target == Target::K6 {
        return k6::tables(records);
    }
    let rows = rows(records);
    let mut tables: Vec<Table> = limits(records).into_iter().collect();
    tables.extend([kpis(target, &rows, records.len() == 1), integrity(&rows)]);
    tables.extend(pipelines(&rows));
    tables.extend(ratios(records));
    tables
}

/// The table of the Kyma load test: a row a version, a group of columns a scenario.
/// A single run shows only its own group, as that load test prints it.
fn kpis(target: Target, rows: &[Row<'_>], is_single_run: bool) -> Table {
    let is_measured = |group: usize| rows.iter().any(|row| row.cells[group].is_some());
    // That load test knows the metric agent with one pipeline only.
    let is_usual =
        |group: usize| !is_single_run && (target != Target::MetricAgent || group.is_multiple_of(2));
    let is_shown = |group: usize| is_measured(group) || is_usual(group);
    let shown: Vec<usize> = (0..GROUPS.len()).filter(|&group| is_shown(group)).collect();
    let mut columns = vec!["Version/Test".to_owned()];
    columns.extend(shown.iter().flat_map(|_| target.columns().map(|(head, ..)| head)));
    let cells_of = |subject: &SubjectRecord| {
        target.columns().map(|(_, figure, unit, decimals)| {
            spread(subject.spread(|kpis| Some(figure(kpis)? / unit)), decimals)
        })
    };
    let cells = |row: &Row<'_>| {
        let mut cells = vec![row.label.clone()];
        for &group in &shown {
            let measured = row.cells[group].map(|entry| cells_of(entry.subject));
            cells.extend(measured.unwrap_or([DASH; 5].map(str::to_owned)));
        }
        cells
    };
    Table {
        title: "Throughput and resources".to_owned(),
        groups: shown.iter().map(|&group| (GROUPS[group], 5)).collect(),
        columns,
        rows: rows.iter().map(cells).collect(),
        notes: notes(rows),
    }
}

fn notes(rows: &[Row<'_>]) -> Vec<String> {
    let entries: Vec<_> = rows.iter().flat_map(Row::entries).collect();
    notes_of(entries.iter().map(|entry| (entry.record, entry.subject)))
}

/// Marks of a table's rows, and the reasons for rows of dashes.
pub(super) fn notes_of<'a>(
    entries: impl Iterator<Item = (&'a RunRecord, &'a SubjectRecord)> + Clone,
) -> Vec<String> {
    let mut notes = Vec::new();
    let entries = || entries.clone().map(|(record, subject)| Entry { record, subject });
    if entries().any(|entry| entry.record.interrupted) {
        let note = "† A run was interrupted: its figures are of what had been measured by then.";
        notes.push(note.to_owned());
    }
    let elsewhere = entries().filter_map(|entry| entry.subject.measured_elsewhere.as_deref());
    let sources: BTreeSet<&str> = elsewhere.collect();
    notes.extend(sources.iter().map(|of| format!("* Measured elsewhere, not in these runs: {of}")));
    let reasons: BTreeSet<String> = entries()
        .map(|entry| entry.subject)
        .filter_map(|one| Some(format!("{} was not run: {}", one.name, one.cannot.as_ref()?)))
        .collect();
    notes.extend(reasons);
    notes
}

/// A column: its head and the text of a cell.
type EntryColumn = (&'static str, fn(&(&Row<'_>, Entry<'_>)) -> String);

/// The fate of a subject's items, and the resources that it used.
const INTEGRITY: [EntryColumn; 16] = [
    ("Version/Test", |(row, _)| row.label.clone()),
    ("Scenario", |(_, of)| group_title(of.record).to_owned()),
    ("Offered", |(_, of)| count(of.subject.total(|kpis| kpis.offered))),
    ("Accepted", |(_, of)| count(of.subject.total(|kpis| kpis.accepted))),
    ("Refused", |(_, of)| count(of.subject.total(|kpis| kpis.refused))),
    ("Lost", |(_, of)| count(of.subject.total(|kpis| kpis.lost))),
    ("Doubled", |(_, of)| count(of.subject.total(|kpis| kpis.doubled))),
    ("Restarts", |(_, of)| count(of.subject.total(|kpis| kpis.restarts))),
    ("p50 ms", |(_, of)| spread(of.subject.spread(|kpis| kpis.latency_p50_ms), 1)),
    ("p99 ms", |(_, of)| spread(of.subject.spread(|kpis| kpis.latency_p99_ms), 1)),
    ("p99.9 ms", |(_, of)| spread(of.subject.spread(|kpis| kpis.latency_p999_ms), 1)),
    ("CPU s per million", |(_, of)| spread(of.subject.spread(|kpis| kpis.cpu_s_per_million), 2)),
    ("Max memory MB", |(_, of)| megabytes_of(of.subject, |kpis| kpis.memory_max_bytes, 0)),
    ("Wire in MB", |(_, of)| megabytes_of(of.subject, |kpis| whole(kpis.wire_in_bytes), 1)),
    ("Wire out MB", |(_, of)| megabytes_of(of.subject, |kpis| whole(kpis.wire_out_bytes), 1)),
    ("Drain s", |(_, of)| spread(of.subject.spread(|kpis| kpis.drain_s), 1)),
];

fn megabytes_of(subject: &SubjectRecord, bytes: Figure, decimals: usize) -> String {
    spread(subject.spread(|kpis| megabytes(bytes(kpis))), decimals)
}

fn all_entries<'a, 'b>(rows: &'b [Row<'a>]) -> impl Iterator<Item = (&'b Row<'a>, Entry<'a>)> {
    rows.iter().flat_map(|row| row.entries().map(move |entry| (row, entry)))
}

fn integrity(rows: &[Row<'_>]) -> Table {
    // Published figures do not count the items.
    let entries = all_entries(rows).filter(|(_, entry)| entry.subject.was_to_run());
    Table::of("Integrity, latency and cost", &INTEGRITY, entries).with_note(
        "Counts are of all turns together; other figures are medians, with the range of the turns.",
    )
}

/// Each pipeline of the runs that have several: all turns together.
fn pipelines(rows: &[Row<'_>]) -> Option<Table> {
    let mut cells = Vec::new();
    for (row, entry) in all_entries(rows) {
        let turns: Vec<&[PipelineKpis]> =
            entry.subject.turns.iter().map(|turn| turn.kpis.pipelines.as_slice()).collect();
        let most = turns.iter().max_by_key(|pipelines| pipelines.len()).copied();
        for pipeline in most.filter(|most| most.len() > 1).unwrap_or_default() {
            let names = [&row.label, group_title(entry.record), &pipeline.name];
            let figures = pipeline_cells(&pipeline.name, &turns);
            cells.push(names.into_iter().map(str::to_owned).chain(figures).collect());
        }
    }
    let heads = ["Pipeline", "Exported/sec", "Queue", "Lost", "Doubled", "p99 ms"];
    let heads = [&["Version/Test", "Scenario"][..], &heads].concat();
    Table::new("Pipelines", &heads, cells).unless_empty()
}

fn pipeline_cells(name: &str, turns: &[&[PipelineKpis]]) -> [String; 5] {
    let of_turns: Vec<Option<&PipelineKpis>> =
        turns.iter().map(|pipelines| pipelines.iter().find(|one| one.name == name)).collect();
    let figure = |kpi: fn(&PipelineKpis) -> Option<f64>, decimals| {
        spread(Spread::of(of_turns.iter().copied().flatten().filter_map(kpi)), decimals)
    };
    // Unknown in one turn is unknown in all, since the sum of the others could hide it.
    let total = |kpi: fn(&PipelineKpis) -> Option<u64>| {
        count(of_turns.iter().map(|pipeline| kpi((*pipeline)?)).sum::<Option<u64>>())
    };
    [
        figure(|kpis| kpis.exported_per_s, 0),
        figure(|kpis| kpis.queue, 0),
        total(|kpis| kpis.lost),
        total(|kpis| kpis.doubled),
        figure(|kpis| kpis.latency_p99_ms, 1),
    ]
}

const RATIOS: [(&str, Figure); 5] = [
    ("Received/sec", |kpis| kpis.received_per_s),
    ("Exported/sec", |kpis| kpis.exported_per_s),
    ("CPU s per million", |kpis| kpis.cpu_s_per_million),
    ("Memory", |kpis| kpis.memory_bytes),
    ("p99", |kpis| kpis.latency_p99_ms),
];

/// Compares subjects that did the same work in turn.
fn ratios(records: &[&RunRecord]) -> Option<Table> {
    let mut rows = Vec::new();
    for record in records {
        let Some((first, others)) = record.subjects.split_first() else { continue };
        for other in others.iter().filter(|other| other.measured_elsewhere.is_none()) {
            let pair = format!("{} : {}", first.name, other.name);
            let names = [record.scenario.name.clone(), group_title(record).to_owned(), pair];
            let figures = RATIOS.iter().map(|(_, kpi)| spread(first.ratio(other, kpi), 2));
            rows.push(names.into_iter().chain(figures).collect());
        }
    }
    let heads = ["Version/Test", "Scenario", "Ratio"];
    let heads = [&heads[..], &RATIOS.map(|(head, _)| head)].concat();
    let note = "Ratios are taken turn by turn: the median, with the range of the turns.";
    Table::new("Side by side", &heads, rows).with_note(note).unless_empty()
}
