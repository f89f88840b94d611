//! Writes requests as text, for people. Best effort: no sender waits for it.

mod config;
mod detailed;
mod normal;
mod sampler;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use sluice_config::{ComponentKind, Kind};
use sluice_flow::{BoxFuture, Exporter, Outcome, Packed};
use sluice_otlp::{Encoding, Signal};

pub(crate) use config::DebugConfig;
use config::Verbosity;
use sampler::Sampler;

use crate::build::{BuildContext, BuildError};
use crate::{ExporterConfig, Sending};

pub(crate) const KIND: ComponentKind<Box<dyn ExporterConfig>> = ComponentKind::new(
    Kind::new("debug", "Writes what it gets as text, for people").aliases(&["logging"]),
    |fields| Box::new(DebugConfig::read(fields)),
);

impl ExporterConfig for DebugConfig {
    fn sending(&self) -> &Sending {
        &self.sending
    }

    fn is_best_effort(&self) -> bool {
        true
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
        Ok(Arc::new(DebugExporter::new(self, context)?))
    }
}

pub(crate) struct DebugExporter {
    shared: Arc<Shared>,
    sampler: Sampler,
}

struct Shared {
    name: String,
    verbosity: Verbosity,
    /// With time and level before each text.
    is_log: bool,
    outputs: Mutex<Vec<Box<dyn Write + Send>>>,
}

impl DebugExporter {
    pub(crate) fn new(
        config: &DebugConfig,
        context: &BuildContext<'_>,
    ) -> Result<DebugExporter, BuildError> {
        let outputs = match config.use_internal_logger {
            true => vec![Box::new(std::io::stderr()) as Box<dyn Write + Send>],
            false => {
                config.output_paths.iter().map(|path| output(path)).collect::<Result<_, _>>()?
            }
        };
        let shared = Shared {
            name: context.name.to_owned(),
            verbosity: config.verbosity,
            is_log: config.use_internal_logger,
            outputs: Mutex::new(outputs),
        };
        let sampler = Sampler::new(config.sampling_initial, config.sampling_thereafter);
        Ok(DebugExporter { shared: Arc::new(shared), sampler })
    }
}

fn output(path: &str) -> Result<Box<dyn Write + Send>, BuildError> {
    match path {
        "stdout" => Ok(Box::new(std::io::stdout())),
        "stderr" => Ok(Box::new(std::io::stderr())),
        path => match OpenOptions::new().create(true).append(true).open(path) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) => {
                Err(BuildError::File { path: path.to_owned(), reason: error.to_string() })
            }
        },
    }
}

impl Shared {
    /// Renders and writes. Blocks.
    fn write(&self, request: &Packed) -> Outcome {
        let json = crate::json::to_json(request.signal, &request.chunks).and_then(|json| {
            serde_json::from_slice::<Value>(&json).map_err(|error| error.to_string())
        });
        let json = match json {
            Ok(json) => json,
            Err(reason) => return Outcome::Rejected { reason },
        };
        let text = self.render(request.signal, request.items, &json);
        let mut outputs = self.outputs.lock();
        for output in outputs.iter_mut() {
            if let Err(error) = output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
                return Outcome::Rejected { reason: format!("cannot write: {error}") };
            }
        }
        Outcome::Delivered
    }

    fn render(&self, signal: Signal, items: u32, json: &Value) -> String {
        let (title, counts) = summary(signal, items, json);
        let prefix = match self.is_log {
            true => format!("{}\tinfo\t", text::timestamp(now_nanos())),
            false => String::new(),
        };
        let name = &self.name;
        let fields =
            format!("\"otelcol.component.id\": {name:?}, \"otelcol.signal\": \"{signal}\"");
        let head = format!("{prefix}{title}\t{{{fields}, {counts}}}\n");
        match self.verbosity {
            Verbosity::Basic => head,
            Verbosity::Normal => format!("{head}{prefix}{}", normal::render(signal, json)),
            Verbosity::Detailed => format!("{head}{prefix}{}", detailed::render(signal, json)),
        }
    }
}

fn now_nanos() -> i128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i128::try_from(since.as_nanos()).unwrap_or(0)
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
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), String> {
        Ok((chunks, Encoding::Identity))
    }

    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        if !self.sampler.takes(Instant::now()) {
            return Box::pin(std::future::ready(Outcome::Delivered));
        }
        let (shared, request) = (self.shared.clone(), request.clone());
        Box::pin(async move {
            let written = tokio::task::spawn_blocking(move || shared.write(&request)).await;
            written.unwrap_or_else(|error| Outcome::Rejected { reason: error.to_string() })
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(5)
    }
}
