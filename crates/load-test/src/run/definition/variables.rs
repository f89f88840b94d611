//! The variables of templates, and their values in one turn.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sluice_otlp::Signal;

use super::template::Scope;
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

/// A name and what stands for it.
pub(super) struct Variable {
    pub(super) name: &'static str,
    value: Value,
    /// Where it has none.
    unset: &'static str,
}

enum Value {
    Text(fn(&Setting, Scope) -> Option<String>),
    /// There are `NAME_HOST` and `NAME_PORT` as well.
    Address(fn(&Setting, Scope) -> Option<SocketAddr>),
}

const ALWAYS: &str = "here";
const IN_PIPELINE: &str = "outside a section `@EACH_PIPELINE@` or `@EACH_TARGET@`";
const IN_TARGET: &str = "outside a section `@EACH_TARGET@`";
const METRIC_AGENTS: &str = "but with -t metricagent";
const LOG_AGENTS: &str = "but with -t logagent and logs-fluentbit";

pub(super) const VARIABLES: [Variable; 18] = [
    address("LISTEN", ALWAYS, |setting, _| Some(setting.listen)),
    address("LISTEN_GRPC", ALWAYS, |setting, _| Some(setting.listen_for(Protocol::Grpc))),
    address("LISTEN_HTTP", ALWAYS, |setting, _| Some(setting.listen_for(Protocol::Http))),
    address("METRICS", ALWAYS, |setting, _| Some(setting.metrics)),
    address("SPARE", ALWAYS, |setting, _| Some(setting.spare)),
    address("BACKEND", ALWAYS, |setting, scope| setting.backends.get(scope.pipeline.unwrap_or(0)).copied()),
    text("INDEX", IN_PIPELINE, |_, scope| scope.pipeline.or(scope.target).map(|index| index.to_string())),
    address("TARGET", IN_TARGET, |setting, scope| setting.scrape_targets.get(scope.target?).copied()),
    text("SIGNAL", ALWAYS, |setting, _| Some(setting.signal.as_str().to_owned())),
    text("ITEMS", ALWAYS, |setting, _| Some(setting.signal.items_name().to_owned())),
    text("BATCH_ITEMS", ALWAYS, |setting, _| {
        // The batches of the Kyma gateways.
        Some(if setting.signal == Signal::Metrics { "1024" } else { "512" }.to_owned())
    }),
    text("MEMORY_LIMIT_MIB", ALWAYS, |setting, _| Some(setting.memory_limit_mib.to_string())),
    text("CORES", ALWAYS, |setting, _| Some(setting.cores.to_string())),
    text("SCRAPE_INTERVAL_S", METRIC_AGENTS, |setting, _| Some(setting.scrape_interval?.as_secs_f64().to_string())),
    text("SCRAPE_INTERVAL_MS", METRIC_AGENTS, |setting, _| Some(setting.scrape_interval?.as_millis().to_string())),
    text("LOG_ROOT", LOG_AGENTS, |setting, _| Some(setting.log_root.as_ref()?.display().to_string())),
    // Known when the subject's folder is made: `Subject` fills these in.
    text("CONFIG", ALWAYS, |_, _| Some("{config}".to_owned())),
    text("DIR", ALWAYS, |_, _| Some("{dir}".to_owned())),
];

const fn text(name: &'static str, unset: &'static str, value: fn(&Setting, Scope) -> Option<String>) -> Variable {
    Variable { name, value: Value::Text(value), unset }
}

const fn address(
    name: &'static str,
    unset: &'static str,
    value: fn(&Setting, Scope) -> Option<SocketAddr>,
) -> Variable {
    Variable { name, value: Value::Address(value), unset }
}

/// All names, those of hosts and ports included.
pub(super) fn names() -> Vec<String> {
    let all = VARIABLES.iter().flat_map(|variable| match variable.value {
        Value::Text(_) => vec![variable.name.to_owned()],
        Value::Address(_) => ["", "_HOST", "_PORT"].map(|suffix| format!("{}{suffix}", variable.name)).to_vec(),
    });
    all.collect()
}

pub(super) enum Lookup {
    Unknown,
    /// Known, without a value: where it would have one.
    Unset(&'static str),
    Value(String),
}

pub(super) fn look_up(name: &str, setting: &Setting, scope: Scope) -> Lookup {
    let found = VARIABLES.iter().find_map(|variable| {
        let suffix = name.strip_prefix(variable.name)?;
        let value = match (&variable.value, suffix) {
            (Value::Text(value), "") => value(setting, scope),
            (Value::Address(value), "") => value(setting, scope).map(|addr| addr.to_string()),
            (Value::Address(value), "_HOST") => value(setting, scope).map(|addr| addr.ip().to_string()),
            (Value::Address(value), "_PORT") => value(setting, scope).map(|addr| addr.port().to_string()),
            _ => return None,
        };
        Some(value.map_or(Lookup::Unset(variable.unset), Lookup::Value))
    });
    found.unwrap_or(Lookup::Unknown)
}
