//! The load test puts pipeline engines (subjects) under load and makes tables of its measurements.
//! Every subject is a black box. Loads and verifying backends come from `sluice_load`.

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
