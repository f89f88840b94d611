//! Poison: a backend refuses for good every request that has a bad item, and one item in twenty is
//! bad. Compares the rate of good items with the rate without bad items.

use super::*;

const CLEAN: &str = "none";
/// One item in this many is bad.
const BAD_EVERY: u64 = 20;
const POISONED: &str = "1 of 20";
/// Lowest share of the rate of good items.
const RATE_BAR: f64 = 0.95;
/// Time for the search that runs when the load ends.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);

pub(super) const SCENARIO: Scenario = Scenario {
    id: "poison",
    title: "a backend that refuses every request with a bad item",
    cases: &[CLEAN, POISONED],
    case_head: "bad items",
    takes: |contestant, _| contestant.is_gateway(),
    measure: |turn| Box::pin(measure(turn)),
    compare: |all| compare(all, CLEAN, "rate_ratio", "good_of_all", Div::div),
    columns: &[
        ("good spans/s", |series| series.cell("good_per_s", 0)),
        ("×", |series| series.cell("rate_ratio", 3)),
        ("requests a bad span", |series| series.cell("requests_per_bad", 1)),
        ("good spans lost", |series| series.worst("good_lost")),
        ("doubled", |series| series.worst("doubled")),
        ("CPU-s/M", |series| series.cell("cpu_s_per_million", 1)),
        ("peak MiB (of limit)", Series::peak_of_limit),
    ],
    holds: |series| {
        series.median("rate_ratio") >= RATE_BAR
            && series.none(&["good_lost", "doubled"])
            && series.keeps_to_memory()
    },
    notes: |options| {
        format!(
            "{:.0} spans/s of 40 attributes offered, memory limit {MEMORY_LIMIT_MIB} MiB, a \
             backend that answers INVALID_ARGUMENT to a request with a bad span. Good spans that \
             arrived a second, and how many requests each bad one cost. ×: of the good spans that \
             were offered, against the same without bad ones.\nBar: at least {:.0} % of that, no \
             good span lost or sent twice, memory at most 110 % of the limit.",
            options.rate,
            RATE_BAR * 100.0,
        )
    },
};

async fn measure(turn: Turn<'_>) -> Result<Figures> {
    let backend = vec![Faults::rejecting_poison()];
    let stage = Setting::of(turn, MEMORY_LIMIT_MIB, "")?.with_backends(backend, vec![]);
    let stage = stage.start().await?;
    let load = stage.load().rate(turn.options.rate).retry(Retry::SDK);
    let poisons = turn.case == POISONED;
    let load = Load { poison_every: poisons.then_some(BAD_EVERY), ..load };
    let observed = stage.under_load(load, WARM_UP, turn.counted()).await?;
    let (report, backend) = (&observed.report, &stage.backends[0]);
    // Sequence numbers begin at 0, and one in `BAD_EVERY` is bad.
    let bad = if poisons { report.offered.div_ceil(BAD_EVERY) } else { 0 };
    let began = Instant::now();
    while report.missing_at(backend) > bad && began.elapsed() < SETTLED_WITHIN {
        sleep(Duration::from_millis(20)).await;
    }
    let counts = backend.counts();
    let bad_share = if poisons { 1.0 / BAD_EVERY as f64 } else { 0.0 };
    let good_per_s = observed.delivered_per_s();
    let others = json!({
        "good_per_s": good_per_s,
        // The rate of good items, scaled to all items.
        "good_of_all": good_per_s / (1.0 - bad_share),
        "good_lost": report.missing_at(backend).saturating_sub(bad),
        "requests_per_bad": (bad > 0).then(|| counts.requests as f64 / bad as f64),
    });
    stage.figures(&observed, others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::series;

    fn holds_with(name: &str, value: f64) -> bool {
        let rest = json!({ "good_lost": 0, "doubled": 0, "memory_share": 0.5 });
        let turn = |per_s: f64| with(rest.clone(), json!({ "good_of_all": per_s }));
        let mut poisoned = turn(960.0);
        poisoned[name] = json!(value);
        let mut all = [series(CLEAN, &[turn(1_000.0)]), series(POISONED, &[poisoned])];
        (SCENARIO.compare)(&mut all);
        (SCENARIO.holds)(&all[1])
    }

    #[test]
    fn each_bar_is_one() {
        assert!(holds_with("good_lost", 0.0));
        assert!(!holds_with("good_of_all", 940.0));
        assert!(!holds_with("good_lost", 1.0));
        assert!(!holds_with("doubled", 1.0));
        assert!(!holds_with("memory_share", 1.11));
        assert!(!(SCENARIO.holds)(&series(POISONED, &[])), "not measured");
    }
}
