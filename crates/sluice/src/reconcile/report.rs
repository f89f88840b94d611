//! The comparison, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::Cell;
use serde_json::json;

use super::influxdb::Found;
use super::ledger::{Figures, Ledger, Sheet};
use super::summary::{Expected, Skipped, Summary, Told};
use crate::text;

/// Sums of floating-point numbers depend on their order, by about this share.
const ROUNDING: f64 = 1e-9;

/// A measurement: what k6 says, and what InfluxDB has.
struct Compared {
    measurement: String,
    told: Told,
    found: f64,
    is_equal: bool,
    /// By delivery, where it is not equal and there is a ledger.
    places: Vec<Place>,
}

/// Where points are, by the ledger of a delivery.
struct Place {
    delivery: String,
    /// In points. Not there: the ledger does not know the measurement.
    row: Option<Figures>,
    words: String,
}

pub(super) struct Report {
    compared: Vec<Compared>,
    skipped: Vec<Skipped>,
    sheets: Vec<Sheet>,
}

impl Compared {
    fn expected(&self) -> f64 {
        match self.told {
            Told::Sum(expected) | Told::Count(expected) => expected,
        }
    }

    fn what(&self) -> &'static str {
        match self.told {
            Told::Sum(_) => "sum",
            Told::Count(_) => "count",
        }
    }

    /// Negative if InfluxDB has more.
    fn missing(&self) -> f64 {
        self.expected() - self.found
    }
}

impl Report {
    /// `tolerance`: in percent.
    pub(super) fn new(
        summary: &Summary,
        found: &BTreeMap<String, Found>,
        ledger: Option<&Ledger>,
        tolerance: f64,
    ) -> Report {
        let compared = summary.expected.iter().map(|Expected { measurement, told }| {
            let found = found.get(measurement).copied().unwrap_or_default();
            let (expected, found) = match told {
                Told::Sum(expected) => (*expected, found.sum),
                Told::Count(expected) => (*expected, found.count),
            };
            let allowed =
                expected.abs() * (tolerance / 100.0) + ROUNDING * expected.abs().max(found.abs());
            let is_equal = (expected - found).abs() <= allowed;
            let sheets = ledger.iter().filter(|_| !is_equal).flat_map(|ledger| &ledger.sheets);
            let places = sheets.map(|sheet| place(sheet, measurement, *told));
            Compared {
                measurement: measurement.clone(),
                told: *told,
                found,
                is_equal,
                places: places.collect(),
            }
        });
        let sheets = ledger.map(|ledger| ledger.sheets.clone()).unwrap_or_default();
        Report { compared: compared.collect(), skipped: summary.skipped.clone(), sheets }
    }

    pub(super) fn is_equal(&self) -> bool {
        self.compared.iter().all(|it| it.is_equal)
    }

    pub(super) fn json(&self) -> String {
        let compared = self.compared.iter().map(|it| {
            let places = it.places.iter().map(|place| {
                json!({
                    "delivery": place.delivery,
                    "points": place.row.as_ref().map(Figures::json),
                    "says": place.words,
                })
            });
            json!({
                "measurement": it.measurement,
                "compares": it.what(),
                "k6": it.expected(),
                "influxdb": it.found,
                "missing": it.missing(),
                "equal": it.is_equal,
                "ledger": places.collect::<Vec<_>>(),
            })
        });
        let skipped = self.skipped.iter();
        let skipped = skipped.map(|it| json!({ "metric": it.metric, "why": it.why }));
        let sheets = self.sheets.iter().map(|sheet| {
            json!({
                "delivery": sheet.name,
                "balanced": sheet.balanced,
                "missing": sheet.missing,
                "reason": sheet.reason,
            })
        });
        let report = json!({
            "equal": self.is_equal(),
            "measurements": compared.collect::<Vec<_>>(),
            "not_compared": skipped.collect::<Vec<_>>(),
            "deliveries": sheets.collect::<Vec<_>>(),
        });
        format!("{report:#}\n")
    }

    pub(super) fn text(&self) -> String {
        let mut table =
            text::table(&["measurement", "of values", ">k6", ">InfluxDB", ">missing", ""]);
        for it in &self.compared {
            let verdict = match (it.is_equal, it.missing() > 0.0) {
                (true, _) => "",
                (false, true) => "MISSING",
                (false, false) => "TOO MUCH",
            };
            let missing = if it.is_equal { 0.0 } else { it.missing() };
            table.add_row([
                text::cell(&it.measurement),
                Cell::new(it.what()),
                Cell::new(figure(it.expected())),
                Cell::new(figure(it.found)),
                Cell::new(figure(missing)),
                Cell::new(verdict),
            ]);
        }
        let mut out = format!("{table}\n\n");
        for it in self.compared.iter().filter(|it| !it.places.is_empty()) {
            let measurement = text::cell(&it.measurement).content();
            for Place { delivery, words, .. } in &it.places {
                let _ = writeln!(out, "{measurement}: {delivery}: {words}");
            }
        }
        for sheet in &self.sheets {
            let _ = writeln!(out, "ledger of {}: {}", sheet.name, balance(sheet));
        }
        if !self.skipped.is_empty() {
            let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for Skipped { metric, why } in &self.skipped {
                by_reason.entry(why).or_default().push(text::cell(metric).content());
            }
            for (why, metrics) in by_reason {
                let _ = writeln!(out, "not compared: {} ({why})", metrics.join(", "));
            }
        }
        let differ = self.compared.iter().filter(|it| !it.is_equal).count() as u64;
        let all = text::counted(self.compared.len() as u64, "measurement");
        let _ = match differ {
            0 => writeln!(out, "equal: {all}"),
            _ => writeln!(out, "{} of {all} differ", text::count(differ)),
        };
        out
    }
}

/// As few digits as tell the number.
fn figure(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        return format!("{number:.0}");
    }
    let text = format!("{number:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn balance(sheet: &Sheet) -> String {
    let mut said = match (sheet.balanced, sheet.missing, &sheet.reason) {
        (Some(true), ..) => "balanced".to_owned(),
        (Some(false), Some(missing), _) if missing > 0 => {
            format!("not balanced, {missing} points are nowhere")
        }
        (Some(false), missing, _) => {
            let more = missing.unwrap_or_default().unsigned_abs();
            format!("not balanced, {more} points more than came")
        }
        (None, _, reason) => {
            let reason = reason.as_deref().unwrap_or("it does not say why");
            format!("not known whether it is balanced ({reason})")
        }
    };
    for (name, words) in [
        ("waiting", "wait"),
        ("dead", "are dead letters"),
        ("dropped", "were dropped by policy"),
        ("refused_in_part", "were refused in requests that were taken, as too old"),
        ("lost", "were lost on disk"),
    ] {
        let points = sheet.points.of(name);
        if points > 0 {
            let _ = write!(said, "; {points} points {words}");
        }
    }
    if sheet.found_left > 0 {
        let _ = write!(said, "; {} of those that wait are of before its start", sheet.found_left);
    }
    said
}

/// Says where the points of a measurement are that InfluxDB does not have.
fn place(sheet: &Sheet, measurement: &str, told: Told) -> Place {
    let delivery = sheet.name.clone();
    let Some(row) = sheet.row(measurement) else {
        let words = match sheet.has_others() {
            true => "has no row of its own, since there are too many measurements",
            false => "never received",
        };
        return Place { delivery, row: None, words: words.to_owned() };
    };
    let mut parts = Vec::new();
    for (name, words) in [
        ("open", "are in buckets of `interval`"),
        ("waiting", "wait, or were dropped"),
        ("dead", "are dead letters: see `sluice log dead-letters` or /dead-letters"),
        ("left_out", "cannot be written as lines"),
    ] {
        let points = row.of(name);
        if points > 0 {
            parts.push(format!("{points} points {words}"));
        }
    }
    let [received, aggregated_in, aggregated_out] =
        ["received", "aggregated_in", "aggregated_out"].map(|name| row.of(name));
    if aggregated_in > 0 && matches!(told, Told::Count(_)) {
        parts.push(format!("{aggregated_in} points were aggregated to {aggregated_out}"));
    }
    match told {
        Told::Count(expected) if expected > received as f64 => {
            parts.push(format!("{} points were never received", expected - received as f64));
        }
        _ if parts.is_empty() => parts.push(format!(
            "all of {received} points that were received are written: look at other databases, at \
             --from, --to and --tag, and at points of one series and time, which are one \
             (`collisions: shift_all`)"
        )),
        _ => {}
    }
    Place { delivery, row: Some(row.clone()), words: parts.join("; ") }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::reconcile::ledger::of_json;

    fn summary(told: &[(&str, Told)]) -> Summary {
        let expected = told.iter().map(|(measurement, told)| {
            let measurement = (*measurement).to_owned();
            Expected { measurement, told: *told }
        });
        let skipped = vec![Skipped { metric: "vus".to_owned(), why: "a gauge" }];
        Summary { expected: expected.collect(), skipped }
    }

    fn found(all: &[(&str, f64, f64)]) -> BTreeMap<String, Found> {
        let each = |(name, count, sum): &(&str, f64, f64)| {
            ((*name).to_owned(), Found { count: *count, sum: *sum })
        };
        all.iter().map(each).collect()
    }

    /// Guarantee: counters are compared by their sums and rates by their counts; rounding is no
    /// difference, one sample is, and a tolerance is in percent.
    #[test]
    fn sums_and_counts_are_compared() {
        let summary = summary(&[
            ("data_sent", Told::Sum(0.3)),
            ("http_reqs", Told::Sum(1_000.0)),
            ("ok", Told::Count(1_000.0)),
        ]);
        let at = |reqs: f64, ok: f64| {
            found(&[("data_sent", 3.0, 0.1 + 0.2), ("http_reqs", 7.0, reqs), ("ok", ok, 7.0)])
        };
        let compare = |reqs, ok, tolerance| Report::new(&summary, &at(reqs, ok), None, tolerance);
        assert!(compare(1_000.0, 1_000.0, 0.0).is_equal());
        for (reqs, ok, words) in [(999.0, 1_000.0, "MISSING"), (1_000.0, 1_001.0, "TOO MUCH")] {
            let report = compare(reqs, ok, 0.0);
            let text = report.text();
            assert!(!report.is_equal() && text.contains(words), "{text}");
            assert!(text.contains("1 of 3 measurements differ"), "{text}");
            assert!(text.contains("not compared: vus (a gauge)"), "{text}");
        }
        assert!(compare(999.0, 1_001.0, 0.1).is_equal());
        let nothing = Report::new(&summary, &BTreeMap::new(), None, 0.0);
        assert!(nothing.text().contains("3 of 3 measurements differ"));
        let json: Value = serde_json::from_str(&compare(990.0, 1_000.0, 0.0).json()).expect("JSON");
        assert_eq!(
            (&json["equal"], &json["measurements"][1]["missing"]),
            (&json!(false), &json!(10.0))
        );
        assert_eq!(json["measurements"][1]["compares"], "sum");
    }

    /// Guarantee: the ledger says for each measurement that differs where its points are.
    #[test]
    fn the_ledger_says_where_points_are() {
        let row = |name: &str, fields: Value| {
            let mut row = json!({ "measurement": name });
            row.as_object_mut().expect("a row").extend(fields.as_object().cloned().expect("some"));
            row
        };
        let ledger = of_json(&json!({"deliveries": [{
        "pipeline": "metrics", "exporter": "influxdb", "balanced": true, "missing": 0,
        "points": {"waiting": 40, "dead": 3, "written": 900},
        "measurements": [
            row("waits", json!({"received": 100, "written": 60, "waiting": 40})),
            row("dies", json!({"received": 100, "written": 97, "dead": 3})),
            row("late", json!({"received": 90, "written": 90})),
            row("gone", json!({"received": 100, "written": 100})),
            row("few", json!({"received": 100, "aggregated_in": 100, "open": 20,
                "aggregated_out": 8, "written": 8})),
        ]}]}));
        let names = ["waits", "dies", "late", "gone", "few", "never"];
        let summary = summary(&names.map(|name| (name, Told::Count(100.0))));
        let text = Report::new(&summary, &BTreeMap::new(), Some(&ledger), 0.0).text();
        for words in [
            "waits: metrics → influxdb: 40 points wait",
            "dies: metrics → influxdb: 3 points are dead letters",
            "late: metrics → influxdb: 10 points were never received",
            "gone: metrics → influxdb: all of 100 points that were received are written",
            "few: metrics → influxdb: 20 points are in buckets of `interval`; 100 points were",
            "never: metrics → influxdb: never received",
            "ledger of metrics → influxdb: balanced; 40 points wait; 3 points are dead letters",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        let all = names.map(|name| (name, 100.0, 0.0));
        let equal = Report::new(&summary, &found(&all), Some(&ledger), 0.0);
        assert!(equal.is_equal() && !equal.text().contains("never received"));
    }
}
