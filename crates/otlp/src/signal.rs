use std::fmt;

use crate::schema::{self, Message};

/// The three kinds of telemetry that OTLP carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Signal {
    Traces,
    Metrics,
    Logs,
}

impl Signal {
    pub const ALL: [Signal; 3] = [Signal::Traces, Signal::Metrics, Signal::Logs];

    /// The name that configurations and URL paths use: `traces`, `metrics`, `logs`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Signal::Traces => "traces",
            Signal::Metrics => "metrics",
            Signal::Logs => "logs",
        }
    }

    /// What one item is called in the Collector's metric names: `spans`, `metric_points`,
    /// `log_records`.
    pub const fn items_name(self) -> &'static str {
        match self {
            Signal::Traces => "spans",
            Signal::Metrics => "metric_points",
            Signal::Logs => "log_records",
        }
    }

    /// The gRPC method of the signal's collector service.
    pub const fn grpc_path(self) -> &'static str {
        match self {
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        }
    }

    /// The default path of OTLP over HTTP.
    pub const fn http_path(self) -> &'static str {
        match self {
            Signal::Traces => "/v1/traces",
            Signal::Metrics => "/v1/metrics",
            Signal::Logs => "/v1/logs",
        }
    }

    /// The export request, as the table of messages has it.
    pub(crate) fn request(self) -> &'static Message {
        match self {
            Signal::Traces => &schema::TRACES_REQUEST,
            Signal::Metrics => &schema::METRICS_REQUEST,
            Signal::Logs => &schema::LOGS_REQUEST,
        }
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
