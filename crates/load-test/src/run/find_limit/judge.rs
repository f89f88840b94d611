//! Whether a rate was held: no loss, nothing turned away, sent in time, and no more and more
//! waiting.

use crate::report::{LimitTry, Sample, Turn};

/// Share of the requests that may be late: a hiccup of the machine is not the subject's, and a
/// subject that does not keep up makes ever more of them late.
const LATE_SHARE: f64 = 0.05;
/// What waits may grow by this share of the rate.
const GROWTH_SHARE: f64 = 0.03;
/// ... and whatever it does, is bounded while it is less than this share of all that was sent.
const BACKLOG_SHARE: f64 = 0.05;
/// The first part of a try is a beginning: connections are made, caches and batches fill.
const WARM_UP_SHARE: f64 = 0.2;

/// What a try was meant to be.
pub(super) struct Meant {
    pub(super) rate_per_s: f64,
    pub(super) load_s: f64,
    pub(super) items_per_request: f64,
    /// Cores' worth of work from which on the bench is taken for the limit.
    pub(super) bench_limit_cores: f64,
}

pub(super) fn judge(turn: &Turn, meant: &Meant) -> LimitTry {
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

/// Why the rate was not held; `None`: it was.
fn reason(turn: &Turn, meant: &Meant) -> Option<String> {
    let kpis = &turn.kpis;
    let of = |count: Option<u64>| count.unwrap_or(0);
    let turned_away = of(kpis.refused) + of(kpis.unanswered);
    let requests = meant.rate_per_s * meant.load_s / meant.items_per_request;
    let late =
        of(turn.bench.late_requests) as f64 + of(kpis.never_sent) as f64 / meant.items_per_request;
    match kpis.lost {
        None => Some("what was lost is not known".to_owned()),
        Some(1..) => Some(format!("{} items lost", of(kpis.lost))),
        Some(0) if turned_away > 0 => Some(format!("{turned_away} items turned away")),
        Some(0) if late > (LATE_SHARE * requests).max(1.0) => {
            let percent = (100.0 * late / requests).min(100.0);
            Some(format!("{percent:.1} % of the requests sent late or never"))
        }
        Some(0) => growth(&turn.samples, meant)
            .map(|growth| format!("{growth:.0} more items waiting every second"))
            .or_else(|| {
                let is_drained = kpis.drain_s.is_some();
                let message = "not everything had arrived when the time to drain was over";
                (!is_drained).then(|| message.to_owned())
            }),
    }
}

/// Items a second by which what is on its way grows without end; `None`: it does not.
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
        // One that is cut off at its full height shows a slope at the start only.
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
