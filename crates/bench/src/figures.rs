//! Figures of turns by name, over all turns of a case, and compared with another case's.

use std::ops::Div;
use std::slice;

use serde_json::{Value, json};
use sluice_load_test::report::{DASH, MEBIBYTE, Spread, number};

/// Figures of one turn: an object of numbers and lists of numbers, as in `--json`. Null: unknown.
pub(crate) type Figures = Value;

/// Adds other figures; those of the same name are replaced.
pub(crate) fn with(mut figures: Figures, others: Figures) -> Figures {
    if let (Some(own), Value::Object(others)) = (figures.as_object_mut(), others) {
        own.extend(others);
    }
    figures
}

/// The values of a figure: one number, those of a list, or none.
fn all<'a>(turn: &'a Figures, name: &str) -> impl Iterator<Item = f64> + use<'a> {
    let value = &turn[name];
    let list = value.as_array().map_or(slice::from_ref(value), Vec::as_slice);
    list.iter().filter_map(Value::as_f64)
}

/// All turns of one subject in one case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub(crate) subject: &'static str,
    pub(crate) case: String,
    /// Null: the turn failed.
    pub(crate) turns: Vec<Figures>,
}

impl Series {
    fn measured(&self) -> impl Iterator<Item = &Figures> {
        self.turns.iter().filter(|turn| !turn.is_null())
    }

    /// The known values of a figure, turn after turn.
    pub(crate) fn values(&self, figure: &str) -> impl Iterator<Item = f64> {
        self.turns.iter().flat_map(move |turn| all(turn, figure))
    }

    pub(crate) fn spread(&self, figure: &str) -> Option<Spread> {
        Spread::of(self.values(figure))
    }

    /// NaN, for which no bar holds, if no value is known.
    pub(crate) fn median(&self, figure: &str) -> f64 {
        self.spread(figure).map_or(f64::NAN, |spread| spread.median)
    }

    /// Whether it holds in every turn that was measured. An unknown figure does not hold.
    pub(crate) fn each(&self, figure: &str, holds: impl Fn(f64) -> bool) -> bool {
        self.measured().all(|turn| all(turn, figure).next().is_some_and(&holds))
    }

    /// Whether these counts are zero in every turn.
    pub(crate) fn none(&self, figures: &[&str]) -> bool {
        figures.iter().all(|figure| self.each(figure, |count| count == 0.0))
    }

    /// Whether resident memory is at most 110 % of the configured limit in every turn.
    pub(crate) fn keeps_to_memory(&self) -> bool {
        self.each("memory_share", |share| share <= 1.10)
    }

    /// Compares a figure with that of another series, turn by turn: both ran within minutes.
    pub(crate) fn against(
        &self,
        other: &Series,
        figure: &str,
        how: fn(f64, f64) -> f64,
    ) -> Vec<Option<f64>> {
        let of = |turn: &Figures| all(turn, figure).next();
        let pairs = self.turns.iter().zip(&other.turns);
        let values = pairs.map(|(own, other)| Some(how(of(own)?, of(other)?)));
        values.map(|value| value.filter(|value| value.is_finite())).collect()
    }

    pub(crate) fn put(&mut self, name: &str, values: Vec<Option<f64>>) {
        for (turn, value) in self.turns.iter_mut().zip(values).filter(|(turn, _)| turn.is_object())
        {
            turn[name] = json!(value);
        }
    }

    /// The median times a factor, or a dash.
    fn scaled(&self, figure: &str, factor: f64, decimals: usize) -> String {
        number(self.spread(figure).map(|spread| spread.median * factor), decimals)
    }

    pub(crate) fn cell(&self, figure: &str, decimals: usize) -> String {
        self.scaled(figure, 1.0, decimals)
    }

    pub(crate) fn millions(&self, figure: &str, decimals: usize) -> String {
        self.scaled(figure, 1e-6, decimals)
    }

    pub(crate) fn mebibytes(&self, figure: &str, decimals: usize) -> String {
        self.scaled(figure, 1.0 / MEBIBYTE, decimals)
    }

    /// The median of a share, in percent.
    pub(crate) fn percent(&self, figure: &str) -> String {
        let percent = self.scaled(figure, 100.0, 1);
        if percent == DASH { percent } else { percent + " %" }
    }

    /// The highest value of all turns; a dash if one turn does not know it.
    pub(crate) fn worst(&self, figure: &str) -> String {
        number(self.values(figure).reduce(f64::max).filter(|_| self.each(figure, |_| true)), 0)
    }

    /// Highest resident memory, and its share of the limit.
    pub(crate) fn peak_of_limit(&self) -> String {
        format!("{} ({})", self.mebibytes("peak_rss_bytes", 0), self.percent("memory_share"))
    }

    /// Every turn that was measured.
    pub(crate) fn to_json(&self) -> Value {
        self.measured().cloned().collect()
    }
}

/// Adds to every turn its figure compared with the same subject's and turn's in `baseline`.
pub(crate) fn compare(
    all: &mut [Series],
    baseline: &str,
    name: &str,
    figure: &str,
    how: fn(f64, f64) -> f64,
) {
    let of_baseline = |one: &&Series| one.case == baseline;
    let baselines: Vec<Series> = all.iter().filter(of_baseline).cloned().collect();
    for series in all {
        if let Some(baseline) = baselines.iter().find(|one| one.subject == series.subject) {
            series.put(name, series.against(baseline, figure, how));
        }
    }
}

/// Puts the figure of each series as a multiple of that of another subject in the same case.
pub(crate) fn compare_with(all: &mut [Series], subject: &str, name: &str, figure: &str) {
    let others: Vec<Series> = all.iter().filter(|one| one.subject == subject).cloned().collect();
    for series in all {
        if let Some(other) = others.iter().find(|one| one.case == series.case) {
            let ratios = series.against(other, figure, Div::div);
            series.put(name, ratios);
        }
    }
}

pub(crate) fn yes_or_no(holds: bool) -> String {
    if holds { "yes" } else { "NO" }.to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A series of these turns.
    pub(crate) fn series(case: &str, turns: &[Value]) -> Series {
        Series { subject: "sluice", case: case.to_owned(), turns: turns.to_vec() }
    }

    #[test]
    fn ratios_are_taken_turn_by_turn_and_a_failed_turn_leaves_a_gap() {
        let rates = |values: [Option<u64>; 3]| {
            values.map(|value| value.map_or(Value::Null, |n| json!({ "rate": n })))
        };
        let healthy = series("healthy", &rates([Some(1000), Some(2000), Some(1000)]));
        let mut all = [healthy, series("dead", &rates([Some(990), None, Some(960)]))];
        compare(&mut all, "healthy", "share", "rate", |own, healthy| own / healthy);
        assert_eq!(
            all[1].values("share").collect::<Vec<_>>(),
            [0.99, 0.96],
            "the failed turn shifts nothing"
        );
        assert_eq!((all[0].median("share"), all[1].percent("share")), (1.0, "97.5 %".to_owned()));
    }

    #[test]
    fn what_is_not_known_is_a_dash_and_holds_no_bar() {
        let unknown = series("x", &[json!({ "lost": 3 }), json!({ "lost": null })]);
        assert_eq!(
            (unknown.worst("lost"), unknown.cell("lost", 0)),
            (DASH.to_owned(), "3".to_owned())
        );
        assert!(!unknown.each("lost", |_| true) && !unknown.none(&["lost"]));
        assert!(unknown.median("rate").is_nan() && unknown.cell("rate", 1) == DASH);
        assert_eq!(
            series("x", &[json!({ "lost": [0, 7] }), json!({ "lost": 1 })]).worst("lost"),
            "7"
        );
    }
}
