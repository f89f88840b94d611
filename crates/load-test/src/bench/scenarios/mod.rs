//! Each scenario: its setting, what is special in how it is measured, its columns and its bars.

mod backlog;
mod backpressure;
mod drain;
mod durable;
mod isolation;
mod many_pipelines;
mod on_demand;
mod overload;

use super::scenario::Scenario;

/// All of them, in the order in which they are run.
pub static SCENARIOS: [&Scenario; 8] = [
    &isolation::SCENARIO,
    &backpressure::SCENARIO,
    &overload::SCENARIO,
    &backlog::SCENARIO,
    &on_demand::SCENARIO,
    &durable::SCENARIO,
    &drain::SCENARIO,
    &many_pipelines::SCENARIO,
];
