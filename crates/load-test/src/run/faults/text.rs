//! Faults as they are written, `stall,from=10,to=20,pipeline=2`: a kind, and what else is to be
//! said of it; and as people read them.

use std::fmt;
use std::mem::discriminant;
use std::str::FromStr;
use std::time::Duration;

use super::{FaultError, FaultKind, FaultSchedule, ScheduledFault};
use crate::report::FaultWindow;

/// Where a server asks for no other time.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Each kind by its name, and what it alone takes.
const KINDS: [(&str, FaultKind, &[&str]); 6] = [
    ("refuse", FaultKind::Refuse, &["share"]),
    ("throttle", FaultKind::Throttle { retry_after: RETRY_AFTER }, &["share", "retry-after"]),
    ("delay", FaultKind::Delay { by: Duration::ZERO }, &["share", "by"]),
    ("stall", FaultKind::Stall, &["share"]),
    ("reset", FaultKind::Reset, &["share"]),
    ("outage", FaultKind::Outage, &[]),
];
/// What all of them take.
const COMMON: [&str; 3] = ["from", "to", "pipeline"];

impl FromStr for ScheduledFault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let mut parts = text.split(',').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let (kind, value, own) = KINDS
            .into_iter()
            .find(|(name, ..)| *name == kind)
            .ok_or_else(|| FaultError::Kind(kind.to_owned()))?;
        let takes = [own, &COMMON].concat();
        let mut fault = ScheduledFault::throughout(value, 1.0);
        let mut names = Vec::new();
        for part in parts {
            let (name, value) =
                part.split_once('=').ok_or_else(|| FaultError::NoValue(part.to_owned()))?;
            if !takes.contains(&name) {
                let (name, takes) = (name.to_owned(), takes.join(", "));
                return Err(FaultError::Name { name, kind, takes });
            }
            if names.contains(&name) {
                return Err(FaultError::Twice(name.to_owned()));
            }
            names.push(name);
            fault
                .set(name, value)
                .map_err(|expected| FaultError::Value { text: part.to_owned(), expected })?;
        }
        fault.check_itself()
    }
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
                self.pipelines =
                    indices.map_err(|_| "give a pipeline's number from 0, or several as 0+2")?;
            }
        }
        Ok(())
    }

    fn check_itself(self) -> Result<Self, FaultError> {
        if matches!(self.kind, FaultKind::Delay { by } if by.is_zero()) {
            return Err(FaultError::NoDelay);
        }
        let from_s = self.from.as_secs_f64();
        match self.to.filter(|to| *to <= self.from) {
            Some(to) => Err(FaultError::EndsBeforeItBegins { from_s, to_s: to.as_secs_f64() }),
            None => Ok(self),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.trim_end_matches('s').parse().ok();
    let seconds = seconds.filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or("give a number of seconds, 0 to 86400")
}

impl FaultKind {
    fn name(self) -> &'static str {
        let is_same = |kind: &FaultKind| discriminant(kind) == discriminant(&self);
        KINDS.iter().find(|(_, kind, _)| is_same(kind)).map_or("", |(name, ..)| name)
    }
}

/// As it is written for `--fault`.
impl fmt::Display for ScheduledFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind.name())?;
        let mut say = |name, value: &dyn fmt::Display| write!(formatter, ",{name}={value}");
        match self.kind {
            FaultKind::Throttle { retry_after } => say("retry-after", &retry_after.as_secs_f64())?,
            FaultKind::Delay { by } => say("by", &by.as_secs_f64())?,
            _ => {}
        }
        if self.share < 1.0 {
            say("share", &self.share)?;
        }
        if !self.from.is_zero() {
            say("from", &self.from.as_secs_f64())?;
        }
        if let Some(to) = self.to {
            say("to", &to.as_secs_f64())?;
        }
        match self.pipelines.is_empty() {
            true => Ok(()),
            false => say("pipeline", &list(&self.pipelines, "+")),
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
        let window = |fault: &ScheduledFault| FaultWindow {
            from_s: fault.from.as_secs_f64(),
            to_s: Some(fault.end(load).min(load).as_secs_f64()),
            label: fault.label(),
        };
        begun.map(window).collect()
    }
}
