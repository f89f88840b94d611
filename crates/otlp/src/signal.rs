use std::fmt;

use crate::schema::{self, Message};

/// The three kinds of telemetry that OTLP carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Signal {
    Traces,
    Metrics,
    Logs,
}

const NAMES: [(&str, &str); 3] =
    [("traces", "spans"), ("metrics", "metric_points"), ("logs", "log_records")];

/// Over gRPC and HTTP.
const PATHS: [(&str, &str); 3] = [
    ("/opentelemetry.proto.collector.trace.v1.TraceService/Export", "/v1/traces"),
    ("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", "/v1/metrics"),
    ("/opentelemetry.proto.collector.logs.v1.LogsService/Export", "/v1/logs"),
];

impl Signal {
    pub const ALL: [Signal; 3] = [Signal::Traces, Signal::Metrics, Signal::Logs];

    /// The name that configurations and URL paths use: `traces`, `metrics`, `logs`.
    pub const fn as_str(self) -> &'static str {
        NAMES[self as usize].0
    }

    /// The name of its items in the Collector's metrics: `spans`, `metric_points`, `log_records`.
    pub const fn items_name(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// The gRPC method of the signal's collector service.
    pub const fn grpc_path(self) -> &'static str {
        PATHS[self as usize].0
    }

    /// The default path of OTLP over HTTP.
    pub const fn http_path(self) -> &'static str {
        PATHS[self as usize].1
    }

    /// The export request, as the table of messages has it.
    pub(crate) fn request(self) -> &'static Message {
        [&schema::TRACES_REQUEST, &schema::METRICS_REQUEST, &schema::LOGS_REQUEST][self as usize]
    }

    pub fn from_name(name: &str) -> Option<Signal> {
        Signal::ALL.into_iter().find(|signal| signal.as_str() == name)
    }

    pub fn from_grpc_path(path: &str) -> Option<Signal> {
        Signal::ALL.into_iter().find(|signal| signal.grpc_path() == path)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
