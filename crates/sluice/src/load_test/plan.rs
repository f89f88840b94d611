//! From what was said to what is done.

use anyhow::Result;
use sluice_load_test::report::Target;
use sluice_load_test::run::{Definition, Plan, Unable, pipelines};

use super::agents;
use super::arguments::LoadTestArguments;

/// One plan a target, in the order in which they are run.
pub(super) fn plans(arguments: &LoadTestArguments) -> Result<Vec<Plan>> {
    let targets = arguments.load.targets()?;
    arguments.agents.check(&targets)?;
    arguments.output.check(targets.len())?;
    let of_target = |target: &Target| {
        let subjects = arguments.subjects.definitions(*target)?;
        let (able, unable) = agents::able(&subjects, *target, arguments.load.is_all())?;
        plan(arguments, *target, able, unable)
    };
    targets.iter().map(of_target).collect()
}

fn plan(arguments: &LoadTestArguments, target: Target, subjects: Vec<Definition>, unable: Vec<Unable>) -> Result<Plan> {
    let LoadTestArguments { load, agents, faults, limit, subjects: of_subjects, prometheus, output, .. } = arguments;
    let duration = load.duration(limit.is_search());
    let command = std::env::args().collect::<Vec<_>>();
    let plan = Plan {
        name: load.name.clone(),
        multi: load.multi,
        faults: faults.schedule(duration, pipelines(load.multi))?,
        duration,
        pace: load.pace(),
        requests: load.requests(),
        find_limit: limit.search(duration, &output.fail_if)?,
        body_bytes: load.body_bytes.map(|bytes| bytes as usize),
        farm: agents.farm(),
        log_files: agents.log_files(load.body_bytes),
        unable,
        turns: usize::from(of_subjects.turns),
        cpus: of_subjects.cpus,
        memory_mib: of_subjects.memory_limit,
        drain_within: load.drain_within,
        fail_if: output.fail_if.clone(),
        prometheus: prometheus.plan(),
        metrics_listen: prometheus.metrics_listen(),
        quiet: output.quiet,
        command: Some(format!("sluice {}", command.get(1..).unwrap_or_default().join(" "))),
        ..Plan::new(target, subjects)
    };
    plan.check_requests()?;
    Ok(plan)
}
