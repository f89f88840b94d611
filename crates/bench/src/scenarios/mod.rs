//! Each scenario: its setting, its special measurements, its columns and its bars.

mod backlog;
mod backpressure;
mod drain;
mod durable;
mod files;
mod isolation;
mod many_files;
mod many_pipelines;
mod on_demand;
mod overload;
mod pods;
mod poison;
mod remote_write;
mod scheduler;
mod scrapes;

// The parts of scenarios, for `use super::*` in each of them.
use std::ops::{Div, Sub};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sluice_load::backend::{Backend, Faults};
use sluice_load::generate::{Load, Protocol, Retry, Shape};
use sluice_load::latency::{Latency, milliseconds};
use sluice_load_test::report::DASH;
use sluice_load_test::run::cpu_s_since;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::figures::{Figures, Series, compare, compare_with, with};
use crate::options::Options;
use crate::rows::ENDLESS;
use crate::scenario::{Scenario, Turn};
use crate::stage::{COME_BACK, Observed, Setting, Stage, WARM_UP, WarmUp};

/// Ablations, which take long: run only where `--row` names them.
pub(crate) const ONLY_BY_NAME: [&str; 1] = ["scheduler"];

/// All of them, in the order in which they are run.
pub(crate) static SCENARIOS: [&Scenario; 15] = [
    &isolation::SCENARIO,
    &backpressure::SCENARIO,
    &poison::SCENARIO,
    &overload::SCENARIO,
    &scheduler::SCENARIO,
    &backlog::SCENARIO,
    &on_demand::SCENARIO,
    &durable::SCENARIO,
    &drain::SCENARIO,
    &files::SCENARIO,
    &many_files::SCENARIO,
    &scrapes::SCENARIO,
    &remote_write::SCENARIO,
    &pods::SCENARIO,
    &many_pipelines::SCENARIO,
];

/// The arguments for a second configuration, which is merged over the first. JSON is YAML, and `$`
/// stands for itself.
fn overlay(folder: &TempDir, config: &serde_json::Value) -> Result<Vec<String>> {
    let path = folder.path().join("overlay.yaml");
    std::fs::write(&path, config.to_string().replace('$', "$$"))?;
    Ok(vec!["--config".to_owned(), path.display().to_string()])
}

/// The memory limit by default.
const MEMORY_LIMIT_MIB: u64 = 512;
