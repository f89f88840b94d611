//! The scenarios: what becomes of delivery, latency and memory when something is wrong, as ratios to when nothing is.

use std::time::Duration;

use comfy_table::{CellAlignment, Table};
use serde_json::Value;

use super::measure::Contestant;
use super::table::Spread;
use super::{backlog, backpressure, drain, durable, isolation, on_demand, overload};

/// A section of its own in the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    Isolation,
    Backpressure,
    Overload,
    Backlog,
    OnDemand,
    Durable,
    Drain,
}

impl Scenario {
    pub const ALL: [Scenario; 7] = [
        Scenario::Isolation,
        Scenario::Backpressure,
        Scenario::Overload,
        Scenario::Backlog,
        Scenario::OnDemand,
        Scenario::Durable,
        Scenario::Drain,
    ];

    /// For `--row`.
    pub fn id(self) -> &'static str {
        match self {
            Scenario::Isolation => "isolation",
            Scenario::Backpressure => "backpressure",
            Scenario::Overload => "overload",
            Scenario::Backlog => "backlog",
            Scenario::OnDemand => "on-demand",
            Scenario::Durable => "durable",
            Scenario::Drain => "drain",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Scenario::Isolation => "three pipelines, one backend sick: rate and latency of the other two",
            Scenario::Backpressure => "a backend that refuses 70 % of the requests",
            Scenario::Overload => "three times as much offered as a subject with a CPU quota can take",
            Scenario::Backlog => "CPU an item with a long backlog against none",
            Scenario::OnDemand => "what a directory costs while all backends are well",
            Scenario::Durable => "everything written through, against what the disk does by itself",
            Scenario::Drain => "the drain of a backlog on disk, beside the Collector's persistent queue",
        }
    }
}

/// How the scenarios are run.
#[derive(Clone, Debug)]
pub struct ScenarioOptions {
    /// Those that are no gateways are passed over.
    pub contestants: Vec<Contestant>,
    pub turns: usize,
    /// Unit of time of the turns: each scenario says how many of it it takes.
    pub window: Duration,
    /// Where a scenario has an open loop of a fixed rate.
    pub spans_per_s: f64,
    /// CPUs of the subjects; empty: not pinned.
    pub subject_cpus: Vec<usize>,
    /// Those and the bench's own, for a subject that may have whatever it takes.
    pub all_cpus: Vec<usize>,
}

impl ScenarioOptions {
    pub(super) fn gateways(&self) -> impl Iterator<Item = &Contestant> {
        self.contestants.iter().filter(|contestant| !matches!(contestant, Contestant::Nginx { .. }))
    }

    pub(super) fn sluice(&self) -> Option<&Contestant> {
        self.contestants.iter().find(|contestant| matches!(contestant, Contestant::Sluice { .. }))
    }
}

/// What a scenario came to.
#[derive(Clone, Debug)]
pub struct Section {
    pub scenario: Scenario,
    /// The bars that Sluice is held to, and the setting, in words.
    pub notes: String,
    pub table: String,
    /// Every turn.
    pub json: Value,
}

impl Section {
    pub fn to_markdown(&self) -> String {
        let title = self.scenario.title();
        format!("## {}: {title}\n\n{}\n\n{}", self.scenario.id(), self.notes, self.table)
    }
}

/// Runs one scenario. `progress` is told of each turn. A turn that fails is reported there and leaves a gap.
pub async fn run_scenario(scenario: Scenario, options: &ScenarioOptions, progress: &mut dyn FnMut(&str)) -> Section {
    match scenario {
        Scenario::Isolation => isolation::run(options, progress).await,
        Scenario::Backpressure => backpressure::run(options, progress).await,
        Scenario::Overload => overload::run(options, progress).await,
        Scenario::Backlog => backlog::run(options, progress).await,
        Scenario::OnDemand => on_demand::run(options, progress).await,
        Scenario::Durable => durable::run(options, progress).await,
        Scenario::Drain => drain::run(options, progress).await,
    }
}

/// Tells what came of a turn. `None`: it failed.
pub(super) fn told<T>(
    label: &str,
    turn: anyhow::Result<T>,
    describe: impl Fn(&T) -> String,
    progress: &mut dyn FnMut(&str),
) -> Option<T> {
    match &turn {
        Ok(turn) => progress(&format!("{label}: {}", describe(turn))),
        Err(error) => progress(&format!("{label} FAILED: {error:#}")),
    }
    turn.ok()
}

/// The share of the configured limit that resident memory may reach.
pub(super) const MEMORY_BAR: f64 = 1.10;

/// A Markdown table whose columns after the first `left` are numbers.
pub(super) fn markdown(header: &[&str], left: usize, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(header);
    rows.into_iter().for_each(|row| {
        table.add_row(row);
    });
    for index in left..header.len() {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// The median with so many decimals, or a dash.
pub(super) fn median(values: impl IntoIterator<Item = f64>, decimals: usize) -> String {
    let spread = Spread::of(values.into_iter().filter(|value| value.is_finite()));
    spread.map_or_else(|| "–".to_owned(), |spread| format!("{:.decimals$}", spread.median))
}

/// The median as a percentage, or a dash.
pub(super) fn percent(shares: impl IntoIterator<Item = f64>) -> String {
    let share = median(shares.into_iter().map(|share| 100.0 * share), 1);
    if share == "–" { share } else { share + " %" }
}

/// The highest, or a dash. For what must not happen in any turn.
pub(super) fn worst(counts: impl IntoIterator<Item = u64>) -> String {
    counts.into_iter().max().map_or_else(|| "–".to_owned(), |count| count.to_string())
}

pub(super) fn yes_or_no(holds: bool) -> String {
    if holds { "yes" } else { "NO" }.to_owned()
}

pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub(super) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
