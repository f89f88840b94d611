//! Faults of the backends: `-b` and `--fault`.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use sluice_load_test::run::{FaultKind, FaultSchedule, ScheduledFault};

use crate::values::{number, seconds};

/// Share of the requests that `-b` refuses, as in the Kyma load test.
const DEFAULT_SHARE: f64 = 0.7;

#[derive(Debug, Args)]
pub(super) struct FaultArguments {
    /// Make the backends answer a share of the requests with 503 during the load
    #[arg(short = 'b', long, value_name = "BOOL")]
    #[arg(num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    backpressure: bool,
    /// Share of the requests that -b refuses, above 0, up to 1 [default: 0.7]
    #[arg(long, value_name = "SHARE")]
    #[arg(value_parser = number(f64::MIN_POSITIVE..=1.0, "give a share above 0, up to 1"))]
    fault_share: Option<f64>,
    /// With -b, delay the same share of the requests as well [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    fault_delay: Option<Duration>,
    /// Make the backends sick, for instance 'stall,from=10,to=20,pipeline=1'; may be given several
    /// times
    #[arg(long, value_name = "FAULT", long_help = FAULT_HELP)]
    fault: Vec<ScheduledFault>,
}

const FAULT_HELP: &str = "\
Make the backends sick; may be given several times. A FAULT is a kind, followed by its settings, \
separated by commas:

  refuse                   requests are answered 503 (gRPC: UNAVAILABLE)
  throttle[,retry-after=S] requests are answered 429 with Retry-After \
(gRPC: RESOURCE_EXHAUSTED with RetryInfo) [default: 1]
  delay,by=S               requests are accepted after S seconds
  stall                    requests are accepted, but not answered until the fault ends
  reset                    requests are broken off in the middle of the answer
  outage                   new connections are refused, open ones are cut

  share=SHARE              share of the requests, above 0, up to 1 [default: 1]; not for outage
  from=S, to=S             start and end, in seconds of the load [default: the whole load]
  pipeline=N[+N...]        with -m: pipelines with the fault, counted from 0 [default: all]

Examples:
  --fault outage,from=20,to=30
  --fault stall,share=0.1 --fault throttle,retry-after=5,from=30,pipeline=0+2";

impl FaultArguments {
    pub(super) fn schedule(&self, load: Duration, pipelines: usize) -> Result<FaultSchedule> {
        if !self.backpressure && (self.fault_share.is_some() || self.fault_delay.is_some()) {
            bail!("--fault-share and --fault-delay are settings of -b: add -b");
        }
        let faults = [self.of_backpressure(), self.fault.clone()].concat();
        FaultSchedule::new(faults, load, pipelines).map_err(|(fault, error)| {
            // Without -b nothing would be wrong.
            let is_of_b = FaultSchedule::new(self.fault.clone(), load, pipelines).is_ok();
            let hint = if is_of_b { " (-b is a `refuse` itself)" } else { "" };
            anyhow!("--fault '{fault}'{hint}: {error}")
        })
    }

    pub(super) fn is_given(&self) -> bool {
        self.backpressure || !self.fault.is_empty()
    }

    fn of_backpressure(&self) -> Vec<ScheduledFault> {
        let share = self.fault_share.unwrap_or(DEFAULT_SHARE);
        let delay = self.fault_delay.filter(|by| !by.is_zero()).map(|by| FaultKind::Delay { by });
        let kinds = [self.backpressure.then_some(FaultKind::Refuse), delay];
        kinds.into_iter().flatten().map(|kind| ScheduledFault::throughout(kind, share)).collect()
    }
}
