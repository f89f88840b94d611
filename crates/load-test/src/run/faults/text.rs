//! Faults as they are written, `stall,from=10,to=20,pipeline=2`, and as people read them.

use std::fmt;
use std::mem::discriminant;
use std::str::FromStr;
use std::time::Duration;

use super::{FaultKind, FaultSchedule, ScheduledFault};
use crate::report::FaultWindow;

/// Retry-After of `throttle` if none is given.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Each kind with its name, and its options beside `COMMON`.
const KINDS: [(&str, FaultKind, &[&str]); 6] = [
    ("refuse", FaultKind::Refuse, &["share"]),
    ("throttle", FaultKind::Throttle { retry_after: RETRY_AFTER }, &["share", "retry-after"]),
    ("delay", FaultKind::Delay { by: Duration::ZERO }, &["share", "by"]),
    ("stall", FaultKind::Stall, &["share"]),
    ("reset", FaultKind::Reset, &["share"]),
    ("outage", FaultKind::Outage, &[]),
];
/// Options that all kinds take.
const COMMON: [&str; 3] = ["from", "to", "pipeline"];

impl FromStr for ScheduledFault {
    /// A message that follows the text.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let known = KINDS.into_iter().find(|(name, ..)| *name == kind);
        let (_, value, own) = known.ok_or_else(|| {
            format!("no fault `{kind}`: there are refuse, throttle, delay, stall, reset and outage")
        })?;
        let takes = [own, &COMMON].concat();
        let mut fault = ScheduledFault::throughout(value, 1.0);
        let mut names = Vec::new();
        for part in parts {
            let Some((name, value)) = part.split_once('=') else {
                return Err(format!("`{part}`: write name=value, for instance from=10"));
            };
            if !takes.contains(&name) {
                return Err(format!("`{name}`: {kind} takes {}", takes.join(", ")));
            }
            if names.contains(&name) {
                return Err(format!("`{name}` is given twice"));
            }
            names.push(name);
            fault.set(name, value).map_err(|expected| format!("`{part}`: {expected}"))?;
        }
        if matches!(fault.kind, FaultKind::Delay { by } if by.is_zero()) {
            return Err("delay needs to know how long: add by=SECONDS".to_owned());
        }
        match fault.to.filter(|to| *to <= fault.from) {
            Some(to) => {
                let (from_s, to_s) = (fault.from.as_secs_f64(), to.as_secs_f64());
                Err(format!("to={to_s}: the fault begins at {from_s} s and must end later"))
            }
            None => Ok(fault),
        }
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

    /// The fault in words: `70 % of requests answered 503`.
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

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.trim_end_matches('s').parse().ok();
    let seconds = seconds.filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or("give a number of seconds, 0 to 86400")
}

/// As it is written for `--fault`.
impl fmt::Display for ScheduledFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_same = |kind: &FaultKind| discriminant(kind) == discriminant(&self.kind);
        let known = KINDS.iter().find(|(_, kind, _)| is_same(kind));
        formatter.write_str(known.map_or("", |(name, ..)| name))?;
        let seconds = |time: Duration| time.as_secs_f64().to_string();
        let own = match self.kind {
            FaultKind::Throttle { retry_after } => Some(("retry-after", seconds(retry_after))),
            FaultKind::Delay { by } => Some(("by", seconds(by))),
            _ => None,
        };
        let options = [
            own,
            (self.share < 1.0).then(|| ("share", self.share.to_string())),
            (!self.from.is_zero()).then(|| ("from", seconds(self.from))),
            self.to.map(|to| ("to", seconds(to))),
            (!self.pipelines.is_empty()).then(|| ("pipeline", list(&self.pipelines, "+"))),
        ];
        let mut given = options.into_iter().flatten();
        given.try_for_each(|(name, value)| write!(formatter, ",{name}={value}"))
    }
}

fn list(pipelines: &[usize], separator: &str) -> String {
    pipelines.iter().map(usize::to_string).collect::<Vec<_>>().join(separator)
}

impl FaultSchedule {
    /// `None` without faults.
    pub(in crate::run) fn in_words(&self) -> Option<String> {
        let words: Vec<_> = self.faults.iter().map(ScheduledFault::in_words).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    /// Windows of the faults that began before the load ended, also where it was interrupted.
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
