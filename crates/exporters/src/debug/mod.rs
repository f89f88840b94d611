//! Writes requests as text, for people. Best effort: no sender waits for it.

mod detailed;
#[cfg(test)]
mod limit_tests;
mod normal;
#[cfg(test)]
mod tests;
mod text;

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use sluice_config::document::LogSampling;
use sluice_config::{ComponentKind, Fields, Kind};
use sluice_flow::{BoxFuture, Exporter, Outcome, PackError, Packed};
use sluice_net::compress;
use sluice_otlp::{Halving, Malformed, Signal, SplitLimits, wire};
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
        path => match files::open(path.as_ref(), 0o640) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) => Err(format!("cannot open {path}: {error}").into()),
        },
    }
}

/// A request is rendered in pieces: its text, and what it is made from, take far more memory.
const PIECE: SplitLimits = SplitLimits { max_bytes: 256 * 1024, max_items: 10_000 };
/// Of a piece as JSON. Items that take more, with the headers that they share, are not written.
const JSON_LIMIT_BYTES: usize = 1024 * 1024;
/// Of all pieces of a request: each repeats headers, and writes a line or more for two bytes.
const TEXT_LIMIT_BYTES: usize = 64 * 1024 * 1024;

/// Items of a request that are not in its text.
#[derive(Default)]
struct Unwritten {
    too_large: u32,
    /// Behind the end of the text.
    behind: u32,
}

impl Unwritten {
    /// A line for each reason.
    fn lines(&self) -> String {
        let Unwritten { too_large, behind } = self;
        let mut lines = String::new();
        if *too_large > 0 {
            let limit_mib = JSON_LIMIT_BYTES >> 20;
            lines += &format!(
                "({too_large} items are not written: with its resource, scope and metric each \
                 takes more than {limit_mib} MiB as JSON)\n"
            );
        }
        if *behind > 0 {
            let limit_mib = TEXT_LIMIT_BYTES >> 20;
            lines += &format!(
                "({behind} more items are not written: the text of a request has at most \
                 {limit_mib} MiB)\n"
            );
        }
        lines
    }
}

impl Shared {
    /// Renders and writes. Blocks.
    fn write(&self, outputs: &mut Outputs, request: &Packed) -> Result<(), String> {
        let (signal, body) = (request.signal, compress::joined(&request.chunks));
        let mut write = |message: &str, fields: &str| {
            if self.config.use_internal_logger {
                let reports = logging::reports();
                reports.into_iter().for_each(|it| it.write(message, fields));
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
        let write_text = |text: &str| write(text, "");
        let unwritten = write_pieces(signal, &body, request.items, render, write_text)?;
        let lines = unwritten.lines();
        if lines.is_empty() { Ok(()) } else { write(&lines, "") }
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

/// Writes the text of a request, piece by piece, up to its limit.
fn write_pieces(
    signal: Signal,
    body: &Bytes,
    items: u32,
    render: fn(Signal, &Value) -> String,
    mut write: impl FnMut(&str) -> Result<(), String>,
) -> Result<Unwritten, String> {
    let cannot_read = |error: Malformed| error.to_string();
    let mut pieces = Halving::new(signal, body, PIECE).map_err(cannot_read)?;
    let (mut unwritten, mut written, mut text_bytes) = (Unwritten::default(), 0, 0);
    while let Some(piece) = pieces.next() {
        let piece = piece.map_err(cannot_read)?;
        match to_json(signal, &[piece.bytes()], JSON_LIMIT_BYTES) {
            Ok(json) => {
                let json = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
                let text = text::without_controls(render(signal, &json));
                text_bytes += text.len();
                if text_bytes > TEXT_LIMIT_BYTES {
                    unwritten.behind = items.saturating_sub(written + unwritten.too_large);
                    break;
                }
                write(&text)?;
                written += piece.sizes.items;
            }
            Err(PackError::TooLarge(_)) => {
                let can_shrink = piece.dominant_header_bytes().is_none();
                if !(can_shrink && pieces.halve(&piece)) {
                    unwritten.too_large += piece.sizes.items;
                }
            }
            Err(PackError::Failed(reason)) => return Err(reason),
        }
    }
    Ok(unwritten)
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
