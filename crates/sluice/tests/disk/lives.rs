//! Lives of a gateway that end in crashes, and checks of everything that it acknowledged.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use sluice_load_test::identity::SequenceSet;
use sluice_load_test::{Backend, Faults, LoadReport};
use sluice_otlp::Signal;

use super::place::Place;
use super::{assert_all_arrives, config, segments};
use crate::gateway::{Gateway, Options, delaying};

/// Cursors are stored at most once a second; the rest is for delays of a busy machine.
const STORED_AFTER: Duration = Duration::from_secs(2);
/// Time from an item's arrival at a backend until its cursor is stored and on disk.
const ON_ITS_WAY: Duration = Duration::from_millis(500);
/// A busy machine stores cursors late. That is taken into account up to this time.
const LOOKED_BACK: Duration = Duration::from_secs(10);
const LOOKED_AT_EVERY: Duration = Duration::from_millis(100);

type Sets = HashMap<u16, SequenceSet>;

/// Items that a backend may get twice: those that arrived in the last moments before a crash, when
/// their cursor was not stored yet.
#[derive(Default)]
struct Allowed {
    recent: VecDeque<(Instant, Sets)>,
    /// Items that arrived after the cursor was stored.
    allowed: Sets,
    /// Items of the last moments, however late the cursor was stored.
    on_time: Sets,
}

impl Allowed {
    fn remember_arrivals(&mut self, backend: &Backend) {
        let now = Instant::now();
        if self.recent.back().is_none_or(|(at, _)| now - *at >= LOOKED_AT_EVERY) {
            self.recent.push_back((now, backend.store().seen.clone()));
        }
        // The newest of those that are old enough is the first.
        while self.recent.get(1).is_some_and(|(at, _)| now - *at > LOOKED_BACK) {
            self.recent.pop_front();
        }
    }

    /// Items that had arrived this long before a moment.
    fn seen_before(&self, moment: Instant, by: Duration) -> Option<&Sets> {
        let old = self
            .recent
            .iter()
            .rev()
            .find(|(seen_at, _)| moment.saturating_duration_since(*seen_at) >= by);
        old.map(|(_, sets)| sets)
    }

    /// The gateway crashed at this moment, and had stored its cursor `stored_before` earlier.
    fn crashed(&mut self, backend: &Backend, at: Instant, stored_before: Duration) {
        let settled = self.seen_before(at, STORED_AFTER).cloned().unwrap_or_default();
        let stored_before = (stored_before + ON_ITS_WAY).clamp(STORED_AFTER, LOOKED_BACK);
        let oldest = || self.recent.front().map(|(_, sets)| sets).filter(|_| !settled.is_empty());
        let stored =
            self.seen_before(at, stored_before).or_else(oldest).cloned().unwrap_or_default();
        let seen = backend.store().seen.clone();
        allow(&mut self.on_time, &seen, &settled);
        allow(&mut self.allowed, &seen, &stored);
    }
}

/// Allows all items that were seen and not settled.
fn allow(allowed: &mut Sets, seen: &Sets, settled: &Sets) {
    for (generator, seen) in seen {
        let mut seen = seen.clone();
        if let Some(settled) = settled.get(generator) {
            seen -= settled;
        }
        *allowed.entry(*generator).or_default() |= seen;
    }
}

/// Number of these items that must not come twice.
fn count_forbidden(sets: &Sets, allowed: &Sets) -> u64 {
    sets.iter().map(|(generator, set)| missing_from(set, allowed.get(generator))).sum()
}

fn missing_from(set: &SequenceSet, other: Option<&SequenceSet>) -> u64 {
    other.map_or(set.len(), |other| set.difference_len(other))
}

/// The end of a life of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The page cache outlives it.
    Kill,
    /// Data that was not synced is gone.
    PowerCut,
}

/// Lives of a gateway under load, each with another acknowledgement and other faults, on one
/// directory.
pub(crate) struct Lives {
    place: Place,
    backends: [Backend; 2],
    allowed: [Allowed; 2],
    reports: Vec<LoadReport>,
    /// Lives that left segments behind.
    had_segments: usize,
    crash: Crash,
}

const NAMES: [&str; 2] = ["one", "other"];
const ACKS: [&str; 2] = ["delivered_or_durable", "durable"];
/// Small segments, so that lives see them rotate.
const BUFFER: &str = "  policy: backpressure\n  disk:\n    segment_mib: 4\n";
const SPANS_PER_S: f64 = 3_000.0;

impl Lives {
    pub(crate) async fn new(place: Place, crash: Crash) -> Lives {
        let backends = [
            Backend::healthy().await.expect("a backend"),
            Backend::healthy().await.expect("a backend"),
        ];
        let allowed = [Allowed::default(), Allowed::default()];
        Lives { place, backends, allowed, reports: Vec::new(), had_segments: 0, crash }
    }

    async fn start(&self, ack: &str) -> Gateway {
        let [one, other] = &self.backends;
        let config =
            config(&self.place.directory(), ack, &[(NAMES[0], one), (NAMES[1], other)], BUFFER);
        Gateway::start_with(&config, Options::default()).await
    }

    /// One life of random length.
    pub(crate) async fn live(&mut self) {
        self.backends[0].faults().set(fault(&[
            (7, Faults::default()),
            (2, slow()),
            (1, Faults::dead()),
        ]));
        self.backends[1].faults().set(fault(&[
            (3, Faults::default()),
            (3, slow()),
            (4, Faults::dead()),
        ]));
        // In at least one life much is delivered long before the crash, so that some items must not
        // come twice.
        let is_long = self.reports.len() == 1 || fastrand::u32(..4) == 0;
        if self.reports.len() == 1 {
            self.backends.iter().for_each(|backend| backend.faults().clear());
        }
        let ack = ACKS[self.reports.len() % 2];
        let trouble = self.place.misbehave_for_a_moment();
        let ((), gateway) = tokio::join!(trouble, self.start(ack));
        let load =
            gateway.load(Signal::Traces).items_per_request(10).rate(SPANS_PER_S).concurrency(2, 16);
        let mut load = load.duration(Duration::from_secs(60));
        load.grace = Duration::ZERO;
        let mut running = load.start().expect("a load");
        // Some lives are long enough that cursors of delivered items are stored.
        let lasts = if is_long { 2_500..3_500 } else { 30..1_000 };
        let lasts = Duration::from_millis(fastrand::u64(lasts));
        let began = Instant::now();
        while began.elapsed() < lasts {
            self.remember_arrivals();
            self.place.misbehave();
            tokio::time::sleep(lasts.saturating_sub(began.elapsed()).min(LOOKED_AT_EVERY)).await;
        }
        let crashed_at = Instant::now();
        // SIGKILL, and waited for, which takes as long as a file system hangs.
        self.place.heal();
        drop(gateway);
        let stored_before =
            NAMES.map(|name| self.stored_ago(name).saturating_sub(crashed_at.elapsed()));
        self.had_segments += usize::from(!segments(&self.place.directory()).is_empty());
        if self.crash == Crash::PowerCut {
            self.place.cut_power();
        }
        running.stop();
        self.reports.push(running.finish().await.expect("a load"));
        for ((allowed, backend), stored_before) in
            self.allowed.iter_mut().zip(&self.backends).zip(stored_before)
        {
            allowed.crashed(backend, crashed_at, stored_before);
        }
    }

    /// Time since the cursor of a delivery was stored. A long time if it never was.
    fn stored_ago(&self, name: &str) -> Duration {
        let file = sluice_log::cursors::file_name(&format!("traces/{name} → otlp/{name}"));
        let stored = std::fs::metadata(self.place.directory().join("traces/cursors").join(file));
        let stored = stored.ok().and_then(|metadata| metadata.modified().ok());
        stored.and_then(|stored| stored.elapsed().ok()).unwrap_or(LOOKED_BACK)
    }

    fn remember_arrivals(&mut self) {
        for (allowed, backend) in self.allowed.iter_mut().zip(&self.backends) {
            allowed.remember_arrivals(backend);
        }
    }

    /// A last life with healthy backends: asserts that all that was ever acknowledged arrives at
    /// both, and that only allowed items came twice.
    pub(crate) async fn assert_nothing_is_lost(mut self, limit: Duration) {
        self.backends.iter().for_each(|backend| backend.faults().clear());
        let gateway = self.start(ACKS[0]).await;
        for backend in &self.backends {
            assert_all_arrives(&self.reports, backend, limit).await;
        }
        self.remember_arrivals();
        let lives = self.reports.len();
        let acknowledged: u64 = self.reports.iter().map(|report| report.accepted).sum();
        println!(
            "{lives} × {:?}: {acknowledged} acknowledged, 0 lost; segments {} times",
            self.crash, self.had_segments
        );
        for (allowed, backend) in self.allowed.iter().zip(&self.backends) {
            let doubled = backend.store().doubled.clone();
            let twice: u64 = doubled.values().map(SequenceSet::len).sum();
            let once = count_forbidden(&backend.store().seen, &allowed.on_time);
            let late = count_forbidden(&doubled, &allowed.on_time);
            println!(
                "{twice} came twice or more; {late} of {once} that had been delivered long before a crash"
            );
            if self.place.is_troubled() {
                // Cursors cannot be stored during a fault, however long ago their items arrived.
                continue;
            }
            let wrong = count_forbidden(&doubled, &allowed.allowed);
            assert_eq!(wrong, 0, "came twice although their cursor had been stored");
            assert!(once > 0, "the test is about what must not come twice");
            // A busy machine may store a cursor late now and then.
            assert!(100 * late <= once, "cursors are stored late: {late} of {once} came twice");
        }
        assert!(
            acknowledged > 100 * lives as u64,
            "the test is about what is acknowledged: {acknowledged}"
        );
        assert!(
            2 * self.had_segments >= lives,
            "the test is about what is on disk: {} times",
            self.had_segments
        );
        drop(gateway);
    }
}

fn slow() -> Faults {
    delaying(Duration::from_millis(fastrand::u64(50..400)))
}

/// One of these by their weights.
fn fault(choices: &[(u32, Faults)]) -> Faults {
    let weights: u32 = choices.iter().map(|(weight, _)| weight).sum();
    let mut chosen = fastrand::u32(..weights);
    for (weight, faults) in choices {
        match chosen.checked_sub(*weight) {
            Some(rest) => chosen = rest,
            None => return faults.clone(),
        }
    }
    unreachable!("the weights' sum is exclusive")
}
