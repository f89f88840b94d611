//! The choice of the next rate. Rates go up and down by factors until a held rate and a failed rate
//! lie close together. Then the held rate is tried again. A rate fails only if it fails twice, so
//! that one bad moment of the machine decides nothing.

/// Factor up from a held rate, while none has failed.
const CLIMB: f64 = 1.5;
/// Factor down from a failed rate, while none is held.
const DESCEND: f64 = 2.0;
/// Failed tries that make a rate fail.
const FAILURES: u32 = 2;
/// Tries of a rate that must hold to make it the result.
pub(super) const CONFIRMATIONS: u32 = 3;
const TRIES_LIMIT: u32 = 60;
/// The search stays between these rates, items a second.
const LOWEST: f64 = 1.0;
const HIGHEST: f64 = 1e9;

/// The tries of one rate, in items a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tried {
    pub(super) rate: f64,
    pub(super) held: u32,
    pub(super) failed: u32,
}

impl Tried {
    fn has_failed(&self) -> bool {
        self.failed >= FAILURES
    }
}

/// Chooses rates from the results of earlier tries, without knowing how they are made.
#[derive(Clone, Debug)]
pub(super) struct Search {
    start: f64,
    /// A failed rate at most this share above a held one is close enough.
    precision: f64,
    tried: Vec<Tried>,
    last: Option<usize>,
}

impl Search {
    pub(super) fn new(start: f64, precision: f64) -> Search {
        Search {
            start: tidy(start).clamp(LOWEST, HIGHEST),
            precision,
            tried: Vec::new(),
            last: None,
        }
    }

    pub(super) fn record(&mut self, rate: f64, is_held: bool) {
        let index = self.tried.iter().position(|tried| tried.rate == rate).unwrap_or_else(|| {
            self.tried.push(Tried { rate, held: 0, failed: 0 });
            self.tried.len() - 1
        });
        let tried = &mut self.tried[index];
        *(if is_held { &mut tried.held } else { &mut tried.failed }) += 1;
        self.last = Some(index);
    }

    /// The rate to try; `None`: the search has ended.
    pub(super) fn next(&self) -> Option<f64> {
        if self.tried.iter().map(|tried| tried.held + tried.failed).sum::<u32>() >= TRIES_LIMIT {
            return None;
        }
        let last = self.last.map(|index| self.tried[index]);
        if let Some(doubtful) = last.filter(|last| last.held == 0 && !last.has_failed()) {
            return Some(doubtful.rate);
        }
        match (self.best(), self.lowest_failed()) {
            (None, None) => Some(self.start),
            (Some(best), None) if best.rate < HIGHEST => Some(tidy(best.rate * CLIMB).min(HIGHEST)),
            (None, Some(failed)) if failed > LOWEST => Some(tidy(failed / DESCEND).max(LOWEST)),
            (None, Some(_)) => None,
            (Some(best), failed) => self.between(best, failed),
        }
    }

    /// The middle on a logarithmic scale, or the best again once it is known closely.
    fn between(&self, best: Tried, failed: Option<f64>) -> Option<f64> {
        let middle = failed.map(|failed| tidy((best.rate * failed).sqrt()));
        let is_close = failed.is_none_or(|failed| failed <= best.rate * (1.0 + self.precision));
        match middle.filter(|&middle| !is_close && middle > best.rate && Some(middle) < failed) {
            Some(middle) => Some(middle),
            None => (best.held < CONFIRMATIONS).then_some(best.rate),
        }
    }

    /// The highest rate that was held and has not failed, below all that have.
    pub(super) fn best(&self) -> Option<Tried> {
        self.highest(|tried| tried.held > 0)
    }

    /// The highest rate that was held in every try, below all that have failed.
    pub(super) fn held_always(&self) -> Option<f64> {
        self.highest(|tried| tried.held > 0 && tried.failed == 0).map(|tried| tried.rate)
    }

    pub(super) fn lowest_failed(&self) -> Option<f64> {
        let failed = self.tried.iter().filter(|tried| tried.has_failed());
        failed.map(|tried| tried.rate).reduce(f64::min)
    }

    fn highest(&self, is_meant: impl Fn(&Tried) -> bool) -> Option<Tried> {
        let limit = self.lowest_failed().unwrap_or(f64::INFINITY);
        let below = self.tried.iter().filter(|tried| tried.rate < limit && is_meant(tried));
        below.copied().max_by(|one, other| one.rate.total_cmp(&other.rate))
    }
}

/// Rounded to four digits: measurements are not more exact.
fn tidy(rate: f64) -> f64 {
    let scale = 10_f64.powf(rate.log10().floor() - 3.0);
    (rate / scale).round() * scale
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search against a subject that holds rates up to `limit`. `is_noisy` makes the n-th
    /// try fail at any rate.
    fn search(start: f64, limit: f64, is_noisy: impl Fn(u32) -> bool) -> (Search, u32) {
        let (mut search, mut tries) = (Search::new(start, 0.05), 0);
        while let Some(rate) = search.next() {
            search.record(rate, rate <= limit && !is_noisy(tries));
            tries += 1;
            assert!(tries <= TRIES_LIMIT);
        }
        (search, tries)
    }

    #[test]
    fn the_limit_lies_in_the_interval_wherever_the_search_begins() {
        for limit in [2.0, 950.0, 1_000.0, 84_321.0, 3.3e6] {
            for start in [1.0, 0.7 * limit, limit, 40.0 * limit] {
                let (search, tries) = search(start, limit, |_| false);
                let (held, failed) =
                    (search.held_always().unwrap(), search.lowest_failed().unwrap());
                assert!(
                    held <= limit && limit < failed,
                    "{limit} from {start}: {held} to {failed}"
                );
                assert!(failed <= held * 1.051, "{limit} from {start}: {held} to {failed}");
                let best = search.best().unwrap();
                assert_eq!((best.rate, best.held, best.failed), (held, CONFIRMATIONS, 0));
                assert!(tries <= 50, "{limit} from {start}: {tries} tries");
            }
        }
    }

    #[test]
    fn one_bad_moment_now_and_then_moves_nothing() {
        for offset in 0..5 {
            let (search, _) = search(700.0, 1_000.0, |tries| tries % 5 == offset);
            let (best, failed) = (search.best().unwrap(), search.lowest_failed().unwrap());
            assert!(best.rate <= 1_000.0 && best.held == CONFIRMATIONS, "{offset}: {best:?}");
            assert!(failed > 1_000.0 && failed <= best.rate * 1.051, "{offset}: {best:?} {failed}");
            // A rate that failed once is not claimed to be held always.
            assert!(search.held_always().is_none_or(|held| held <= best.rate), "{offset}");
        }
    }

    #[test]
    fn a_rate_that_was_held_and_then_fails_twice_is_no_longer_the_result() {
        let mut search = Search::new(1_000.0, 0.05);
        search.record(1_000.0, true);
        for failing in [
            1_500.0, 1_500.0, 1_225.0, 1_225.0, 1_107.0, 1_107.0, 1_052.0, 1_052.0, 1_026.0,
            1_026.0,
        ] {
            assert_eq!(search.next(), Some(failing));
            search.record(failing, false);
        }
        for _ in 0..2 {
            assert_eq!(search.next(), Some(1_000.0), "it is tried again");
            search.record(1_000.0, false);
        }
        assert_eq!((search.best(), search.lowest_failed()), (None, Some(1_000.0)));
        assert_eq!(search.next(), Some(500.0), "the search goes on below");
    }

    #[test]
    fn what_holds_nothing_and_what_holds_everything_ends_too() {
        let (nothing, _) = search(64.0, 0.0, |_| false);
        assert_eq!((nothing.best(), nothing.lowest_failed()), (None, Some(LOWEST)));
        let (everything, _) = search(1e6, f64::INFINITY, |_| false);
        let best = everything.best().unwrap();
        assert_eq!(
            (best.rate, best.held, everything.lowest_failed()),
            (HIGHEST, CONFIRMATIONS, None)
        );
    }
}
