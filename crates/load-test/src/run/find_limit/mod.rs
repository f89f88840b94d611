//! `--find-limit`: the highest rate of an open loop that a subject holds, and its interval.

mod search;

use std::time::{Duration, Instant};

use super::definition::Definition;
use super::plan::{LimitSearch, Plan};
use super::turn::{self, Bench, TurnOutcome};
use super::warnings::BENCH_SHARE;
use crate::generate::Pace;
use crate::live;
use crate::report::{FoundLimit, LimitTry, Sample, SubjectRecord, Turn, Warning};
use search::Search;

/// The search begins at this share of the rate that the subject takes in a closed loop.
const START_SHARE: f64 = 0.7;
/// The first rate, items a second, if the subject takes nothing in a closed loop.
const FALLBACK_START: f64 = 1_000.0;

/// Share of the requests that may be late. The machine may delay a few; a subject that does not
/// keep up makes ever more of them late.
const LATE_SHARE: f64 = 0.05;
/// A backlog is bounded if it grows by at most this share of the rate ...
const GROWTH_SHARE: f64 = 0.03;
/// ... or if it ends at no more than this share of all items that were to be sent.
const BACKLOG_SHARE: f64 = 0.05;
/// First part of a try that is not judged: connections are made, caches and batches fill.
const WARM_UP_SHARE: f64 = 0.2;

struct Seeker<'a> {
    definition: &'a Definition,
    search: Option<Search>,
    /// Every try with its outcome.
    tries: Vec<(LimitTry, TurnOutcome)>,
    spent: Duration,
    longest_try: Duration,
    /// The reason if the search ended early.
    ended: Option<String>,
}

/// Searches for all subjects, one try of each in turn, so that they share the machine's noise.
/// Records the limits, and the tries at the limit as turns. Returns the last error.
pub(super) async fn run(
    bench: Bench<'_>,
    options: LimitSearch,
    subjects: &mut [SubjectRecord],
    warnings: &mut Vec<Warning>,
) -> Option<anyhow::Error> {
    let Bench { plan, interrupted, .. } = bench;
    let mut failure = None;
    let seeker = |definition| Seeker {
        definition,
        search: None,
        tries: Vec::new(),
        spent: Duration::ZERO,
        longest_try: Duration::ZERO,
        ended: None,
    };
    let mut seekers: Vec<_> = plan.subjects.iter().map(seeker).collect();
    // The next try is for the unfinished search with the fewest tries.
    while let Some(seeker) =
        seekers.iter_mut().filter(|one| !one.is_over()).min_by_key(|one| one.tries.len())
        && !*interrupted.borrow()
    {
        if let Err(error) = seeker.step(bench, options).await {
            let message = format!("the search for its limit ended: {error:#}");
            warnings.push(Warning::new(message, "").of(&seeker.definition.name));
            seeker.ended = Some(format!("a try failed: {error:#}"));
            failure = Some(error);
        }
    }
    for (mut seeker, subject) in seekers.into_iter().zip(subjects) {
        if *interrupted.borrow() && !seeker.is_over() {
            seeker.ended = Some("interrupted".to_owned());
        }
        seeker.conclude(plan.duration.as_secs_f64(), subject, warnings);
    }
    failure
}

impl Seeker<'_> {
    fn is_over(&self) -> bool {
        self.ended.is_some() || self.search.as_ref().is_some_and(|search| search.next().is_none())
    }

    /// Makes one try. The first step finds the rate to begin with instead.
    async fn step(&mut self, bench: Bench<'_>, options: LimitSearch) -> anyhow::Result<()> {
        let Some(search) = &self.search else {
            let start = match bench.plan.pace {
                Some(Pace::Open { items_per_s }) => items_per_s,
                _ => self.probe(bench).await?,
            };
            self.search = Some(Search::new(start, options.precision));
            return Ok(());
        };
        let Some(rate_per_s) = search.next() else { return Ok(()) };
        if self.spent + self.longest_try > options.within {
            self.ended = Some("the time for the search was over".to_owned());
            return Ok(());
        }
        let number = self.tries.len() + 1;
        let label = format!("{}, try {number} at {rate_per_s:.0}/s", self.definition.name);
        let outcome = self.turn(bench, Pace::Open { items_per_s: rate_per_s }, &label).await?;
        let Some(outcome) = outcome.filter(|_| !*bench.interrupted.borrow()) else { return Ok(()) };
        let meant = Meant {
            rate_per_s,
            load_s: bench.plan.duration.as_secs_f64(),
            items_per_request: f64::from(bench.plan.items_per_request()),
            bench_limit_cores: BENCH_SHARE * bench.cores.of_bench() as f64,
        };
        let tried = judge(&outcome.turn, &meant);
        let busy = if tried.bench_was_busy { " (the bench was near its cores)" } else { "" };
        match &tried.reason {
            None => live::note(&format!("{label}: held{busy}")),
            Some(reason) => live::note(&format!("{label}: not held: {reason}{busy}")),
        }
        if let Some(search) = &mut self.search {
            search.record(rate_per_s, tried.held);
        }
        self.tries.push((tried, outcome));
        Ok(())
    }

    async fn turn(
        &mut self,
        bench: Bench<'_>,
        pace: Pace,
        label: &str,
    ) -> anyhow::Result<Option<TurnOutcome>> {
        let plan = Plan { pace: Some(pace), ..bench.plan.clone() };
        let began = Instant::now();
        bench.view.begin_turn(label);
        let outcome = turn::run(Bench { plan: &plan, ..bench }, self.definition).await?;
        self.spent += began.elapsed();
        self.longest_try = self.longest_try.max(began.elapsed());
        Ok(outcome)
    }

    /// The rate to begin with: a share of the rate that the subject takes in a closed loop.
    async fn probe(&mut self, bench: Bench<'_>) -> anyhow::Result<f64> {
        let label = format!("{}, what it answers at most", self.definition.name);
        let outcome = self.turn(bench, Pace::Closed, &label).await?;
        let accepted = outcome.and_then(|outcome| outcome.turn.kpis.accepted).unwrap_or(0);
        let taken = accepted as f64 / bench.plan.duration.as_secs_f64();
        live::note(&format!("{label}: {taken:.0} items/s"));
        Ok(if taken > 0.0 { START_SHARE * taken } else { FALLBACK_START })
    }

    /// Records the result, with the warnings of the tries at the resulting rate.
    fn conclude(self, try_s: f64, subject: &mut SubjectRecord, warnings: &mut Vec<Warning>) {
        let search = self.search.unwrap_or_else(|| Search::new(FALLBACK_START, 0.0));
        let (tries, outcomes): (Vec<LimitTry>, Vec<TurnOutcome>) = self.tries.into_iter().unzip();
        let limit = FoundLimit { try_s, ended_early: self.ended, ..found(&search, tries) };
        // If no rate was held, the last try is recorded instead.
        let last = outcomes.len().saturating_sub(1);
        for (index, (tried, outcome)) in limit.tries.iter().zip(outcomes).enumerate() {
            let is_result = tried.held && limit.rate_per_s == Some(tried.rate_per_s);
            if is_result || limit.rate_per_s.is_none() && index == last {
                let number = subject.turns.len() + 1;
                outcome.add_to(subject, number, warnings);
            }
        }
        subject.limit = Some(limit);
    }
}

fn found(search: &Search, tries: Vec<LimitTry>) -> FoundLimit {
    let (best, failed) = (search.best(), search.lowest_failed());
    let mut failing =
        tries.iter().filter(|tried| !tried.held && Some(tried.rate_per_s) == failed).peekable();
    FoundLimit {
        rate_per_s: best.map(|best| best.rate),
        held: best.map_or(0, |best| best.held),
        tries_at_rate: best.map_or(0, |best| best.held + best.failed),
        held_always_per_s: search.held_always(),
        failed_per_s: failed,
        bench_was_limit: failing.peek().is_some() && failing.all(|tried| tried.bench_was_busy),
        tries,
        ..FoundLimit::default()
    }
}

struct Meant {
    rate_per_s: f64,
    load_s: f64,
    items_per_request: f64,
    /// CPU use, in cores, above which the bench counts as the limit.
    bench_limit_cores: f64,
}

/// A rate is held with no loss, nothing turned away, all sent in time and no growing backlog.
fn judge(turn: &Turn, meant: &Meant) -> LimitTry {
    let cost = &turn.bench;
    let bench_cores: f64 =
        [cost.generator_cpu_cores, cost.backend_cpu_cores].iter().flatten().sum();
    let reason = reason(turn, meant);
    LimitTry {
        rate_per_s: meant.rate_per_s,
        held: reason.is_none(),
        reason,
        bench_was_busy: meant.bench_limit_cores < bench_cores,
    }
}

/// The reason if the rate was not held.
fn reason(turn: &Turn, meant: &Meant) -> Option<String> {
    let kpis = &turn.kpis;
    let of = |count: Option<u64>| count.unwrap_or(0);
    let turned_away = of(kpis.refused) + of(kpis.unanswered);
    let requests = meant.rate_per_s * meant.load_s / meant.items_per_request;
    let late =
        of(turn.bench.late_requests) as f64 + of(kpis.never_sent) as f64 / meant.items_per_request;
    Some(match kpis.lost {
        None => "what was lost is not known".to_owned(),
        Some(lost @ 1..) => format!("{lost} items lost"),
        Some(0) if turned_away > 0 => format!("{turned_away} items turned away"),
        Some(0) if late > (LATE_SHARE * requests).max(1.0) => {
            let percent = (100.0 * late / requests).min(100.0);
            format!("{percent:.1} % of the requests sent late or never")
        }
        Some(0) => match growth(&turn.samples, meant) {
            Some(growth) => format!("{growth:.0} more items waiting every second"),
            None if kpis.drain_s.is_some() => return None,
            None => "not everything had arrived when the time to drain was over".to_owned(),
        },
    })
}

/// Growth of an unbounded backlog, items a second; `None`: the backlog is bounded.
fn growth(samples: &[Sample], meant: &Meant) -> Option<f64> {
    let after = WARM_UP_SHARE * meant.load_s;
    let known = samples.iter().filter(|sample| sample.t_s >= after);
    let points: Vec<(f64, f64)> =
        known.filter_map(|sample| Some((sample.t_s, sample.backlog_items?))).collect();
    let &(_, at_end) = points.last()?;
    let slope = slope(&points)?;
    let is_bounded = slope <= GROWTH_SHARE * meant.rate_per_s
        || at_end <= BACKLOG_SHARE * meant.rate_per_s * meant.load_s + meant.items_per_request;
    (!is_bounded).then_some(slope)
}

/// Least squares. `None` for less than two moments.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let together: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    (spread > 0.0).then(|| together / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each try is a rate, whether it was held, and whether the bench was busy.
    fn of(tries: &[(f64, bool, bool)]) -> FoundLimit {
        let mut search = Search::new(1_000.0, 0.05);
        let tried = tries.iter().map(|&(rate_per_s, held, bench_was_busy)| {
            search.record(rate_per_s, held);
            LimitTry { rate_per_s, held, reason: None, bench_was_busy }
        });
        let tries = tried.collect();
        found(&search, tries)
    }

    #[test]
    fn rate_and_interval_are_told_apart_where_a_try_failed_by_chance() {
        let chance = [
            (900.0, true, false),
            (1_000.0, false, false),
            (1_000.0, true, false),
            (1_000.0, true, false),
        ];
        let limit =
            of(&[&chance[..], &[(1_050.0, false, false), (1_050.0, false, false)]].concat());
        assert_eq!((limit.rate_per_s, limit.held, limit.tries_at_rate), (Some(1_000.0), 2, 3));
        assert_eq!((limit.held_always_per_s, limit.failed_per_s), (Some(900.0), Some(1_050.0)));
    }

    #[test]
    fn the_bench_was_the_limit_only_where_every_failure_at_the_lowest_rate_was_with_a_busy_bench() {
        let held = (1_000.0, true, true);
        assert!(of(&[held, (1_050.0, false, true), (1_050.0, false, true)]).bench_was_limit);
        assert!(!of(&[held, (1_050.0, false, true), (1_050.0, false, false)]).bench_was_limit);
        // A busy bench at a higher rate does not count.
        let higher = [(2_000.0, false, true), (2_000.0, false, true)];
        assert!(
            !of(&[&higher[..], &[held, (1_050.0, false, false), (1_050.0, false, false)]].concat())
                .bench_was_limit
        );
        assert!(!of(&[held]).bench_was_limit);
    }

    use crate::report::{BenchCost, Kpis};

    const MEANT: Meant = Meant {
        rate_per_s: 10_000.0,
        load_s: 10.0,
        items_per_request: 100.0,
        bench_limit_cores: 0.85,
    };

    fn turn(backlog: impl Fn(f64) -> f64) -> Turn {
        let sample = |second: u32| {
            let t_s = f64::from(second);
            Sample { t_s, backlog_items: Some(backlog(t_s)), ..Sample::default() }
        };
        Turn {
            kpis: Kpis { lost: Some(0), refused: Some(0), drain_s: Some(0.1), ..Kpis::default() },
            samples: (1..=10).map(sample).collect(),
            bench: BenchCost { late_requests: Some(0), ..BenchCost::default() },
            ..Turn::default()
        }
    }

    fn reason_of(turn: &Turn) -> String {
        judge(turn, &MEANT).reason.unwrap_or_default()
    }

    #[test]
    fn a_backlog_that_stays_is_bounded_and_one_that_grows_is_not() {
        let noise = |t: f64| 300.0 * (7.0 * t).sin();
        // A batch that waits up to half a second holds half a second's items, always.
        assert_eq!(reason_of(&turn(|t| 5_000.0 + noise(t))), "");
        // A backlog that reaches its bound grows at the start only.
        assert_eq!(reason_of(&turn(|t| 40_000.0 * (t / 2.0).min(1.0) + noise(t))), "");
        let reason = reason_of(&turn(|t| 1_000.0 * t + noise(t)));
        assert!(reason.contains("more items waiting every second"), "{reason}");
    }

    #[test]
    fn each_way_not_to_hold_a_rate_has_its_reason() {
        type Change = fn(&mut Turn);
        let cases: [(Change, &str); 7] = [
            (|turn| turn.kpis.lost = Some(7), "7 items lost"),
            (|turn| turn.kpis.lost = None, "not known"),
            (|turn| turn.kpis.refused = Some(100), "100 items turned away"),
            (|turn| turn.kpis.unanswered = Some(200), "200 items turned away"),
            (|turn| turn.bench.late_requests = Some(80), "8.0 % of the requests sent late"),
            (
                |turn| turn.kpis.never_sent = Some(50_000),
                "50.0 % of the requests sent late or never",
            ),
            (|turn| turn.kpis.drain_s = None, "time to drain"),
        ];
        for (change, expected) in cases {
            let mut turn = turn(|_| 100.0);
            change(&mut turn);
            let reason = reason_of(&turn);
            assert!(reason.contains(expected), "{expected}: {reason}");
        }
    }

    #[test]
    fn a_few_late_requests_are_the_machines() {
        let mut turn = turn(|_| 100.0);
        turn.bench.late_requests = Some(50);
        assert_eq!(reason_of(&turn), "");
    }

    #[test]
    fn a_busy_bench_is_told() {
        let mut turn = turn(|_| 100.0);
        turn.bench.generator_cpu_cores = Some(0.5);
        assert!(!judge(&turn, &MEANT).bench_was_busy);
        turn.bench.backend_cpu_cores = Some(0.4);
        assert!(judge(&turn, &MEANT).bench_was_busy);
    }

    #[test]
    fn without_samples_there_is_no_slope() {
        let mut turn = turn(|_| 0.0);
        turn.samples.truncate(2);
        assert_eq!(reason_of(&turn), "");
    }
}
