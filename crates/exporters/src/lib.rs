//! Exporters: each sends requests to one backend and says what became of them. Retries, splitting, queues and
//! concurrency are not theirs (see `sluice_flow::Exporter`).
//!
//! One folder a component, with every option in its README. [`KINDS`] lists them; there is no registration elsewhere.

pub mod auth;
pub mod partial;
pub mod sending;

mod build;
mod credentials;
mod debug;
mod file;
mod json;
mod nop;
mod otlp;
mod otlphttp;
mod outcome;
#[cfg(test)]
mod readme_tests;
mod settings;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use sluice_config::{Fields, Kind};
use sluice_flow::Exporter;

pub use build::{BuildContext, BuildError};
pub use debug::DebugConfig;
pub use file::{FileConfig, Files};
pub use otlp::OtlpConfig;
pub use otlphttp::OtlpHttpConfig;
pub use otlphttp::{Compression as HttpCompression, Format as HttpFormat};
pub use sending::{BatchConfig, QueueConfig, RetryConfig, Sending, Sizer};
pub use settings::TlsSection;

/// The kinds of exporters in this build.
pub const KINDS: &[Kind] = &[
    Kind::new("otlp", "Sends OTLP over gRPC").aliases(&["otlp_grpc"]),
    Kind::new("otlphttp", "Sends OTLP over HTTP, as protobuf or JSON").aliases(&["otlp_http"]),
    Kind::new("debug", "Writes what it gets as text, for people").aliases(&["logging"]),
    Kind::new("file", "Appends OTLP JSON or protobuf to files"),
    Kind::new("nop", "Takes everything and does nothing"),
];

/// What exporters without a backend are given at a time, in bytes.
const LOCAL_REQUEST_BYTES: usize = 4 * 1024 * 1024;

/// What an exporter's section of the configuration says.
#[derive(Clone, Debug)]
pub enum ExporterConfig {
    Otlp(Box<OtlpConfig>),
    OtlpHttp(Box<OtlpHttpConfig>),
    Debug(DebugConfig),
    File(FileConfig),
    Nop(Sending),
}

/// Reads the options of an exporter of this kind (a name or alias of [`KINDS`]). `None` for other kinds.
pub fn read(kind: &str, fields: &mut Fields<'_>) -> Option<ExporterConfig> {
    let name = KINDS.iter().find(|known| known.is_called(kind))?.name;
    Some(match name {
        "otlp" => ExporterConfig::Otlp(Box::new(OtlpConfig::read(fields))),
        "otlphttp" => ExporterConfig::OtlpHttp(Box::new(OtlpHttpConfig::read(fields))),
        "debug" => ExporterConfig::Debug(DebugConfig::read(fields)),
        "file" => ExporterConfig::File(FileConfig::read(fields)),
        "nop" => ExporterConfig::Nop(Sending::default()),
        _ => return None,
    })
}

impl ExporterConfig {
    /// What its delivery has to know.
    pub fn sending(&self) -> &Sending {
        match self {
            ExporterConfig::Otlp(config) => &config.sending,
            ExporterConfig::OtlpHttp(config) => &config.sending,
            ExporterConfig::Debug(config) => &config.sending,
            ExporterConfig::File(config) => &config.sending,
            ExporterConfig::Nop(sending) => sending,
        }
    }

    /// True for exporters that may lose data rather than hold anybody up.
    pub fn is_best_effort(&self) -> bool {
        matches!(self, ExporterConfig::Debug(_))
    }

    /// The largest request that the backend takes, in bytes as sent.
    pub fn request_limit_bytes(&self) -> usize {
        match self {
            ExporterConfig::Otlp(config) => config.max_request_bytes,
            ExporterConfig::OtlpHttp(config) => config.max_request_bytes,
            ExporterConfig::Debug(_) | ExporterConfig::File(_) | ExporterConfig::Nop(_) => LOCAL_REQUEST_BYTES,
        }
    }

    /// Name of the extension that authenticates its requests.
    pub fn authenticator(&self) -> Option<&str> {
        match self {
            ExporterConfig::Otlp(config) => config.authenticator.as_deref(),
            ExporterConfig::OtlpHttp(config) => config.authenticator.as_deref(),
            ExporterConfig::Debug(_) | ExporterConfig::File(_) | ExporterConfig::Nop(_) => None,
        }
    }

    /// Makes the exporter. Tries files and reads certificates, but writes nothing and does not connect. Must run inside a tokio runtime.
    pub fn build(&self, context: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
        match self {
            ExporterConfig::Otlp(config) => Ok(Arc::new(otlp::OtlpExporter::new(config, context)?)),
            ExporterConfig::OtlpHttp(config) => Ok(Arc::new(otlphttp::OtlpHttpExporter::new(config, context)?)),
            ExporterConfig::Debug(config) => Ok(Arc::new(debug::DebugExporter::new(config, context)?)),
            ExporterConfig::File(config) => Ok(Arc::new(file::FileExporter::new(config, context)?)),
            ExporterConfig::Nop(_) => Ok(Arc::new(nop::NopExporter)),
        }
    }
}
