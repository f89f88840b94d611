//! From what was said to what is done.

use anyhow::Result;
use sluice_load_test::report::Target;
use sluice_load_test::run::{Plan, pipelines};

use super::{LoadTestArguments, agents};

/// One plan a target, in the order in which they are run.
pub(super) fn plans(arguments: &LoadTestArguments) -> Result<Vec<Plan>> {
    let targets = arguments.load.targets()?;
    arguments.agents.check(targets)?;
    arguments.output.check(targets.len())?;
    targets.iter().map(|target| plan(arguments, *target, targets.len() > 1)).collect()
}

fn plan(arguments: &LoadTestArguments, target: Target, is_one_of_all: bool) -> Result<Plan> {
    let LoadTestArguments { load, output, .. } = arguments;
    let subjects = arguments.subjects.definitions(target)?;
    let (able, unable) = agents::able(&subjects, target, is_one_of_all)?;
    let duration = load.duration(arguments.limit.find_limit);
    let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let plan = Plan {
        name: load.name.clone(),
        multi: load.multi,
        faults: arguments.faults.schedule(duration, pipelines(load.multi))?,
        duration,
        pace: load.pace(),
        requests: load.requests,
        find_limit: arguments.limit.search(duration, &output.fail_if)?,
        body_bytes: load.body_bytes.map(|bytes| bytes as usize),
        farm: arguments.agents.farm(),
        log_files: arguments.agents.log_files(),
        unable,
        turns: arguments.subjects.turns.into(),
        cpus: arguments.subjects.cpus,
        memory_mib: arguments.subjects.memory_limit,
        drain_within: load.drain_within,
        fail_if: output.fail_if.clone(),
        prometheus: arguments.prometheus.plan(),
        metrics_listen: arguments.prometheus.metrics_listen(),
        quiet: output.quiet,
        command: Some(format!("sluice {command}")),
        ..Plan::new(target, able)
    };
    plan.check_requests()?;
    Ok(plan)
}
