//! Templates: variables between at signs are replaced, sections are repeated.
//!
//! Lines between `@EACH_PIPELINE@` or `@EACH_TARGET@` and `@END@`, each on a line of its own, are
//! repeated once a pipeline or scrape target; a section within one line with commas between.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sluice_otlp::Signal;

use super::error::did_you_mean;
use crate::generate::Protocol;

/// The values of one turn.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) signal: Signal,
    /// Protocol that the load uses.
    pub(crate) protocol: Protocol,
    /// Address that the load is sent to.
    pub(crate) listen: SocketAddr,
    /// Address for the protocol that the load does not use.
    pub(crate) listen_other: SocketAddr,
    pub(crate) metrics: SocketAddr,
    /// Address for a further port that a subject insists on opening.
    pub(crate) spare: SocketAddr,
    /// One for each pipeline.
    pub(crate) backends: Vec<SocketAddr>,
    pub(crate) memory_limit_mib: u64,
    pub(crate) cores: usize,
    /// Prometheus targets of a metric agent; empty for other targets.
    pub(crate) scrape_targets: Vec<SocketAddr>,
    pub(crate) scrape_interval: Option<Duration>,
    /// The tree of log files of a log agent.
    pub(crate) log_root: Option<PathBuf>,
    /// The file that k6 writes.
    pub(crate) k6_file: Option<PathBuf>,
}

impl Setting {
    fn listen_for(&self, protocol: Protocol) -> SocketAddr {
        if protocol == self.protocol { self.listen } else { self.listen_other }
    }
}

/// The pipeline or target that a section is filled in for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Scope {
    /// No section.
    #[default]
    Whole,
    Pipeline(usize),
    Target(usize),
}

const IN_PIPELINE: &str = "outside a section `@EACH_PIPELINE@` or `@EACH_TARGET@`";
const IN_TARGET: &str = "outside a section `@EACH_TARGET@`";
const METRIC_AGENTS: &str = "but with -t metricagent";
const K6: &str = "but with -t k6";
const LOG_AGENTS: &str = "but with -t logagent and logs-fluentbit";

/// Each name with its value, or with the place where it would have one.
type Variables = Vec<(String, Result<String, &'static str>)>;

/// All variables, with those of hosts and ports.
pub(super) fn all(setting: &Setting, scope: Scope) -> Variables {
    let (index, pipeline, target) = match scope {
        Scope::Whole => (None, 0, None),
        Scope::Pipeline(index) => (Some(index), index, None),
        Scope::Target(index) => (Some(index), 0, setting.scrape_targets.get(index).copied()),
    };
    let interval = setting.scrape_interval;
    // The batches of the Kyma gateways.
    let batch_items = if setting.signal == Signal::Metrics { 1024 } else { 512 };
    let own = |value: &dyn ToString| Some(value.to_string());
    let texts = [
        ("INDEX", index.map(|index| index.to_string()), IN_PIPELINE),
        ("SIGNAL", own(&setting.signal), ""),
        ("ITEMS", own(&setting.signal.items_name()), ""),
        ("BATCH_ITEMS", own(&batch_items), ""),
        ("MEMORY_LIMIT_MIB", own(&setting.memory_limit_mib), ""),
        ("CORES", own(&setting.cores), ""),
        ("SCRAPE_INTERVAL_S", interval.map(|every| every.as_secs_f64().to_string()), METRIC_AGENTS),
        ("SCRAPE_INTERVAL_MS", interval.map(|every| every.as_millis().to_string()), METRIC_AGENTS),
        ("LOG_ROOT", setting.log_root.as_ref().map(|root| root.display().to_string()), LOG_AGENTS),
        ("K6_FILE", setting.k6_file.as_ref().map(|file| file.display().to_string()), K6),
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
        ("BACKEND", setting.backends.get(pipeline).copied(), ""),
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

/// The value of a variable, or the error in its name or place.
fn look_up(name: &str, setting: &Setting, scope: Scope) -> Result<String, String> {
    if name == "END" {
        let begin = "the section's begin (`@EACH_PIPELINE@` or `@EACH_TARGET@`)";
        return Err(format!("`@END@` without {begin}"));
    }
    let mut all = all(setting, scope);
    let Some(index) = all.iter().position(|(known, _)| known == name) else {
        let names: Vec<String> = all.into_iter().map(|(name, _)| name).collect();
        return Err(format!("no variable `@{name}@`{}", did_you_mean(name, &names)));
    };
    all.swap_remove(index).1.map_err(|unset| format!("`@{name}@` has no value {unset}"))
}

/// The scopes that a section is repeated for; `None`: not the name of a section.
fn scopes(name: &str, setting: &Setting) -> Option<Vec<Scope>> {
    match name {
        "EACH_PIPELINE" => Some((0..setting.backends.len()).map(Scope::Pipeline).collect()),
        "EACH_TARGET" => Some((0..setting.scrape_targets.len()).map(Scope::Target).collect()),
        _ => None,
    }
}

/// Fills in variables and sections. An error comes with the number of its line, from 1.
pub(super) fn fill(text: &str, setting: &Setting, scope: Scope) -> Result<String, (usize, String)> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        out += &rest[..at];
        rest = &rest[at..];
        let Some((name, after)) = variable(rest) else {
            // An at sign of the subject's own.
            out.push('@');
            rest = &rest[1..];
            continue;
        };
        rest = after;
        let line = 1 + text[..text.len() - rest.len()].matches('\n').count();
        let problem = |text: String| (line, text);
        let Some(scopes) = scopes(name, setting) else {
            out += &look_up(name, setting, scope).map_err(problem)?;
            continue;
        };
        if scope != Scope::Whole {
            return Err(problem(format!("`@{name}@` within a section: sections do not nest")));
        }
        let (mut section, mut after) = rest.split_once("@END@").ok_or_else(|| {
            problem(format!(
                "`@{name}@` without `@END@`: a section ends with a line of its own, or on the \
                 same line"
            ))
        })?;
        let (mut first_line, mut separator) = (line, ",");
        if let Some((behind, lines)) = section.split_once('\n')
            && behind.trim_end().is_empty()
        {
            // The lines that begin and end the section are removed.
            out.truncate(out.trim_end_matches([' ', '\t']).len());
            section = lines.trim_end_matches([' ', '\t']);
            after = after.trim_start_matches([' ', '\t', '\r']);
            after = after.strip_prefix('\n').unwrap_or(after);
            (first_line, separator) = (line + 1, "");
        }
        let repeated = scopes.into_iter().map(|scope| fill(section, setting, scope));
        let repeated: Result<Vec<_>, _> = repeated.collect();
        out += &repeated.map_err(|(line, text)| (first_line + line - 1, text))?.join(separator);
        rest = after;
    }
    Ok(out + rest)
}

/// Splits `@NAME@rest`; `None` where the text does not begin with a variable.
fn variable(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.strip_prefix('@')?.split_once('@')?;
    let is_name = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    is_name.then_some((name, rest))
}
