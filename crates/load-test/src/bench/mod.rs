//! `sluice-bench`: CPU seconds a million items of Sluice, beside nginx relaying the same bytes and beside the
//! OpenTelemetry Collector doing the same work, and what becomes of delivery when something is wrong. In interleaved
//! turns on the same cores.

mod contestant;
mod disk;
mod figures;
mod options;
mod rows;
mod scenario;
mod scenarios;
mod stage;
mod table;

pub use contestant::Contestant;
pub use figures::{Figures, Series};
pub use options::Options;
pub use rows::{Bar, Kind, Row, all_rows};
pub use scenario::{Scenario, Section};
pub use scenarios::SCENARIOS;
pub use table::{RowResult, further_pipeline, to_json, to_markdown};

use crate::report::MEBIBYTE;
use scenario::in_turns;

/// Runs the rows. `progress` is told of each turn. A turn that fails is reported there and leaves a gap.
pub async fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Vec<RowResult> {
    let is_wanted = |row: &Row| {
        (options.rows.is_empty() || options.rows.iter().any(|id| id == row.id))
            && (options.signals.is_empty() || options.signals.contains(&row.signal))
    };
    let wanted: Vec<Row> = all_rows().into_iter().filter(is_wanted).collect();
    let mut results = Vec::new();
    // Rows that are compared with one another take turns, too: the machine is not the same half an hour later.
    for compared in wanted.chunk_by(|one, next| one.is_plain() && next.is_plain()) {
        let cases: Vec<(String, &Row)> = compared.iter().map(|row| (row.name(), row)).collect();
        let takes = |contestant: &Contestant, row: &&Row| row.relay || !matches!(contestant, Contestant::Nginx { .. });
        let measure = async |contestant: &Contestant, row: &&Row, _| row.measure(contestant, options).await;
        let describe = |one: &Series, row: &&Row| describe(row, one);
        let series = in_turns(options, &cases, takes, measure, describe, progress).await;
        results.extend(cases.into_iter().map(|(name, row)| {
            let own = series.iter().filter(|series| series.case == name);
            RowResult { row: row.clone(), series: own.cloned().collect() }
        }));
    }
    results
}

fn describe(row: &Row, one: &Series) -> String {
    let of = |figure: &str| one.median(figure);
    let memory = format!("{:.1} MiB", of("rss_bytes") / MEBIBYTE);
    if row.kind == Kind::MemoryAtRest {
        return memory;
    }
    let late = match of("turned_away") {
        0.0 => String::new(),
        attempts => format!(", {attempts} attempts turned away"),
    };
    format!(
        "{:.2} CPU-s/M, {:.0} items/s, {memory}, subject {:.0} % and bench {:.0} % of a core{late}",
        of("cpu_s_per_million"),
        of("items_per_s"),
        100.0 * of("subject_core"),
        100.0 * of("bench_core"),
    )
}
