//! The target `k6`: samples of k6 on their way to InfluxDB. A turn has three parts in a row: the
//! source (`source.rs`: the generator, or k6 itself in `process.rs`), the subject, or none, and the
//! database (`database.rs`: a real influxd, or a sink). What matters is the sums of k6's counters
//! at both ends (`figures.rs`).

mod database;
mod figures;
mod process;
mod source;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, sleep_until};

use super::definition::{Definition, K6Form, program_variable};
use super::machine::CoreTimes;
use super::turn::{Bench, SAMPLE_EVERY, TurnOutcome, metrics_addr};
use crate::generate::k6::{Form, Output};
use crate::live::Phase;
use crate::report::{K6Counter, Sample};
use crate::subject::{Subject, Usage, free_addr, in_path};
use database::Database;
use figures::Figures;
use source::Source;

/// Interval of asking the database, which costs it CPU time.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A k6 whose database is slow takes several times as long as its test.
const FINISH_WITHIN: Duration = Duration::from_secs(600);

/// A program beside the subjects: by the variable SLUICE_TEST_NAME, or in PATH under this name.
pub fn find_program(variable: &str, name: &str) -> Option<PathBuf> {
    let named = std::env::var_os(program_variable(variable)).map(PathBuf::from);
    named.filter(|path| path.is_file()).or_else(|| in_path(name))
}

/// The three parts of a turn, and what is known of each so far.
struct Parts {
    source: Source,
    /// `None`: the source writes to the database.
    subject: Option<Subject>,
    database: Database,
    /// The latest usage of each, in this order.
    usages: [Option<Usage>; 3],
}

impl Parts {
    /// Reads all usages. One that has ended keeps its last.
    fn look(&mut self) {
        let now = [
            self.source.usage(),
            self.subject.as_ref().and_then(Subject::usage),
            self.database.usage(),
        ];
        for (known, now) in self.usages.iter_mut().zip(now) {
            let peak = known.map_or(0, |known| known.peak_rss_bytes);
            let now = now.map(|now| Usage { peak_rss_bytes: now.peak_rss_bytes.max(peak), ..now });
            *known = now.or(*known);
        }
    }
}

/// `None`: interrupted before the load began.
pub(super) async fn run(bench: Bench<'_>, definition: &Definition) -> Result<Option<TurnOutcome>> {
    let Bench { plan, cores, interrupted, view } = bench;
    let mut interrupted = interrupted.clone();
    let database = Database::start(plan.k6.influxdb.as_deref(), cores).await?;
    let folder = TempDir::with_prefix("sluice-load-test-k6-").context("no folder for k6's file")?;
    let listen = free_addr()?;
    let mut setting = plan.setting(cores, listen, metrics_addr(plan)?, vec![database.addr()])?;
    let file = file_of(definition.k6_form(), folder.path());
    setting.k6_file = Some(file.clone());
    let subject = if definition.is_direct() {
        None
    } else {
        let spec = definition.spec(plan.target, &setting, plan.limits(), &cores.subject)?;
        Some(tokio::select! {
            started = Subject::start(spec) => started?,
            Ok(_) = interrupted.wait_for(|interrupted| *interrupted) => return Ok(None),
        })
    };
    let to = if subject.is_some() { listen } else { database.addr() };
    let source = Source::start(plan, cores, output(definition.k6_form(), to, file)).await?;
    let mut parts = Parts { source, subject, database, usages: [None; 3] };
    parts.look();
    let (before, began) = (parts.usages, Instant::now());
    let core_times = CoreTimes::of(&cores.all());
    view.begin(Phase::Load { lasts: plan.duration, windows: Vec::new() });
    let (samples, was_interrupted) = under_load(bench, &mut parts, began).await;
    let load_s = began.elapsed().as_secs_f64();
    view.begin(Phase::Waiting("k6 to have written all of it".to_owned()));
    parts.finish(was_interrupted).await?;
    let ended = Instant::now();
    view.begin(Phase::Draining { within: plan.drain_within });
    let is_interrupted = || *interrupted.borrow_and_update();
    let arrived = parts.drain(plan.drain_within, is_interrupted).await;
    let core_times = core_times.zip(CoreTimes::of(&cores.all()));
    let figures = Figures {
        plan,
        cores,
        name: &definition.name,
        parts: &parts,
        before,
        load_s,
        counters: arrived.counters,
        drained_after: arrived.is_complete.then(|| ended.elapsed() - arrived.waited),
        is_still_arriving: arrived.is_still_arriving,
        core_times,
    };
    Ok(Some(figures.outcome(samples)))
}

fn file_of(way: K6Form, folder: &Path) -> PathBuf {
    folder.join(if way == K6Form::Json { "k6.json" } else { "k6.csv" })
}

fn output(way: K6Form, to: SocketAddr, file: PathBuf) -> Output {
    match way {
        K6Form::Lines => Output::Influx(to),
        K6Form::Json => Output::File(Form::Json, file),
        K6Form::Csv => Output::File(Form::Csv, file),
    }
}

/// Samples until the load's end; true where it was interrupted.
async fn under_load(
    Bench { plan, interrupted, view, .. }: Bench<'_>,
    parts: &mut Parts,
    began: Instant,
) -> (Vec<Sample>, bool) {
    let mut interrupted = interrupted.clone();
    let end = began + plan.duration;
    let (mut samples, mut before) = (Vec::new(), (began, 0, parts.usages[1]));
    loop {
        let next = (Instant::now() + SAMPLE_EVERY).min(end);
        let is_interrupted = tokio::select! {
            () = sleep_until(next) => false,
            Ok(_) = interrupted.wait_for(|interrupted| *interrupted) => true,
        };
        parts.look();
        let (now, requests, usage) =
            (Instant::now(), parts.source.requests_so_far(), parts.usages[1]);
        let elapsed_s = (now - before.0).as_secs_f64().max(1e-3);
        let cpu_s = before.2.zip(usage).map(|(then, now)| now.cpu.saturating_sub(then.cpu));
        let sample = Sample {
            t_s: (now - began).as_secs_f64(),
            received_per_s: requests.map(|requests| (requests - before.1) as f64 / elapsed_s),
            memory_bytes: usage.map(|usage| usage.rss_bytes as f64),
            cpu_cores: cpu_s.map(|cpu| cpu.as_secs_f64() / elapsed_s),
            ..Sample::default()
        };
        view.show(&sample);
        samples.push(sample);
        before = (now, requests.unwrap_or(0), usage);
        if is_interrupted || now >= end {
            return (samples, is_interrupted);
        }
    }
}

/// The database's contents after the drain.
struct Arrived {
    counters: Vec<K6Counter>,
    /// Nothing is missing.
    is_complete: bool,
    /// Time since all had arrived, as far as is known.
    waited: Duration,
    is_still_arriving: bool,
}

impl Parts {
    /// Ends the load, and waits until k6 has written all of it.
    async fn finish(&mut self, was_interrupted: bool) -> Result<()> {
        self.source.stop(was_interrupted);
        let began = Instant::now();
        while !self.source.is_over() {
            let limit_s = FINISH_WITHIN.as_secs();
            ensure!(
                began.elapsed() < FINISH_WITHIN,
                "{} had not written all of it {limit_s} s after the load: give a lower rate (-r)",
                self.source.name()
            );
            sleep(Duration::from_millis(100)).await;
            self.look();
        }
        self.source.outcome().await
    }

    /// Asks the database until it has all, or the time is over.
    async fn drain(
        &mut self,
        within: Duration,
        mut is_interrupted: impl FnMut() -> bool,
    ) -> Arrived {
        let began = Instant::now();
        let mut earlier: Option<Vec<K6Counter>> = None;
        loop {
            let asked = Instant::now();
            let counters = self.counters().await;
            self.look();
            let is_complete =
                counters.iter().all(|one| one.missing().is_some_and(|missing| missing <= 0.0));
            // Without a subject nothing is on its way.
            let is_over = is_complete
                || self.subject.is_none()
                || is_interrupted()
                || began.elapsed() >= within;
            if is_over {
                let is_still_arriving = earlier.is_some_and(|earlier| earlier != counters);
                let is_complete = is_complete && !counters.is_empty();
                return Arrived {
                    counters,
                    is_complete,
                    waited: asked.elapsed(),
                    is_still_arriving,
                };
            }
            earlier = Some(counters);
            sleep(LOOK_EVERY).await;
        }
    }

    async fn counters(&self) -> Vec<K6Counter> {
        let mut counters = Vec::new();
        for (name, generated) in self.source.sums() {
            let stored = self.database.sum(&name).await;
            counters.push(K6Counter { name, generated: Some(generated), stored });
        }
        counters
    }
}
