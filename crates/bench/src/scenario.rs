//! The scenarios: what becomes of delivery, latency and memory when something is wrong, as ratios
//! to when nothing is.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde_json::Value;

use crate::Options;
use crate::contestant::Contestant;
use crate::figures::{Column, Figures, Series, describe, table, yes_or_no};

/// A section of its own in the results.
pub(crate) struct Scenario {
    /// For `--row`.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// All of them take turns.
    pub(crate) cases: &'static [&'static str],
    pub(crate) takes: fn(&Contestant, &str) -> bool,
    pub(crate) measure: for<'a> fn(Turn<'a>) -> Measuring<'a>,
    /// Adds the figures that compare cases.
    pub(crate) compare: fn(&mut [Series]),
    pub(crate) columns: &'static [Column],
    /// The bars that Sluice is held to.
    pub(crate) holds: fn(&Series) -> bool,
    /// The setting and the bars in words.
    pub(crate) notes: fn(&Options) -> String,
}

/// One contestant in one case.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    pub(crate) contestant: &'a Contestant,
    pub(crate) case: &'a str,
    /// From 1.
    pub(crate) number: usize,
    pub(crate) options: &'a Options,
}

impl Turn<'_> {
    /// The counted time of so many rows.
    pub(crate) fn windows(self, count: u32) -> Duration {
        self.options.window * count
    }
}

pub(crate) type Measuring<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Figures>> + 'a>>;

/// What a scenario came to.
pub(crate) struct Section {
    pub(crate) id: &'static str,
    pub(crate) markdown: String,
    /// Every turn.
    pub(crate) json: Value,
}

impl Scenario {
    /// Runs it. `progress` is told of each turn. A turn that fails is reported there and leaves a
    /// gap.
    pub(crate) async fn run(&self, options: &Options, progress: &mut dyn FnMut(&str)) -> Section {
        let cases: Vec<(String, &str)> =
            self.cases.iter().map(|&case| (case.to_owned(), case)).collect();
        let takes = |contestant: &Contestant, case: &&str| (self.takes)(contestant, case);
        let measure = async |contestant: &Contestant, case: &&str, number| {
            (self.measure)(Turn { contestant, case, number, options }).await
        };
        let mut line = |text: &str| progress(&format!("{}, {text}", self.id));
        let of_one = |one: &Series, _: &&str| {
            let mut one = one.clone();
            (self.compare)(std::slice::from_mut(&mut one));
            describe(self.columns, &one)
        };
        let mut all = in_turns(options, &cases, takes, measure, of_one, &mut line).await;
        (self.compare)(&mut all);
        let mut table = table(self.columns, &all);
        table.columns.push("holds".to_owned());
        for (row, series) in table.rows.iter_mut().zip(&all) {
            row.push(yes_or_no((self.holds)(series)));
        }
        let Scenario { id, title, .. } = self;
        Section {
            id,
            markdown: format!("## {id}: {title}\n\n{}\n\n{table}", (self.notes)(options)),
            json: all.iter().map(|series| series.to_json(Some((self.holds)(series)))).collect(),
        }
    }
}

/// Measures all cases, each with all contestants that take it, as often as there are turns: what is
/// compared runs within the same minutes. Series are in the order of the cases.
pub(crate) async fn in_turns<C>(
    options: &Options,
    cases: &[(String, C)],
    takes: impl Fn(&Contestant, &C) -> bool,
    measure: impl AsyncFn(&Contestant, &C, usize) -> anyhow::Result<Figures>,
    describe: impl Fn(&Series, &C) -> String,
    progress: &mut dyn FnMut(&str),
) -> Vec<Series> {
    let mut work = Vec::new();
    for (name, case) in cases {
        for contestant in options.contestants.iter().filter(|contestant| takes(contestant, case)) {
            work.push((contestant, case, Series::new(contestant.name, name, Vec::new())));
        }
    }
    for number in 1..=options.turns {
        for (contestant, case, series) in &mut work {
            let label = format!("{}, {} turn {number}", series.case, series.subject);
            let turn = measure(contestant, case, number).await;
            match &turn {
                Ok(figures) => {
                    let one =
                        Series::new(series.subject, &series.case, vec![Some(figures.clone())]);
                    progress(&format!("{label}: {}", describe(&one, case)));
                }
                Err(error) => progress(&format!("{label} FAILED: {error:#}")),
            }
            series.turns.push(turn.ok());
        }
    }
    work.into_iter().map(|(_, _, series)| series).collect()
}

/// Of all cases.
pub(crate) fn gateways(contestant: &Contestant, _: &str) -> bool {
    contestant.is_gateway()
}

/// Of all cases.
pub(crate) fn sluice_only(contestant: &Contestant, _: &str) -> bool {
    contestant.is_sluice()
}

/// The columns of every scenario that has cases.
pub(crate) const SUBJECT: Column = ("Subject", |series| series.subject.to_owned());
pub(crate) const CORES: [Column; 2] = [
    ("subject core", |series| series.cell("subject_core", 2)),
    ("bench core", |series| series.cell("bench_core", 2)),
];

/// The share of the configured limit that resident memory may reach.
const MEMORY_BAR: f64 = 1.10;

/// Whether memory stays within its limit in every turn.
pub(crate) fn keeps_to_memory(series: &Series) -> bool {
    series.each("memory_share", |share| share <= MEMORY_BAR)
}
