//! Overload: a subject with a fraction of a core is offered three times the load that it can take.
//! Measures its delivery relative to its peak, its answers to the senders that it turns away, and
//! its memory.

use sluice_load_test::report::Spread;
use sluice_load_test::subject::Limits;

use super::*;

const MEMORY_LIMIT_MIB: u64 = 128;
/// So little that generator and backend could take several times as much.
pub(super) const CPU_CORES: f64 = 0.1;
/// Connections and streams of a few senders in closed loops. They find the rate that the subject
/// takes if hardly anything waits.
const FEW_SENDERS: [(usize, usize); 2] = [(4, 2), (4, 8)];
/// Rates that the many senders offer, relative to the rate of few senders. The level with the
/// highest delivery is the peak.
const LEVELS: [f64; 4] = [0.5, 0.65, 0.8, 1.0];
pub(super) const FLOOD: f64 = 3.0;
const DRAIN_WITHIN: Duration = Duration::from_secs(30);
/// Timeout of answers: a flooded subject is slow to give them.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) const SCENARIO: Scenario = Scenario {
    id: "overload",
    title: "three times as much offered as a subject with a CPU quota can take",
    // `buffer.ack`, and connections × streams: a connection each, as SDKs and agents have it; a few
    // gateways with sixteen interleaved requests on each; and more requests in flight than the
    // subject takes within the second for which a request may wait.
    cases: &[
        "memory 256 × 1",
        "delivered 256 × 1",
        "memory 16 × 16",
        "delivered 16 × 16",
        "memory 64 × 32",
        "delivered 64 × 32",
    ],
    case_head: "ack, senders",
    // The Collector has no `buffer.ack`.
    takes: |contestant, case| {
        contestant.is_sluice() || contestant.is_gateway() && case.starts_with("memory")
    },
    measure: |turn| Box::pin(measure(turn)),
    compare: |all| all.iter_mut().for_each(of_peak),
    columns: &[
        ("few senders spans/s", |series| series.cell("few_senders_per_s", 0)),
        ("peak spans/s", |series| series.cell("peak_per_s", 0)),
        ("offered of peak", |series| series.percent("offered_of_peak")),
        ("sent of peak", |series| series.percent("sent_of_peak")),
        ("goodput of peak", |series| series.percent("goodput_of_peak")),
        ("retryable", |series| series.percent("retryable_share")),
        ("without delay", |series| series.worst("refusals_without_delay")),
        ("lost", |series| series.worst("lost")),
        ("doubled", |series| series.worst("doubled")),
        ("peak MiB (of limit)", Series::peak_of_limit),
    ],
    holds: |series| {
        series.median("goodput_of_peak") >= 0.95
            && series.none(&["failed", "unanswered", "lost"])
            && series.keeps_to_memory()
    },
    notes: |_| {
        format!(
            "{CPU_CORES} cores by quota, memory limit {MEMORY_LIMIT_MIB} MiB, spans of 40 \
             attributes. Few senders: the better of closed loops of 8 and 32 requests in flight. \
             Then many in open loop, clients with a connection each (256 × 1) or gateways with \
             many requests at a time on each (16 × 16, 64 × 32), offer {LEVELS:?} and {FLOOD} \
             times that, each to a new subject, and do not come back; what is offered while all \
             their requests wait is not sent. The peak is the level at which most is delivered, by \
             the medians of all turns. Counting begins once no more is accepted than is \
             delivered.\nBar: of {FLOOD} times at least 95 % of the peak in the same turn is \
             delivered (median), every refusal retryable, nothing acknowledged lost, \
             memory at most 110 % of the limit."
        )
    },
};

/// Puts a new subject with this CPU quota and a new backend under this load.
pub(super) async fn under_load(
    turn: Turn<'_>,
    case: &str,
    cpu_cores: f64,
    args: &[&str],
    load: impl FnOnce(Load) -> Load,
) -> Result<(Stage, Observed)> {
    let is_delivered = case.starts_with("delivered");
    let ack = if is_delivered { "buffer:\n  ack: delivered\n" } else { "" };
    let mut setting = Setting::of(turn, MEMORY_LIMIT_MIB, ack)?;
    setting.limits = Limits { cpu_cores: Some(cpu_cores), memory_bytes: None };
    setting.args.extend(args.iter().map(|&arg| arg.to_owned()));
    let stage = setting.start().await?;
    let load = Load { timeout: PATIENCE, grace: PATIENCE, ..load(stage.load()) };
    let warm_up = WarmUp { time: turn.options.window(), until_balanced: true };
    let observed = stage.under_load(load, warm_up, turn.counted()).await?;
    Ok((stage, observed))
}

/// Spans a second that few senders get through.
pub(super) async fn of_few_senders(turn: Turn<'_>, case: &str) -> Result<f64> {
    let mut few_per_s = 0.0_f64;
    for (connections, streams) in FEW_SENDERS {
        let few = |load: Load| load.concurrency(connections, streams).retry(COME_BACK);
        let (_, observed) = under_load(turn, case, CPU_CORES, &[], few).await?;
        few_per_s = few_per_s.max(observed.delivered_per_s());
    }
    ensure!(few_per_s > 0.0, "nothing was delivered");
    Ok(few_per_s)
}

/// The case's many senders in open loop.
pub(super) fn many_senders(load: Load, case: &str, per_s: f64) -> Load {
    let numbers: Vec<usize> = case.split(' ').filter_map(|word| word.parse().ok()).collect();
    load.concurrency(numbers[0], numbers[1]).rate(per_s)
}

async fn measure(turn: Turn<'_>) -> Result<Figures> {
    let few_per_s = of_few_senders(turn, turn.case).await?;
    let (mut levels_per_s, mut flood) = ([0.0; LEVELS.len()], Figures::Null);
    // Each turn begins at another level, so that a machine that becomes slower or faster meanwhile
    // favours none of them.
    for place in 0..=LEVELS.len() {
        let level = (place + turn.number) % (LEVELS.len() + 1);
        let per_s = LEVELS.get(level).unwrap_or(&FLOOD) * few_per_s;
        let many = |load: Load| many_senders(load, turn.case, per_s);
        let (stage, observed) = under_load(turn, turn.case, CPU_CORES, &[], many).await?;
        match levels_per_s.get_mut(level) {
            Some(delivered_per_s) => *delivered_per_s = observed.delivered_per_s(),
            None => flood = of_flood(&stage, &observed).await?,
        }
    }
    Ok(with(flood, json!({ "few_senders_per_s": few_per_s, "levels_per_s": levels_per_s })))
}

async fn of_flood(stage: &Stage, flood: &Observed) -> Result<Figures> {
    let report = &flood.report;
    stage.drained(report, DRAIN_WITHIN).await;
    let load_s = flood.load_s;
    let turned_away = report.refused + report.failed + report.unanswered;
    let others = json!({
        "offered_per_s": report.offered as f64 / load_s,
        "sent_per_s": (report.offered - report.never_sent) as f64 / load_s,
        "goodput_per_s": flood.delivered_per_s(),
        // Share of the items turned away that may be sent again. Null where there are none.
        "retryable_share": report.refused as f64 / turned_away as f64,
    });
    stage.figures(flood, others)
}

/// The peak is the level with the highest delivery, the same for all turns. Levels are compared by
/// medians: the best of single measurements is the luckiest.
fn of_peak(series: &mut Series) {
    let turns = &series.turns;
    let at = |level: usize| turns.iter().map(move |turn| turn["levels_per_s"][level].as_f64());
    let median_at =
        |level: usize| Spread::of(at(level).flatten()).map_or(0.0, |spread| spread.median);
    let peak =
        (0..LEVELS.len()).max_by(|a, b| median_at(*a).total_cmp(&median_at(*b))).unwrap_or(0);
    let (peaks_per_s, count) = (at(peak).collect(), turns.len());
    series.put("peak_per_s", peaks_per_s);
    series.put("peak_level", vec![Some(LEVELS[peak]); count]);
    for what in ["offered", "sent", "goodput"] {
        let rate = format!("{what}_per_s");
        let of = |turn: &Figures| Some(turn[&rate].as_f64()? / turn["peak_per_s"].as_f64()?);
        let shares = series.turns.iter().map(of).collect();
        series.put(&format!("{what}_of_peak"), shares);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::figures::tests::series;

    fn turn(levels_per_s: [f64; LEVELS.len()], goodput_per_s: f64) -> Value {
        json!({
            "levels_per_s": levels_per_s, "goodput_per_s": goodput_per_s, "refused": 5000,
            "failed": 0, "unanswered": 0, "lost": 0, "memory_share": 1.1,
        })
    }

    fn compared(turns: &[Value]) -> Series {
        let mut all = [series("memory 256 × 1", turns)];
        (SCENARIO.compare)(&mut all);
        all[0].clone()
    }

    fn holds_with(name: &str, value: f64) -> bool {
        let mut turn = turn([500.0, 650.0, 1000.0, 900.0], 950.0);
        turn[name] = json!(value);
        (SCENARIO.holds)(&compared(&[turn]))
    }

    #[test]
    fn each_bar_is_one() {
        assert!(holds_with("failed", 0.0));
        assert!(!holds_with("goodput_per_s", 949.0));
        assert!(!holds_with("failed", 1.0));
        assert!(!holds_with("unanswered", 1.0));
        assert!(!holds_with("lost", 1.0));
        assert!(!holds_with("memory_share", 1.11));
        assert!(!(SCENARIO.holds)(&compared(&[])), "not measured");
    }

    #[test]
    fn the_peak_is_one_level_for_all_turns() {
        let all = compared(&[
            turn([500.0, 640.0, 800.0, 760.0], 780.0),
            turn([500.0, 650.0, 790.0, 950.0], 790.0),
            turn([500.0, 660.0, 810.0, 770.0], 729.0),
        ]);
        assert_eq!(all.median("peak_level"), 0.8, "950 was a lucky moment");
        let shares: Vec<f64> = all.values("goodput_of_peak").collect();
        assert_eq!(shares, [780.0 / 800.0, 1.0, 0.9]);
        assert!((SCENARIO.holds)(&all), "the median of them");
    }
}
