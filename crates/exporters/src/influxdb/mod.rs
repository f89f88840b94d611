//! Metrics as InfluxDB's line protocol over HTTP, by the APIs of 1.x, 2.x and 3.
//!
//! A request is written as lines when it is packed; the times of its points are settled before, in
//! `apart`, so that each attempt writes the same points. `url` has the paths, `answer` what an
//! answer means, and `create` makes a database of 1.x that is missing.

mod answer;
mod apart;
mod config;
mod create;
mod note;
#[cfg(test)]
mod tests;
mod url;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, StatusCode};
use sluice_config::{ComponentKind, Kind, shown_url};
use sluice_flow::{Exporter, ItemNames, PackError, Packed};
use sluice_influx::{Form, WriteError, Written, write_counted};
use sluice_net::client::{Origin, Secrets};
use sluice_net::compress::{compress, joined};
use sluice_otlp::{Encoding, Signal};

use crate::client_options::ClientOptions;
use crate::connections::Destination;
use crate::exporter::{
    BatchItems, BuildContext, BuildError, ExporterConfig, LastStep, NamedTarget,
};
use crate::network::{Answered, NetworkExporter, Protocol};
use crate::note::body_and_note;
use apart::Apart;
use config::InfluxConfig;
use create::CreateDatabase;
use note::{Measurements, Note, note_measurement};

/// InfluxDB is fastest with 5,000 to 10,000 lines a request.
const FULL_LINES: usize = 5_000;

/// A server that needs longer than the timeout for fewer lines is not helped by more requests.
const LEAST_LINES: usize = 100;

/// Lines grow in a buffer that is doubled, beside the one before; compression needs another.
const WRITING_FACTOR: usize = 4;

pub(crate) const KIND: ComponentKind<Box<dyn ExporterConfig>> = ComponentKind::new(
    Kind {
        signals: &[Signal::Metrics],
        ..Kind::new("influxdb", "Sends metrics by InfluxDB's line protocol over HTTP")
    },
    |fields| Box::new(InfluxConfig::read(fields)),
);

impl ExporterConfig for InfluxConfig {
    fn client(&self) -> Option<&ClientOptions> {
        Some(&self.client)
    }

    fn open_files(&self, requests: usize) -> usize {
        self.connections.http.connections.map_or(requests, |most| requests.min(most))
    }

    fn destinations(&self) -> Vec<NamedTarget> {
        let Ok(origin) = Origin::of(&self.url) else { return Vec::new() };
        let (target, tls) = (Some(origin.target), Some(origin.tls));
        vec![NamedTarget { option: "endpoint", text: shown_url(&self.url), target, tls }]
    }

    fn batch_items(&self) -> Option<BatchItems> {
        let most = self.max_lines;
        Some(BatchItems { full: FULL_LINES.min(most), most, least: LEAST_LINES.min(most) })
    }

    fn last_step(&self) -> Option<Arc<dyn LastStep>> {
        let precision = self.precision;
        self.moved.map(|moved| Arc::new(Apart { moved, precision }) as Arc<dyn LastStep>)
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
        let Origin { uri, target, tls } = Origin::of(&self.url)?;
        let client = self.connections.client(&self.client, target, tls)?;
        let form = Form {
            limit_bytes: self.client.max_request_bytes,
            precision: self.precision,
            needs_times: true,
        };
        let create_database = match &self.created {
            Some(created) => {
                let Origin { uri, .. } = Origin::of(&created.query_url)?;
                let queries = Destination { uri, client: client.clone() };
                Some(CreateDatabase::new(context.name, &created.name, queries))
            }
            None => None,
        };
        let protocol = Influx {
            form,
            encoding: self.encoding,
            level: self.client.compression_level,
            own_query: self.own_query.clone(),
            create_database,
            destination: Destination { uri, client },
        };
        let headers = |encoding| headers(self, context, encoding);
        Ok(Arc::new(NetworkExporter::new(protocol, None, headers, &self.client, context)?))
    }
}

fn headers(config: &InfluxConfig, context: &BuildContext<'_>, encoding: Encoding) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, context.user_agent.clone());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.extend(config.client.headers.clone());
    if encoding == Encoding::Gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers
}

struct Influx {
    form: Form,
    encoding: Encoding,
    level: Option<i32>,
    /// The query of the endpoint itself. What Sluice adds to it are names, which answers may say.
    own_query: Option<String>,
    create_database: Option<CreateDatabase>,
    destination: Destination,
}

impl Protocol for Influx {
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        let request = joined(&chunks);
        let mut lines = Vec::with_capacity(request.len().min(self.form.limit_bytes));
        let mut measurements = Vec::new();
        let note = &mut |name: &[u8], part: Written| {
            note_measurement(name, &part, &mut measurements);
        };
        let written = write_counted(&self.form, &request, &mut lines, note);
        let written = written.map_err(|error| match error {
            WriteError::Malformed(error) => PackError::Failed(error.to_string()),
            WriteError::TooLong { limit_bytes } => {
                let reason = format!("more than {limit_bytes} bytes of lines (payload_max_bytes)");
                PackError::TooLarge(reason)
            }
        })?;
        drop((request, chunks));
        let note = Note::of(&written).to_bytes(&measurements);
        if lines.is_empty() || self.encoding == Encoding::Identity {
            return Ok((vec![lines.into(), note], Encoding::Identity));
        }
        let body = compress(self.encoding, &[lines.into()], self.level);
        Ok((vec![body.map_err(|error| error.to_string())?, note], self.encoding))
    }

    /// The chunks as one, and lines, each of which repeats what the points of a resource share.
    fn packing_bytes(&self, request_bytes: usize, items: usize) -> usize {
        // Two bytes for each that is escaped.
        let line_bytes = request_bytes.saturating_mul(2);
        let lines_bytes = line_bytes.saturating_mul(items).min(self.form.limit_bytes);
        let written_bytes = lines_bytes.max(request_bytes).saturating_mul(WRITING_FACTOR);
        // The last line may go beyond the limit.
        request_bytes.saturating_add(line_bytes).saturating_add(written_bytes)
    }

    fn item_names(&self) -> Option<&dyn ItemNames> {
        Some(&Measurements)
    }

    fn secrets<'a>(&'a self, _: Signal, headers: &'a HeaderMap) -> Secrets<'a> {
        let proxy = self.destination.client.clear_proxy();
        Secrets::of(headers).and_proxy(proxy).and_query(self.own_query.as_deref())
    }

    async fn send(&self, request: &Packed, headers: &HeaderMap) -> Answered {
        let (body, note) = match body_and_note(request) {
            Ok(parts) => parts,
            Err(outcome) => return Ok((outcome, false)),
        };
        let note = Note::from_bytes(note);
        if body.is_empty() {
            return Ok((answer::of_nothing(note), false));
        }
        let (body, sent) = (Arc::from([body.clone()]), Instant::now());
        let mut answer = self.destination.post(headers, &body).await?;
        let secrets = self.secrets(request.signal, headers);
        if let Some(database) = &self.create_database
            && create::is_missing(&answer)
        {
            if let Some(refused) = database.create(sent, headers, &secrets).await? {
                return Ok(refused);
            }
            answer = self.destination.post(headers, &body).await?;
        }
        let outcome = answer::of(note, &answer, &secrets);
        Ok((outcome, answer.status == StatusCode::UNAUTHORIZED))
    }

    fn shut_down(&self) {
        self.destination.client.shut_down();
    }
}
