//! `--find-limit`: the highest rate that a subject holds with no loss and a bounded queue, open
//! loop, and how sure that is.

mod found;
mod judge;
mod search;

use std::time::{Duration, Instant};

use super::Bench;
use super::definition::Definition;
use super::machine::Cores;
use super::plan::Plan;
use super::turn::{self, TurnOutcome};
use super::warnings::BENCH_SHARE;
use crate::generate::Pace;
use crate::live;
use crate::report::{LimitTry, SubjectRecord, Warning};
use found::found;
use judge::{Judgement, Meant, judge};
use search::Search;

/// The search begins at this share of what the subject takes when it is sent as much as it answers.
const START_SHARE: f64 = 0.7;
/// Where that is nothing.
const FALLBACK_START: f64 = 1_000.0;

/// How long and how closely is searched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitSearch {
    /// For each subject. What was found until then is reported.
    pub within: Duration,
    /// A rate that fails so close above one that is held ends the search: 0.05 is 5 %.
    pub precision: f64,
}

/// One subject's search.
struct Seeker<'a> {
    definition: &'a Definition,
    search: Option<Search>,
    /// What was tried, with what came of it where that may be the result.
    tries: Vec<(LimitTry, TurnOutcome)>,
    spent: Duration,
    longest_try: Duration,
    /// Why it ended early.
    ended: Option<String>,
    is_over: bool,
}

/// Searches for all subjects, one try of each in turn, so that they share the machine's moods.
/// Fills in the limits, and as turns those at the limit.
pub(super) async fn run(
    bench: Bench<'_>,
    options: LimitSearch,
    subjects: &mut [SubjectRecord],
    warnings: &mut Vec<Warning>,
) -> Vec<anyhow::Error> {
    let Bench { plan, interrupted, .. } = bench;
    let mut failures = Vec::new();
    let mut seekers: Vec<_> = plan.subjects.iter().map(Seeker::new).collect();
    while let Some(seeker) = least_spent(&mut seekers) {
        if *interrupted.borrow() {
            break;
        }
        if let Err(error) = seeker.step(bench, options).await {
            let message = format!("the search for its limit ended: {error:#}");
            warnings.push(Warning::new(message, "").of(&seeker.definition.name));
            seeker.end(&format!("a try failed: {error:#}"));
            failures.push(error);
        }
    }
    for (seeker, subject) in seekers.into_iter().zip(subjects) {
        warnings.extend(seeker.conclude(plan, *interrupted.borrow(), subject));
    }
    failures
}

/// Whose turn it is: the one with the fewest tries that goes on.
fn least_spent<'a, 'b>(seekers: &'b mut [Seeker<'a>]) -> Option<&'b mut Seeker<'a>> {
    seekers.iter_mut().filter(|seeker| !seeker.is_over).min_by_key(|seeker| seeker.tries.len())
}

impl<'a> Seeker<'a> {
    fn new(definition: &'a Definition) -> Self {
        Seeker {
            definition,
            search: None,
            tries: Vec::new(),
            spent: Duration::ZERO,
            longest_try: Duration::ZERO,
            ended: None,
            is_over: false,
        }
    }

    fn end(&mut self, why: &str) {
        self.ended = Some(why.to_owned());
        self.is_over = true;
    }

    /// One try, or the look at what it takes at most that comes before the first.
    async fn step(&mut self, bench: Bench<'_>, options: LimitSearch) -> anyhow::Result<()> {
        let plan = bench.plan;
        let name = self.definition.name.clone();
        let Some(search) = &self.search else {
            let start = match plan.pace {
                Some(Pace::Open { items_per_s }) => items_per_s,
                _ => self.probe(bench).await?,
            };
            self.search = Some(Search::new(start, options.precision));
            return Ok(());
        };
        let Some(rate) = search.next() else {
            self.is_over = true;
            return Ok(());
        };
        if self.spent + self.longest_try > options.within {
            self.end("the time for the search was over");
            return Ok(());
        }
        let began = Instant::now();
        let try_plan = Plan { pace: Some(Pace::Open { items_per_s: rate }), ..plan.clone() };
        let label = format!("{name}, try {} at {rate:.0}/s", self.tries.len() + 1);
        bench.view.begin_turn(&label);
        let outcome = turn::run(Bench { plan: &try_plan, ..bench }, self.definition).await?;
        self.took(began.elapsed());
        let Some(outcome) = outcome.filter(|_| !*bench.interrupted.borrow()) else { return Ok(()) };
        let judgement = judge(&outcome.turn, &meant(&try_plan, rate, bench.cores));
        tell(&label, &judgement);
        self.note(rate, judgement, outcome);
        Ok(())
    }

    fn note(&mut self, rate_per_s: f64, judgement: Judgement, outcome: TurnOutcome) {
        let Judgement { reason, bench_was_busy } = judgement;
        if let Some(search) = &mut self.search {
            search.record(rate_per_s, reason.is_none());
        }
        self.tries.push((
            LimitTry { rate_per_s, held: reason.is_none(), reason, bench_was_busy },
            outcome,
        ));
    }

    fn took(&mut self, time: Duration) {
        self.spent += time;
        self.longest_try = self.longest_try.max(time);
    }

    /// Where to begin: below what it takes when it is sent as much as it answers.
    async fn probe(&mut self, bench: Bench<'_>) -> anyhow::Result<f64> {
        let plan = bench.plan;
        let began = Instant::now();
        let closed = Plan { pace: Some(Pace::Closed), ..plan.clone() };
        let label = format!("{}, what it answers at most", self.definition.name);
        bench.view.begin_turn(&label);
        let outcome = turn::run(Bench { plan: &closed, ..bench }, self.definition).await?;
        self.took(began.elapsed());
        let accepted = outcome.and_then(|outcome| outcome.turn.kpis.accepted).unwrap_or(0);
        let taken = accepted as f64 / plan.duration.as_secs_f64();
        live::note(&format!("{label}: {taken:.0} items/s"));
        Ok(if taken > 0.0 { START_SHARE * taken } else { FALLBACK_START })
    }

    /// Puts the result into the record. The warnings are those of the tries that are the result.
    fn conclude(
        mut self,
        plan: &Plan,
        is_interrupted: bool,
        subject: &mut SubjectRecord,
    ) -> Vec<Warning> {
        if is_interrupted && !self.is_over {
            self.end("interrupted");
        }
        let search = self.search.unwrap_or_else(|| Search::new(FALLBACK_START, 0.0));
        let tries = self.tries.iter().map(|(tried, _)| tried.clone()).collect();
        let limit = found(&search, tries, plan.duration.as_secs_f64(), self.ended);
        let rate = limit.rate_per_s;
        subject.limit = Some(limit);
        let mut warnings = Vec::new();
        // Where nothing was held, the last try says what happened instead.
        let last = self.tries.len().saturating_sub(1);
        for (index, (tried, outcome)) in self.tries.into_iter().enumerate() {
            let is_result = tried.held && rate == Some(tried.rate_per_s);
            if is_result || rate.is_none() && index == last {
                warnings.extend(outcome.warnings.iter().cloned());
                super::add_turn(subject, subject.turns.len() + 1, outcome);
            }
        }
        warnings
    }
}

fn meant(plan: &Plan, rate_per_s: f64, cores: &Cores) -> Meant {
    Meant {
        rate_per_s,
        load_s: plan.duration.as_secs_f64(),
        items_per_request: f64::from(plan.items_per_request()),
        bench_limit_cores: BENCH_SHARE * cores.of_bench() as f64,
    }
}

fn tell(label: &str, judgement: &Judgement) {
    let busy = if judgement.bench_was_busy { " (the bench was near its cores)" } else { "" };
    match &judgement.reason {
        None => live::note(&format!("{label}: held{busy}")),
        Some(reason) => live::note(&format!("{label}: not held: {reason}{busy}")),
    }
}
