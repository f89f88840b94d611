//! Turns of several contestants, as a table and as JSON.

use std::time::Duration;

use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};

use super::measure::Measurement;
use super::rows::{Bar, Kind, Row};
use super::scenario::{Section, yes_or_no};

const MEBIBYTE: f64 = (1 << 20) as f64;

/// All turns of one row.
#[derive(Clone, Debug)]
pub struct RowResult {
    pub row: Row,
    /// One entry a contestant, in the order of the columns; one measurement a turn.
    pub turns: Vec<(&'static str, Vec<Measurement>)>,
}

/// Median and range of the turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// `None` where there is nothing.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Spread { median, min, max })
    }
}

impl RowResult {
    fn measurements(&self, name: &str) -> &[Measurement] {
        self.turns.iter().find(|(found, _)| *found == name).map_or(&[], |(_, turns)| turns)
    }

    /// What the row is about: CPU seconds a million items, or MiB.
    fn value(&self, measurement: &Measurement) -> f64 {
        match self.row.kind {
            Kind::Cost => measurement.cpu_s_per_million,
            Kind::MemoryAtRest | Kind::MemoryAtRate { .. } => measurement.rss_bytes as f64 / MEBIBYTE,
        }
    }

    pub fn spread(&self, name: &str) -> Option<Spread> {
        Spread::of(self.measurements(name).iter().map(|measurement| self.value(measurement)))
    }

    /// How many times as much as another: turn by turn, since both ran within the same minute.
    pub fn ratio(&self, name: &str, to: &str) -> Option<Spread> {
        let pairs = self.measurements(name).iter().zip(self.measurements(to));
        Spread::of(pairs.map(|(own, other)| self.value(own) / self.value(other)).filter(|ratio| ratio.is_finite()))
    }

    /// Whether Sluice keeps to the row's bar; `None` where those who are compared have not been measured.
    fn holds(&self, all: &[RowResult]) -> Option<bool> {
        match self.row.bar {
            Bar::Times(factor, of) => Some(self.ratio("sluice", of)?.median <= factor),
            Bar::FurtherPipeline(factor) => Some(self.further_pipeline(all)?.median <= factor),
            Bar::MaxMib(limit) => Some(self.spread("sluice")?.max <= limit),
        }
    }

    /// What each pipeline after the first adds, as a multiple of nginx's cost of relaying the same: turn by turn, beside the row
    /// `plain`. `None` where there is but one pipeline.
    fn further_pipeline(&self, all: &[RowResult]) -> Option<Spread> {
        let further = (self.row.pipelines - 1) as f64;
        let plain = all.iter().find(|result| result.row.id == "plain" && result.row.signal == self.row.signal)?;
        let turns = self.measurements("sluice").iter().zip(plain.measurements("sluice"));
        let turns = turns.zip(plain.measurements("nginx"));
        let added = turns.map(|((own, one), nginx)| {
            (own.cpu_s_per_million - one.cpu_s_per_million) / further / nginx.cpu_s_per_million
        });
        Spread::of(added.filter(|added| added.is_finite()))
    }

    fn bar_in_words(&self) -> String {
        match self.row.bar {
            Bar::Times(factor, of) => format!("≤ {factor} × {of}"),
            Bar::FurtherPipeline(factor) => format!("≤ {factor} × nginx each further"),
            Bar::MaxMib(limit) => format!("≤ {limit} MiB"),
        }
    }

    fn unit(&self) -> &'static str {
        if self.row.kind == Kind::Cost { "CPU-s/M" } else { "MiB" }
    }
}

/// The table, in Markdown. Missing cells are dashes.
pub fn to_markdown(results: &[RowResult], names: &[&'static str]) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    let mut header = vec!["Work".to_owned(), "Signal".to_owned(), "Unit".to_owned()];
    header.extend(names.iter().map(|&name| name.to_owned()));
    header.extend(names.iter().map(|name| format!("{name} items/s")));
    header.extend(["sluice : nginx", "sluice : otelcol", "sluice MiB", "bar", "holds"].map(str::to_owned));
    let columns = header.len();
    table.set_header(header);
    for result in results {
        let mut cells = vec![
            result.row.title.to_owned(),
            result.row.signal.items_name().replace('_', " "),
            result.unit().to_owned(),
        ];
        cells.extend(names.iter().map(|name| spread_cell(result.spread(name))));
        cells.extend(names.iter().map(|name| {
            let rate =
                Spread::of(result.measurements(name).iter().map(|one| one.items_per_s).filter(|rate| *rate > 0.0));
            rate.map_or_else(dash, |rate| format!("{:.0}", rate.median))
        }));
        for other in ["nginx", "otelcol"] {
            cells.push(result.ratio("sluice", other).map_or_else(dash, |ratio| format!("{:.2}", ratio.median)));
        }
        let memory = Spread::of(result.measurements("sluice").iter().map(|one| one.rss_bytes as f64 / MEBIBYTE));
        cells.push(memory.map_or_else(dash, |memory| format!("{:.1}", memory.max)));
        cells.push(result.bar_in_words());
        cells.push(result.holds(results).map_or_else(dash, yes_or_no));
        table.add_row(cells);
    }
    for index in 3..columns {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

fn dash() -> String {
    "–".to_owned()
}

fn spread_cell(spread: Option<Spread>) -> String {
    spread.map_or_else(dash, |spread| format!("{:.2} ({:.2}–{:.2})", spread.median, spread.min, spread.max))
}

/// What each pipeline after the first adds where there are the most, as a multiple of nginx's cost of relaying the same: `None`
/// unless the rows `plain` and `three` (or `two`) of traces were run.
pub fn further_pipeline(results: &[RowResult]) -> Option<f64> {
    let several = results.iter().rfind(|result| result.row.pipelines > 1)?;
    Some(several.further_pipeline(results)?.median)
}

/// Everything that was measured.
pub fn to_json(results: &[RowResult], sections: &[Section]) -> Value {
    let rows: Vec<Value> = results.iter().map(|result| row_json(result, results)).collect();
    let scenarios: serde_json::Map<String, Value> =
        sections.iter().map(|section| (section.scenario.id().to_owned(), section.json.clone())).collect();
    json!({ "rows": rows, "further_pipeline_to_nginx": further_pipeline(results), "scenarios": scenarios })
}

fn row_json(result: &RowResult, all: &[RowResult]) -> Value {
    let contestants: serde_json::Map<String, Value> = result
        .turns
        .iter()
        .map(|(name, turns)| ((*name).to_owned(), turns.iter().map(measurement_json).collect()))
        .collect();
    json!({
        "row": result.row.id,
        "signal": result.row.signal.as_str(),
        "unit": result.unit(),
        "bar": result.bar_in_words(),
        "holds": result.holds(all),
        "turns": contestants,
    })
}

fn measurement_json(one: &Measurement) -> Value {
    let milliseconds = |duration: Duration| duration.as_secs_f64() * 1e3;
    json!({
        "cpu_s_per_million": one.cpu_s_per_million,
        "items_per_s": one.items_per_s,
        "rss_bytes": one.rss_bytes,
        "subject_core": one.subject_core,
        "bench_core": one.bench_core,
        "acknowledged_p50_ms": milliseconds(one.latency.p50),
        "acknowledged_p99_ms": milliseconds(one.latency.p99),
        "turned_away": one.turned_away,
    })
}

#[cfg(test)]
mod tests {
    use super::super::rows::all_rows;
    use super::*;

    fn cost(cpu_s_per_million: f64) -> Measurement {
        Measurement { cpu_s_per_million, items_per_s: 1000.0, rss_bytes: 10 << 20, ..Measurement::default() }
    }

    fn result(id: &str, sluice: &[f64], nginx: &[f64]) -> RowResult {
        let row = all_rows().into_iter().find(|row| row.id == id).unwrap();
        let turns = |values: &[f64]| values.iter().copied().map(cost).collect();
        RowResult { row, turns: vec![("nginx", turns(nginx)), ("sluice", turns(sluice))] }
    }

    #[test]
    fn medians_and_ratios_are_taken_turn_by_turn() {
        let result = result("plain", &[3.0, 2.0, 40.0], &[2.0, 2.0, 20.0]);
        assert_eq!(result.spread("sluice"), Some(Spread { median: 3.0, min: 2.0, max: 40.0 }));
        assert_eq!(result.ratio("sluice", "nginx"), Some(Spread { median: 1.5, min: 1.0, max: 2.0 }));
        assert_eq!(result.ratio("sluice", "otelcol"), None);
    }

    #[test]
    fn a_missing_contestant_is_a_dash_and_no_lost_row() {
        let results = [result("plain", &[3.0], &[2.0]), result("resource-to-gzip", &[5.0], &[])];
        let table = to_markdown(&results, &["nginx", "sluice", "otelcol"]);
        assert_eq!(table.lines().count(), 4, "{table}");
        assert!(table.contains("1.50") && table.contains("5.00 (5.00–5.00)"), "{table}");
        assert_eq!(results[1].holds(&results), None, "nobody to compare with");
        assert!(table.lines().last().unwrap().trim_end().ends_with("– |"), "{table}");
    }

    #[test]
    fn further_pipelines_are_compared_turn_by_turn() {
        // The last turns were taken on a machine that was twice as fast.
        let plain = result("plain", &[4.0, 2.0, 2.0], &[2.0, 1.0, 1.0]);
        let three = |last| [plain.clone(), result("three", &[6.0, 3.5, last], &[])];
        assert_eq!(further_pipeline(&three(3.0)), Some(0.5), "0.5, 0.75 and 0.5");
        assert_eq!(three(3.0)[1].holds(&three(3.0)), Some(true));
        assert_eq!(three(3.5)[1].holds(&three(3.5)), Some(false));
        assert_eq!(further_pipeline(&three(3.0)[1..]), None, "without `plain`");
    }

    #[test]
    fn a_bar_is_reached_and_not_passed() {
        let is_held = |id, sluice: &[f64], nginx: &[f64]| {
            let result = result(id, sluice, nginx);
            let holds = result.holds(std::slice::from_ref(&result)).unwrap();
            let table = to_markdown(&[result], &["nginx", "sluice"]);
            assert!(table.contains(if holds { " yes |" } else { " NO |" }), "{table}");
            holds
        };
        assert!(is_held("plain", &[3.0, 3.0, 9.0], &[2.0, 2.0, 2.0]), "the median is 1.5");
        assert!(!is_held("plain", &[3.1], &[2.0]));
        assert!(is_held("attributes", &[5.0], &[2.0]) && !is_held("attributes", &[5.1], &[2.0]));
        let at_rest = |mib: &[u64]| {
            let turns = mib.iter().map(|mib| Measurement { rss_bytes: mib << 20, ..Measurement::default() }).collect();
            let row = all_rows().into_iter().find(|row| row.id == "rest").unwrap();
            RowResult { row, turns: vec![("sluice", turns)] }.holds(&[])
        };
        assert_eq!((at_rest(&[15, 15]), at_rest(&[10, 16, 10])), (Some(true), Some(false)), "in every turn");
    }
}
