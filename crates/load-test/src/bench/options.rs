//! What a call of the bench measures.

use std::time::Duration;

use sluice_otlp::Signal;

use super::contestant::Contestant;

/// What to measure, how often and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    pub contestants: Vec<Contestant>,
    /// Ids of rows; empty: all.
    pub rows: Vec<String>,
    /// Empty: all.
    pub signals: Vec<Signal>,
    pub turns: usize,
    /// Counted time of each turn of a row; scenarios say how many of it they take.
    pub window: Duration,
    /// Where a scenario has an open loop of a fixed rate.
    pub spans_per_s: f64,
    /// CPUs of the subjects; empty: not pinned.
    pub subject_cpus: Vec<usize>,
    /// Those and the bench's own, for a subject that may have whatever it takes.
    pub all_cpus: Vec<usize>,
}
