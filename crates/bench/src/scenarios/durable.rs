//! Written through: compares `ack: durable` with the disk by itself, measured in the same turn. The
//! backend is dead, so that only the disk answers. The cases are this machine's disk, and one that
//! is throttled to the speed of ordinary disks, because a disk can be faster than a core or two can
//! receive. The subject has all CPUs: the disk is to be the limit.

use sluice_otlp::Signal;
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use super::*;
use crate::disk::{LARGE_BYTES, LimitedDisk, SMALL_BYTES, write_for};

/// Used up within the warm-up, so that no counted request waits for the kernel to find memory.
const MEMORY_LIMIT_MIB: u64 = 256;
/// Disk and gateway take turns, because both change with other work of the machine.
const LATENCY_ROUNDS: usize = 2;
/// Many senders: a group commit covers all that wait.
const CONNECTIONS: usize = 4;
const STREAMS: usize = 32;
const DISK_LIMIT_MIB: u64 = 32 << 10;

const THROTTLED_BYTES_PER_S: u64 = 200_000_000;
/// It holds the data of one measurement, which is then deleted.
const THROTTLED_SIZE_BYTES: u64 = 16 << 30;

const BANDWIDTH_BAR: f64 = 0.80;
const LATENCY_BAR: f64 = 2.5;

const THROTTLED: &str = "throttled";

pub(super) const SCENARIO: Scenario = Scenario {
    id: "durable",
    title: "everything written through, against what the disk does by itself",
    cases: &["this machine's", THROTTLED],
    case_head: "disk",
    takes: |contestant, _| contestant.is_sluice(),
    measure: |turn| Box::pin(measure(turn)),
    compare: |_| {},
    columns: &[
        ("disk MB/s", |series| series.millions("disk_bytes_per_s", 0)),
        ("MB/s", |series| series.millions("bytes_per_s", 0)),
        ("share", |series| series.cell("bandwidth_share", 2)),
        ("sync p99 ms", |series| series.cell("disk_sync_p99_ms", 2)),
        ("back to back", |series| series.cell("disk_sync_back_to_back_p99_ms", 2)),
        ("ack p99 ms", |series| series.cell("round_acknowledged_p99_ms", 2)),
        ("×", |series| series.cell("latency_ratio", 2)),
        ("from memory p99 ms", |series| series.cell("acknowledged_from_memory_p99_ms", 2)),
    ],
    holds: |series| {
        series.median("bandwidth_share") >= BANDWIDTH_BAR
            && series.median("latency_ratio") <= LATENCY_BAR
    },
    notes: |options| {
        format!(
            "`ack: durable`, the backend away, spans of 40 attributes: as fast as they go, then \
             {:.0} spans/s. The subject has all CPUs, one of them shared with the generator. The \
             disk by itself: sequential writes to a preallocated file, each with fdatasync, of 4 \
             MiB for the bandwidth and 192 KiB, as often as requests come and in turns with them, \
             for the latency. The throttled disk is an ext4 image behind a loop device of {} \
             MB/s.\nBar: at least {BANDWIDTH_BAR} of the disk's bandwidth, acknowledged within \
             {LATENCY_BAR} × the disk's p99 at the 99th percentile. What the log by itself makes \
             of this machine's disk is shown by the example `log_speed`. From memory: the same \
             rate, acknowledged without a disk.",
            options.rate,
            THROTTLED_BYTES_PER_S / 1_000_000
        )
    },
};

async fn measure(turn: Turn<'_>) -> Result<Figures> {
    let throttled = match turn.case {
        THROTTLED => Some(LimitedDisk::mount(THROTTLED_SIZE_BYTES, THROTTLED_BYTES_PER_S)?),
        _ => None,
    };
    let folder = throttled.as_ref().map_or_else(std::env::temp_dir, LimitedDisk::path);
    let (lasts, spans_per_s) = (turn.counted(), turn.options.rate);
    let disk = async |len_bytes, syncs_per_s| {
        let folder = folder.clone();
        spawn_blocking(move || write_for(&folder, len_bytes, lasts, syncs_per_s)).await?
    };
    let (disk_bytes_per_s, _) = disk(LARGE_BYTES, None).await?;
    let (_, back_to_back) = disk(SMALL_BYTES, None).await?;
    let buffer = TempDir::with_prefix_in("sluice-bench-buffer-", &folder)?;
    let durable = format!(
        "buffer:\n  directory: {}\n  ack: durable\n  policy: backpressure\n  disk:\n    \
         limit_mib: {DISK_LIMIT_MIB}\n",
        buffer.path().display()
    );
    let stage = start(turn, &durable).await?;
    let full = at_full_speed(&stage, lasts).await?;
    let acknowledged_per_s = full.acknowledged as f64 / full.elapsed_s;
    let bytes_per_s = acknowledged_per_s * stage.load().shape.bytes_per_item();
    let figures = stage.figures(&full, json!({}))?;
    let written = stage.metric("sluice_log_written_frames", &[]).await.unwrap_or(0.0);
    ensure!(written > 0.0, "nothing was written");
    let requests_per_s = spans_per_s / f64::from(Shape::of(Signal::Traces).items_per_request);
    let mut rounds: Vec<[Latency; 2]> = Vec::new();
    for _ in 0..LATENCY_ROUNDS {
        let (_, sync) = disk(SMALL_BYTES, Some(requests_per_s)).await?;
        rounds.push([sync, at_a_rate(&stage, spans_per_s, lasts).await?]);
    }
    drop((stage, buffer));
    // The part of the latency that is not the disk's.
    let stage = start(turn, "buffer:\n  ack: memory\n  policy: drop_oldest\n").await?;
    at_full_speed(&stage, lasts).await?;
    let from_memory = at_a_rate(&stage, spans_per_s, lasts).await?;
    let of_rounds = |value: fn(&[Latency; 2]) -> f64| rounds.iter().map(value).collect::<Vec<_>>();
    let others = json!({
        "disk_bytes_per_s": disk_bytes_per_s,
        "bytes_per_s": bytes_per_s,
        "bandwidth_share": bytes_per_s / disk_bytes_per_s,
        "disk_sync_back_to_back_p99_ms": milliseconds(back_to_back.p99),
        "disk_sync_p50_ms": of_rounds(|[sync, _]| milliseconds(sync.p50)),
        "disk_sync_p99_ms": of_rounds(|[sync, _]| milliseconds(sync.p99)),
        "round_acknowledged_p50_ms": of_rounds(|[_, acknowledged]| milliseconds(acknowledged.p50)),
        "round_acknowledged_p99_ms": of_rounds(|[_, acknowledged]| milliseconds(acknowledged.p99)),
        "latency_ratio": of_rounds(|[sync, acknowledged]| {
            acknowledged.p99.as_secs_f64() / sync.p99.as_secs_f64()
        }),
        "acknowledged_from_memory_p99_ms": milliseconds(from_memory.p99),
    });
    Ok(with(figures, others))
}

/// Starts a subject whose backend is dead.
async fn start(turn: Turn<'_>, buffer: &str) -> Result<Stage> {
    let mut setting =
        Setting::of(turn, MEMORY_LIMIT_MIB, buffer)?.with_backends(vec![], vec![Faults::dead()]);
    setting.cpus = turn.options.all_cpus.clone();
    setting.start().await
}

async fn at_full_speed(stage: &Stage, counted: Duration) -> Result<Observed> {
    let load = stage.load().concurrency(CONNECTIONS, STREAMS).retry(Retry::SDK);
    let observed = stage.under_load(load, WARM_UP, counted).await?;
    ensure!(observed.acknowledged > 0, "nothing was acknowledged: {:?}", observed.report.messages);
    Ok(observed)
}

async fn at_a_rate(stage: &Stage, spans_per_s: f64, lasts: Duration) -> Result<Latency> {
    let load = stage.load().concurrency(CONNECTIONS, STREAMS).rate(spans_per_s).retry(Retry::SDK);
    let report = load.duration(lasts).run().await?;
    let whole = report.accepted == report.offered;
    ensure!(whole, "{} of {} acknowledged: {:?}", report.accepted, report.offered, report.messages);
    Ok(report.acknowledged_after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::series;

    #[test]
    fn both_bandwidth_and_latency_have_to_hold() {
        let of = |share: f64, ratio: f64| {
            (SCENARIO.holds)(&series(
                THROTTLED,
                &[json!({ "bandwidth_share": share, "latency_ratio": [ratio] })],
            ))
        };
        assert!(of(0.81, 2.4));
        assert!(!of(0.79, 2.4), "too little of the disk");
        assert!(!of(0.81, 2.6), "acknowledged too late");
        assert!(!(SCENARIO.holds)(&series(THROTTLED, &[])), "what was not measured does not hold");
    }
}
