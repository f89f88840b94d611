//! The jobs of `scrape_configs`, with the defaults of `global`, as they stand below `config` of
//! the Collector's receiver.

mod files;
mod global;
mod kubernetes;
mod sources;

use std::time::Duration;

use sluice_config::Fields;

use crate::http_config::HttpConfig;
use crate::labels::{NameScheme, Text};
use crate::relabel::{self, Rule};
use crate::units;

pub use global::{Escaping, Global, Limits, ScrapeProtocol};
pub use kubernetes::{KubernetesSd, Role, Selector};
pub use sources::{DnsRecord, DnsSd, FileSd, HttpSd, SourceConfig};

/// A job: where its targets come from, and how they are scraped.
#[derive(Clone, Debug)]
pub struct ScrapeConfig {
    pub job: Text,
    /// At least `timeout`.
    pub interval: Duration,
    pub timeout: Duration,
    /// The preferred one first; never empty.
    pub protocols: Vec<ScrapeProtocol>,
    /// The protocol of an answer whose content type says none.
    pub fallback_protocol: ScrapeProtocol,
    pub metrics_path: Text,
    /// `http` or `https`.
    pub scheme: Text,
    pub params: Vec<(Text, Vec<Text>)>,
    pub honor_labels: bool,
    pub honor_timestamps: bool,
    pub track_timestamps_staleness: bool,
    pub enable_compression: bool,
    pub extra_scrape_metrics: bool,
    pub http: HttpConfig,
    pub limits: Limits,
    pub histograms: Histograms,
    pub native_buckets: NativeBuckets,
    pub names: NameScheme,
    pub escaping: Escaping,
    pub relabel: Vec<Rule>,
    pub metric_relabel: Vec<Rule>,
    pub sources: Vec<SourceConfig>,
}

/// Whether native histograms are taken, classic ones beside them, and classic ones as native ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histograms {
    pub scrape_native: bool,
    pub convert_classic: bool,
    pub always_scrape_classic: bool,
}

/// The number of buckets that a native histogram may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NativeBuckets {
    /// Zero is no limit.
    pub limit: u64,
    /// The highest resolution, if it is below all that there are.
    pub schema: Option<i32>,
}

/// All jobs, and the defaults that also hold for jobs that a target allocator gives.
#[derive(Clone, Debug, Default)]
pub struct ScrapeConfigs {
    pub global: Global,
    pub jobs: Vec<ScrapeConfig>,
    /// Differs when the contents of `scrape_config_files` do.
    pub files_fingerprint: u64,
}

impl ScrapeConfigs {
    /// Reads the section `config`.
    pub fn read(fields: &mut Fields<'_>) -> ScrapeConfigs {
        let doc = "Defaults of all jobs.";
        let global = fields.section_or_default("global", doc, Global::read);
        let mut jobs = read_jobs(fields, &global);
        let (of_files, files_fingerprint) = files::read(fields, &global);
        jobs.extend(of_files);
        let mut names: Vec<&str> = jobs.iter().map(|job| &*job.job).collect();
        names.sort_unstable();
        for pair in names.windows(2).filter(|pair| pair[0] == pair[1]) {
            fields.error_at("scrape_configs", &format!("has the job `{}` twice", pair[0]));
        }
        let server = "this is of the Prometheus server, and the Collector refuses it too";
        for key in ["remote_write", "remote_read", "rule_files", "alerting"] {
            fields.not_yet(key, server);
        }
        let why = "it is of the Prometheus server";
        for key in ["runtime", "storage", "tracing", "otlp"] {
            fields.no_effect(key, why);
        }
        ScrapeConfigs { global, jobs, files_fingerprint }
    }
}

/// The section `scrape_configs` of the configuration, or of a file of its own.
fn read_jobs(fields: &mut Fields<'_>, global: &Global) -> Vec<ScrapeConfig> {
    let doc = "Jobs: targets, and how they are scraped.";
    fields.sections_by("scrape_configs", "job_name", doc, |fields| {
        let doc = "Name of the job: the label `job` of its targets.";
        let own = |text: &str| Ok(text.to_owned());
        let job = fields.text("job_name", "string, required", None, doc, own);
        let job = job.unwrap_or_default();
        if job.is_empty() {
            fields.error_missing("job_name");
        }
        ScrapeConfig::read(fields, &job, global)
    })
}

impl ScrapeConfig {
    /// Reads a job but its name, which a target allocator gives otherwise.
    pub fn read(fields: &mut Fields<'_>, job: &str, global: &Global) -> ScrapeConfig {
        let (interval, timeout) = global::read_times(fields, Some(global.times));
        let histograms = global::read_histograms(fields, global.histograms);
        let native_buckets = NativeBuckets::read(fields);
        let protocols = global::read_protocols(fields);
        let protocols = protocols.or_else(|| global.protocols.clone());
        let default = || ScrapeProtocol::defaults(histograms.scrape_native);
        let doc = "Protocol of answers whose content type says none that is known.";
        let fallback_protocol = fields
            .optional_choice("fallback_scrape_protocol", &ScrapeProtocol::CHOICES, doc)
            .flatten();
        let own = |text: &str| Ok(Text::from(text));
        let doc = "Path of the metrics.";
        let metrics_path = fields.text("metrics_path", "string", Some("/metrics"), doc, own);
        let doc = "`http` or `https`.";
        let scheme = fields.text("scheme", "a scheme", Some("http"), doc, |text| match text {
            "" => Ok(Text::from("http")),
            "http" | "https" => Ok(Text::from(text)),
            _ => Err("it is neither `http` nor `https`".to_owned()),
        });
        let doc = "Parameters of the URL.";
        let params = fields.text_lists("params", doc).into_iter();
        let texts = |texts: Vec<String>| texts.into_iter().map(Text::from).collect();
        let params = params.map(|(name, values)| (name.into(), texts(values))).collect();
        let doc = "Labels of the target's metrics win over those of the target.";
        let honor_labels = fields.boolean("honor_labels", false, doc);
        let doc = "Keep the timestamps of the target's metrics.";
        let honor_timestamps = fields.boolean("honor_timestamps", true, doc);
        let doc = "Metrics with timestamps of their own end when the target no longer has them.";
        let track_timestamps_staleness = fields.boolean("track_timestamps_staleness", false, doc);
        let enable_compression =
            fields.boolean("enable_compression", true, "Ask for compressed answers.");
        let extra_scrape_metrics = global::read_extra_metrics(fields, global.extra_scrape_metrics);
        let http = HttpConfig::read(fields);
        let limits = Limits::read(fields, &global.limits);
        let (names, escaping) = global::read_names(fields, Some((global.names, global.escaping)));
        let doc = "Rules that change the labels of targets, or drop targets.";
        let relabel = relabel::read(fields, "relabel_configs", names, doc);
        let doc = "Rules that change the labels of metrics, or drop metrics.";
        let metric_relabel = relabel::read(fields, "metric_relabel_configs", names, doc);
        let sources = sources::read(fields, relabel.is_empty());
        global::no_server_options(fields);
        ScrapeConfig {
            job: job.into(),
            interval,
            timeout,
            protocols: protocols.unwrap_or_else(default),
            fallback_protocol: fallback_protocol.unwrap_or(ScrapeProtocol::PrometheusText0_0_4),
            metrics_path: metrics_path.unwrap_or_else(|| "/metrics".into()),
            scheme: scheme.unwrap_or_else(|| "http".into()),
            params,
            honor_labels,
            honor_timestamps,
            track_timestamps_staleness,
            enable_compression,
            extra_scrape_metrics,
            http,
            limits,
            histograms,
            native_buckets,
            names,
            escaping,
            relabel,
            metric_relabel,
            sources,
        }
    }
}

impl NativeBuckets {
    fn read(fields: &mut Fields<'_>) -> NativeBuckets {
        let doc = "Lower the resolution of a native histogram that has more buckets, not counting \
                   empty ones. If it cannot be low enough, the scrape fails. 0: no limit.";
        let limit = fields.integer("native_histogram_bucket_limit", 0, 0..=u64::MAX, doc);
        let doc = "Lower the resolution of native histograms until each bucket is wider than the \
                   one below it by this factor, as far as there is such a resolution: 1.1, say. \
                   0: as it is.";
        let range = 0.0..=f64::INFINITY;
        let factor = fields.optional_float("native_histogram_min_bucket_factor", 0.0, range, doc);
        NativeBuckets { limit, schema: factor.and_then(schema_of) }
    }
}

/// The highest resolution whose buckets grow by at least `factor`; `None` for the highest of all.
fn schema_of(factor: f64) -> Option<i32> {
    if factor <= 1.0 {
        return None;
    }
    // Buckets of the schema n grow by 2 to the power of (2 to the power of -n).
    let most = -factor.log2().log2();
    let fits = |schema: &i32| f64::from(*schema) <= most;
    (most < 8.0).then(|| (-4..8).rev().find(fits).unwrap_or(-4))
}

/// A duration as Prometheus writes it. Zero counts as absent.
pub(crate) fn duration(
    fields: &mut Fields<'_>,
    key: &str,
    default: Option<Duration>,
    doc: &str,
) -> Option<Duration> {
    let shown = default.map(units::show);
    let given = fields.text(key, "a duration", shown.as_deref(), doc, units::duration);
    given.filter(|given| !given.is_zero()).or(default)
}

#[cfg(test)]
mod tests;
