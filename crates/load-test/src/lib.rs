//! The limit test: subjects under load, and the tables that come of them. Every pipeline under test
//! is a black box here. Its loads and verifying backends are those of `sluice_load`.

pub mod demo;
pub mod live;
mod prometheus;
pub mod report;
pub mod run;
pub mod scrape;
pub mod subject;

pub use prometheus::PrometheusUrl;
pub use sluice_load::{
    Backend, BackendOptions, Code, Counting, Counts, Ending, FaultSwitch, Faults, Latency, Load,
    LoadReport, Pace, Protocol, Retry, RunningLoad, Shape, backend, generate, identity,
};
use sluice_load::{latency, unix_ns};
