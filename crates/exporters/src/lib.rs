//! Exporters: each sends requests to one backend and returns their outcomes. Retries, splitting,
//! queues and concurrency are not theirs (see `sluice_flow::Exporter`).
//!
//! One folder a component, with every option in its README. [`EXPORTERS`] lists them; there is no
//! registration elsewhere. Components see `exporter.rs`, never this list.

pub mod direct;
pub mod partial;
pub mod sending;

mod client_options;
mod connections;
mod debug;
mod exporter;
mod file;
mod files;
mod fluent;
mod fluentbit_http;
mod fluentforward;
mod influxdb;
mod json;
mod network;
mod nop;
mod note;
mod otlp;
mod otlphttp;
mod outcome;
mod pages;
mod prometheus;
mod prometheusremotewrite;
#[cfg(test)]
mod test_exporter;
#[cfg(test)]
mod tests;
mod translation;

use sluice_config::ComponentKinds;

pub use client_options::ClientOptions;
pub use exporter::{BatchItems, BuildContext, BuildError, ExporterConfig, LastStep, NamedTarget};
pub use files::Files;
pub use pages::Pages;

/// The kinds of exporters in this build.
pub static EXPORTERS: ComponentKinds<Box<dyn ExporterConfig>> = ComponentKinds::new(&[
    otlp::KIND,
    otlphttp::KIND,
    debug::KIND,
    file::KIND,
    fluentbit_http::KIND,
    fluentforward::KIND,
    influxdb::KIND,
    nop::KIND,
    prometheus::KIND,
    prometheusremotewrite::KIND,
    #[cfg(test)]
    test_exporter::KIND,
]);
