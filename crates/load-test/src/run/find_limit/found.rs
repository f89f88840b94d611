//! What the tries of a search come to.

use super::search::Search;
use crate::report::{FoundLimit, LimitTry};

/// `try_s` is how long each lasted, `ended_early` why there are not more.
pub(super) fn found(
    search: &Search,
    tries: Vec<LimitTry>,
    try_s: f64,
    ended_early: Option<String>,
) -> FoundLimit {
    let (best, failed) = (search.best(), search.lowest_failed());
    let failing = tries.iter().filter(|tried| !tried.held && Some(tried.rate_per_s) == failed);
    FoundLimit {
        rate_per_s: best.map(|best| best.rate),
        held: best.map_or(0, |best| best.held),
        tries_at_rate: best.map_or(0, |best| best.held + best.failed),
        try_s,
        held_always_per_s: search.held_always(),
        failed_per_s: failed,
        bench_was_limit: failing.clone().next().is_some()
            && failing.clone().all(|tried| tried.bench_was_busy),
        ended_early,
        tries,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each rate with whether it was held and whether the bench was busy.
    fn of(tries: &[(f64, bool, bool)]) -> FoundLimit {
        let mut search = Search::new(1_000.0, 0.05);
        let tried = tries.iter().map(|&(rate_per_s, held, bench_was_busy)| {
            search.record(rate_per_s, held);
            LimitTry { rate_per_s, held, reason: None, bench_was_busy }
        });
        let tries = tried.collect();
        found(&search, tries, 10.0, None)
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
        // A higher rate at which it was busy is not what decided.
        let higher = [(2_000.0, false, true), (2_000.0, false, true)];
        assert!(
            !of(&[&higher[..], &[held, (1_050.0, false, false), (1_050.0, false, false)]].concat())
                .bench_was_limit
        );
        assert!(!of(&[held]).bench_was_limit);
    }
}
