//! Thresholds: conditions under which a run has failed.

use std::str::FromStr;

use crate::report::{BenchCost, Kpis, SubjectRecord, Verdict, megabytes, whole};

/// The part of a record that has a figure.
#[derive(Clone, Copy, Debug)]
enum Source {
    Turn(fn(&Kpis) -> Option<f64>),
    Bench(fn(&BenchCost) -> Option<f64>),
    /// One value for all turns.
    Subject(fn(&SubjectRecord) -> Option<f64>),
}

use Source::{Bench, Subject, Turn};

const FIGURES: [(&str, Source); 29] = [
    ("received", Turn(|kpis| kpis.received_per_s)),
    ("exported", Turn(|kpis| kpis.exported_per_s)),
    ("queue", Turn(|kpis| kpis.queue)),
    ("queue_max", Turn(|kpis| kpis.queue_max)),
    ("memory_mb", Turn(|kpis| megabytes(kpis.memory_bytes))),
    ("memory_max_mb", Turn(|kpis| megabytes(kpis.memory_max_bytes))),
    ("cpu", Turn(|kpis| kpis.cpu_cores)),
    ("restarts", Turn(|kpis| whole(kpis.restarts))),
    ("offered", Turn(|kpis| whole(kpis.offered))),
    ("accepted", Turn(|kpis| whole(kpis.accepted))),
    ("refused", Turn(|kpis| whole(kpis.refused))),
    ("unanswered", Turn(|kpis| whole(kpis.unanswered))),
    ("never_sent", Turn(|kpis| whole(kpis.never_sent))),
    ("lost", Turn(|kpis| whole(kpis.lost))),
    ("doubled", Turn(|kpis| whole(kpis.doubled))),
    ("p50_ms", Turn(|kpis| kpis.latency_p50_ms)),
    ("p99_ms", Turn(|kpis| kpis.latency_p99_ms)),
    ("p999_ms", Turn(|kpis| kpis.latency_p999_ms)),
    ("cpu_s_per_million", Turn(|kpis| kpis.cpu_s_per_million)),
    ("wire_in_mb", Turn(|kpis| megabytes(whole(kpis.wire_in_bytes)))),
    ("wire_out_mb", Turn(|kpis| megabytes(whole(kpis.wire_out_bytes)))),
    ("received_bytes", Turn(|kpis| kpis.received_bytes_per_s)),
    ("exported_bytes", Turn(|kpis| kpis.exported_bytes_per_s)),
    ("buffer_mb", Turn(|kpis| megabytes(kpis.buffer_bytes))),
    ("drain_s", Turn(|kpis| kpis.drain_s)),
    ("late_requests", Bench(|bench| whole(bench.late_requests))),
    ("generator_cpu", Bench(|bench| bench.generator_cpu_cores)),
    ("backend_cpu", Bench(|bench| bench.backend_cpu_cores)),
    ("limit", Subject(|subject| subject.limit.as_ref()?.rate_per_s)),
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
    figure: Source,
    is_met: fn(f64, f64) -> bool,
    limit: f64,
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split =
            OPERATORS.iter().find_map(|(sign, is_met)| Some((text.split_once(sign)?, *is_met)));
        let ((name, limit), is_met) = split.ok_or_else(|| {
            "give a figure, one of > >= < <= == != and a number, for instance lost>0".to_owned()
        })?;
        let name = name.trim();
        let (_, figure) = FIGURES.iter().find(|(known, _)| *known == name).ok_or_else(|| {
            let names: Vec<_> = FIGURES.iter().map(|(name, _)| *name).collect();
            format!("no figure `{name}`: there are {}", names.join(", "))
        })?;
        let limit = limit.trim().parse().ok().filter(|limit: &f64| limit.is_finite());
        let limit = limit.ok_or_else(|| format!("a number is needed behind `{name}`"))?;
        Ok(Threshold { text: text.to_owned(), figure: *figure, is_met, limit })
    }
}

impl Threshold {
    /// Whether it is about the result of `--find-limit`.
    pub fn needs_a_search(&self) -> bool {
        matches!(self.figure, Subject(_))
    }

    /// Fails if one turn meets the condition, or does not know the figure.
    pub(super) fn judge(&self, subject: &SubjectRecord) -> Verdict {
        let values: Vec<Option<f64>> = match self.figure {
            Turn(figure) => subject.turns.iter().map(|turn| figure(&turn.kpis)).collect(),
            Bench(figure) => subject.turns.iter().map(|turn| figure(&turn.bench)).collect(),
            Subject(figure) => vec![figure(subject)],
        };
        let fails =
            |value: &Option<f64>| value.is_none_or(|value| (self.is_met)(value, self.limit));
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
    use crate::report::{FoundLimit, Turn};

    fn judge(threshold: &str, lost: &[Option<u64>]) -> Verdict {
        let turn = |lost: &Option<u64>| Turn {
            kpis: Kpis { lost: *lost, ..Kpis::default() },
            ..Turn::default()
        };
        let turns = lost.iter().map(turn).collect();
        threshold
            .parse::<Threshold>()
            .unwrap()
            .judge(&SubjectRecord { turns, ..SubjectRecord::default() })
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
    fn figures_of_the_bench_and_of_a_search_can_be_held_too() {
        let bench = BenchCost {
            late_requests: Some(3),
            backend_cpu_cores: Some(0.5),
            ..BenchCost::default()
        };
        let limit = Some(FoundLimit { rate_per_s: Some(10_000.0), ..FoundLimit::default() });
        let turns = vec![Turn { bench, ..Turn::default() }];
        let subject = SubjectRecord { turns, limit, ..SubjectRecord::default() };
        let judge = |text: &str| text.parse::<Threshold>().unwrap().judge(&subject);
        assert!(
            judge("late_requests>2").failed
                && !judge("backend_cpu>0.5").failed
                && !judge("limit<10000").failed
        );
        assert_eq!(judge("limit<20000").value, Some(10_000.0));
        assert!("limit<1".parse::<Threshold>().unwrap().needs_a_search());
    }

    #[test]
    fn every_figure_is_found_by_its_name() {
        for (name, _) in FIGURES {
            let threshold: Threshold = format!("{name}>=0").parse().unwrap();
            let known = Kpis {
                received_per_s: Some(1.0),
                exported_per_s: Some(1.0),
                queue: Some(1.0),
                queue_max: Some(1.0),
                memory_bytes: Some(1.0),
                memory_max_bytes: Some(1.0),
                cpu_cores: Some(1.0),
                restarts: Some(1),
                offered: Some(1),
                accepted: Some(1),
                refused: Some(1),
                unanswered: Some(1),
                never_sent: Some(1),
                lost: Some(1),
                doubled: Some(1),
                latency_p50_ms: Some(1.0),
                latency_p99_ms: Some(1.0),
                latency_p999_ms: Some(1.0),
                cpu_s_per_million: Some(1.0),
                wire_in_bytes: Some(1),
                wire_out_bytes: Some(1),
                received_bytes_per_s: Some(1.0),
                exported_bytes_per_s: Some(1.0),
                buffer_bytes: Some(1.0),
                drain_s: Some(1.0),
                ..Kpis::default()
            };
            let bench = BenchCost {
                generator_cpu_cores: Some(1.0),
                backend_cpu_cores: Some(1.0),
                late_requests: Some(1),
                ..BenchCost::default()
            };
            let limit = Some(FoundLimit { rate_per_s: Some(1.0), ..FoundLimit::default() });
            let turns = vec![Turn { kpis: known, bench, ..Turn::default() }];
            let verdict =
                threshold.judge(&SubjectRecord { turns, limit, ..SubjectRecord::default() });
            assert!(verdict.failed && verdict.value.is_some(), "{name}");
            assert!(
                threshold.judge(&SubjectRecord::default()).failed,
                "{name}: what is not known fails"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (text, expected) in
            [("lost", "lost>0"), ("losst>0", "cpu_s_per_million"), ("lost>many", "number")]
        {
            let error = text.parse::<Threshold>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
