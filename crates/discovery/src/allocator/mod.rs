//! The jobs of a target allocator: asked for over HTTP, again and again. The targets of each come
//! from the allocator, too.

mod config;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use http::HeaderMap;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sluice_config::source::{Source, Span};
use sluice_config::{Diagnostics, Fields, Node, Severity, Value, yaml};
use sluice_net::client::Secrets;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::scrape_config::{Global, HttpSd, ScrapeConfig, SourceConfig};
use crate::sources::fetch::Fetcher;

pub use config::AllocatorConfig;

/// Options of jobs are nested less deep.
const NESTING_LIMIT: usize = 32;
const JOBS_LIMIT: usize = 10_000;
/// Of one job.
const WARNINGS_LIMIT: usize = 10;

/// A job, and a number that differs when its configuration does.
#[derive(Clone)]
pub(crate) struct Allocated {
    pub(crate) config: Arc<ScrapeConfig>,
    pub(crate) fingerprint: u64,
}

/// By their names at the allocator.
pub(crate) type Jobs = HashMap<String, Allocated>;

/// Asks for jobs until its task ends. Without an answer that can be used, those of before stay.
pub(crate) async fn run(config: AllocatorConfig, global: Global, jobs: watch::Sender<Jobs>) {
    let url = format!("{}/scrape_configs", config.endpoint);
    let mut told = None;
    let mut fetcher = match Fetcher::new(&url, config.http.clone()) {
        Ok(fetcher) => fetcher,
        Err(reason) => return tell(&mut told, Err(reason)),
    };
    let mut ticks = tokio::time::interval(config.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answer = fetcher.get("application/json", HeaderMap::new(), config.timeout).await;
        let outcome = answer.and_then(|answer| {
            let known = jobs.borrow().clone();
            read_jobs(&answer.body, &config, &global, &known)
        });
        match outcome {
            Ok((found, problems)) => {
                jobs.send_if_modified(|jobs| {
                    let fingerprints = |jobs: &Jobs| -> HashMap<String, u64> {
                        jobs.iter().map(|(name, job)| (name.clone(), job.fingerprint)).collect()
                    };
                    let is_changed = fingerprints(jobs) != fingerprints(&found);
                    *jobs = found;
                    is_changed
                });
                tell(&mut told, if problems.is_empty() { Ok(()) } else { Err(problems) });
            }
            Err(reason) => tell(&mut told, Err(reason)),
        }
    }
}

/// Says once why jobs are not as the allocator has them.
fn tell(told: &mut Option<String>, outcome: Result<(), String>) {
    match outcome.map_err(|reason| Secrets::default().peer_text(&reason)) {
        Ok(()) if told.take().is_some() => tracing::info!("the target allocator gives jobs again"),
        Ok(()) => {}
        Err(reason) if told.as_ref() == Some(&reason) => {}
        Err(reason) => {
            let kept = "those of before stay";
            tracing::warn!(%reason, "the target allocator's jobs cannot be used: {kept}");
            *told = Some(reason);
        }
    }
}

/// The jobs of an answer, and what is wrong with some of them: those stay as they are known.
fn read_jobs(
    body: &[u8],
    config: &AllocatorConfig,
    global: &Global,
    known: &Jobs,
) -> Result<(Jobs, String), String> {
    let text = str::from_utf8(body).map_err(|_| "the answer is not UTF-8 text".to_owned())?;
    // As the operator's collectors do for `hashmod`.
    let shard = std::env::var("SHARD").unwrap_or_else(|_| "0".to_owned());
    let text = text.replace("$(SHARD)", &shard);
    let mut diagnostics = Diagnostics::default();
    let file = diagnostics.sources.add(Source::new("target allocator", ""));
    let root = yaml::parse(&text, file, NESTING_LIMIT)
        .map_err(|error| format!("the answer cannot be understood: {}", error.message))?;
    let entries = match root.as_mapping() {
        Some(entries) => entries,
        None if root.is_null() => &[],
        None => return Err(format!("the answer must be a mapping, not {}", root.kind())),
    };
    if entries.len() > JOBS_LIMIT {
        return Err(format!("the answer has more than {JOBS_LIMIT} jobs"));
    }
    let mut jobs = Jobs::new();
    let mut problems = Vec::new();
    for entry in entries {
        let (name, node) = (&entry.key, without_sources(&entry.value));
        let fingerprint = fingerprint_of(&node);
        let before = known.get(name);
        let same = before.filter(|before| before.fingerprint == fingerprint);
        let job = match same {
            Some(same) => Ok(same.clone()),
            None => read_job(name, &node, entry.key_span, config, global)
                .map(|job| Allocated { config: Arc::new(job), fingerprint }),
        };
        match (job, before) {
            (Ok(job), _) => drop(jobs.insert(name.clone(), job)),
            (Err(problem), before) => {
                problems.push(problem);
                jobs.extend(before.map(|before| (name.clone(), before.clone())));
            }
        }
    }
    problems.truncate(10);
    Ok((jobs, problems.join("; ")))
}

/// A job without the sources that it had before the allocator divided its targets.
fn without_sources(node: &Node) -> Node {
    let mut node = node.clone();
    if let Value::Mapping(entries) = &mut node.value {
        let is_source = |key: &str| key == "static_configs" || key.ends_with("_sd_configs");
        entries.retain(|entry| !is_source(&entry.key));
    }
    node
}

fn read_job(
    name: &str,
    node: &Node,
    span: Span,
    config: &AllocatorConfig,
    global: &Global,
) -> Result<ScrapeConfig, String> {
    // The allocator may be newer.
    let mut diagnostics = Diagnostics::default();
    diagnostics.unknown_options = Severity::Warning;
    diagnostics.sources.add(Source::new("target allocator", ""));
    let path = format!("scrape_configs[{name}]");
    let job = Fields::read(&path, node, span, &mut diagnostics, |fields| {
        let own = |text: &str| Ok(text.to_owned());
        let job = fields.text("job_name", "string", None, "", own).filter(|job| !job.is_empty());
        ScrapeConfig::read(fields, job.as_deref().unwrap_or(name), global)
    });
    if let Some(error) = diagnostics.errors().next() {
        return Err(error.message.clone());
    }
    for warning in diagnostics.warnings().take(WARNINGS_LIMIT) {
        let warning = Secrets::default().peer_text(&warning.message);
        tracing::warn!("the target allocator's job: {warning}");
    }
    let encoded = utf8_percent_encode(name, NON_ALPHANUMERIC);
    let id = utf8_percent_encode(&config.collector_id, NON_ALPHANUMERIC);
    let url = format!("{}/jobs/{encoded}/targets?collector_id={id}", config.endpoint);
    let http = config.targets.clone();
    let targets = HttpSd { url, http, refresh_interval: config.targets_interval };
    let http = config.scrapes.clone().unwrap_or(job.http);
    Ok(ScrapeConfig { http, sources: vec![SourceConfig::Http(Box::new(targets))], ..job })
}

fn fingerprint_of(node: &Node) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash(node, &mut hasher);
    hasher.finish()
}

fn hash(node: &Node, hasher: &mut DefaultHasher) {
    match &node.value {
        Value::Scalar(scalar) => (0u8, &scalar.text, scalar.is_null()).hash(hasher),
        Value::List(items) => {
            (1u8, items.len()).hash(hasher);
            items.iter().for_each(|item| hash(item, hasher));
        }
        Value::Mapping(entries) => {
            (2u8, entries.len()).hash(hasher);
            for entry in entries {
                entry.key.hash(hasher);
                hash(&entry.value, hasher);
            }
        }
    }
}

#[cfg(test)]
mod tests;
