//! The section `global`, and the options that it shares with jobs.

use std::time::Duration;

use sluice_config::Fields;

use super::{Histograms, duration};
use crate::labels::{Labels, NameScheme};
use crate::units;

const INTERVAL: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Defaults of all jobs.
#[derive(Clone, Debug)]
pub struct Global {
    /// Interval and timeout.
    pub(super) times: (Duration, Duration),
    pub(super) protocols: Option<Vec<ScrapeProtocol>>,
    /// Labels of all metrics.
    pub external_labels: Labels,
    pub(super) limits: Limits,
    pub(super) names: NameScheme,
    pub(super) escaping: Escaping,
    pub(super) histograms: Histograms,
    pub(super) extra_scrape_metrics: bool,
}

/// A format of metrics, as a scrape asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrapeProtocol {
    PrometheusProto,
    PrometheusText0_0_4,
    PrometheusText1_0_0,
    OpenMetricsText0_0_1,
    OpenMetricsText1_0_0,
}

/// How names that the old scheme does not allow are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Escaping {
    /// As they are.
    #[default]
    AllowUtf8,
    Underscores,
    Dots,
    Values,
}

/// Limits of one scrape, and of a job's targets. 0: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Of an answer, inflated.
    pub body_bytes: u64,
    pub samples: u64,
    /// Targets of the job after relabelling.
    pub targets: u64,
    /// Labels of one sample.
    pub labels: u64,
    pub label_name_bytes: u64,
    pub label_value_bytes: u64,
}

impl Default for Global {
    fn default() -> Global {
        Global {
            times: (INTERVAL, TIMEOUT),
            protocols: None,
            external_labels: Labels::default(),
            limits: Limits::default(),
            names: NameScheme::default(),
            escaping: Escaping::default(),
            histograms: Histograms::default(),
            extra_scrape_metrics: false,
        }
    }
}

impl Global {
    pub(super) fn read(fields: &mut Fields<'_>) -> Global {
        let times = read_times(fields, None);
        let protocols = read_protocols(fields);
        let (names, escaping) = read_names(fields, None);
        let external_labels = read_external_labels(fields, names);
        let limits = Limits::read(fields, &Limits::default());
        let histograms = read_histograms(fields, Histograms::default());
        let extra_scrape_metrics = read_extra_metrics(fields, false);
        no_server_options(fields);
        for key in ["evaluation_interval", "rule_query_offset", "query_log_file"] {
            fields.no_effect(key, "it is of the Prometheus server, which evaluates rules");
        }
        Global {
            times,
            protocols,
            external_labels,
            limits,
            names,
            escaping,
            histograms,
            extra_scrape_metrics,
        }
    }
}

fn read_external_labels(fields: &mut Fields<'_>, names: NameScheme) -> Labels {
    let doc = "Labels of all metrics.";
    let labels = fields.text_map("external_labels", doc);
    for (name, value) in &labels {
        if !names.is_label_name(name) {
            let message = format!("has `{name}`, which is not the name of a label");
            fields.error_at("external_labels", &message);
        }
        // Prometheus puts variables there itself, after the Collector has done so.
        if value.contains('$') {
            let message = format!("has a `$` in the value of `{name}`");
            let hint = "write `${env:NAME}` for a variable";
            fields.error_at_with_hint("external_labels", &message, hint);
        }
    }
    labels.into_iter().collect()
}

/// Interval and timeout: a job's after those of `global`.
pub(super) fn read_times(
    fields: &mut Fields<'_>,
    global: Option<(Duration, Duration)>,
) -> (Duration, Duration) {
    let is_global = global.is_none();
    let (interval, timeout) = global.unwrap_or((INTERVAL, TIMEOUT));
    let doc = "Time from one scrape of a target to the next.";
    let doc = if is_global { doc.to_owned() } else { format!("{doc} Unset: that of `global`.") };
    let shown = is_global.then_some(INTERVAL);
    let interval = duration(fields, "scrape_interval", shown, &doc).unwrap_or(interval);
    let doc = "A scrape may take this long, at most the interval.";
    let given = duration(fields, "scrape_timeout", None, doc);
    if given.is_some_and(|given| given > interval) {
        let message = format!("is longer than the interval of {}", units::show(interval));
        fields.error_at("scrape_timeout", &message);
    }
    (interval, given.unwrap_or(timeout).min(interval))
}

pub(super) fn read_protocols(fields: &mut Fields<'_>) -> Option<Vec<ScrapeProtocol>> {
    let names: Vec<&str> =
        ScrapeProtocol::CHOICES.iter().map(|(name, _)| *name).filter(|it| !it.is_empty()).collect();
    let doc = "Formats of metrics that are asked for, the preferred one first.";
    let given = fields.name_list("scrape_protocols", &names, &[], doc);
    if fields.is_empty_list("scrape_protocols") {
        fields.error_missing("scrape_protocols");
    }
    let mut protocols = Vec::new();
    for name in &given {
        let protocol = ScrapeProtocol::CHOICES.iter().find(|(known, _)| known == name);
        let Some(protocol) = protocol.and_then(|(_, protocol)| *protocol) else { continue };
        if protocols.contains(&protocol) {
            fields.error_at("scrape_protocols", &format!("has `{name}` twice"));
        }
        protocols.push(protocol);
    }
    (!protocols.is_empty()).then_some(protocols)
}

impl ScrapeProtocol {
    /// By their names in configurations.
    pub(super) const CHOICES: [(&'static str, Option<ScrapeProtocol>); 6] = [
        ("PrometheusProto", Some(ScrapeProtocol::PrometheusProto)),
        ("PrometheusText0.0.4", Some(ScrapeProtocol::PrometheusText0_0_4)),
        ("PrometheusText1.0.0", Some(ScrapeProtocol::PrometheusText1_0_0)),
        ("OpenMetricsText0.0.1", Some(ScrapeProtocol::OpenMetricsText0_0_1)),
        ("OpenMetricsText1.0.0", Some(ScrapeProtocol::OpenMetricsText1_0_0)),
        ("", None),
    ];

    pub(super) fn defaults(native_histograms: bool) -> Vec<ScrapeProtocol> {
        let proto = native_histograms.then_some(ScrapeProtocol::PrometheusProto);
        let texts = [
            ScrapeProtocol::OpenMetricsText1_0_0,
            ScrapeProtocol::OpenMetricsText0_0_1,
            ScrapeProtocol::PrometheusText1_0_0,
            ScrapeProtocol::PrometheusText0_0_4,
        ];
        proto.into_iter().chain(texts).collect()
    }

    /// The media type that a scrape asks for.
    pub fn media_type(self) -> &'static str {
        match self {
            ScrapeProtocol::PrometheusProto => {
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                 encoding=delimited"
            }
            ScrapeProtocol::PrometheusText0_0_4 => "text/plain;version=0.0.4",
            ScrapeProtocol::PrometheusText1_0_0 => "text/plain;version=1.0.0",
            ScrapeProtocol::OpenMetricsText0_0_1 => "application/openmetrics-text;version=0.0.1",
            ScrapeProtocol::OpenMetricsText1_0_0 => "application/openmetrics-text;version=1.0.0",
        }
    }
}

/// The schemes of names. A job that names a scheme does not take the escaping of `global`.
pub(super) fn read_names(
    fields: &mut Fields<'_>,
    global: Option<(NameScheme, Escaping)>,
) -> (NameScheme, Escaping) {
    let schemes =
        [("utf8", Some(NameScheme::Utf8)), ("legacy", Some(NameScheme::Legacy)), ("", None)];
    let doc = "Valid names of metrics and labels.";
    let key = "metric_name_validation_scheme";
    let given = fields.optional_choice(key, &schemes, doc).flatten();
    let names = given.or(global.map(|(names, _)| names)).unwrap_or_default();
    let escapings = [
        ("allow-utf-8", Some(Escaping::AllowUtf8)),
        ("underscores", Some(Escaping::Underscores)),
        ("dots", Some(Escaping::Dots)),
        ("values", Some(Escaping::Values)),
        ("", None),
    ];
    let doc = "Escaping that targets are asked for.";
    let key = "metric_name_escaping_scheme";
    let chosen = fields.optional_choice(key, &escapings, doc).flatten();
    let of_scheme = match names {
        NameScheme::Utf8 => Escaping::AllowUtf8,
        NameScheme::Legacy => Escaping::Underscores,
    };
    let inherited = global.filter(|_| given.is_none()).map(|(_, escaping)| escaping);
    let escaping = chosen.or(inherited).unwrap_or(of_scheme);
    if escaping == Escaping::AllowUtf8 && names == NameScheme::Legacy {
        let message = "cannot be `allow-utf-8` with `metric_name_validation_scheme: legacy`";
        fields.error_at(key, message);
    }
    (names, escaping)
}

impl Limits {
    /// A job's limits, of which 0 stands for that of `global`.
    pub(super) fn read(fields: &mut Fields<'_>, global: &Limits) -> Limits {
        let doc = "A scrape with a larger answer fails, inflated. 0: no limit.";
        let body = fields.text("body_size_limit", "a size", None, doc, units::size);
        let mut count = |key: &str, what: &str, global: u64| {
            let doc = format!("{what} 0: no limit.");
            let given = fields.integer(key, 0, 0..=u64::MAX, &doc);
            if given == 0 { global } else { given }
        };
        let fails = "A scrape with more samples after relabelling fails.";
        let samples = count("sample_limit", fails, global.samples);
        let fails = "If the job has more targets after relabelling, all its scrapes fail.";
        let targets = count("target_limit", fails, global.targets);
        let fails = "A scrape with more labels of a sample fails.";
        let labels = count("label_limit", fails, global.labels);
        let fails = "A scrape with a longer name of a label fails.";
        let label_name_bytes = count("label_name_length_limit", fails, global.label_name_bytes);
        let fails = "A scrape with a longer value of a label fails.";
        let label_value_bytes = count("label_value_length_limit", fails, global.label_value_bytes);
        let body_bytes = body.filter(|bytes| *bytes > 0).unwrap_or(global.body_bytes);
        Limits { body_bytes, samples, targets, labels, label_name_bytes, label_value_bytes }
    }
}

pub(super) fn read_histograms(fields: &mut Fields<'_>, global: Histograms) -> Histograms {
    let doc = "Scrape native histograms.";
    let scrape_native = fields.boolean("scrape_native_histograms", global.scrape_native, doc);
    let doc = "Scrape classic histograms as native ones with custom buckets: one sample each. In \
               OTLP they are the same.";
    let key = "convert_classic_histograms_to_nhcb";
    let convert_classic = fields.boolean(key, global.convert_classic, doc);
    let doc = "Scrape classic histograms also if there are native ones, or they become such.";
    let key = "always_scrape_classic_histograms";
    let always_scrape_classic = fields.boolean(key, global.always_scrape_classic, doc);
    Histograms { scrape_native, convert_classic, always_scrape_classic }
}

pub(super) fn read_extra_metrics(fields: &mut Fields<'_>, global: bool) -> bool {
    let doc = "Also report the timeout, the limit of samples and the size of each scrape.";
    fields.boolean("extra_scrape_metrics", global, doc)
}

/// Options that a Prometheus server shows on its pages.
pub(super) fn no_server_options(fields: &mut Fields<'_>) {
    let why = "targets that relabelling drops are counted, and not kept";
    fields.no_effect("keep_dropped_targets", why);
    fields.no_effect("scrape_failure_log_file", "failed scrapes are in Sluice's own log");
}
