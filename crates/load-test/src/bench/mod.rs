//! The speed table: CPU seconds a million items of Sluice, beside nginx relaying the same bytes and beside the
//! OpenTelemetry Collector doing the same work, in interleaved turns on the same cores.

mod backlog;
mod backpressure;
mod disk_itself;
mod drain;
mod durable;
mod gateway;
mod isolation;
mod limited_disk;
mod measure;
mod on_demand;
mod overload;
mod rows;
mod scenario;
mod table;

use std::time::Duration;

use sluice_otlp::Signal;

pub use measure::{Contestant, Measurement, measure};
pub use rows::{Bar, Kind, Row, all_rows};
use scenario::told;
pub use scenario::{Scenario, ScenarioOptions, Section, run_scenario};
pub use table::{RowResult, Spread, further_pipeline, to_json, to_markdown};

/// What to measure, how often and for how long.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    pub contestants: Vec<Contestant>,
    /// Ids of rows; empty: all.
    pub rows: Vec<String>,
    /// Empty: all.
    pub signals: Vec<Signal>,
    pub turns: usize,
    /// Counted time of each turn.
    pub window: Duration,
    /// CPUs of the subjects; empty: not pinned.
    pub subject_cpus: Vec<usize>,
    /// Those and the bench's own.
    pub all_cpus: Vec<usize>,
}

impl BenchOptions {
    fn wants(&self, row: &Row) -> bool {
        (self.rows.is_empty() || self.rows.iter().any(|id| id == row.id))
            && (self.signals.is_empty() || self.signals.contains(&row.signal))
    }
}

/// Runs everything. `progress` is told of each turn. A turn that fails is reported there and leaves a gap.
pub async fn run(options: &BenchOptions, mut progress: impl FnMut(&str)) -> Vec<RowResult> {
    let turns = || options.contestants.iter().map(|contestant| (contestant.name(), Vec::new())).collect();
    let wanted = all_rows().into_iter().filter(|row| options.wants(row));
    let mut results: Vec<RowResult> = wanted.map(|row| RowResult { row, turns: turns() }).collect();
    // Rows that are compared with one another take turns, too: the machine is not the same half an hour later.
    for compared in results.chunk_by_mut(|one, next| one.row.is_plain() && next.row.is_plain()) {
        for turn in 1..=options.turns {
            for RowResult { row, turns } in compared.iter_mut() {
                for (contestant, (name, turns)) in options.contestants.iter().zip(turns) {
                    if !contestant.takes(row) {
                        continue;
                    }
                    let label = format!("{} {} {name} turn {turn}", row.id, row.signal);
                    let one = measure(contestant, row, options.window, &options.subject_cpus).await;
                    turns.extend(told(&label, one, |one| describe(row, one), &mut progress));
                }
            }
        }
    }
    results
}

fn describe(row: &Row, one: &Measurement) -> String {
    let memory = format!("{:.1} MiB", one.rss_bytes as f64 / (1 << 20) as f64);
    if row.kind == Kind::MemoryAtRest {
        return memory;
    }
    let late = if one.turned_away > 0 { format!(", {} attempts turned away", one.turned_away) } else { String::new() };
    format!(
        "{:.2} CPU-s/M, {:.0} items/s, {memory}, subject {:.0} % and bench {:.0} % of a core{late}",
        one.cpu_s_per_million,
        one.items_per_s,
        100.0 * one.subject_core,
        100.0 * one.bench_core,
    )
}
