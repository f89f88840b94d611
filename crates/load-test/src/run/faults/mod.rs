//! The schedule of faults: which backend has which fault, and when, while the load runs.

mod text;

use std::collections::BTreeSet;
use std::mem::discriminant;
use std::time::Duration;

use sluice_net::grpc::Code;
use tokio::task::JoinSet;

use crate::backend::{Backend, Delay, Faults, Refuse};

/// Longer than any drain.
const OUTLASTING: Duration = Duration::from_secs(24 * 3600);

/// One fault of the backends, as `--fault` describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduledFault {
    pub kind: FaultKind,
    /// Share of the requests, above 0.0, up to 1.0. [`FaultKind::Outage`] concerns all of them.
    pub share: f64,
    /// Time since the load began.
    pub from: Duration,
    /// `None`: until the load ends.
    pub to: Option<Duration>,
    /// The indices of the pipelines whose backends have it, from 0; empty: all.
    pub pipelines: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// Answered 503; over gRPC UNAVAILABLE, without RetryInfo.
    Refuse,
    /// Answered 429 with Retry-After; over gRPC RESOURCE_EXHAUSTED with RetryInfo.
    Throttle { retry_after: Duration },
    /// Answered only after this time.
    Delay { by: Duration },
    /// Read and not answered until the fault ends.
    Stall,
    /// Broken off in the middle of the answer.
    Reset,
    /// Connections are refused, and existing ones are cut.
    Outage,
}

/// All faults of a run. The default is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultSchedule {
    faults: Vec<ScheduledFault>,
}

impl FaultSchedule {
    /// Checks the faults against the run. An error has the fault's text and the problem.
    pub fn new(
        faults: Vec<ScheduledFault>,
        load: Duration,
        pipelines: usize,
    ) -> Result<FaultSchedule, (String, String)> {
        for (index, fault) in faults.iter().enumerate() {
            let mut before = faults[..index].iter();
            let overlap = || before.find_map(|one| fault.overlap(one, load, pipelines));
            if let Some(error) = fault.outside(load, pipelines).or_else(overlap) {
                return Err((fault.to_string(), error));
            }
        }
        Ok(FaultSchedule { faults })
    }

    /// Each moment at which a fault begins or ends, with all faults that are active from then on.
    fn timeline(&self, pipeline: usize, load: Duration) -> Vec<(Duration, Faults)> {
        let faults: Vec<_> = self.faults.iter().filter(|fault| fault.concerns(pipeline)).collect();
        let borders: BTreeSet<_> =
            faults.iter().flat_map(|fault| [fault.from, fault.end(load)]).collect();
        let from_then_on = |at: Duration| {
            let active = faults.iter().filter(|fault| fault.from <= at && at < fault.end(load));
            (at, active.fold(Faults::default(), |faults, fault| fault.add_to(faults)))
        };
        borders.into_iter().map(from_then_on).collect()
    }

    /// Begins now. Faults that begin with the load are set when this returns.
    pub(super) fn start(
        &self,
        backends: &[Backend],
        load: Duration,
        outlasts: bool,
    ) -> RunningFaults {
        let lasts = if outlasts { load + OUTLASTING } else { load };
        let mut tasks = JoinSet::new();
        for (index, backend) in backends.iter().enumerate() {
            tasks.spawn(backend.faults().schedule(self.timeline(index, lasts)));
        }
        RunningFaults { tasks, outlasts }
    }
}

impl ScheduledFault {
    /// A fault of all backends, from the load's begin to its end.
    pub fn throughout(kind: FaultKind, share: f64) -> ScheduledFault {
        ScheduledFault { kind, share, from: Duration::ZERO, to: None, pipelines: Vec::new() }
    }

    fn concerns(&self, pipeline: usize) -> bool {
        self.pipelines.is_empty() || self.pipelines.contains(&pipeline)
    }

    fn end(&self, load: Duration) -> Duration {
        self.to.unwrap_or(load)
    }

    /// An error if the fault does not fit into the load, or names a pipeline that does not exist.
    fn outside(&self, load: Duration, pipelines: usize) -> Option<String> {
        let (from_s, load_s) = (self.from.as_secs_f64(), load.as_secs_f64());
        if self.from >= load {
            return Some(format!(
                "it begins at {from_s} s and the load ends at {load_s} s: begin earlier, or \
                 lengthen the load with -d"
            ));
        }
        if let Some(to) = self.to.filter(|to| *to > load) {
            return Some(format!(
                "to={}: the load ends at {load_s} s: leave `to` away for the load's end, or \
                 lengthen the load with -d",
                to.as_secs_f64()
            ));
        }
        let index = self.pipelines.iter().find(|index| **index >= pipelines)?;
        Some(match pipelines - 1 {
            0 => format!("pipeline={index}: there is pipeline 0 only: add -m for pipelines 0 to 2"),
            last => format!("pipeline={index}: there are pipelines 0 to {last}"),
        })
    }

    /// An error if two faults would give a request two answers, or delay it twice.
    fn overlap(&self, other: &ScheduledFault, load: Duration, pipelines: usize) -> Option<String> {
        let begins = self.from.max(other.from);
        let ends = self.end(load).min(other.end(load));
        let refuses = |kind| matches!(kind, FaultKind::Refuse | FaultKind::Throttle { .. });
        let is_same = discriminant(&self.kind) == discriminant(&other.kind)
            || refuses(self.kind) && refuses(other.kind);
        let meets = begins < ends && is_same;
        let pipeline = (0..pipelines)
            .find(|&pipeline| meets && self.concerns(pipeline) && other.concerns(pipeline))?;
        let at_s = begins.as_secs_f64();
        Some(format!(
            "it would have to give pipeline {pipeline} another answer than `{other}` does at \
             {at_s} s: let one end before the other begins"
        ))
    }

    fn add_to(&self, mut faults: Faults) -> Faults {
        let share = self.share;
        let refuse = |code, retry_delay| Some(Refuse { share, code, retry_delay });
        match self.kind {
            FaultKind::Refuse => faults.refuse = refuse(Code::Unavailable, None),
            FaultKind::Throttle { retry_after } => {
                faults.refuse = refuse(Code::ResourceExhausted, Some(retry_after));
            }
            FaultKind::Delay { by } => faults.delay = Some(Delay { share, by }),
            FaultKind::Stall => faults.stall_share = share,
            FaultKind::Reset => faults.reset_share = share,
            FaultKind::Outage => faults.dead = true,
        }
        faults
    }
}

/// A running schedule. It stops when this is dropped.
pub(super) struct RunningFaults {
    outlasts: bool,
    tasks: JoinSet<()>,
}

impl RunningFaults {
    /// Ends the faults unless they outlast the load. Returns the backends that are not dead.
    pub(super) async fn end(mut self, backends: &[Backend]) -> Vec<&Backend> {
        self.tasks.shutdown().await;
        if !self.outlasts {
            backends.iter().for_each(|backend| backend.faults().clear());
        }
        backends.iter().filter(|backend| !backend.faults().current().dead).collect()
    }
}

#[cfg(test)]
mod tests;
