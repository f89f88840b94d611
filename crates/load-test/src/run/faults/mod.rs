//! What is wrong with which backend, when, while the load lasts.

mod text;
mod timeline;

use std::time::Duration;

use thiserror::Error;

/// One fault of the backends, as `--fault` describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduledFault {
    pub kind: FaultKind,
    /// Of the requests, above 0.0, up to 1.0. Not for [`FaultKind::Outage`], which concerns them
    /// all.
    pub share: f64,
    /// Since the load began.
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
    /// Taken only after this time.
    Delay { by: Duration },
    /// Read and not answered until the fault ends.
    Stall,
    /// Broken off in the middle of the answer.
    Reset,
    /// Connections are refused, and those that there are cut.
    Outage,
}

/// Why a fault cannot be had. The messages follow the fault's own text.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum FaultError {
    #[error("no fault `{0}`: there are refuse, throttle, delay, stall, reset and outage")]
    Kind(String),
    #[error("`{0}`: write name=value, for instance from=10")]
    NoValue(String),
    #[error("`{name}`: {kind} takes {takes}")]
    Name { name: String, kind: &'static str, takes: String },
    #[error("`{0}` is given twice")]
    Twice(String),
    #[error("`{text}`: {expected}")]
    Value { text: String, expected: &'static str },
    #[error("delay needs to know how long: add by=SECONDS")]
    NoDelay,
    #[error("to={to_s}: the fault begins at {from_s} s and must end later")]
    EndsBeforeItBegins { from_s: f64, to_s: f64 },
    #[error(
        "it begins at {from_s} s and the load ends at {load_s} s: begin earlier, or lengthen the \
         load with -d"
    )]
    BeginsAfterTheLoad { from_s: f64, load_s: f64 },
    #[error(
        "to={to_s}: the load ends at {load_s} s: leave `to` away for the load's end, or lengthen \
         the load with -d"
    )]
    EndsAfterTheLoad { to_s: f64, load_s: f64 },
    #[error("pipeline={index}: there is pipeline 0 only: add -m for pipelines 0 to 2")]
    NotSeveral { index: usize },
    #[error("pipeline={index}: there are pipelines 0 to {last}")]
    NoPipeline { index: usize, last: usize },
    #[error(
        "it would have to give pipeline {pipeline} another answer than `{other}` does at {at_s} s: \
         let one end before the other begins"
    )]
    Overlaps { other: String, pipeline: usize, at_s: f64 },
}

/// All faults of a run. The default is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultSchedule {
    faults: Vec<ScheduledFault>,
}

impl FaultSchedule {
    /// Checks the faults against the run. The error comes with the fault's text.
    pub fn new(
        faults: Vec<ScheduledFault>,
        load: Duration,
        pipelines: usize,
    ) -> Result<FaultSchedule, (String, FaultError)> {
        for (index, fault) in faults.iter().enumerate() {
            let mut before = faults[..index].iter();
            fault
                .check(load, pipelines)
                .and_then(|()| before.try_for_each(|one| fault.check_beside(one, load, pipelines)))
                .map_err(|error| (fault.to_string(), error))?;
        }
        Ok(FaultSchedule { faults })
    }

    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
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

    fn check(&self, load: Duration, pipelines: usize) -> Result<(), FaultError> {
        let (from_s, load_s) = (self.from.as_secs_f64(), load.as_secs_f64());
        if self.from >= load {
            return Err(FaultError::BeginsAfterTheLoad { from_s, load_s });
        }
        if let Some(to) = self.to.filter(|to| *to > load) {
            return Err(FaultError::EndsAfterTheLoad { to_s: to.as_secs_f64(), load_s });
        }
        match self.pipelines.iter().find(|index| **index >= pipelines) {
            Some(&index) if pipelines == 1 => Err(FaultError::NotSeveral { index }),
            Some(&index) => Err(FaultError::NoPipeline { index, last: pipelines - 1 }),
            None => Ok(()),
        }
    }

    /// A request has one answer and is delayed once: two such faults must not meet.
    fn check_beside(
        &self,
        other: &ScheduledFault,
        load: Duration,
        pipelines: usize,
    ) -> Result<(), FaultError> {
        let begins = self.from.max(other.from);
        let meets =
            begins < self.end(load).min(other.end(load)) && self.kind.slot() == other.kind.slot();
        let (other_text, at_s) = (other.to_string(), begins.as_secs_f64());
        match (0..pipelines).find(|&pipeline| self.concerns(pipeline) && other.concerns(pipeline)) {
            Some(pipeline) if meets => {
                Err(FaultError::Overlaps { other: other_text, pipeline, at_s })
            }
            _ => Ok(()),
        }
    }
}

impl FaultKind {
    /// Kinds with the same slot are the same setting of a backend.
    fn slot(self) -> u8 {
        match self {
            FaultKind::Refuse | FaultKind::Throttle { .. } => 0,
            FaultKind::Delay { .. } => 1,
            FaultKind::Stall => 2,
            FaultKind::Reset => 3,
            FaultKind::Outage => 4,
        }
    }
}

#[cfg(test)]
mod tests;
