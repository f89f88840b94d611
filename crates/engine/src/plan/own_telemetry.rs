//! Where own telemetry goes.

use std::fmt::Write as _;
use std::time::Duration;

use sluice_config::document::{
    LogProcessor, OwnResource, PeriodicReader, PushProtocol, PushTarget, Telemetry,
};
use sluice_config::{Diagnostic, Diagnostics, shown_url};
use sluice_exporters::direct::{Direct, DirectProtocol};
use sluice_net::client::client_headers;
use sluice_otlp::AnyValue;
use sluice_telemetry::otlp::Resource;

use super::MIB;
use crate::process;

/// For what waits for one destination. All together have at most `ALL_QUEUES_BYTES`.
const QUEUE_BYTES: usize = 512 << 10;
const ALL_QUEUES_BYTES: usize = 4 * MIB as usize;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnTelemetryPlan {
    pub readers: Vec<Push<PeriodicReader>>,
    pub processors: Vec<Push<LogProcessor>>,
    /// Attributes of the process, with the defaults.
    pub(crate) attributes: Vec<(String, AnyValue)>,
    schema_url: Option<String>,
    /// Limit of the memory that waits for one destination.
    pub(crate) queue_bytes: usize,
}

/// One destination.
#[derive(Clone, Debug)]
pub struct Push<T> {
    pub options: T,
    /// Its place under `service.telemetry`: `metrics.readers[0]`.
    pub name: String,
    pub(crate) direct: Direct,
}

impl<T: PartialEq> PartialEq for Push<T> {
    fn eq(&self, other: &Self) -> bool {
        // All else follows from the options.
        (&self.options, &self.name) == (&other.options, &other.name)
    }
}

impl<T> Push<T> {
    pub(crate) fn shown_endpoint(&self) -> String {
        shown_url(&self.direct.endpoint)
    }
}

impl OwnTelemetryPlan {
    pub(super) fn new(telemetry: &Telemetry, diagnostics: &mut Diagnostics) -> OwnTelemetryPlan {
        let readers = telemetry.periodic.iter();
        let readers = readers.filter_map(|it| push(it, &it.target, diagnostics)).collect();
        let processors = telemetry.logs.processors.iter();
        let processors: Vec<_> =
            processors.filter_map(|it| push(it, &it.target, diagnostics)).collect();
        let mut plan = OwnTelemetryPlan {
            readers,
            processors,
            attributes: attributes(&telemetry.resource),
            schema_url: telemetry.resource.schema_url.clone(),
            queue_bytes: 0,
        };
        plan.queue_bytes = QUEUE_BYTES.min(ALL_QUEUES_BYTES / plan.pushes().max(1));
        plan
    }

    fn pushes(&self) -> usize {
        self.readers.len() + self.processors.len()
    }

    /// The memory of all that waits.
    pub(super) fn bytes(&self) -> u64 {
        (self.pushes() * self.queue_bytes) as u64
    }

    pub(crate) fn has_same_resource(&self, other: &OwnTelemetryPlan) -> bool {
        (&self.attributes, &self.schema_url) == (&other.attributes, &other.schema_url)
    }

    pub(crate) fn resource(&self) -> Resource {
        Resource::new(&self.attributes, self.schema_url.as_deref(), env!("CARGO_PKG_VERSION"))
    }

    pub(super) fn describe(&self, text: &mut String) {
        for push in &self.readers {
            let interval = push.options.interval;
            let _ = writeln!(text, "Own metrics go every {interval:?} {}.", push.destination());
        }
        for push in &self.processors {
            let when = match push.options.delay {
                Duration::ZERO => "at once".to_owned(),
                delay => format!("within {delay:?}"),
            };
            let _ = writeln!(text, "Own log lines go {when} {}.", push.destination());
        }
        if self.pushes() > 0 {
            let kib = self.queue_bytes >> 10;
            let _ = writeln!(
                text,
                "  Of what cannot be sent, {kib} KiB wait for each; then the oldest is dropped.\n"
            );
        }
    }
}

impl<T> Push<T> {
    fn destination(&self) -> String {
        let protocol = match self.direct.protocol {
            DirectProtocol::Grpc => "gRPC",
            DirectProtocol::Http { is_json: false } => "HTTP",
            DirectProtocol::Http { is_json: true } => "HTTP, as JSON",
        };
        format!("to {} over {protocol} ({})", self.shown_endpoint(), self.name)
    }
}

/// The destination of these options; `None` with an error if they cannot be used.
fn push<T: Clone>(
    options: &T,
    target: &PushTarget,
    diagnostics: &mut Diagnostics,
) -> Option<Push<T>> {
    let (headers, problems) = client_headers(&target.headers);
    let mut error = |option: &str, problem: &str| {
        let message = format!("`{}.{option}` {problem}", target.path);
        diagnostics.push(Diagnostic::error(target.span, message));
    };
    problems.iter().for_each(|problem| error("headers", problem));
    let direct = Direct {
        protocol: match target.protocol {
            PushProtocol::Grpc => DirectProtocol::Grpc,
            PushProtocol::Http => DirectProtocol::Http { is_json: false },
            PushProtocol::HttpJson => DirectProtocol::Http { is_json: true },
        },
        endpoint: target.endpoint.clone(),
        headers,
        is_packed: target.is_packed,
        timeout: target.timeout.max(Duration::from_millis(1)),
        ca_file: target.ca_file.clone(),
        cert_file: target.cert_file.clone(),
        key_file: target.key_file.clone(),
    };
    if let Some(problem) = direct.problem() {
        error("endpoint", &format!("cannot be used: {problem}"));
        return None;
    }
    let name = target.path.trim_start_matches("service.telemetry.");
    let name = name.split_once(']').map_or(name, |(name, _)| name);
    Some(Push { options: options.clone(), name: format!("{name}]"), direct })
}

/// The defaults of the Collector, and what the file sets or removes.
fn attributes(resource: &OwnResource) -> Vec<(String, AnyValue)> {
    let text = |name: &str, value: &str| (name.to_owned(), AnyValue::String(value.to_owned()));
    let mut attributes = vec![
        text("service.name", "sluice"),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("service.instance.id", process::instance_id()),
    ];
    for (name, value) in &resource.attributes {
        attributes.retain(|(other, _)| other != name);
        attributes.extend(value.clone().map(|value| (name.clone(), value)));
    }
    attributes
}
