//! Faults as people read them.

use std::fmt;
use std::time::Duration;

use super::{FaultKind, FaultSchedule, ScheduledFault};
use crate::report::FaultWindow;

/// As it is written for `--fault`.
impl fmt::Display for ScheduledFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind.name())?;
        match self.kind {
            FaultKind::Throttle { retry_after } => write!(formatter, ",retry-after={}", retry_after.as_secs_f64())?,
            FaultKind::Delay { by } => write!(formatter, ",by={}", by.as_secs_f64())?,
            _ => {}
        }
        if self.share < 1.0 {
            write!(formatter, ",share={}", self.share)?;
        }
        if !self.from.is_zero() {
            write!(formatter, ",from={}", self.from.as_secs_f64())?;
        }
        if let Some(to) = self.to {
            write!(formatter, ",to={}", to.as_secs_f64())?;
        }
        match self.pipelines.is_empty() {
            true => Ok(()),
            false => write!(formatter, ",pipeline={}", list(&self.pipelines, "+")),
        }
    }
}

fn list(pipelines: &[usize], separator: &str) -> String {
    pipelines.iter().map(usize::to_string).collect::<Vec<_>>().join(separator)
}

impl ScheduledFault {
    /// What it does, to whom: `70 % of requests answered 503`.
    fn label(&self) -> String {
        let requests = match self.share < 1.0 {
            true => format!("{:.4} % of requests", 100.0 * self.share).replace(".0000", ""),
            false => "all requests".to_owned(),
        };
        let done = match self.kind {
            FaultKind::Refuse => format!("{requests} answered 503"),
            FaultKind::Throttle { retry_after } => {
                format!("{requests} answered 429 with Retry-After {} s", retry_after.as_secs_f64())
            }
            FaultKind::Delay { by } => format!("{requests} delayed by {} s", by.as_secs_f64()),
            FaultKind::Stall => format!("{requests} never answered"),
            FaultKind::Reset => format!("{requests} reset in mid-answer"),
            FaultKind::Outage => "connections refused".to_owned(),
        };
        match self.pipelines.as_slice() {
            [] => done,
            [one] => format!("{done} (pipeline {one})"),
            several => format!("{done} (pipelines {})", list(several, ", ")),
        }
    }

    fn in_words(&self) -> String {
        let (label, from_s) = (self.label(), self.from.as_secs_f64());
        match self.to {
            None if self.from.is_zero() => label,
            None => format!("{label} from {from_s} s"),
            Some(to) => format!("{label} from {from_s} to {} s", to.as_secs_f64()),
        }
    }
}

impl FaultSchedule {
    /// `None` without faults.
    pub(in crate::run) fn in_words(&self) -> Option<String> {
        let words: Vec<_> = self.faults.iter().map(ScheduledFault::in_words).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    /// Those that began before the load's end, which an interruption brings forward.
    pub(in crate::run) fn windows(&self, load: Duration) -> Vec<FaultWindow> {
        let begun = self.faults.iter().filter(|fault| fault.from < load);
        begun
            .map(|fault| FaultWindow {
                from_s: fault.from.as_secs_f64(),
                to_s: Some(fault.end(load).min(load).as_secs_f64()),
                label: fault.label(),
            })
            .collect()
    }
}
