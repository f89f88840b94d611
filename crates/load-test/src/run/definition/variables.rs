//! The variables of templates, and their values in one turn.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sluice_otlp::Signal;

use super::error::Problem;
use crate::generate::Protocol;

/// The values of one turn.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) signal: Signal,
    /// How the load is sent.
    pub(crate) protocol: Protocol,
    /// Where the load is sent.
    pub(crate) listen: SocketAddr,
    /// For the protocol that the load does not have.
    pub(crate) listen_other: SocketAddr,
    pub(crate) metrics: SocketAddr,
    /// For whatever else a subject insists on listening to.
    pub(crate) spare: SocketAddr,
    /// One a pipeline.
    pub(crate) backends: Vec<SocketAddr>,
    pub(crate) memory_limit_mib: u64,
    pub(crate) cores: usize,
    /// Prometheus targets of a metric agent; empty for other targets.
    pub(crate) scrape_targets: Vec<SocketAddr>,
    pub(crate) scrape_interval: Option<Duration>,
    /// The tree of log files of a log agent.
    pub(crate) log_root: Option<PathBuf>,
}

impl Setting {
    fn listen_for(&self, protocol: Protocol) -> SocketAddr {
        if protocol == self.protocol { self.listen } else { self.listen_other }
    }
}

/// What a section is about at the moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scope {
    pub(super) pipeline: Option<usize>,
    pub(super) target: Option<usize>,
}

impl Scope {
    pub(super) fn pipeline(index: usize) -> Scope {
        Scope { pipeline: Some(index), target: None }
    }

    pub(super) fn target(index: usize) -> Scope {
        Scope { pipeline: None, target: Some(index) }
    }
}

const IN_PIPELINE: &str = "outside a section `@EACH_PIPELINE@` or `@EACH_TARGET@`";
const IN_TARGET: &str = "outside a section `@EACH_TARGET@`";
const METRIC_AGENTS: &str = "but with -t metricagent";
const LOG_AGENTS: &str = "but with -t logagent and logs-fluentbit";

/// Each name with its value, or with where it would have one.
type Variables = Vec<(String, Result<String, &'static str>)>;

/// All variables, with those of hosts and ports.
pub(super) fn all(setting: &Setting, scope: Scope) -> Variables {
    let backend = setting.backends.get(scope.pipeline.unwrap_or(0)).copied();
    let target = scope.target.and_then(|index| setting.scrape_targets.get(index).copied());
    let interval = setting.scrape_interval;
    // The batches of the Kyma gateways.
    let batch_items = if setting.signal == Signal::Metrics { 1024 } else { 512 };
    let own = |value: &dyn ToString| Some(value.to_string());
    let texts = [
        ("INDEX", scope.pipeline.or(scope.target).map(|index| index.to_string()), IN_PIPELINE),
        ("SIGNAL", own(&setting.signal), ""),
        ("ITEMS", own(&setting.signal.items_name()), ""),
        ("BATCH_ITEMS", own(&batch_items), ""),
        ("MEMORY_LIMIT_MIB", own(&setting.memory_limit_mib), ""),
        ("CORES", own(&setting.cores), ""),
        ("SCRAPE_INTERVAL_S", interval.map(|every| every.as_secs_f64().to_string()), METRIC_AGENTS),
        ("SCRAPE_INTERVAL_MS", interval.map(|every| every.as_millis().to_string()), METRIC_AGENTS),
        ("LOG_ROOT", setting.log_root.as_ref().map(|root| root.display().to_string()), LOG_AGENTS),
        // Known when the folder of the subject is made: `Subject` fills these in.
        ("CONFIG", own(&"{config}"), ""),
        ("DIR", own(&"{dir}"), ""),
    ];
    let addresses = [
        ("LISTEN", Some(setting.listen), ""),
        ("LISTEN_GRPC", Some(setting.listen_for(Protocol::Grpc)), ""),
        ("LISTEN_HTTP", Some(setting.listen_for(Protocol::Http)), ""),
        ("METRICS", Some(setting.metrics), ""),
        ("SPARE", Some(setting.spare), ""),
        ("BACKEND", backend, ""),
        ("TARGET", target, IN_TARGET),
    ];
    let mut all: Variables =
        texts.map(|(name, value, unset)| (name.to_owned(), value.ok_or(unset))).to_vec();
    for (name, addr, unset) in addresses {
        let mut add = |suffix, part: fn(SocketAddr) -> String| {
            all.push((format!("{name}{suffix}"), addr.map(part).ok_or(unset)));
        };
        add("", |addr| addr.to_string());
        add("_HOST", |addr| addr.ip().to_string());
        add("_PORT", |addr| addr.port().to_string());
    }
    all
}

pub(super) fn look_up(name: &str, setting: &Setting, scope: Scope) -> Result<String, Problem> {
    let mut all = all(setting, scope);
    match all.iter().position(|(known, _)| known == name) {
        Some(index) => {
            all.swap_remove(index).1.map_err(|unset| Problem::UnsetVariable(name.to_owned(), unset))
        }
        None => {
            let names = all.into_iter().map(|(name, _)| name).collect();
            Err(Problem::UnknownVariable(name.to_owned(), names))
        }
    }
}
