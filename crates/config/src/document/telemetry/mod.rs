//! `service.telemetry`: own metrics and logs. The Collector's options, of old and new releases.

mod push;
mod resource;
mod target;

use std::time::Duration;

pub use push::{LogProcessor, PeriodicReader};
pub use resource::OwnResource;
pub use target::{PushProtocol, PushTarget, Temporality};

use crate::fields::Fields;

#[derive(Clone, Debug, PartialEq)]
pub struct Telemetry {
    /// Listeners for scrapes of own metrics. Empty if `level` is `none`, or there are none.
    pub readers: Vec<PrometheusReader>,
    /// Own metrics that are pushed. Empty if `level` is `none`, too.
    pub periodic: Vec<PeriodicReader>,
    pub logs: OwnLogs,
    pub resource: OwnResource,
}

/// A listener, and how names are written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusReader {
    pub host: String,
    pub port: u16,
    /// Names end in a unit and, if they count, in `_total`.
    pub has_suffixes: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OwnLogs {
    /// `debug`, `info`, `warn` or `error`.
    pub level: &'static str,
    /// JSON lines instead of text for people.
    pub is_json: bool,
    /// `stderr`, `stdout` or a path.
    pub output: String,
    pub sampling: Option<LogSampling>,
    /// Own log lines that are pushed, beside those that are written.
    pub processors: Vec<LogProcessor>,
}

/// Of equal messages within `tick`, the first `initial` are written and then every `thereafter`th.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSampling {
    pub tick: Duration,
    pub initial: u64,
    pub thereafter: u64,
}

impl Default for PrometheusReader {
    /// The Collector's default.
    fn default() -> Self {
        let (host, port) = ("localhost".to_owned(), 8888);
        PrometheusReader { host, port, has_suffixes: false }
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        let (readers, logs) = (vec![PrometheusReader::default()], OwnLogs::default());
        Telemetry { readers, periodic: Vec::new(), logs, resource: OwnResource::default() }
    }
}

const SAMPLING: LogSampling =
    LogSampling { tick: Duration::from_secs(10), initial: 10, thereafter: 100 };

impl Default for OwnLogs {
    fn default() -> Self {
        let (output, sampling) = ("stderr".to_owned(), Some(SAMPLING));
        OwnLogs { level: "info", is_json: false, output, sampling, processors: Vec::new() }
    }
}

pub(super) fn read(fields: &mut Fields<'_>) -> Telemetry {
    fields.no_effect("traces", "Sluice does not trace itself");
    // Its exporters may have headers.
    fields.hide("traces");
    let (readers, periodic) =
        fields.section_or_default("metrics", "Sluice's own metrics.", read_metrics);
    let logs = fields.section_or_default("logs", "Sluice's own logs.", read_logs);
    Telemetry { readers, periodic, logs, resource: resource::read(fields) }
}

/// Of `readers`.
enum Reader {
    Prometheus(PrometheusReader),
    Periodic(PeriodicReader),
}

fn read_metrics(fields: &mut Fields<'_>) -> (Vec<PrometheusReader>, Vec<PeriodicReader>) {
    let levels = ["none", "basic", "normal", "detailed"].map(|level| (level, level));
    let doc = "`none` turns the metrics off; all other levels are the same.";
    let level = fields.choice("level", "normal", &levels, doc);
    if matches!(level, "basic" | "detailed") {
        let message = "makes no difference: the metrics are the same at every level but `none`";
        fields.warn_at("level", message);
    }
    let doc = "Address that Prometheus scrapes, as older Collector releases spell it.";
    let kind = "an address `host:port`";
    let address = fields.parsed("address", kind, None, doc, split_address);
    fields.no_effect("views", "the set of metrics and labels is fixed, and small");
    if fields.is_given("views") && level != "detailed" {
        fields.error_at("views", "can only be set with `level: detailed`");
    }
    let has_readers = fields.is_given("readers");
    if fields.is_empty_list("readers") && level != "none" {
        fields.error_at("readers", "must not be empty: `level: none` turns own metrics off");
    }
    let doc = "Where the metrics go: a listener (`pull`), and backends to which they are sent \
               (`periodic`). Unset: `localhost:8888`, with the Collector's default names.";
    let (mut readers, mut periodic) = (Vec::new(), Vec::new());
    for reader in fields.sections("readers", doc, read_reader).into_iter().flatten() {
        match reader {
            Reader::Prometheus(reader) => readers.push(reader),
            Reader::Periodic(reader) => periodic.push(reader),
        }
    }
    if readers.len() > 1 {
        fields.warn_at("readers", "has more than one `pull`: only the first is served");
    }
    if has_readers && address.is_some() {
        fields.error_at("address", "cannot be given together with `readers`");
    }
    match address {
        _ if level == "none" => (Vec::new(), Vec::new()),
        _ if has_readers => (readers, periodic),
        Some((host, port)) => {
            (vec![PrometheusReader { host, port, ..PrometheusReader::default() }], periodic)
        }
        None => (vec![PrometheusReader::default()], periodic),
    }
}

/// `host:port`, with brackets around an IPv6 host; no host means all interfaces, as for Go.
fn split_address(text: &str) -> Result<(String, u16), String> {
    let (host, port) = text.rsplit_once(':').ok_or("the port is missing")?;
    let port = port.parse().map_err(|_| format!("`{port}` is not a port"))?;
    if host.contains(':') && !host.starts_with('[') {
        return Err("an IPv6 address needs brackets".to_owned());
    }
    let host = without_brackets(host);
    Ok((if host.is_empty() { "0.0.0.0".to_owned() } else { host.to_owned() }, port))
}

fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn read_reader(fields: &mut Fields<'_>) -> Option<Reader> {
    let periodic = fields.section("periodic", "Metrics that are sent.", push::read_periodic);
    let pull = fields.section("pull", "Metrics that are scraped.", |fields| {
        fields.section_or_default("exporter", "The format in which they are scraped.", |fields| {
            let doc = "A listener for Prometheus, at `/metrics`.";
            fields.section("prometheus", doc, read_prometheus)
        })
    });
    match (periodic, pull) {
        (Some(_), Some(_)) => {
            fields.error("has both `periodic` and `pull`: a reader is one of them");
            None
        }
        (Some(periodic), None) => periodic.map(Reader::Periodic),
        (None, Some(pull)) => pull.map(Reader::Prometheus),
        (None, None) => {
            if !fields.is_describing() {
                fields.error("must have `pull` or `periodic`");
            }
            None
        }
    }
}

fn read_prometheus(fields: &mut Fields<'_>) -> PrometheusReader {
    let labels = "resource attributes are labels of every metric";
    fields.no_effect("with_resource_constant_labels", labels);
    let names = "names follow `without_type_suffix` and `without_units`";
    fields.no_effect("translation_strategy", names);
    let doc = "Leave out the labels `otel_scope_*`. Sluice has none.";
    if !fields.boolean("without_scope_info", true, doc) {
        fields.warn_at("without_scope_info", "has no effect: there are no labels `otel_scope_*`");
    }
    let doc = "Leave out `_total` and units, unless `without_units` is false.";
    let without_type_suffix = fields.boolean("without_type_suffix", true, doc);
    let doc = "Leave out units, such as `_seconds`, and `_total`, unless `without_type_suffix` is \
               false.";
    let without_units = fields.boolean("without_units", true, doc);
    PrometheusReader {
        host: without_brackets(&fields.string("host", "localhost", "Address to listen on."))
            .to_owned(),
        port: fields.integer("port", 8888, 0..=u16::MAX, "Port to listen on."),
        // The Collector has one setting for both: either option turns it on.
        has_suffixes: !(without_type_suffix && without_units),
    }
}

fn read_logs(fields: &mut Fields<'_>) -> OwnLogs {
    let default = OwnLogs::default();
    let encodings = [("console", false), ("json", true), ("", false)];
    fields.no_effect("development", "there is only one mode of logging");
    fields.no_effect("disable_caller", "log lines name the component, not the line of code");
    fields.no_effect("disable_stacktrace", "log lines have no stack traces");
    fields.no_effect("error_output_paths", "errors of the logger itself go to standard error");
    fields.no_effect("initial_fields", "log lines have a fixed set of fields");
    let why = "log lines do not have the attributes of `resource`";
    fields.no_effect("disable_zap_resource", why);
    let doc = "Backends to which log lines are sent, beside `output_paths`.";
    let processors = fields.sections("processors", doc, push::read_processor);
    let doc = "`stderr`, `stdout` or the path of a file, which is created with mode 0640.";
    let output_paths = fields.string_list("output_paths", &["stderr"], doc);
    if output_paths.len() > 1 {
        fields.warn_at("output_paths", "has more than one: only the first is written to");
    }
    OwnLogs {
        level: read_level(fields, default.level),
        is_json: fields.choice("encoding", default.is_json, &encodings, "The format of a line."),
        output: output_paths.into_iter().next().unwrap_or(default.output),
        sampling: read_sampling(fields),
        processors: processors.into_iter().flatten().collect(),
    }
}

fn read_level(fields: &mut Fields<'_>, default: &'static str) -> &'static str {
    const LEVELS: [(&str, &str); 9] = [
        ("debug", "debug"),
        ("info", "info"),
        ("warn", "warn"),
        ("error", "error"),
        ("", "info"),
        ("warning", "warn"),
        ("dpanic", ABOVE_ERROR),
        ("panic", ABOVE_ERROR),
        ("fatal", ABOVE_ERROR),
    ];
    /// The Collector has levels above `error`, at which errors are not written.
    const ABOVE_ERROR: &str = "above error";
    let doc = "The lowest level that is written. `warning` is `warn`; `dpanic`, `panic` and \
               `fatal` count as `error`, with a warning.";
    match fields.choice("level", default, &LEVELS, doc) {
        ABOVE_ERROR => {
            fields.warn_at("level", "counts as `error`, which is Sluice's highest level");
            "error"
        }
        level => level,
    }
}

fn read_sampling(fields: &mut Fields<'_>) -> Option<LogSampling> {
    let doc = "Within each `tick`, the first `initial` of equal messages are written, then every \
               `thereafter`th.";
    fields.section_or_default("sampling", doc, |fields| {
        let is_enabled = fields.boolean("enabled", true, "Turns sampling on.");
        let range = Duration::from_millis(1)..=Duration::MAX;
        let tick = fields.duration_in("tick", SAMPLING.tick, range, "The interval.");
        let doc = "Number of equal messages that are written in each interval.";
        let initial = fields.integer("initial", SAMPLING.initial, 0..=u64::MAX, doc);
        let doc = "Of further equal messages, every n-th is written. 0: none.";
        let thereafter = fields.integer("thereafter", SAMPLING.thereafter, 0..=u64::MAX, doc);
        is_enabled.then_some(LogSampling { tick, initial, thereafter })
    })
}
