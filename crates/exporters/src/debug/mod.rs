//! Writes requests as text, for people. Best effort: no sender waits for it.

mod detailed;
mod normal;
#[cfg(test)]
mod tests;
mod text;

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use sluice_config::document::LogSampling;
use sluice_config::{ComponentKind, Fields, Kind};
use sluice_flow::{BoxFuture, Exporter, Outcome, Packed};
use sluice_otlp::Signal;
use sluice_telemetry::logging;
use sluice_telemetry::sampler::Sampler;

use crate::exporter::{BuildContext, BuildError, ExporterConfig};
use crate::files;
use crate::sending::Sending;

pub(crate) const KIND: ComponentKind<Box<dyn ExporterConfig>> = ComponentKind::new(
    Kind::new("debug", "Writes telemetry as text for people to read").aliases(&["logging"]),
    |fields| Box::new(DebugConfig::read(fields)),
);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verbosity {
    Basic,
    Normal,
    Detailed,
}

#[derive(Clone, Debug)]
struct DebugConfig {
    verbosity: Verbosity,
    sampling: LogSampling,
    use_internal_logger: bool,
    output_paths: Vec<String>,
    sending: Sending,
}

const LEVELS: [(&str, Verbosity); 3] =
    [("basic", Verbosity::Basic), ("normal", Verbosity::Normal), ("detailed", Verbosity::Detailed)];

impl DebugConfig {
    fn read(fields: &mut Fields<'_>) -> DebugConfig {
        let doc = "`basic`: one line for each request; `normal`: one line for each item; \
                   `detailed`: every field.";
        let verbosity = fields.choice("verbosity", Verbosity::Basic, &LEVELS, doc);
        fields.no_effect("loglevel", "the Collector has removed it; use `verbosity`");
        let doc = "Number of requests that are written in each second.";
        let initial = fields.integer("sampling_initial", 2, 0..=u64::MAX, doc);
        let doc = "Of further requests in that second, every n-th is written. 0: none.";
        let thereafter = fields.integer("sampling_thereafter", 1, 0..=u64::MAX, doc);
        let doc = "If true, write to the log (`service.telemetry.logs`): to its output, in its \
                   encoding, and only if its level is `info` or `debug`. If false, write to \
                   `output_paths`, without time and level.";
        let use_internal_logger = fields.boolean("use_internal_logger", true, doc);
        let doc = "`stdout`, `stderr` or files, if `use_internal_logger` is false.";
        let output_paths = fields.string_list("output_paths", &["stdout"], doc);
        let sending = Sending::read_queue(fields);
        if use_internal_logger && fields.is_given("output_paths") {
            fields.error_at("output_paths", "needs `use_internal_logger: false`");
        }
        if output_paths.is_empty() {
            fields.error_at("output_paths", "must not be empty");
        }
        let sampling = LogSampling { tick: Duration::from_secs(1), initial, thereafter };
        DebugConfig { verbosity, sampling, use_internal_logger, output_paths, sending }
    }
}

impl ExporterConfig for DebugConfig {
    fn sending(&self) -> &Sending {
        &self.sending
    }

    fn is_best_effort(&self) -> bool {
        true
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
        let paths = self.output_paths.iter().filter(|_| !self.use_internal_logger);
        let outputs = paths.map(|path| output(path)).collect::<Result<_, _>>()?;
        let shared = Shared {
            name: context.name.to_owned(),
            config: self.clone(),
            sampler: Mutex::default(),
            outputs: Mutex::new(outputs),
        };
        Ok(Arc::new(DebugExporter(Arc::new(shared))))
    }
}

struct DebugExporter(Arc<Shared>);

struct Shared {
    name: String,
    config: DebugConfig,
    sampler: Mutex<Sampler>,
    /// Empty: the log.
    outputs: Mutex<Vec<Box<dyn Write + Send>>>,
}

fn output(path: &str) -> Result<Box<dyn Write + Send>, BuildError> {
    match path {
        "stdout" => Ok(Box::new(std::io::stdout())),
        "stderr" => Ok(Box::new(std::io::stderr())),
        path => match files::open(path.as_ref()) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) => Err(format!("cannot open {path}: {error}").into()),
        },
    }
}

impl Shared {
    /// Renders and writes. Blocks.
    fn write(&self, request: &Packed) -> Result<(), String> {
        let json = crate::json::to_json(request.signal, &request.chunks)?;
        let json = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
        let [head, fields, items] = self.render(request.signal, request.items, &json);
        if self.config.use_internal_logger {
            if let Some(reports) = logging::reports() {
                let messages = [(&*head, &*fields), (&*items, "")];
                reports.write(if items.is_empty() { &messages[..1] } else { &messages });
            }
            return Ok(());
        }
        let text = format!("{head}\t{{{fields}}}\n{items}");
        for output in &mut *self.outputs.lock() {
            let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
            written.map_err(|error| format!("cannot write: {error}"))?;
        }
        Ok(())
    }

    /// The request's title, its fields as members of a JSON object, and its items.
    fn render(&self, signal: Signal, items: u32, json: &Value) -> [String; 3] {
        let (title, counts) = summary(signal, items, json);
        let name = Value::from(self.name.as_str());
        let fields =
            format!("\"otelcol.component.id\": {name}, \"otelcol.signal\": \"{signal}\", {counts}");
        let items = match self.config.verbosity {
            Verbosity::Basic => String::new(),
            Verbosity::Normal => normal::render(signal, json),
            Verbosity::Detailed => detailed::render(signal, json),
        };
        [title.to_owned(), fields, text::without_controls(items)]
    }
}

fn summary(signal: Signal, items: u32, json: &Value) -> (&'static str, String) {
    let [resources, scopes, entries] = text::members(signal);
    let resources = text::list(json, resources);
    let count = resources.len();
    match signal {
        Signal::Traces => ("Traces", format!("\"resource spans\": {count}, \"spans\": {items}")),
        Signal::Logs => ("Logs", format!("\"resource logs\": {count}, \"log records\": {items}")),
        Signal::Metrics => {
            let scopes = resources.iter().flat_map(|resource| text::list(resource, scopes));
            let metrics: usize = scopes.map(|scope| text::list(scope, entries).len()).sum();
            let counts = format!(
                "\"resource metrics\": {count}, \"metrics\": {metrics}, \"data points\": {items}"
            );
            ("Metrics", counts)
        }
    }
}

impl Exporter for DebugExporter {
    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        let is_silent = self.0.config.use_internal_logger && logging::reports().is_none();
        if is_silent || !self.0.sampler.lock().takes(self.0.config.sampling, Instant::now()) {
            return Box::pin(std::future::ready(Outcome::Delivered));
        }
        let (shared, request) = (self.0.clone(), request.clone());
        Box::pin(async move {
            let written = tokio::task::spawn_blocking(move || shared.write(&request)).await;
            match written.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(()) => Outcome::Delivered,
                Err(reason) => Outcome::Rejected { reason },
            }
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(5)
    }
}
