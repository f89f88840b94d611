//! From groups to the targets of a job, through relabelling. Pure.

mod url;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use sluice_net::client::{Origin, Secrets};

use crate::group::{ADDRESS, Group};
use crate::labels::{Label, Labels, Text};
use crate::relabel;
use crate::scrape_config::{Histograms, ScrapeConfig};
use crate::units;

const JOB: &str = "job";
const INSTANCE: &str = "instance";
const SCHEME: &str = "__scheme__";
const METRICS_PATH: &str = "__metrics_path__";
const INTERVAL: &str = "__scrape_interval__";
const TIMEOUT: &str = "__scrape_timeout__";
const CONVERT_CLASSIC: &str = "__convert_classic_histograms_to_nhcb__";
const ALWAYS_CLASSIC: &str = "__always_scrape_classic_histograms__";
const NATIVE: &str = "__scrape_native_histograms__";
const PARAM_PREFIX: &str = "__param_";
const META_PREFIX: &str = "__meta_";
const RESERVED_PREFIX: &str = "__";

/// Labels of discovery that are kept, because they name the target's resource.
const KEPT_META: [&str; 9] = [
    "__meta_kubernetes_endpoint_node_name",
    "__meta_kubernetes_namespace",
    "__meta_kubernetes_node_name",
    "__meta_kubernetes_pod_container_name",
    "__meta_kubernetes_pod_controller_kind",
    "__meta_kubernetes_pod_controller_name",
    "__meta_kubernetes_pod_name",
    "__meta_kubernetes_pod_node_name",
    "__meta_kubernetes_pod_uid",
];

/// Failures that are kept as texts.
const FAILURES_SHOWN: usize = 10;

/// An endpoint to scrape. Targets are equal if their labels are, those of relabelling included.
#[derive(Debug)]
pub struct Target {
    labels: Labels,
    /// Those of `KEPT_META`, before relabelling.
    meta: Labels,
    pub origin: Origin,
    pub interval: Duration,
    /// At most the interval.
    pub timeout: Duration,
    pub histograms: Histograms,
    hash: u64,
}

/// The targets of a job at one moment.
#[derive(Debug, Default)]
pub struct Targets {
    /// Each once, in the order of the groups.
    pub targets: Vec<Arc<Target>>,
    /// That relabelling dropped.
    pub dropped: usize,
    /// That cannot be scraped: their labels make no target.
    pub failed: usize,
    /// The reasons, the first few.
    pub failures: Vec<String>,
    /// There are more than `target_limit`: all scrapes fail.
    pub exceeds_limit: bool,
}

impl Target {
    /// Labels of the target's metrics.
    pub fn labels(&self) -> impl Iterator<Item = &Label> {
        self.labels.iter().filter(|label| !label.name.starts_with(RESERVED_PREFIX))
    }

    /// A label, also of those that its metrics do not get; empty if it is not there.
    pub fn label(&self, name: &str) -> &Text {
        self.labels.get(name)
    }

    /// A label of discovery that names the target's resource; empty if it is not there.
    pub fn meta(&self, name: &str) -> &Text {
        self.meta.get(name)
    }

    /// Time until its next scrape, at most the interval. Targets are spread over the interval, each
    /// at its own point, so that a restart does not move it. `now`: since the epoch. `seed` differs
    /// between processes that scrape the same targets.
    pub fn offset(&self, now: Duration, seed: u64) -> Duration {
        let interval_ns = self.interval.as_nanos().max(1);
        let point_ns = u128::from(self.hash ^ seed) % interval_ns;
        let into_ns = now.as_nanos() % interval_ns;
        let wait_ns = (point_ns + interval_ns - into_ns) % interval_ns;
        Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(u64::MAX))
    }
}

impl PartialEq for Target {
    fn eq(&self, other: &Target) -> bool {
        self.hash == other.hash && self.labels == other.labels && self.origin == other.origin
    }
}

impl Eq for Target {}

impl std::hash::Hash for Target {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// The targets of a job. Those that are in `before`, too, are the same allocation.
pub fn targets<'g>(
    config: &ScrapeConfig,
    groups: impl IntoIterator<Item = &'g Group>,
    before: &[Arc<Target>],
) -> Targets {
    let known: HashSet<&Arc<Target>> = before.iter().collect();
    let defaults = Defaults::of(config);
    let mut seen = HashSet::new();
    let mut found = Targets::default();
    for group in groups {
        for (at, own) in group.targets.iter().enumerate() {
            match defaults.target(config, own, &group.labels) {
                Ok(None) => found.dropped += 1,
                Ok(Some(target)) => {
                    let target = Arc::new(target);
                    let target = known.get(&target).map_or(target, |known| Arc::clone(known));
                    if seen.insert(target.clone()) {
                        found.targets.push(target);
                    }
                }
                Err(reason) => {
                    found.failed += 1;
                    if found.failures.len() < FAILURES_SHOWN {
                        let reason = Secrets::default().peer_text(&reason);
                        let group = &group.key;
                        found.failures.push(format!("target {at} of the group {group}: {reason}"));
                    }
                }
            }
        }
    }
    let limit = config.limits.targets;
    found.exceeds_limit = limit > 0 && found.targets.len() as u64 > limit;
    found
}

/// The labels that a job gives to targets that lack them, made once.
struct Defaults {
    labels: Vec<Label>,
    instance: Text,
}

impl Defaults {
    fn of(config: &ScrapeConfig) -> Defaults {
        let histograms = &config.histograms;
        let shown = |is: bool| Text::from(if is { "true" } else { "false" });
        let labels = [
            (JOB, config.job.clone()),
            (INTERVAL, units::show(config.interval).into()),
            (TIMEOUT, units::show(config.timeout).into()),
            (METRICS_PATH, config.metrics_path.clone()),
            (SCHEME, config.scheme.clone()),
            (CONVERT_CLASSIC, shown(histograms.convert_classic)),
            (ALWAYS_CLASSIC, shown(histograms.always_scrape_classic)),
            (NATIVE, shown(histograms.scrape_native)),
        ];
        let labels = labels.into_iter().map(|(name, value)| Label { name: name.into(), value });
        let params = config.params.iter().filter_map(|(name, values)| {
            let name = format!("{PARAM_PREFIX}{name}").into();
            Some(Label { name, value: values.first()?.clone() })
        });
        Defaults { labels: labels.chain(params).collect(), instance: INSTANCE.into() }
    }

    /// The labels of a target before relabelling: its own, then the group's, then the job's.
    fn discovered(&self, own: &Labels, group: &Labels) -> Labels {
        let mut labels = Labels::with_capacity(own.len() + group.len() + self.labels.len() + 1);
        for label in group.iter().chain(own.iter()) {
            labels.set(&label.name, label.value.clone());
        }
        for label in &self.labels {
            labels.set_default(&label.name, &label.value);
        }
        labels
    }

    /// Nothing if relabelling drops it.
    fn target(
        &self,
        config: &ScrapeConfig,
        own: &Labels,
        group: &Labels,
    ) -> Result<Option<Target>, String> {
        let mut labels = self.discovered(own, group);
        let meta = labels.iter().filter(|label| KEPT_META.contains(&&*label.name));
        let meta = meta.map(|label| (label.name.clone(), label.value.clone())).collect();
        if !relabel::apply(&config.relabel, &mut labels) {
            return Ok(None);
        }
        let address = labels.get(ADDRESS).clone();
        if address.is_empty() {
            return Err("it has no `__address__`".to_owned());
        }
        // With them, the URL would be another one.
        if address.contains(['/', '?', '#']) {
            return Err(format!("the address `{address}` is not `host:port`"));
        }
        let interval = time(&labels, INTERVAL)?;
        let timeout = time(&labels, TIMEOUT)?;
        if timeout > interval {
            let (timeout, interval) = (units::show(timeout), units::show(interval));
            return Err(format!(
                "its timeout of {timeout} is longer than its interval of {interval}"
            ));
        }
        let histograms = Histograms {
            scrape_native: boolean(&labels, NATIVE, config.histograms.scrape_native)?,
            convert_classic: boolean(&labels, CONVERT_CLASSIC, config.histograms.convert_classic)?,
            always_scrape_classic: boolean(
                &labels,
                ALWAYS_CLASSIC,
                config.histograms.always_scrape_classic,
            )?,
        };
        labels.retain(|label| !label.name.starts_with(META_PREFIX));
        labels.set_default(&self.instance, &address);
        labels.shrink();
        let url = url::of(&labels, &config.params);
        let origin =
            Origin::of(&url).map_err(|reason| format!("its URL cannot be used: {reason}"))?;
        let hash = hash_of(&labels, &url);
        Ok(Some(Target { labels, meta, origin, interval, timeout, histograms, hash }))
    }
}

fn time(labels: &Labels, name: &str) -> Result<Duration, String> {
    let text = labels.get(name);
    let time = units::duration(text)
        .map_err(|reason| format!("the label `{name}` is no duration: {reason}"))?;
    if time.is_zero() { Err(format!("the label `{name}` is 0")) } else { Ok(time) }
}

/// A label that is true or false as Go writes it.
fn boolean(labels: &Labels, name: &str, default: bool) -> Result<bool, String> {
    match &**labels.get(name) {
        "" => Ok(default),
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => Err(format!("the label `{name}` is `{other}`: neither true nor false")),
    }
}

fn hash_of(labels: &Labels, url: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    labels.hash(&mut hasher);
    url.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
