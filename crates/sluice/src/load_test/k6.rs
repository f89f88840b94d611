//! Both ends of the target `k6`: k6 itself (`--k6`) and InfluxDB (`--influxdb`).

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use sluice_load_test::report::Target;
use sluice_load_test::run::{K6Programs, find_program};

use super::LoadTestArguments;

/// In place of a path: no InfluxDB, although there is one.
const SINK: &str = "sink";

#[derive(Debug, Args)]
pub(super) struct K6Arguments {
    /// Let k6 itself make the load of -t k6, not the generator that writes as it does; without
    /// a path it is `k6` in PATH
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "")]
    k6: Option<String>,
    /// The `influxd` of InfluxDB 1.x that -t k6 writes to, or `sink` for one that only adds up
    /// counters [default: `influxd` in PATH, else the sink]
    #[arg(long, value_name = "PATH")]
    influxdb: Option<String>,
}

impl K6Arguments {
    /// Fails if an option has no effect on any of the targets, or none on samples of k6.
    pub(super) fn check(&self, targets: &[Target], all: &LoadTestArguments) -> Result<()> {
        if !targets.contains(&Target::K6) {
            let options = [(self.k6.is_some(), "--k6"), (self.influxdb.is_some(), "--influxdb")];
            if let Some((_, option)) = options.into_iter().find(|(is_given, _)| *is_given) {
                bail!("{option} names an end of the way of k6's samples: use it with -t k6");
            }
            return Ok(());
        }
        let options = [
            (all.load.multi, "-m", "there is one way"),
            (all.faults.is_given(), "-b or --fault", "the database is InfluxDB itself"),
            (all.limit.find_limit, "--find-limit", "give rates with -r, one call each"),
            (all.prometheus.plan().is_some(), "--prometheus", "figures are those of processes"),
        ];
        if let Some((_, option, why)) = options.into_iter().find(|(is_given, ..)| *is_given) {
            bail!("-t k6 cannot be had with {option}: {why}");
        }
        Ok(())
    }

    pub(super) fn programs(&self) -> Result<K6Programs> {
        let k6 = match self.k6.as_deref() {
            None => None,
            Some("") => match find_program("k6", "k6") {
                None => bail!("no program `k6` in PATH: give its path with --k6 or SLUICE_TEST_K6"),
                found => found,
            },
            Some(path) => Some(there(path, "--k6")?),
        };
        let influxdb = match self.influxdb.as_deref() {
            None => find_program("influxdb", "influxd"),
            Some(SINK) => None,
            Some(path) => Some(there(path, "--influxdb")?),
        };
        Ok(K6Programs { k6, influxdb })
    }
}

fn there(path: &str, option: &str) -> Result<PathBuf> {
    if !Path::new(path).is_file() {
        bail!("{option}: no program at {path}");
    }
    Ok(path.into())
}
