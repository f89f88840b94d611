//! `sluice-bench`: CPU seconds a million items of Sluice, beside nginx relaying the same bytes and
//! beside the OpenTelemetry Collector doing the same work, and what becomes of delivery when
//! something is wrong. In interleaved turns on the same cores.

mod contestant;
mod disk;
mod figures;
mod rows;
mod scenario;
mod scenarios;
mod stage;
mod table;

use std::time::Duration;

use sluice_otlp::Signal;

pub use contestant::{BASELINE, Contestant, Kind};
pub use figures::{Figures, Series};
pub use rows::{Bar, Measure, Row, all_rows};
pub use scenario::{Scenario, Section};
pub use scenarios::{ONLY_BY_NAME, SCENARIOS};
pub use table::{RowResult, further_pipeline, to_json, to_markdown};

use scenario::in_turns;

/// What to measure, how often and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    pub contestants: Vec<Contestant>,
    /// Ids of rows; empty: all.
    pub rows: Vec<String>,
    /// Empty: all.
    pub signals: Vec<Signal>,
    pub turns: usize,
    /// Counted time of each turn of a row; scenarios say how many of it they take.
    pub window: Duration,
    /// Where a scenario has an open loop of a fixed rate.
    pub spans_per_s: f64,
    /// CPUs of the subjects; empty: not pinned.
    pub subject_cpus: Vec<usize>,
    /// Those and the bench's own, for a subject that may have whatever it takes.
    pub all_cpus: Vec<usize>,
}

/// Runs the rows. `progress` is told of each turn. A turn that fails is reported there and leaves a
/// gap.
pub async fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Vec<RowResult> {
    let is_wanted = |row: &Row| {
        (options.rows.is_empty() || options.rows.iter().any(|id| id == row.id))
            && (options.signals.is_empty() || options.signals.contains(&row.signal))
    };
    let wanted: Vec<Row> = all_rows().into_iter().filter(is_wanted).collect();
    let mut results = Vec::new();
    // Rows that are compared with one another take turns, too: the machine is not the same half an
    // hour later.
    for compared in wanted.chunk_by(|one, next| one.is_plain() && next.is_plain()) {
        let cases: Vec<_> =
            compared.iter().map(|row| (format!("{} {}", row.id, row.signal), row)).collect();
        let takes = |contestant: &Contestant, row: &&Row| row.relay || contestant.is_gateway();
        let measure =
            async |contestant: &Contestant, row: &&Row, _| row.measure(contestant, options).await;
        let describe = |one: &Series, row: &&Row| row.describe(one);
        let series = in_turns(options, &cases, takes, measure, describe, progress).await;
        results.extend(cases.into_iter().map(|(name, row)| {
            let own = series.iter().filter(|series| series.case == name);
            RowResult { row: row.clone(), series: own.cloned().collect() }
        }));
    }
    results
}
