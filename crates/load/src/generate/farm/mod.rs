//! A farm of targets for a subject that scrapes: HTTP servers with metrics as avalanche shows them,
//! which the Kyma load test scrapes. Each sample's value is its identity (target, scrape, series).

mod target;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::report::{LoadReport, Progress, RunningLoad};
use crate::identity::SEQUENCE_LIMIT;
use target::Page;

/// Samples of one target: about 500 MB of text.
const SERIES_LIMIT: u64 = 1_000_000;
const TARGETS_LIMIT: usize = 1_000;
/// Time for running scrapes to end after the end of the farm.
const GRACE: Duration = Duration::from_secs(10);

/// Targets, and the contents of their pages.
#[derive(Clone, Debug, PartialEq)]
pub struct Farm {
    pub targets: usize,
    pub metrics: u32,
    /// Series of each metric.
    pub series: u32,
    /// Number of metrics that are counters; the rest are gauges.
    pub counters: u32,
    /// Labels of each series besides `series_id` and `cycle_id`.
    pub labels: u32,
    /// Time until all series are replaced by new ones (another `cycle_id`). `None`: never.
    pub churn_every: Option<Duration>,
    /// Scrape interval that the subject is configured with.
    pub scrape_every: Duration,
}

impl Default for Farm {
    /// The Kyma load test's, with avalanche's own time between new series.
    fn default() -> Self {
        Farm {
            targets: 20,
            metrics: 1_000,
            series: 10,
            counters: 0,
            labels: 10,
            churn_every: Some(Duration::from_secs(60)),
            scrape_every: Duration::from_secs(30),
        }
    }
}

impl Farm {
    pub fn series_per_target(&self) -> u64 {
        u64::from(self.metrics) * u64::from(self.series)
    }

    /// Samples of all targets' pages.
    pub fn samples_per_round(&self) -> u64 {
        self.targets as u64 * self.series_per_target()
    }

    /// Sets the scrape interval that makes this rate.
    pub fn scraped_at(self, samples_per_s: f64) -> Self {
        let every_s = self.samples_per_round() as f64 / samples_per_s;
        let every = Duration::try_from_secs_f64(every_s).unwrap_or(Duration::MAX);
        Farm { scrape_every: every.max(Duration::from_millis(1)), ..self }
    }

    pub fn samples_per_s(&self) -> f64 {
        self.samples_per_round() as f64 / self.scrape_every.as_secs_f64()
    }

    /// Binds all targets. Scrapes wait until [`OpenFarm::start`].
    pub fn open(self) -> Result<OpenFarm> {
        self.check()?;
        let listeners: io::Result<Vec<TcpListener>> = (0..self.targets).map(|_| listen()).collect();
        let listeners = listeners.context("cannot listen on the loopback interface")?;
        let addrs = listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
        let shared = Arc::new(Shared {
            idle_pages: Mutex::default(),
            scrapes: (0..self.targets).map(|_| AtomicU32::new(0)).collect(),
            progress: Progress::new(),
            stage: watch::Sender::new(Stage::Open),
            began: Instant::now(),
            farm: self,
        });
        let mut servers = JoinSet::new();
        for (target, listener) in listeners.into_iter().enumerate() {
            servers.spawn(target::serve(Arc::clone(&shared), target, listener));
        }
        Ok(OpenFarm { shared, addrs, servers })
    }

    /// Fails if a number is impossible, and names it.
    pub fn check(&self) -> Result<()> {
        let (targets, series) = (self.targets, self.series_per_target());
        ensure!(
            (1..=TARGETS_LIMIT).contains(&targets),
            "a farm has 1 to {TARGETS_LIMIT} targets, not {targets}"
        );
        ensure!(
            (1..=SERIES_LIMIT).contains(&series),
            "a target has 1 to {SERIES_LIMIT} series (metrics × series of each), not {series}"
        );
        let (counters, metrics) = (self.counters, self.metrics);
        ensure!(counters <= metrics, "{counters} of {metrics} metrics cannot be counters");
        ensure!(
            !self.scrape_every.is_zero() && self.churn_every != Some(Duration::ZERO),
            "the time between scrapes and between generations of series must be above zero"
        );
        Ok(())
    }
}

fn listen() -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    // A small buffer bounds the samples that are written and not yet read by the scraper.
    socket.set_send_buffer_size(256 << 10)?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    socket.listen(128)
}

/// The sequence numbers of a page as it was served once.
type Scrape = Range<u64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    /// The first scrape has come. It is held.
    Wanted,
    Started,
}

struct Shared {
    farm: Farm,
    /// Pages for reuse, which differ in stamps only. More are made as more scrapes run at once.
    idle_pages: Mutex<Vec<Page>>,
    /// Scrapes begun so far, by target.
    scrapes: Vec<AtomicU32>,
    progress: Arc<Progress>,
    stage: watch::Sender<Stage>,
    began: Instant,
}

/// A farm whose targets have their addresses.
pub struct OpenFarm {
    shared: Arc<Shared>,
    pub addrs: Vec<SocketAddr>,
    servers: JoinSet<()>,
}

impl OpenFarm {
    pub fn scrape_interval(&self) -> Duration {
        self.shared.farm.scrape_every
    }

    /// Waits for the first scrape, which is held; false if none comes by then. Prometheus and
    /// engines built on it discover their targets five seconds after their start.
    pub async fn wait_for_scraper(&self, limit: Duration) -> bool {
        let mut stage = self.shared.stage.subscribe();
        timeout(limit, stage.wait_for(|stage| *stage != Stage::Open)).await.is_ok()
    }

    /// Answers scrapes from now on. Scrapes that begin after the end are answered 503.
    pub fn start(self) -> RunningLoad {
        self.shared.stage.send_replace(Stage::Started);
        let progress = Arc::clone(&self.shared.progress);
        let task = tokio::spawn(self.shared.run());
        RunningLoad { progress, task, _offered: Box::new(self.servers) }
    }
}

impl Shared {
    /// Waits for the stop and for running scrapes. Returns the report.
    async fn run(self: Arc<Self>) -> Result<LoadReport> {
        let started = Instant::now();
        self.progress.wait_for_stop().await;
        let elapsed = started.elapsed();
        let all_ended = async {
            while under_way(&self.progress.report()) > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // Scrapes that have not ended by then count as unanswered.
        let _ = timeout(GRACE, all_ended).await;
        Ok(self.report(elapsed))
    }

    /// The next scrape of a target. `None`: the farm is stopped, or has no identities left.
    fn begin_scrape(&self, target: usize) -> Option<Scrape> {
        if self.progress.stopped_at().is_some() {
            return None;
        }
        let number = u64::from(self.scrapes[target].fetch_add(1, Ordering::Relaxed));
        let series = self.farm.series_per_target();
        let first = (number * self.farm.targets as u64 + target as u64) * series;
        if first + series > SEQUENCE_LIMIT {
            return None;
        }
        let mut report = self.progress.report();
        report.offered += series;
        report.requests += 1;
        Some(first..first + series)
    }

    /// Counts a scrape whose page was written to its end.
    fn complete(&self, scrape: &Scrape, bytes: usize) {
        let mut report = self.progress.report();
        report.bytes_sent += bytes as u64;
        report.accepted += self.farm.series_per_target();
        report.acknowledged.insert_range(scrape.clone());
    }

    /// The scraper went away before it had read all of a completed scrape.
    fn cut_off(&self, scrape: Scrape) {
        let series = self.farm.series_per_target();
        let mut report = self.progress.report();
        report.accepted -= series;
        report.failed += series;
        report.acknowledged.remove_range(scrape);
    }

    fn report(&self, elapsed: Duration) -> LoadReport {
        let mut report = self.progress.report().clone();
        report.unanswered = under_way(&report);
        let every_s = self.farm.scrape_every.as_secs_f64();
        if elapsed < 2 * self.farm.scrape_every {
            let message = format!(
                "the load lasted {:.1} s and each target is scraped every {every_s} s: {} scrapes \
                 are little to go by",
                elapsed.as_secs_f64(),
                report.requests
            );
            let remedy = "scrape more often with -r, or let the load last longer with -d";
            report.problems.push((message, remedy));
        }
        let left_out = self.left_out(elapsed);
        let scrapes: u32 = left_out.iter().sum();
        report.leave_out(
            u64::from(scrapes) * self.farm.series_per_target(),
            format!(
                "{} of {} targets were scraped less often than every {every_s} s: {scrapes} \
                 scrapes were left out",
                left_out.len(),
                self.farm.targets
            ),
            "set a lower rate with -r: the subject does not keep up",
        );
        report
    }

    /// Scrapes that were due and not made, for each target that has any.
    fn left_out(&self, elapsed: Duration) -> Vec<u32> {
        // The first comes at any moment of the first interval, and the last may fall on the end.
        let due = (elapsed.as_secs_f64() / self.farm.scrape_every.as_secs_f64()).floor() as u32;
        let due = due.saturating_sub(1);
        let missed = |scrapes: &AtomicU32| due.saturating_sub(scrapes.load(Ordering::Relaxed));
        self.scrapes.iter().map(missed).filter(|missed| *missed > 0).collect()
    }
}

/// Samples of scrapes that have neither been completed nor cut off.
fn under_way(report: &LoadReport) -> u64 {
    report.offered.saturating_sub(report.accepted + report.failed)
}

#[cfg(test)]
mod tests;
