//! From what was said to what is done.

use anyhow::Result;
use sluice_load_test::generate::{Farm, LogFiles};
use sluice_load_test::run::{Plan, pipelines};

use super::arguments::LoadTestArguments;

pub(super) fn plan(arguments: &LoadTestArguments) -> Result<Plan> {
    let LoadTestArguments { load, faults, limit, subjects, output, .. } = arguments;
    let duration = load.duration(limit.is_search());
    let command = std::env::args().collect::<Vec<_>>();
    let plan = Plan {
        target: load.target,
        signal: load.signal()?,
        name: load.name.clone(),
        multi: load.multi,
        faults: faults.schedule(duration, pipelines(load.multi))?,
        duration,
        pace: load.pace(),
        requests: load.requests(),
        find_limit: limit.search(duration, &output.fail_if)?,
        body_bytes: load.body_bytes.map(|bytes| bytes as usize),
        farm: Farm::default(),
        log_files: LogFiles::default(),
        subjects: subjects.definitions()?,
        turns: usize::from(subjects.turns),
        cpus: subjects.cpus,
        memory_mib: subjects.memory_limit,
        drain_within: load.drain_within,
        fail_if: output.fail_if.clone(),
        quiet: output.quiet,
        command: Some(format!("sluice {}", command.get(1..).unwrap_or_default().join(" "))),
    };
    plan.check_requests()?;
    Ok(plan)
}
