//! The scenarios: delivery, latency and memory when something is wrong.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use sluice_load_test::report::{DASH, Table};

use crate::figures::{Figures, Series, yes_or_no};
use crate::options::Options;
use crate::stage::Contestant;

/// A head and the text of a cell.
pub(crate) type Column = (&'static str, fn(&Series) -> String);

/// A section of its own in the results.
pub(crate) struct Scenario {
    /// For `--row`.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// The cases, which take turns.
    pub(crate) cases: &'static [&'static str],
    pub(crate) case_head: &'static str,
    pub(crate) takes: fn(&Contestant, &str) -> bool,
    pub(crate) measure: for<'a> fn(Turn<'a>) -> Measuring<'a>,
    /// Adds the figures that compare cases.
    pub(crate) compare: fn(&mut [Series]),
    /// Columns beside subject, case and the cores that were used.
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
    /// The counted time of most scenarios: of two rows.
    pub(crate) fn counted(self) -> Duration {
        self.options.window() * 2
    }
}

pub(crate) type Measuring<'a> = Pin<Box<dyn Future<Output = Result<Figures>> + 'a>>;

/// The results of a scenario.
pub(crate) struct Section {
    pub(crate) id: &'static str,
    pub(crate) markdown: String,
    /// Every turn.
    pub(crate) json: Value,
}

/// The columns of every scenario after its own.
const CORES: [Column; 2] = [
    ("subject core", |series| series.cell("subject_core", 2)),
    ("bench core", |series| series.cell("bench_core", 2)),
];

impl Scenario {
    pub(crate) async fn run(&self, options: &Options) -> Section {
        let Scenario { id, title, holds, .. } = self;
        let describe = |one: &Series| self.describe(one);
        let prefix = format!("{id}, ");
        let is_wanted =
            |case: &&str| options.case.is_empty() || options.case.iter().any(|it| it == case);
        let cases: Vec<&str> = self.cases.iter().copied().filter(is_wanted).collect();
        let mut all = in_turns(&prefix, options, &cases, self.takes, self.measure, describe).await;
        (self.compare)(&mut all);
        let json = |one: &Series| {
            let Series { subject, case, .. } = one;
            json!({ "subject": subject, "case": case, "holds": holds(one), "turns": one.to_json() })
        };
        let (notes, table) = ((self.notes)(options), self.table(&all));
        Section {
            id,
            markdown: format!("## {id}: {title}\n\n{notes}\n\n{table}"),
            json: all.iter().map(json).collect(),
        }
    }

    fn columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().chain(&CORES)
    }

    pub(crate) fn table(&self, all: &[Series]) -> Table {
        let mut heads = vec!["Subject", self.case_head];
        heads.extend(self.columns().map(|(head, _)| *head));
        heads.push("holds");
        let row = |series: &Series| {
            let mut row = vec![series.subject.to_owned(), series.case.clone()];
            row.extend(self.columns().map(|(_, cell)| cell(series)));
            row.push(yes_or_no((self.holds)(series)));
            row
        };
        Table::new("", &heads, all.iter().map(row).collect())
    }

    /// One turn, for its line in the progress. If all columns are relative to other cases, its
    /// figures are shown as measured.
    fn describe(&self, one: &Series) -> String {
        let mut one = one.clone();
        (self.compare)(std::slice::from_mut(&mut one));
        let cells = self.columns().map(|(head, cell)| (head, cell(&one)));
        let known = cells.filter(|(_, cell)| !cell.starts_with(DASH));
        let text =
            known.map(|(head, cell)| format!("{head} {cell}")).collect::<Vec<_>>().join(", ");
        if text.is_empty() { Value::from(one.turns).to_string() } else { text }
    }
}

/// Measures all cases in turns, each with all contestants that take it, so that compared runs are
/// close in time. Series are in the order of the cases. A turn that fails is reported on standard
/// error, as each one is, and leaves a gap.
pub(crate) async fn in_turns(
    prefix: &str,
    options: &Options,
    cases: &[impl AsRef<str>],
    takes: impl Fn(&Contestant, &str) -> bool,
    measure: impl AsyncFn(Turn<'_>) -> Result<Figures>,
    describe: impl Fn(&Series) -> String,
) -> Vec<Series> {
    let mut work = Vec::new();
    for case in cases.iter().map(AsRef::as_ref) {
        for contestant in options.contestants.iter().filter(|contestant| takes(contestant, case)) {
            let (subject, case) = (contestant.name, case.to_owned());
            work.push((contestant, Series { subject, case, turns: Vec::new() }));
        }
    }
    for number in 1..=options.turns {
        for (contestant, series) in &mut work {
            let Series { subject, case, .. } = &*series;
            let label = format!("{prefix}{case}, {subject} turn {number}");
            let turn = measure(Turn { contestant, case, number, options }).await;
            match &turn {
                Ok(figures) => {
                    let one = Series { turns: vec![figures.clone()], ..series.clone() };
                    eprintln!("{label}: {}", describe(&one));
                }
                Err(error) => eprintln!("{label} FAILED: {error:#}"),
            }
            series.turns.push(turn.unwrap_or(Value::Null));
        }
    }
    work.into_iter().map(|(_, series)| series).collect()
}
