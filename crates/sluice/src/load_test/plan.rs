//! From what was said to what is done.

use anyhow::Result;
use sluice_load_test::generate::{Farm, LogFiles};
use sluice_load_test::run::{Plan, pipelines};

use super::arguments::LoadTestArguments;

pub(super) fn plan(arguments: &LoadTestArguments) -> Result<Plan> {
    let LoadTestArguments { load, faults, subjects, output, .. } = arguments;
    let command = std::env::args().collect::<Vec<_>>();
    Ok(Plan {
        target: load.target,
        signal: load.signal()?,
        name: load.name.clone(),
        multi: load.multi,
        faults: faults.schedule(load.duration, pipelines(load.multi))?,
        duration: load.duration,
        rate: load.rate,
        body_bytes: load.body_bytes.map(|bytes| bytes as usize),
        farm: Farm::default(),
        log_files: LogFiles::default(),
        subjects: subjects.definitions()?,
        turns: usize::from(subjects.turns),
        drain_within: load.drain_within,
        fail_if: output.fail_if.clone(),
        command: Some(format!("sluice {}", command.get(1..).unwrap_or_default().join(" "))),
    })
}
