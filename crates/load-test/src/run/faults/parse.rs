//! `stall,from=10,to=20,pipeline=2`: a fault's kind, and what else is to be said of it.

use std::str::FromStr;
use std::time::Duration;

use super::{FaultError, FaultKind, ScheduledFault};

/// Where a server asks for no other time.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const SECONDS: &str = "give a number of seconds, 0 to 86400";

impl FromStr for ScheduledFault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let mut parts = text.split(',').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let mut fault = ScheduledFault::throughout(kind_of(kind)?, 1.0);
        let takes = takes(fault.kind);
        let mut names = Vec::new();
        for part in parts {
            let (name, value) = part.split_once('=').ok_or_else(|| FaultError::NoValue(part.to_owned()))?;
            if !takes.contains(&name) {
                let takes = takes.join(", ");
                return Err(FaultError::Name { name: name.to_owned(), kind: fault.kind.name(), takes });
            }
            if names.contains(&name) {
                return Err(FaultError::Twice(name.to_owned()));
            }
            names.push(name);
            fault.set(name, value).map_err(|expected| FaultError::Value { text: part.to_owned(), expected })?;
        }
        fault.check_itself()
    }
}

fn kind_of(name: &str) -> Result<FaultKind, FaultError> {
    Ok(match name {
        "refuse" => FaultKind::Refuse,
        "throttle" => FaultKind::Throttle { retry_after: RETRY_AFTER },
        "delay" => FaultKind::Delay { by: Duration::ZERO },
        "stall" => FaultKind::Stall,
        "reset" => FaultKind::Reset,
        "outage" => FaultKind::Outage,
        other => return Err(FaultError::Kind(other.to_owned())),
    })
}

fn takes(kind: FaultKind) -> Vec<&'static str> {
    let own: &[_] = match kind {
        FaultKind::Outage => &[],
        FaultKind::Throttle { .. } => &["share", "retry-after"],
        FaultKind::Delay { .. } => &["share", "by"],
        FaultKind::Refuse | FaultKind::Stall | FaultKind::Reset => &["share"],
    };
    own.iter().chain(&["from", "to", "pipeline"]).copied().collect()
}

impl ScheduledFault {
    fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match name {
            "share" => {
                let share = value.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
                self.share = share.ok_or("give a share of the requests above 0, up to 1")?;
            }
            "retry-after" => self.kind = FaultKind::Throttle { retry_after: seconds(value)? },
            "by" => self.kind = FaultKind::Delay { by: seconds(value)? },
            "from" => self.from = seconds(value)?,
            "to" => self.to = Some(seconds(value)?),
            _ => {
                let indices = value.split('+').map(str::parse).collect::<Result<_, _>>();
                self.pipelines = indices.map_err(|_| "give a pipeline's number from 0, or several as 0+2")?;
            }
        }
        Ok(())
    }

    fn check_itself(self) -> Result<Self, FaultError> {
        if matches!(self.kind, FaultKind::Delay { by } if by.is_zero()) {
            return Err(FaultError::NoDelay);
        }
        match self.to.filter(|to| *to <= self.from) {
            Some(to) => Err(FaultError::EndsBeforeItBegins { from_s: self.from.as_secs_f64(), to_s: to.as_secs_f64() }),
            None => Ok(self),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.trim_end_matches('s').parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or(SECONDS)
}
