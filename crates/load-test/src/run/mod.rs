//! `sluice load-test`: subjects run the same work in turn, and a record says what came of it.

mod definition;
mod faults;
mod figures;
mod machine;
mod plan;
mod sampler;
mod source;
mod turn;
mod verdict;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

pub use definition::{Definition, DefinitionError, SUBJECT_FILE};
pub use faults::{FaultError, FaultKind, FaultSchedule, ScheduledFault};
pub use machine::Cores;
pub use plan::{Plan, pipelines};
pub use verdict::Threshold;

use crate::report::{FORMAT, RunRecord, SubjectLimits, SubjectRecord, Warning};
use turn::TurnOutcome;

/// Runs all turns. `interrupted` turning true ends the load at once; the record then holds what was measured until then. An
/// error where no subject could run at all; one of several that cannot run is a warning in the record.
pub async fn run(plan: &Plan, cores: &Cores, interrupted: watch::Receiver<bool>) -> anyhow::Result<RunRecord> {
    let began = Instant::now();
    let started_unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let mut warnings: Vec<Warning> = cores.warning.iter().cloned().collect();
    let mut subjects: Vec<SubjectRecord> =
        plan.subjects.iter().map(|subject| new_subject(plan, subject, cores)).collect();
    let mut failures = Vec::new();
    'turns: for number in 1..=plan.turns {
        for (definition, subject) in plan.subjects.iter().zip(&mut subjects) {
            if *interrupted.borrow() {
                break 'turns;
            }
            let label =
                if plan.turns > 1 { format!("{} {number}/{}", subject.name, plan.turns) } else { subject.name.clone() };
            match turn::run(plan, definition, cores, interrupted.clone(), &label).await {
                Ok(TurnOutcome { turn, warnings: more, is_limited }) => {
                    if !is_limited {
                        subject.limits.memory_bytes = None;
                    }
                    subject.turns.push(turn);
                    warnings.extend(more);
                }
                Err(error) => {
                    warnings.push(Warning {
                        subject: Some(subject.name.clone()),
                        message: format!("turn {number} failed: {error:#}"),
                        remedy: None,
                    });
                    failures.push(error);
                }
            }
        }
    }
    if subjects.iter().all(|subject| subject.turns.is_empty())
        && let Some(error) = failures.pop()
    {
        return Err(error);
    }
    warnings.dedup();
    let judge = |threshold: &Threshold| subjects.iter().map(|subject| threshold.judge(subject)).collect::<Vec<_>>();
    let verdicts = plan.fail_if.iter().flat_map(judge).collect();
    Ok(RunRecord {
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
    })
}

fn new_subject(plan: &Plan, definition: &Definition, cores: &Cores) -> SubjectRecord {
    SubjectRecord {
        name: definition.name.clone(),
        version: definition.version_number(),
        limits: SubjectLimits {
            cpu_cores: None,
            memory_bytes: Some(plan.memory_limit_mib() << 20),
            pinned_cores: cores.subject.iter().map(|&core| core as u32).collect(),
        },
        ..SubjectRecord::default()
    }
}
