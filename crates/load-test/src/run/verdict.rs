//! Thresholds: what a run must not come to.

use std::str::FromStr;

use crate::report::{Kpis, SubjectRecord, Verdict};

/// What can be held against a threshold: its name and where it is found.
type Kpi = (&'static str, fn(&Kpis) -> Option<f64>);

const KPIS: [Kpi; 18] = [
    ("received", |kpis| kpis.received_per_s),
    ("exported", |kpis| kpis.exported_per_s),
    ("queue", |kpis| kpis.queue),
    ("queue_max", |kpis| kpis.queue_max),
    ("memory_mb", |kpis| kpis.memory_bytes.map(|bytes| bytes / f64::from(1 << 20))),
    ("memory_max_mb", |kpis| kpis.memory_max_bytes.map(|bytes| bytes / f64::from(1 << 20))),
    ("cpu", |kpis| kpis.cpu_cores),
    ("restarts", |kpis| kpis.restarts.map(|count| count as f64)),
    ("offered", |kpis| kpis.offered.map(|count| count as f64)),
    ("accepted", |kpis| kpis.accepted.map(|count| count as f64)),
    ("refused", |kpis| kpis.refused.map(|count| count as f64)),
    ("lost", |kpis| kpis.lost.map(|count| count as f64)),
    ("doubled", |kpis| kpis.doubled.map(|count| count as f64)),
    ("p50_ms", |kpis| kpis.latency_p50_ms),
    ("p99_ms", |kpis| kpis.latency_p99_ms),
    ("p999_ms", |kpis| kpis.latency_p999_ms),
    ("cpu_s_per_million", |kpis| kpis.cpu_s_per_million),
    ("drain_s", |kpis| kpis.drain_s),
];

/// A comparison of a figure with a limit, and how it is written.
type Operator = (&'static str, fn(f64, f64) -> bool);

/// In this order, so that `>=` is not read as `>`.
const OPERATORS: [Operator; 6] = [
    (">=", |value, limit| value >= limit),
    ("<=", |value, limit| value <= limit),
    ("==", |value, limit| value == limit),
    ("!=", |value, limit| value != limit),
    (">", |value, limit| value > limit),
    ("<", |value, limit| value < limit),
];

/// A condition under which a run has failed, for instance `lost>0`.
#[derive(Clone, Debug)]
pub struct Threshold {
    text: String,
    kpi: fn(&Kpis) -> Option<f64>,
    is_met: fn(f64, f64) -> bool,
    limit: f64,
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = OPERATORS.iter().find_map(|(sign, is_met)| Some((text.split_once(sign)?, *is_met)));
        let ((name, limit), is_met) = split
            .ok_or_else(|| "give a figure, one of > >= < <= == != and a number, for instance lost>0".to_owned())?;
        let name = name.trim();
        let (_, kpi) = KPIS.iter().find(|(known, _)| *known == name).ok_or_else(|| {
            let names: Vec<_> = KPIS.iter().map(|(name, _)| *name).collect();
            format!("no figure `{name}`: there are {}", names.join(", "))
        })?;
        let limit = limit.trim().parse().ok().filter(|limit: &f64| limit.is_finite());
        let limit = limit.ok_or_else(|| format!("a number is needed behind `{name}`"))?;
        Ok(Threshold { text: text.to_owned(), kpi: *kpi, is_met, limit })
    }
}

impl Threshold {
    /// Holds it against every turn: one that meets it is enough, and so is one whose figure is not known.
    pub(super) fn judge(&self, subject: &SubjectRecord) -> Verdict {
        let values: Vec<Option<f64>> = subject.turns.iter().map(|turn| (self.kpi)(&turn.kpis)).collect();
        let fails = |value: &Option<f64>| value.is_none_or(|value| (self.is_met)(value, self.limit));
        let failing = values.iter().find(|value| fails(value));
        Verdict {
            subject: subject.name.clone(),
            fail_if: self.text.clone(),
            value: failing.or(values.last()).copied().flatten(),
            failed: failing.is_some() || values.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Turn;

    fn judge(threshold: &str, lost: &[Option<u64>]) -> Verdict {
        let turn = |lost: &Option<u64>| Turn { kpis: Kpis { lost: *lost, ..Kpis::default() }, ..Turn::default() };
        let turns = lost.iter().map(turn).collect();
        threshold.parse::<Threshold>().unwrap().judge(&SubjectRecord { turns, ..SubjectRecord::default() })
    }

    #[test]
    fn one_turn_that_meets_the_condition_is_enough() {
        assert!(!judge("lost>0", &[Some(0), Some(0)]).failed);
        let verdict = judge("lost > 0", &[Some(0), Some(7), Some(0)]);
        assert_eq!((verdict.failed, verdict.value), (true, Some(7.0)));
        assert!(judge("lost>=7", &[Some(7)]).failed && !judge("lost>7", &[Some(7)]).failed);
        assert!(judge("lost!=7", &[Some(8)]).failed && !judge("lost<7", &[Some(7)]).failed);
    }

    #[test]
    fn what_is_not_known_fails() {
        assert!(judge("lost>0", &[None]).failed && judge("lost>0", &[]).failed);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (text, expected) in [("lost", "lost>0"), ("losst>0", "cpu_s_per_million"), ("lost>many", "number")] {
            let error = text.parse::<Threshold>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
