//! Each scenario: its setting, what is special in how it is measured, its columns and its bars.

mod backlog;
mod backpressure;
mod drain;
mod durable;
mod isolation;
mod many_pipelines;
mod on_demand;
mod overload;
mod scheduler;

// What scenarios are made of, for `use super::*` in each of them.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::Options;
use super::figures::{Figures, Series, compare};
use super::scenario::{CORES, SUBJECT, Scenario, Turn, gateways, keeps_to_memory, sluice_only};
use super::stage::{COME_BACK, Observed, Setting, Stage};
use crate::backend::{Backend, Faults};
use crate::generate::{Load, Protocol, Retry, Shape};
use crate::latency::{Latency, milliseconds};
use crate::report::DASH;

/// Ablations, which take long: run only where `--row` names them.
pub const ONLY_BY_NAME: [&str; 1] = ["scheduler"];

/// All of them, in the order in which they are run.
pub static SCENARIOS: [&Scenario; 9] = [
    &isolation::SCENARIO,
    &backpressure::SCENARIO,
    &overload::SCENARIO,
    &scheduler::SCENARIO,
    &backlog::SCENARIO,
    &on_demand::SCENARIO,
    &durable::SCENARIO,
    &drain::SCENARIO,
    &many_pipelines::SCENARIO,
];
