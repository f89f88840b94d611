//! The speed table: all rows with the turns of all contestants, their ratios and their bars.

use std::ops::{Div, Sub};

use serde_json::{Map, Value, json};
use sluice_load_test::report::{DASH, MEBIBYTE, Spread, Table, number};

use crate::figures::{Series, yes_or_no};
use crate::options::Options;
use crate::rows::{Bar, Measure, Row, all_rows};
use crate::scenario::{Section, Turn, in_turns};
use crate::stage::{BASELINE, Contestant};

pub(crate) async fn measure_rows(options: &Options) -> Vec<RowResult> {
    let is_wanted = |row: &Row| {
        (options.row.is_empty() || options.row.iter().any(|id| id == row.id))
            && (options.signal.is_empty() || options.signal.contains(&row.signal))
    };
    let wanted: Vec<Row> = all_rows().into_iter().filter(is_wanted).collect();
    let mut results = Vec::new();
    // Rows that are compared take turns, too: the machine is not the same half an hour later.
    for compared in wanted.chunk_by(|one, next| one.is_plain() && next.is_plain()) {
        let row = |case: &str| {
            compared.iter().find(|row| row.case() == case).expect("cases are these rows")
        };
        let cases: Vec<String> = compared.iter().map(Row::case).collect();
        let takes = |contestant: &Contestant, case: &str| {
            contestant.is_gateway() || contestant.is_nginx() && row(case).relay
        };
        let measure = async |turn: Turn<'_>| row(turn.case).measure(turn).await;
        let describe = |one: &Series| row(&one.case).describe(one);
        let series = in_turns("", options, &cases, takes, measure, describe).await;
        results.extend(compared.iter().map(|row| {
            let own = series.iter().filter(|series| series.case == row.case());
            RowResult { row: row.clone(), series: own.cloned().collect() }
        }));
    }
    results
}

/// All turns of one row, a series a contestant that takes it.
#[derive(Clone, Debug)]
pub(crate) struct RowResult {
    pub(crate) row: Row,
    pub(crate) series: Vec<Series>,
}

impl RowResult {
    fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.subject == name)
    }

    /// The row's figure, its unit, and the divisor from figure to unit.
    fn figure(&self) -> (&'static str, &'static str, f64) {
        match self.row.measures {
            Measure::Cost => ("cpu_s_per_million", "CPU-s/M", 1.0),
            _ => ("rss_bytes", "MiB", MEBIBYTE),
        }
    }

    /// CPU seconds a million items, or MiB.
    pub(crate) fn spread(&self, name: &str) -> Option<Spread> {
        let (figure, _, unit) = self.figure();
        Spread::of(self.series(name)?.values(figure).map(|value| value / unit))
    }

    /// Ratio of one contestant's figure to another's, turn by turn: both ran within a minute.
    pub(crate) fn ratio(&self, name: &str, to: &str) -> Option<Spread> {
        let figure = self.figure().0;
        let ratios = self.series(name)?.against(self.series(to)?, figure, Div::div);
        Spread::of(ratios.into_iter().flatten())
    }

    /// Whether Sluice keeps to the row's bar; `None` if the figure to compare with is missing.
    fn holds(&self, all: &[RowResult]) -> Option<bool> {
        match self.row.bar {
            Bar::Times(factor, of) => Some(self.ratio("sluice", of)?.median <= factor),
            Bar::FurtherPipeline(factor) => Some(self.further_pipeline(all)?.median <= factor),
            Bar::MaxMib(limit) => Some(self.spread("sluice")?.max <= limit),
        }
    }

    /// Cost of each pipeline after the first, as a multiple of nginx's cost of relaying the same,
    /// turn by turn against the row `plain`. `None` where there is but one pipeline.
    fn further_pipeline(&self, all: &[RowResult]) -> Option<Spread> {
        let figure = self.figure().0;
        let is_plain = |row: &Row| row.id == "plain" && row.signal == self.row.signal;
        let plain = all.iter().find(|result| is_plain(&result.row))?;
        let (one, nginx) = (plain.series("sluice")?, plain.series("nginx")?);
        let added = self.series("sluice")?.against(one, figure, Sub::sub);
        let relayed = nginx.against(nginx, figure, |cost, _| cost);
        let further = (self.row.pipelines - 1) as f64;
        let ratios = added.into_iter().zip(relayed);
        let ratios = ratios.filter_map(|(added, relayed)| Some(added? / relayed? / further));
        Spread::of(ratios.filter(|ratio| ratio.is_finite()))
    }

    fn bar_in_words(&self) -> String {
        match self.row.bar {
            Bar::Times(factor, of) => format!("≤ {factor} × {of}"),
            Bar::FurtherPipeline(factor) => format!("≤ {factor} × nginx each further"),
            Bar::MaxMib(limit) => format!("≤ {limit} MiB"),
        }
    }

    /// The row's cells, below the heads of [`to_markdown`].
    fn cells(&self, names: &[&str], all: &[RowResult]) -> Vec<String> {
        let range =
            |spread: Spread| format!("{:.2} ({:.2}–{:.2})", spread.median, spread.min, spread.max);
        let cost = |name: &&str| self.spread(name).map_or_else(|| DASH.to_owned(), range);
        let rate = |name: &&str| self.series(name)?.spread("items_per_s").map(|rate| rate.median);
        let ratio = |to: &str| number(self.ratio("sluice", to).map(|ratio| ratio.median), 2);
        let items = self.row.signal.items_name().replace('_', " ");
        let mut cells = vec![self.row.title.to_owned(), items, self.figure().1.to_owned()];
        cells.extend(names.iter().map(cost));
        cells.extend(names.iter().map(|name| number(rate(name), 0)));
        cells.extend(compared_with(names).map(ratio));
        let memory = self.series("sluice").and_then(|series| series.spread("rss_bytes"));
        cells.push(number(memory.map(|memory| memory.max / MEBIBYTE), 1));
        cells.push(self.bar_in_words());
        cells.push(self.holds(all).map_or_else(|| DASH.to_owned(), yes_or_no));
        cells
    }

    fn to_json(&self, all: &[RowResult]) -> Value {
        let turns = |one: &Series| (one.subject.to_owned(), one.to_json());
        json!({
            "row": self.row.id,
            "signal": self.row.signal.as_str(),
            "unit": self.figure().1,
            "bar": self.bar_in_words(),
            "holds": self.holds(all),
            "turns": self.series.iter().map(turns).collect::<Map<_, _>>(),
        })
    }
}

/// Contestants that Sluice is compared with: always the usual ones, another build if it is there.
fn compared_with<'a>(names: &'a [&str]) -> impl Iterator<Item = &'static str> + 'a {
    let is_shown = |name: &&str| *name != BASELINE || names.contains(name);
    ["nginx", "otelcol", BASELINE].into_iter().filter(move |name| is_shown(name))
}

/// The table of these contestants, in Markdown. Missing cells are dashes.
pub(crate) fn to_markdown(results: &[RowResult], names: &[&str]) -> String {
    let mut heads = ["Work", "Signal", "Unit"].map(str::to_owned).to_vec();
    heads.extend(names.iter().map(|&name| name.to_owned()));
    heads.extend(names.iter().map(|name| format!("{name} items/s")));
    heads.extend(
        compared_with(names)
            .map(|name| format!("sluice : {}", if name == BASELINE { "baseline" } else { name })),
    );
    heads.extend(["sluice MiB", "bar", "holds"].map(str::to_owned));
    let rows = results.iter().map(|result| result.cells(names, results)).collect();
    Table { columns: heads, rows, ..Table::default() }.to_string()
}

/// Cost of each pipeline after the first in the row with the most pipelines, as a multiple of
/// nginx's. `None` unless the rows `plain` and `three` (or `two`) of traces were run.
pub(crate) fn further_pipeline(results: &[RowResult]) -> Option<f64> {
    let several = results.iter().rfind(|result| result.row.pipelines > 1)?;
    Some(several.further_pipeline(results)?.median)
}

pub(crate) fn to_json(results: &[RowResult], sections: &[Section]) -> Value {
    let scenarios = sections.iter().map(|section| (section.id.to_owned(), section.json.clone()));
    json!({
        "rows": results.iter().map(|result| result.to_json(results)).collect::<Vec<_>>(),
        "further_pipeline_to_nginx": further_pipeline(results),
        "scenarios": scenarios.collect::<Map<_, _>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(subject: &'static str, figure: &str, values: &[f64]) -> Series {
        let turn = |value: &f64| {
            let mut turn = json!({ "items_per_s": 1000.0, "rss_bytes": 10 << 20 });
            turn[figure] = json!(value);
            turn
        };
        Series { subject, turns: values.iter().map(turn).collect(), ..Series::default() }
    }

    fn result(id: &str, sluice: &[f64], nginx: &[f64]) -> RowResult {
        let row = all_rows().into_iter().find(|row| row.id == id).unwrap();
        let cost = |subject, values| series(subject, "cpu_s_per_million", values);
        RowResult { row, series: vec![cost("nginx", nginx), cost("sluice", sluice)] }
    }

    #[test]
    fn medians_and_ratios_are_taken_turn_by_turn() {
        let result = result("plain", &[3.0, 2.0, 40.0], &[2.0, 2.0, 20.0]);
        assert_eq!(result.spread("sluice"), Some(Spread { median: 3.0, min: 2.0, max: 40.0 }));
        assert_eq!(
            result.ratio("sluice", "nginx"),
            Some(Spread { median: 1.5, min: 1.0, max: 2.0 })
        );
        assert_eq!(result.ratio("sluice", "otelcol"), None);
    }

    #[test]
    fn a_missing_contestant_is_a_dash_and_no_lost_row() {
        let results = [result("plain", &[3.0], &[2.0]), result("resource-to-gzip", &[5.0], &[])];
        let table = to_markdown(&results, &["nginx", "sluice", "otelcol"]);
        assert_eq!(table.lines().count(), 4, "{table}");
        assert!(table.contains("1.50") && table.contains("5.00 (5.00–5.00)"), "{table}");
        assert_eq!(results[1].holds(&results), None, "there is nothing to compare with");
        assert!(table.lines().last().unwrap().trim_end().ends_with("– |"), "{table}");
    }

    #[test]
    fn another_build_has_a_column_of_its_own_where_it_is_measured() {
        let mut result = result("plain", &[3.0, 2.0, 5.0], &[2.0; 3]);
        assert!(!to_markdown(&[result.clone()], &["nginx", "sluice"]).contains("baseline"));
        result.series.push(series(BASELINE, "cpu_s_per_million", &[4.0, 4.0, 4.0]));
        let table = to_markdown(&[result], &["nginx", "sluice", BASELINE]);
        let (head, row) = (table.lines().next().unwrap(), table.lines().last().unwrap());
        let cell =
            |line: &str, column: usize| line.split('|').nth(column).unwrap().trim().to_owned();
        let column = head.split('|').position(|head| head.trim() == "sluice : baseline").unwrap();
        assert_eq!(cell(row, column), "0.75", "the median of 0.75, 0.5 and 1.25: {table}");
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
        let at_rest = |mib: &[f64]| {
            let row = all_rows().into_iter().find(|row| row.id == "rest").unwrap();
            let bytes: Vec<f64> = mib.iter().map(|mib| mib * MEBIBYTE).collect();
            RowResult { row, series: vec![series("sluice", "rss_bytes", &bytes)] }.holds(&[])
        };
        assert_eq!(
            (at_rest(&[15.0, 15.0]), at_rest(&[10.0, 16.0, 10.0])),
            (Some(true), Some(false)),
            "in every turn"
        );
    }
}
