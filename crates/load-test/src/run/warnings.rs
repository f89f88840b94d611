//! Warnings about doubtful figures of a turn, with remedies.

use super::machine::Noise;
use crate::report::Warning;

/// Share of its cores above which the bench counts as the limit.
pub(super) const BENCH_SHARE: f64 = 0.85;
/// Share of the requests that may be late without a warning.
const LATE_SHARE: f64 = 0.01;
/// Share of the cores' time that the hypervisor may take, and that other processes may.
const STOLEN_SHARE: f64 = 0.02;
const OTHERS_SHARE: f64 = 0.1;

/// The facts that a turn's warnings depend on.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Warnings of the subject and of the source of the load.
    pub(super) told: Vec<Warning>,
    pub(super) generator_cores: f64,
    pub(super) backend_cores: f64,
    /// Number of cores of the bench.
    pub(super) bench_cores: usize,
    pub(super) requests: u64,
    pub(super) late_requests: u64,
    pub(super) lost: u64,
    /// Its queue was not empty after the drain, and it does not say how many items it holds.
    pub(super) queue_is_unknown: bool,
    /// Items had been arriving until the time to drain was over.
    pub(super) is_still_draining: bool,
    pub(super) noise: Option<Noise>,
}

pub(super) fn warnings(facts: &Facts) -> Vec<Warning> {
    let Facts { generator_cores, backend_cores, bench_cores, .. } = *facts;
    let Facts { requests, late_requests, lost, .. } = *facts;
    let bench_is_busy = generator_cores + backend_cores > BENCH_SHARE * bench_cores as f64;
    let noise = facts.noise.unwrap_or_default();
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let mut told = facts.told.clone();
    let mut tell = |is_so: bool, message: &str, remedy: &str| {
        told.extend(is_so.then(|| Warning::new(message, remedy)));
    };
    tell(
        bench_is_busy,
        &format!(
            "the generator took {generator_cores:.2} and the backends {backend_cores:.2} of the \
             bench's {bench_cores} core(s): the bench was the limit"
        ),
        "give the bench more cores, or set a lower rate with -r",
    );
    tell(
        late_requests as f64 > LATE_SHARE * requests as f64,
        &format!("{late_requests} of {requests} requests were sent more than 50 ms late"),
        match bench_is_busy {
            true => "set a lower rate with -r: the bench does not keep up",
            false => {
                "set a lower rate with -r: the subject does not keep up; if only its answers are \
                 slow, use more --streams"
            }
        },
    );
    tell(
        facts.queue_is_unknown && lost > 0,
        "its queue was not empty at the end of the drain, and it does not report the number of \
         items in it: they are counted as lost",
        "wait longer with --drain-within",
    );
    tell(
        facts.is_still_draining && lost > 0,
        "items were still arriving when the time to drain was over: the rest is counted as lost",
        "wait longer with --drain-within",
    );
    tell(
        noise.stolen > STOLEN_SHARE,
        &format!("the hypervisor took {} of the cores' time (steal)", percent(noise.stolen)),
        "run on a machine whose cores are not shared, or take several turns with --turns",
    );
    tell(
        noise.others > OTHERS_SHARE,
        &format!(
            "processes that have nothing to do with the run took {} of its cores' time",
            percent(noise.others)
        ),
        "end them, or take several turns with --turns",
    );
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calm() -> Facts {
        Facts {
            generator_cores: 0.4,
            backend_cores: 0.3,
            bench_cores: 1,
            requests: 1_000,
            late_requests: 10,
            lost: 7,
            noise: Some(Noise { stolen: 0.02, others: 0.1 }),
            ..Facts::default()
        }
    }

    #[test]
    fn a_run_in_which_all_is_within_bounds_has_no_warning() {
        assert_eq!(warnings(&calm()), []);
    }

    #[test]
    fn each_doubt_has_its_warning_and_its_remedy() {
        type Change = fn(&mut Facts);
        let cases: [(Change, &str, &str); 8] = [
            (|facts| facts.told.push(Warning::new("it ended", "see why")), "it ended", "see why"),
            (
                |facts| facts.backend_cores = 0.5,
                "generator took 0.40 and the backends 0.50",
                "more cores",
            ),
            (|facts| facts.generator_cores = 0.6, "the bench was the limit", "-r"),
            (
                |facts| facts.late_requests = 11,
                "11 of 1000 requests were sent more than 50 ms late",
                "subject does not keep up",
            ),
            (|facts| facts.queue_is_unknown = true, "counted as lost", "--drain-within"),
            (|facts| facts.is_still_draining = true, "still arriving", "--drain-within"),
            (
                |facts| facts.noise = Some(Noise { stolen: 0.05, others: 0.0 }),
                "took 5 % of the cores' time (steal)",
                "not shared",
            ),
            (
                |facts| facts.noise = Some(Noise { stolen: 0.0, others: 0.3 }),
                "took 30 % of its cores' time",
                "end them",
            ),
        ];
        for (change, message, remedy) in cases {
            let mut facts = calm();
            change(&mut facts);
            let found = warnings(&facts);
            assert_eq!(found.len(), 1, "{message}: {found:?}");
            assert!(found[0].message.contains(message), "{message}: {found:?}");
            assert!(
                found[0].remedy.as_ref().is_some_and(|text| text.contains(remedy)),
                "{remedy}: {found:?}"
            );
        }
    }

    #[test]
    fn a_busy_bench_is_named_as_the_one_that_is_late() {
        let facts = Facts { generator_cores: 1.0, late_requests: 500, ..calm() };
        let found = warnings(&facts);
        assert!(
            found[1].remedy.as_ref().unwrap().contains("the bench does not keep up"),
            "{found:?}"
        );
    }

    #[test]
    fn nothing_lost_is_no_reason_to_doubt_an_unknown_queue() {
        assert_eq!(warnings(&Facts { queue_is_unknown: true, lost: 0, ..calm() }), []);
    }
}
