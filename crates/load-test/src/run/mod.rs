//! `sluice load-test`: subjects run the same work in turn, and the results go into a record.

mod definition;
mod faults;
mod figures;
mod find_limit;
mod k6;
mod k6_load;
mod load;
mod machine;
mod plan;
mod promql;
mod runtime;
mod sampler;
mod turn;
mod verdict;
mod warnings;

use std::collections::HashSet;
use std::time::Instant;

use tokio::sync::watch;

pub use definition::{BUILT_IN_NAMES, Definition, Tried};
pub use faults::{FaultKind, FaultSchedule, ScheduledFault};
pub use k6::find_program;
pub use machine::Cores;
pub use plan::{K6Programs, LimitSearch, Plan, Requests, pipelines};
pub use promql::{METRICS_PORT, PrometheusPlan};
pub use sampler::{Processes, cpu_s_since, drained};
pub use verdict::Threshold;

use crate::live::{self, LiveView};
use crate::report::{self, FORMAT, RunRecord, SubjectLimits, SubjectRecord, Target, Warning};
use turn::Bench;

/// Runs several targets one after the other. When `interrupted` becomes true the load ends at once:
/// its record holds the measurements until then, and later targets have none. Errors are in the
/// record. Only the error of a single target in which no subject ran is returned.
pub async fn run_all(
    plans: &[Plan],
    cores: &Cores,
    interrupted: watch::Receiver<bool>,
) -> anyhow::Result<Vec<RunRecord>> {
    plans.iter().try_for_each(|plan| plan.check(cores))?;
    if let Some(prometheus) = plans.iter().find_map(|plan| plan.prometheus.as_ref()) {
        prometheus.check().await?;
    }
    let mut records = Vec::new();
    for plan in plans {
        if *interrupted.borrow() {
            break;
        }
        match run(plan, cores, interrupted.clone()).await {
            (_, Some(error)) if plans.len() == 1 => return Err(error),
            (record, _) => records.push(record),
        }
    }
    Ok(records)
}

/// Runs all turns of one target. Returns an error too if no subject could run at all.
async fn run(
    plan: &Plan,
    cores: &Cores,
    interrupted: watch::Receiver<bool>,
) -> (RunRecord, Option<anyhow::Error>) {
    let began = Instant::now();
    let started_unix_ms = crate::unix_ns() / 1_000_000;
    let mut warnings: Vec<Warning> = cores.warning.iter().cloned().collect();
    let pinned_cores: Vec<_> = cores.subject.iter().map(|&core| core as u32).collect();
    let new_subject = |definition: &Definition| SubjectRecord {
        name: definition.name.clone(),
        version: definition.version_number(),
        limits: SubjectLimits { pinned_cores: pinned_cores.clone(), ..Default::default() },
        ..SubjectRecord::default()
    };
    let mut subjects: Vec<SubjectRecord> = plan.subjects.iter().map(new_subject).collect();
    warnings.extend(plan.warnings_of_requests());
    warnings.extend(plan.subjects.iter().filter_map(Definition::warning));
    let turns = plan.find_limit.is_none().then_some(plan.turns * plan.subjects.len());
    let view = LiveView::new(&report::title(&plan.scenario()), turns, plan.quiet);
    let bench = Bench { plan, cores, interrupted: &interrupted, view: &view };
    let failure = match plan.find_limit {
        Some(options) => find_limit::run(bench, options, &mut subjects, &mut warnings).await,
        None => run_turns(bench, &mut subjects, &mut warnings).await,
    };
    drop(view);
    let ran = subjects.iter().any(|subject| !subject.turns.is_empty());
    let mut told = HashSet::new();
    warnings.retain(|warning| told.insert((warning.subject.clone(), warning.message.clone())));
    let of_all = |one: &Threshold| subjects.iter().map(|of| one.judge(of)).collect::<Vec<_>>();
    let verdicts = plan.fail_if.iter().flat_map(of_all).collect();
    for unable in &plan.unable {
        let reason = unable.cannot.as_deref().unwrap_or_default();
        warnings.push(Warning::new(format!("not tested: {reason}"), "").of(&unable.name));
    }
    subjects.extend_from_slice(&plan.unable);
    let record = RunRecord {
        format: FORMAT,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: machine::describe(cores),
        started_unix_ms,
        duration_s: began.elapsed().as_secs_f64(),
        interrupted: *interrupted.borrow(),
        scenario: plan.scenario(),
        subjects,
        warnings,
        verdicts,
    };
    (record, failure.filter(|_| !ran))
}

/// Runs all turns, in each the subjects one after the other. Returns the last error.
async fn run_turns(
    bench: Bench<'_>,
    subjects: &mut [SubjectRecord],
    warnings: &mut Vec<Warning>,
) -> Option<anyhow::Error> {
    let Bench { plan, interrupted, view, .. } = bench;
    let mut failure = None;
    for number in 1..=plan.turns {
        for (definition, subject) in plan.subjects.iter().zip(&mut *subjects) {
            if *interrupted.borrow() {
                return failure;
            }
            view.begin_turn(&subject.name);
            let turn = async {
                match plan.target {
                    Target::K6 => k6::run(bench, definition).await,
                    _ => turn::run(bench, definition).await,
                }
            };
            match turn.await {
                Ok(None) => return failure,
                Ok(Some(outcome)) => {
                    view.end_turn(&outcome.turn.kpis);
                    outcome.add_to(subject, number, warnings);
                }
                Err(error) => {
                    live::note(&format!("{}: {error:#}", subject.name));
                    let message = format!("turn {number} failed: {error:#}");
                    warnings.push(Warning::new(message, "").of(&subject.name));
                    failure = Some(error);
                }
            }
        }
    }
    failure
}
