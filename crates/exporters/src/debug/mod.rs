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
use sluice_flow::{BoxFuture, Exporter, Outcome, PackError, Packed};
use sluice_net::compress;
use sluice_otlp::{Malformed, Signal, Sizes, SplitLimits, parts, wire};
use sluice_telemetry::logging;
use sluice_telemetry::sampler::Sampler;

use crate::exporter::{BuildContext, BuildError, ExporterConfig};
use crate::files;
use crate::json::to_json;
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
        };
        Ok(Arc::new(DebugExporter::new(shared, outputs)))
    }
}

/// Empty: the log.
type Outputs = Vec<Box<dyn Write + Send>>;

struct DebugExporter {
    shared: Arc<Shared>,
    /// Waiting for its turn blocks no thread, and a request that leaves meanwhile is not written.
    outputs: Arc<tokio::sync::Mutex<Outputs>>,
}

impl DebugExporter {
    fn new(shared: Shared, outputs: Outputs) -> DebugExporter {
        let outputs = Arc::new(tokio::sync::Mutex::new(outputs));
        DebugExporter { shared: Arc::new(shared), outputs }
    }
}

struct Shared {
    name: String,
    config: DebugConfig,
    sampler: Mutex<Sampler>,
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

/// A request is rendered in pieces: its text, and what it is made from, take far more memory.
const PIECE: SplitLimits = SplitLimits { max_bytes: 256 * 1024, max_items: 10_000 };
/// Of a piece as JSON. An item that takes more is not written, but named.
const JSON_LIMIT_BYTES: usize = 1024 * 1024;

impl Shared {
    /// Renders and writes. Blocks.
    fn write(&self, outputs: &mut Outputs, request: &Packed) -> Result<(), String> {
        let (signal, body) = (request.signal, compress::joined(&request.chunks));
        let mut write = |message: &str, fields: &str| {
            if self.config.use_internal_logger {
                let reports = logging::reports();
                reports.into_iter().for_each(|it| it.write(&[(message, fields)]));
                return Ok(());
            }
            let head = if fields.is_empty() { String::new() } else { format!("\t{{{fields}}}\n") };
            outputs.iter_mut().try_for_each(|output| {
                let written = output.write_all(message.as_bytes());
                let written = written.and_then(|()| output.write_all(head.as_bytes()));
                let written = written.and_then(|()| output.flush());
                written.map_err(|error| format!("cannot write: {error}"))
            })
        };
        let (title, fields) = self.head(signal, request.items, &body);
        write(title, &fields)?;
        let render = match self.config.verbosity {
            Verbosity::Basic => return Ok(()),
            Verbosity::Normal => normal::render,
            Verbosity::Detailed => detailed::render,
        };
        let cannot_read = |error: Malformed| error.to_string();
        let mut stack = vec![parts(signal, &body, PIECE).map_err(cannot_read)?];
        while let Some(pieces) = stack.last_mut() {
            let Some(piece) = pieces.next().transpose().map_err(cannot_read)? else {
                stack.pop();
                continue;
            };
            let Sizes { items, len_bytes, .. } = piece.sizes;
            match to_json(signal, &[piece.bytes()], JSON_LIMIT_BYTES) {
                Ok(json) => {
                    let json = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
                    write(&text::without_controls(render(signal, &json)), "")?;
                }
                Err(PackError::TooLarge(_)) if items > 1 => {
                    let max_items = (items as usize).div_ceil(2);
                    stack.push(piece.parts(SplitLimits { max_items, ..PIECE }));
                }
                Err(PackError::TooLarge(_)) => {
                    write(&format!("(an item of {len_bytes} bytes is not written)\n"), "")?;
                }
                Err(PackError::Failed(reason)) => return Err(reason),
            }
        }
        Ok(())
    }

    /// The request's title, and its fields as members of a JSON object.
    fn head(&self, signal: Signal, items: u32, body: &[u8]) -> (&'static str, String) {
        let (title, counts) = summary(signal, items, body);
        let name = Value::from(self.name.as_str());
        let fields =
            format!("\"otelcol.component.id\": {name}, \"otelcol.signal\": \"{signal}\", {counts}");
        (title, fields)
    }
}

fn summary(signal: Signal, items: u32, body: &[u8]) -> (&'static str, String) {
    let count = messages(body, 1).count();
    match signal {
        Signal::Traces => ("Traces", format!("\"resource spans\": {count}, \"spans\": {items}")),
        Signal::Logs => ("Logs", format!("\"resource logs\": {count}, \"log records\": {items}")),
        Signal::Metrics => {
            let scopes = messages(body, 1).flat_map(|resource| messages(resource, 2));
            let metrics: usize = scopes.map(|scope| messages(scope, 2).count()).sum();
            let counts = format!(
                "\"resource metrics\": {count}, \"metrics\": {metrics}, \"data points\": {items}"
            );
            ("Metrics", counts)
        }
    }
}

/// The messages with this number within a message.
fn messages(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    let mut fields = wire::Fields::of(message);
    std::iter::from_fn(move || {
        let field = fields.next_message(number).ok().flatten()?;
        Some(&message[field.content()])
    })
}

impl Exporter for DebugExporter {
    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        let Shared { config, sampler, .. } = &*self.shared;
        let is_silent = config.use_internal_logger && logging::reports().is_none();
        if is_silent || !sampler.lock().takes(config.sampling, Instant::now()) {
            return Box::pin(std::future::ready(Outcome::Delivered));
        }
        let (shared, outputs, request) =
            (self.shared.clone(), self.outputs.clone(), request.clone());
        Box::pin(async move {
            let mut outputs = outputs.lock_owned().await;
            let write = move || shared.write(&mut outputs, &request);
            let written = tokio::task::spawn_blocking(write).await;
            match written.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(()) => Outcome::Delivered,
                Err(reason) => Outcome::Rejected { reason },
            }
        })
    }

    /// None, as in the Collector: a request that was left halfway would be written again.
    fn timeout(&self) -> Duration {
        Duration::MAX
    }
}
