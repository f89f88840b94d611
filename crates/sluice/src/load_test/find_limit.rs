//! `--find-limit`: the highest rate that is held.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use sluice_load_test::run::{LimitSearch, Threshold};

use crate::values::{number, seconds};

const PRECISIONS: &str = "give a share from 0.01 to 1, for instance 0.05 for 5 %";

#[derive(Debug, Args)]
pub(super) struct LimitArguments {
    /// Search the highest rate that is held without loss and without a growing backlog; the search
    /// starts at the rate of -r
    #[arg(long, conflicts_with_all = ["closed_loop", "turns"])]
    pub(super) find_limit: bool,
    /// Time limit of the search for each subject [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    find_limit_within: Option<Duration>,
    /// Precision of the search, 0.01 to 1: it ends when the lowest failed rate is above the highest
    /// held one by at most this share [default: 0.05]
    #[arg(long, value_name = "SHARE", value_parser = number(0.01..=1.0, PRECISIONS))]
    find_limit_precision: Option<f64>,
}

impl LimitArguments {
    /// `None`: no search. `one_try` is the duration of a try's load.
    pub(super) fn search(
        &self,
        one_try: Duration,
        thresholds: &[Threshold],
    ) -> Result<Option<LimitSearch>> {
        if !self.find_limit {
            if self.find_limit_within.is_some() || self.find_limit_precision.is_some() {
                bail!(
                    "--find-limit-within and --find-limit-precision say how to search: add \
                     --find-limit"
                );
            }
            if thresholds.iter().any(Threshold::needs_a_search) {
                bail!("--fail-if 'limit…' is about what a search finds: add --find-limit");
            }
            return Ok(None);
        }
        let within = self.find_limit_within.unwrap_or(Duration::from_secs(600));
        if within < 4 * one_try {
            let (within, one_try) = (within.as_secs_f64(), one_try.as_secs_f64());
            bail!(
                "--find-limit-within {within} is too short for tries of {one_try} s: give {} s or \
                 more, or shorten the tries with -d",
                4.0 * one_try
            );
        }
        Ok(Some(LimitSearch { within, precision: self.find_limit_precision.unwrap_or(0.05) }))
    }
}
