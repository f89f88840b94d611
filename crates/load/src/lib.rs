//! Loads, and backends that verify their arrival: every generated item is known by its identity.
//! The system between the two is a black box here.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use sluice_load::{Backend, Load};
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
pub mod generate;
pub mod identity;
pub mod latency;
pub mod reaper;

pub use backend::{Backend, BackendOptions, Counting, Counts, FaultSwitch, Faults};
pub use generate::{Ending, Load, LoadReport, Pace, Protocol, Retry, RunningLoad, Shape};
pub use latency::Latency;
pub use sluice_net::grpc::Code;

pub fn unix_ns() -> u64 {
    let since_epoch =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}
