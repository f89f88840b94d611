//! The limit test: generators, verifying backends, subjects and the tables that come of them. Every
//! pipeline under test is a black box here.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use sluice_load_test::{Backend, Load};
//! use sluice_otlp::Signal;
//!
//! let backend = Backend::healthy().await?;
//! let gateway = "127.0.0.1:4317".parse()?;
//! let report = Load::new(Signal::Traces, gateway).items(10_000).run().await?;
//! assert_eq!(report.accepted, 10_000);
//! assert_eq!(report.missing_at(&backend), 0);
//! # Ok(())
//! # }
//! ```

pub mod backend;
pub mod demo;
mod export_response;
pub mod generate;
mod http_get;
pub mod identity;
pub mod latency;
pub mod live;
mod prometheus;
pub mod report;
pub mod run;
pub mod scrape;
pub mod subject;

pub use backend::{Backend, BackendOptions, Counting, Counts, FaultSwitch, Faults};
pub use generate::{Ending, Load, LoadReport, Pace, Protocol, Retry, RunningLoad, Shape};
pub use latency::Latency;
pub use prometheus::{PrometheusUrl, UrlError};
pub use sluice_net::grpc::Code;

/// Nanoseconds since the epoch.
pub(crate) fn unix_ns() -> u64 {
    let since_epoch =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}
