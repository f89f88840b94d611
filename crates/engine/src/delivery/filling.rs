//! The time until a delivery's budget is spent, from the recent growth of its backlog and of the
//! pool that all backlogs share.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sluice_flow::overload::PoolState;

/// A rate is taken over this time at most, or longer after a pause between measurements.
const WINDOW: Duration = Duration::from_secs(120);
/// The shortest time over which a rate is meaningful, and between two measurements.
const SPACING: Duration = Duration::from_secs(5);
/// Growth below the whole divided by this is noise of the time before it.
const NOISE_PART: u64 = 16;
/// A budget counts as spent until its backlog has shrunk by itself divided by this.
const RELIEF_PART: u64 = 8;

/// Past sizes of a backlog, oldest first and growing: larger ones that were drained are forgotten.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    noted: VecDeque<(Instant, u64)>,
    /// The most since growth was last measured anew.
    peak_bytes: u64,
}

impl Filling {
    pub(crate) fn note(&mut self, now: Instant, bytes: u64) {
        // After half of a backlog was drained, growth is measured anew.
        if bytes <= self.peak_bytes / 2 {
            self.noted.clear();
            self.peak_bytes = bytes;
        }
        self.peak_bytes = self.peak_bytes.max(bytes);
        // Growth begins at the end of the time without any.
        let mut has_grown = true;
        while self.noted.back().is_some_and(|&(_, last_bytes)| last_bytes >= bytes) {
            self.noted.pop_back();
            has_grown = false;
        }
        let age = |&(at, _): &(Instant, u64)| now.saturating_duration_since(at);
        if !has_grown || self.noted.back().is_none_or(|last| age(last) >= SPACING) {
            self.noted.push_back((now, bytes));
        }
        while self.noted.get(1).is_some_and(|second| age(second) >= WINDOW) {
            self.noted.pop_front();
        }
    }

    /// Bytes a second by which the backlog grows; 0 if it does not.
    pub(crate) fn bytes_per_s(&self, now: Instant, bytes: u64) -> f64 {
        let Some(&(_, least_bytes)) = self.noted.front() else { return 0.0 };
        let noise_bytes = least_bytes + bytes.saturating_sub(least_bytes) / NOISE_PART;
        let quiet = self.noted.iter().take_while(|(_, noted)| *noted <= noise_bytes);
        let Some(&(since, from_bytes)) = quiet.last() else { return 0.0 };
        let elapsed = now.saturating_duration_since(since).max(SPACING);
        bytes.saturating_sub(from_bytes) as f64 / elapsed.as_secs_f64()
    }
}

/// A backlog that grows towards a limit.
#[derive(Clone, Copy, Debug)]
struct Growth {
    left_bytes: u64,
    bytes_per_s: f64,
}

impl Growth {
    fn seconds_left(self) -> f64 {
        match self {
            Growth { left_bytes: 0, .. } => 0.0,
            Growth { bytes_per_s, .. } if bytes_per_s <= 0.0 => f64::INFINITY,
            Growth { left_bytes, bytes_per_s } => left_bytes as f64 / bytes_per_s,
        }
    }
}

/// A delivery's backlog at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lag {
    pub lag_bytes: u64,
    pub limit_bytes: u64,
    /// A moment ago it dropped frames, or senders waited for it.
    pub is_spent: bool,
}

/// When a delivery's budget is spent: its own limit, or the pool if it has a part in filling that.
#[derive(Debug, Default)]
pub(crate) struct Forecast {
    filling: Filling,
    /// The lag when the budget was spent, until some of it is delivered.
    spent_at_bytes: Option<u64>,
}

impl Forecast {
    pub(crate) fn note(&mut self, now: Instant, lag: &Lag) {
        let lag_bytes = lag.lag_bytes;
        self.filling.note(now, lag_bytes);
        if lag.is_spent {
            self.spent_at_bytes = Some(lag_bytes);
        }
        let is_still = |spent: &u64| lag_bytes > 0 && lag_bytes >= spent - spent / RELIEF_PART;
        self.spent_at_bytes = self.spent_at_bytes.filter(is_still);
    }

    /// Notes the backlog. Returns the seconds until the budget is spent at the present rates: 0 if
    /// it is, infinity while nothing grows.
    pub(crate) fn seconds_left(
        &mut self,
        now: Instant,
        lag: &Lag,
        pool: &PoolState,
        pool_bytes_per_s: f64,
    ) -> f64 {
        self.note(now, lag);
        let &Lag { lag_bytes, limit_bytes, .. } = lag;
        if self.spent_at_bytes.is_some() {
            return 0.0;
        }
        let bytes_per_s = self.filling.bytes_per_s(now, lag_bytes);
        let own_limit_bytes = limit_bytes.min(pool.high_water_bytes());
        let own = Growth { left_bytes: own_limit_bytes.saturating_sub(lag_bytes), bytes_per_s };
        let of_pool = Growth {
            left_bytes: pool.high_water_bytes().saturating_sub(pool.used_bytes),
            bytes_per_s: pool_bytes_per_s,
        };
        let pool_left = of_pool.seconds_left();
        // The lag when the pool is full. Deliveries with little of it are not what it is full of.
        let then_bytes = match pool_left.is_finite() {
            true => lag_bytes as f64 + bytes_per_s * pool_left,
            false => lag_bytes as f64,
        };
        let has_part = then_bytes > (pool.fair_share_bytes() / 2).min(limit_bytes / 2) as f64;
        if has_part { own.seconds_left().min(pool_left) } else { own.seconds_left() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: f64 = f64::INFINITY;

    /// A pool in which only the delivery itself has anything. Its high-water mark is 1,000 bytes.
    fn pool(used_bytes: u64, deliveries: usize) -> PoolState {
        let room_bytes = 1143;
        let pool = PoolState { room_bytes, used_bytes, deliveries, ..PoolState::default() };
        assert_eq!(pool.high_water_bytes(), 1001);
        pool
    }

    fn seconds(start: Instant, seconds: f64) -> Instant {
        start + Duration::from_secs_f64(seconds)
    }

    /// One delivery whose limit is 1,000 bytes, in a pool that has room.
    #[derive(Default)]
    struct Alone(Forecast);

    impl Alone {
        fn left(&mut self, now: Instant, lag_bytes: u64, is_spent: bool) -> f64 {
            let lag = Lag { lag_bytes, limit_bytes: 1000, is_spent };
            self.0.seconds_left(now, &lag, &PoolState { room_bytes: 1 << 20, ..pool(0, 1) }, 0.0)
        }
    }

    /// Seconds left of a budget of 1,000 bytes, for lags given as (second, bytes).
    fn left(lags: &[(u64, u64)]) -> Vec<f64> {
        let (start, mut alone) = (Instant::now(), Alone::default());
        lags.iter()
            .map(|&(at, bytes)| alone.left(seconds(start, at as f64), bytes, false))
            .collect()
    }

    #[test]
    fn a_backlog_that_grows_fills_the_budget_and_one_that_does_not_never_does() {
        assert_eq!(
            left(&[(0, 0), (10, 100), (20, 200), (30, 200), (40, 1000), (50, 0)]),
            [NEVER, 90.0, 80.0, 120.0, 0.0, NEVER]
        );
        assert_eq!(left(&[(0, 1000)]), [0.0], "full without growing");
    }

    #[test]
    fn what_was_long_ago_does_not_count_and_scrapes_may_be_far_apart() {
        let quiet_then_growing = left(&[(0, 0), (200, 0), (260, 0), (320, 120), (380, 240)]);
        assert_eq!(quiet_then_growing.last(), Some(&380.0), "2 bytes a second since 260 s");
        assert_eq!(left(&[(0, 0), (600, 600)]), [NEVER, 400.0]);
    }

    /// Scenario: backlogs grow by 10 bytes a second, after an hour without any, or with a few bytes
    /// now and then. Guarantee: the time before does not count: after ten seconds the figure is
    /// right within the time between two measurements.
    #[test]
    fn a_quiet_time_does_not_make_the_forecast_longer() {
        for noise in [0, 5] {
            let (start, mut alone) = (Instant::now(), Alone::default());
            for tick in 0..3600 * 5 {
                alone.left(seconds(start, tick as f64 / 5.0), tick / 3 % 2 * noise, false);
            }
            for tick in 1..99 * 5 {
                let since = tick as f64 / 5.0;
                let lag_bytes = (since * 10.0) as u64;
                let told = alone.left(seconds(start, 3600.0 + since), lag_bytes, false);
                let truth = (1000 - lag_bytes) as f64 / 10.0;
                let error = (5.5 / since.max(SPACING.as_secs_f64())).max(0.02);
                if since >= 10.0 {
                    let range = truth * (1.0 - error)..=truth * (1.0 + error);
                    assert!(range.contains(&told), "{since} s: {told} for {truth} ({noise})");
                }
                assert!(since < 1.0 || told < NEVER, "{since} s");
            }
        }
    }

    /// Scenario: an outage, most of whose backlog is then drained, and a second one. Guarantee: the
    /// second one is measured by its own growth.
    #[test]
    fn an_outage_after_a_larger_backlog_was_drained_is_told() {
        assert_eq!(left(&[(0, 900), (10, 0), (20, 100), (30, 200)]), [NEVER, NEVER, 90.0, 80.0]);
        let (start, mut alone) = (Instant::now(), Alone::default());
        let mut told = NEVER;
        for second in 0..160 {
            let lag_bytes = match second {
                0..60 => second * 15,
                60..80 => 900 - (second - 60) * 30,
                _ => 300 + (second - 80) * 2,
            };
            told = alone.left(seconds(start, second as f64), lag_bytes, false);
            assert!(second % 60 != 59 || told < NEVER);
        }
        let truth = (1000.0 - 458.0) / 2.0;
        assert!((0.9..1.1).contains(&(told / truth)), "{told} for {truth}");
    }

    /// Guarantee: a scrape finds a figure as soon as the backlog grows, however close scrapes are.
    #[test]
    fn scrapes_may_be_close_and_the_first_one_counts() {
        let (start, mut alone) = (Instant::now(), Alone::default());
        alone.left(start, 0, false);
        let told: Vec<_> = (1..50)
            .map(|tick| alone.left(seconds(start, tick as f64 / 5.0), tick * 2, false))
            .collect();
        assert!(told.iter().all(|told| (50.0..=2500.0).contains(told)), "{told:?}");
        assert!((90.0..=92.0).contains(told.last().unwrap()), "{told:?}");
        // Noted by the watch before any scrape.
        let (start, mut alone) = (Instant::now(), Alone::default());
        for second in 0..=10 {
            let lag = Lag { lag_bytes: second * 20, limit_bytes: 1000, is_spent: false };
            alone.0.note(seconds(start, second as f64), &lag);
        }
        assert_eq!(alone.left(seconds(start, 10.0), 200, false), 40.0);
    }

    /// Scenario: a budget is spent, by drops or by senders that wait, and those come a minute
    /// apart. Guarantee: 0 until an eighth of the backlog is delivered.
    #[test]
    fn nothing_is_left_from_the_first_drop_until_some_of_the_backlog_is_delivered() {
        let (start, mut alone) = (Instant::now(), Alone::default());
        // The newest frame and those that are being sent always stay: the lag is below the budget.
        assert_eq!(alone.left(start, 900, true), 0.0);
        for second in 1..600 {
            let is_dropping = second % 60 == 0;
            let lag_bytes = 880 + second % 60 / 10;
            assert_eq!(alone.left(seconds(start, second as f64), lag_bytes, is_dropping), 0.0);
        }
        assert_eq!(alone.left(seconds(start, 601.0), 700, false), NEVER);
        assert!(alone.left(seconds(start, 611.0), 800, false) < NEVER, "grows again");
        assert_eq!(alone.left(seconds(start, 612.0), 0, true), NEVER, "nothing waits");
    }

    /// Scenario: three backends are down and fill a pool together, each with data of its own; a
    /// fourth keeps up. Guarantee: each of the three is told when the pool is full, at the rate at
    /// which all fill it; the fourth has a budget left then.
    #[test]
    fn deliveries_that_fill_the_pool_together_are_told_when_it_is_full() {
        let start = Instant::now();
        let mut forecasts: [Forecast; 4] = Default::default();
        let mut of_pool = Filling::default();
        for second in 0..160 {
            let (now, lag_bytes) = (seconds(start, second as f64), second * 2);
            let used_bytes = lag_bytes * 3;
            of_pool.note(now, used_bytes);
            let pool_bytes_per_s = of_pool.bytes_per_s(now, used_bytes);
            for (index, forecast) in forecasts.iter_mut().enumerate() {
                let lag_bytes = if index < 3 { lag_bytes } else { second % 2 };
                let lag = Lag { lag_bytes, limit_bytes: 1143, is_spent: false };
                let told = forecast.seconds_left(now, &lag, &pool(used_bytes, 4), pool_bytes_per_s);
                if second < 10 {
                    continue;
                }
                let truth = (1001 - used_bytes) as f64 / 6.0;
                let is_right = (truth * 0.9..=truth * 1.1).contains(&told);
                assert!(is_right == (index < 3), "{second} s, {index}: {told} for {truth}");
                assert!(index < 3 || told > 900.0, "{told}");
            }
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (start, mut alone) = (Instant::now(), Alone::default());
        for second in 0..10_000_u64 {
            alone.left(seconds(start, second as f64), second, false);
        }
        assert!(alone.0.filling.noted.len() <= 26, "{}", alone.0.filling.noted.len());
    }
}
