//! Detection: all detectors at a time, again after failures, and at the interval of refreshes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, sleep, timeout_at};

use super::config::{Named, Options, Retry};
use super::detector::{Failure, Resource};
use super::surroundings::Surroundings;
use crate::actions::Actions;

/// A detector that has asked and has no answer when its time is over gets this long to say so.
const GRACE: Duration = Duration::from_millis(200);

/// The attributes that were detected last. Refreshes end with it.
pub(super) struct Detection {
    current: Arc<RwLock<Arc<Current>>>,
    _refreshing: JoinSet<()>,
}

/// The changes that a request gets.
pub(super) struct Current {
    pub(super) actions: Actions,
    pub(super) schema_url: &'static str,
    pub(super) found: Resource,
}

impl Detection {
    /// Detects, within a tokio runtime.
    ///
    /// # Errors
    /// The detectors that fail until the time is over, and why.
    pub(super) async fn start(
        options: Arc<Options>,
        around: Surroundings,
    ) -> Result<Arc<Detection>, String> {
        let last = detect(&options, &around, &[]).await?;
        let found = merged(&last);
        let names: Vec<&str> = found.attributes.iter().map(|(key, _)| key.as_str()).collect();
        tracing::info!(attributes = names.join(", "), "resource attributes are detected");
        let current = Arc::new(RwLock::new(Arc::new(Current::new(&options, found))));
        let mut refreshing = JoinSet::new();
        if !options.refresh_interval.is_zero() {
            refreshing.spawn(refresh(options, around, last, current.clone()));
        }
        Ok(Arc::new(Detection { current, _refreshing: refreshing }))
    }

    pub(super) fn current(&self) -> Arc<Current> {
        self.current.read().clone()
    }
}

impl Current {
    fn new(options: &Options, found: Resource) -> Current {
        let actions = Actions::of_values(options.on, found.attributes.iter().cloned());
        Current { actions, schema_url: found.schema_url, found }
    }
}

/// Detects at the interval. What was known stays while that fails. `last`: of each detector.
async fn refresh(
    options: Arc<Options>,
    around: Surroundings,
    mut last: Vec<Resource>,
    current: Arc<RwLock<Arc<Current>>>,
) {
    let start = Instant::now() + options.refresh_interval;
    let mut ticks = tokio::time::interval_at(start, options.refresh_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut fails = false;
    loop {
        ticks.tick().await;
        match detect(&options, &around, &last).await {
            Ok(results) => {
                last = results;
                let found = merged(&last);
                if std::mem::take(&mut fails) {
                    tracing::info!("resource attributes are detected again");
                }
                // Of the same attributes nothing is made anew.
                if current.read().found != found {
                    *current.write() = Arc::new(Current::new(&options, found));
                    tracing::info!("other resource attributes are detected");
                }
            }
            Err(reason) => {
                fails = true;
                tracing::warn!(%reason, "resource attributes stay as they were detected last");
            }
        }
    }
}

/// The attributes of all detectors; of several with the same key, that of the first one.
fn merged(results: &[Resource]) -> Resource {
    let mut found = Resource::default();
    results.iter().for_each(|result| found.merge(result.clone()));
    found
}

/// The attributes that each detector finds. One whose service is not there, or that lacks some, has
/// those of the last time too.
async fn detect(
    options: &Arc<Options>,
    around: &Surroundings,
    last: &[Resource],
) -> Result<Vec<Resource>, String> {
    let limit = options.retry.max_elapsed_time.or(options.timeout);
    let until = limit.map(|limit| Instant::now() + limit);
    let mut running = JoinSet::new();
    for index in 0..options.detectors.len() {
        let (options, around) = (options.clone(), around.clone());
        running.spawn(async move {
            (index, run(&options.detectors[index], &options, &around, until).await)
        });
    }
    let mut results: Vec<_> = options.detectors.iter().map(|_| None).collect();
    while let Some(ended) = running.join_next().await {
        let (index, result) = ended.map_err(|error| format!("a detector failed: {error}"))?;
        results[index] = Some(result);
    }
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for (index, (named, result)) in options.detectors.iter().zip(results).enumerate() {
        match result {
            Some(Ok(result)) => {
                let is_whole = result.as_ref().is_some_and(|it| it.lacks.is_empty());
                let mut resource = result.unwrap_or_default();
                if let Some(last) = last.get(index).filter(|_| !is_whole) {
                    resource.merge(last.clone());
                }
                found.push(resource);
            }
            Some(Err(reason)) => failures.push(format!("`{}`: {reason}", named.name)),
            None => found.push(Resource::default()),
        }
    }
    if failures.is_empty() {
        return Ok(found);
    }
    let within = limit.map_or(String::new(), |limit| format!(" within {limit:?}"));
    Err(format!(
        "detectors find nothing{within}: {}; give them more time (`timeout`, or \
         `retry.max_elapsed_time`), or take those out of `detectors` that are not for this place",
        failures.join("; ")
    ))
}

/// Runs one detector until it succeeds or the time is over. `None`: its service is not there.
async fn run(
    named: &Named,
    options: &Options,
    around: &Surroundings,
    until: Option<Instant>,
) -> Result<Option<Resource>, String> {
    let Retry { is_enabled, backoff, .. } = options.retry;
    // Within a longer time for all attempts, each has its own.
    let is_bounded = options.retry.max_elapsed_time.is_some() || !is_enabled;
    let mut failures = 0;
    loop {
        let own = options.timeout.filter(|_| is_bounded).map(|limit| Instant::now() + limit);
        let end = [own, until].into_iter().flatten().min();
        let result = attempt(named, options, around, end).await;
        let (reason, again) = match result {
            Ok(resource) => return Ok(resource),
            Err(Failure::Final(reason)) => (reason, false),
            Err(Failure::Broken(reason) | Failure::Missing(reason)) => (reason, is_enabled),
        };
        failures += 1;
        let waits = backoff.delay(failures, fastrand::f64());
        if !again || until.is_some_and(|until| Instant::now() + waits >= until) {
            return Err(reason);
        }
        tracing::warn!(detector = named.name, %reason, "a detector fails: it is tried again");
        sleep(waits).await;
    }
}

async fn attempt(
    named: &Named,
    options: &Options,
    around: &Surroundings,
    end: Option<Instant>,
) -> Result<Option<Resource>, Failure> {
    let started = Instant::now();
    let around = around.until(end);
    let detecting = named.detector.detect(&around);
    let detected = match end {
        Some(end) => timeout_at(end + GRACE, detecting).await.unwrap_or_else(|_| {
            let waited = started.elapsed();
            Err(Failure::Broken(format!("it takes longer than {waited:.1?}")))
        }),
        None => detecting.await,
    };
    let is_strict = options.fail_on_missing_metadata || named.detector.fails_on_missing();
    let detector = named.name;
    match detected {
        Err(Failure::Missing(reason)) if !is_strict => {
            tracing::debug!(detector, %reason, "a detector finds nothing");
            Ok(None)
        }
        Ok(resource) if is_strict && !resource.lacks.is_empty() => {
            Err(Failure::Missing(resource.lacks.join("; ")))
        }
        Ok(resource) => {
            for reason in &resource.lacks {
                tracing::info!(detector, %reason, "an attribute is not detected");
            }
            Ok(Some(resource))
        }
        Err(failure) => Err(failure),
    }
}
