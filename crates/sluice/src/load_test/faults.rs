//! What is wrong with the backends: `-b` and how.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use sluice_load_test::run::Backpressure;

use crate::arguments::seconds;

#[derive(Debug, Args)]
pub(super) struct FaultArguments {
    /// Backends that answer a share of the requests 503 while the load lasts
    #[arg(short = 'b', long, value_name = "BOOL", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    backpressure: bool,
    /// Share of the requests that -b refuses, 0 to 1 [default: 0.7]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    fault_share: Option<f64>,
    /// Delay the same share of the requests as well [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    fault_delay: Option<Duration>,
}

impl FaultArguments {
    pub(super) fn backpressure(&self) -> Result<Option<Backpressure>> {
        if !self.backpressure && (self.fault_share.is_some() || self.fault_delay.is_some()) {
            bail!("--fault-share and --fault-delay say how backends refuse: add -b");
        }
        Ok(self.backpressure.then(|| Backpressure {
            share: self.fault_share.unwrap_or(0.7),
            delay: self.fault_delay.unwrap_or_default(),
        }))
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "give a share from 0 to 1".to_owned())
}
