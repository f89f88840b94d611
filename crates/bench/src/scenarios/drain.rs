//! Drain: a backend is dead until a backlog lies on disk, then it takes everything. Compares the
//! CPU time of a megabyte with that of the Collector's persistent queue (`file_storage`).

use super::*;

/// Several times the memory limit, so that nearly all of it has to come from disk.
const SLUICE_BACKLOG_BYTES: f64 = 2e9;
/// The Collector takes longer for its backlog.
const COLLECTOR_BACKLOG_BYTES: f64 = 256e6;
const FILLED_WITHIN: Duration = Duration::from_secs(180);
/// Time for the subject to try again after a long outage.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);
const DRAINED_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const ON_DISK: &str = "buffer:\n  directory: {dir}/buffer\n  ack: durable\n  \
                       policy: backpressure\n  disk:\n    limit_mib: 8192\n";

pub(super) const SCENARIO: Scenario = Scenario {
    id: "drain",
    title: "the drain of a backlog on disk, beside the Collector's persistent queue",
    cases: &["on disk"],
    case_head: "Backlog",
    takes: |contestant, _| contestant.is_gateway(),
    measure: |turn| Box::pin(measure(turn)),
    compare: |_| {},
    columns: &[
        ("backlog MB", |series| series.millions("backlog_bytes", 0)),
        ("MB/s", |series| series.millions("bytes_per_s", 1)),
        ("MB a CPU-s", |series| series.millions("bytes_per_cpu_s", 1)),
        ("peak MiB", |series| series.mebibytes("peak_rss_bytes", 0)),
        ("lost", |series| series.cell("lost", 0)),
    ],
    holds: |series| series.median("bytes_per_cpu_s") >= 500e6 && series.none(&["lost"]),
    notes: |_| {
        format!(
            "A backend is dead until {:.0} MB of spans ({:.0} MB for the Collector) are \
             acknowledged and on disk, uncompressed; then it takes what comes. Counted from the \
             first span that arrives. The Collector holds them in `sending_queue.storage: \
             file_storage`, without fsync.\nBar: at least 500 MB of a backlog for each CPU \
             second of the subject, nothing lost.",
            SLUICE_BACKLOG_BYTES / 1e6,
            COLLECTOR_BACKLOG_BYTES / 1e6,
        )
    },
};

async fn measure(turn: Turn<'_>) -> Result<Figures> {
    let is_sluice = turn.contestant.is_sluice();
    let mut setting = Setting::of(turn, MEMORY_LIMIT_MIB, ON_DISK)?.counting_lightly();
    setting.config.queue_on_disk = !is_sluice;
    let stage = setting.with_backends(vec![Faults::dead()], vec![]).start().await?;
    let (backend, load) = (&stage.backends[0], stage.load());
    let bytes_per_item = load.shape.bytes_per_item();
    let backlog_bytes = if is_sluice { SLUICE_BACKLOG_BYTES } else { COLLECTOR_BACKLOG_BYTES };
    let load = load.items((backlog_bytes / bytes_per_item) as u64).retry(Retry::SDK).run();
    let filled = tokio::time::timeout(FILLED_WITHIN, load).await;
    let report = filled.context("the backlog could not be filled in time")??;
    let (accepted, offered) = (report.accepted, report.offered);
    ensure!(accepted == offered, "{accepted} of {offered} accepted: {:?}", report.messages);
    backend.faults().clear();
    wait_for(backend, 1, BEGINS_WITHIN).await.context("nothing came after the outage")?;
    let before = (stage.processes()?, backend.items());
    let drained = wait_for(backend, accepted, DRAINED_WITHIN).await;
    let after = (stage.processes()?, backend.items());
    if is_sluice {
        drained?;
    }
    let bytes = (after.1 - before.1) as f64 * bytes_per_item;
    let elapsed_s = after.0.seconds_since(&before.0);
    let cpu_s = cpu_s_since(before.0.subject, after.0.subject).unwrap_or(f64::NAN);
    let figures = json!({
        "backlog_bytes": accepted as f64 * bytes_per_item,
        "bytes_per_s": bytes / elapsed_s,
        "bytes_per_cpu_s": bytes / cpu_s,
        "lost": accepted.saturating_sub(after.1),
        "subject_core": cpu_s / elapsed_s,
        "bench_core": cpu_s_since(before.0.bench, after.0.bench).map(|cpu_s| cpu_s / elapsed_s),
    });
    Ok(with(stage.memory()?, figures))
}

async fn wait_for(backend: &Backend, items: u64, limit: Duration) -> Result<()> {
    let began = Instant::now();
    while backend.items() < items {
        ensure!(began.elapsed() < limit, "{} of {items} items after {limit:?}", backend.items());
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::series;

    #[test]
    fn what_counts_is_the_work_of_a_core_and_that_nothing_is_lost() {
        let of = |bytes_per_cpu_s: f64, lost: u64| {
            (SCENARIO.holds)(&series(
                "on disk",
                &[json!({ "bytes_per_cpu_s": bytes_per_cpu_s, "lost": lost })],
            ))
        };
        assert!(of(1e9 / 1.9, 0));
        assert!(!of(1e9 / 2.1, 0), "too much work");
        assert!(!of(1e9, 1), "lost");
        assert!(!(SCENARIO.holds)(&series("on disk", &[])), "what was not measured does not hold");
    }
}
