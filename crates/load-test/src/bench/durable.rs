//! Written through: how near `ack: durable` comes to what the disk does by itself, measured in the same turn. The backend is away,
//! so that nobody is answered but by the disk. Twice: on this machine's disk, and on one that is throttled to what ordinary disks do,
//! because a disk can be faster than what a core or two receive. The subject has all CPUs: the disk is to be the limit.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use sluice_otlp::Signal;
use tokio::time::{Instant, sleep};

use super::disk_itself::{DiskItself, measure_disk, measure_syncs};
use super::gateway::{Gateway, Setting, Taken};
use super::limited_disk::LimitedDisk;
use super::measure::Contestant;
use super::scenario::{Scenario, ScenarioOptions, Section, markdown, median, milliseconds, told, yes_or_no};
use super::table::Spread;
use crate::generate::{Retry, Shape};
use crate::latency::Latency;
use crate::subject::{Limits, free_addr};

/// Taken within the warm-up, so that nothing that is counted waits for the kernel to find memory.
const MEMORY_LIMIT_MIB: u64 = 256;
const WARM_UP: Duration = Duration::from_secs(1);
const COUNTED_WINDOWS: u32 = 2;
/// Disk and gateway in turns, because both change with what else the machine does.
const LATENCY_ROUNDS: usize = 2;
/// Many senders: a group commit covers whoever waits.
const CONNECTIONS: usize = 4;
const STREAMS: usize = 32;
const DISK_LIMIT_MIB: u64 = 32 << 10;

const THROTTLED_BYTES_PER_S: u64 = 200_000_000;
/// It holds what is written in one measurement and then is emptied.
const THROTTLED_SIZE_BYTES: u64 = 16 << 30;

const BANDWIDTH_BAR: f64 = 0.80;
const LATENCY_BAR: f64 = 2.5;

/// Where the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    ThisDisk,
    Throttled,
}

impl Where {
    fn name(self) -> &'static str {
        match self {
            Where::ThisDisk => "this machine's",
            Where::Throttled => "throttled",
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Turn {
    disk: DiskItself,
    /// Of telemetry acknowledged, as fast as it goes.
    bytes_per_s: f64,
    full: Taken,
    rounds: Vec<Round>,
    /// As [`Round::acknowledged`] where memory is enough to answer: what of it is not the disk's.
    from_memory: Latency,
}

/// At a fixed rate.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Of the disk by itself.
    sync: Latency,
    /// From sending to acknowledgement.
    acknowledged: Latency,
}

pub(super) async fn run(options: &ScenarioOptions, progress: &mut dyn FnMut(&str)) -> Section {
    let mut all = [(Where::ThisDisk, Vec::new()), (Where::Throttled, Vec::new())];
    let sluice = options.sluice();
    if let Some(contestant) = sluice {
        for number in 1..=options.turns {
            for (place, turns) in &mut all {
                let label = format!("durable, {} disk, turn {number}", place.name());
                let turn = measure(contestant, *place, options).await;
                turns.extend(told(&label, turn, describe, progress));
            }
        }
    }
    let json = |(place, turns): &(Where, Vec<Turn>)| {
        let all: Vec<_> = turns.iter().map(turn_json).collect();
        json!({ "disk": place.name(), "holds": holds(turns), "turns": all })
    };
    let json = all.iter().map(json).collect();
    Section { scenario: Scenario::Durable, notes: notes(options), table: table(&all), json }
}

async fn measure(contestant: &Contestant, place: Where, options: &ScenarioOptions) -> anyhow::Result<Turn> {
    let throttled = match place {
        Where::ThisDisk => None,
        Where::Throttled => Some(LimitedDisk::mount(THROTTLED_SIZE_BYTES, THROTTLED_BYTES_PER_S)?),
    };
    let folder = throttled.as_ref().map_or_else(std::env::temp_dir, LimitedDisk::path);
    let (lasts, of_disk) = (options.window * COUNTED_WINDOWS, folder.clone());
    let disk = tokio::task::spawn_blocking(move || measure_disk(&of_disk, lasts)).await??;
    let buffer = Buffer(folder.join("sluice-bench-buffer"));
    let durable = format!(
        "buffer:\n  directory: {}\n  ack: durable\n  policy: backpressure\n  disk:\n    limit_mib: {DISK_LIMIT_MIB}\n",
        buffer.0.display()
    );
    let gateway = start(contestant, &durable, options).await?;
    let (bytes_per_s, full) = at_full_speed(&gateway, options).await?;
    let written = gateway.metric("sluice_log_written_frames", &[]).await.unwrap_or(0.0);
    ensure!(written > 0.0, "nothing was written");
    let requests_per_s = options.spans_per_s / f64::from(Shape::of(Signal::Traces).items_per_request);
    let mut rounds = Vec::new();
    for _ in 0..LATENCY_ROUNDS {
        let of_disk = folder.clone();
        let sync = tokio::task::spawn_blocking(move || measure_syncs(&of_disk, lasts, requests_per_s)).await??;
        rounds.push(Round { sync, acknowledged: at_a_rate(&gateway, options).await? });
    }
    drop((gateway, buffer));
    let gateway = start(contestant, "buffer:\n  ack: memory\n  policy: drop_oldest\n", options).await?;
    at_full_speed(&gateway, options).await?;
    let from_memory = at_a_rate(&gateway, options).await?;
    Ok(Turn { disk, bytes_per_s, full, rounds, from_memory })
}

/// The backend is away.
async fn start(contestant: &Contestant, sluice_only: &str, options: &ScenarioOptions) -> anyhow::Result<Gateway> {
    let setting = Setting {
        contestant,
        memory_limit_mib: MEMORY_LIMIT_MIB,
        backends: vec![free_addr()?],
        sluice_only,
        limits: Limits::default(),
        cpus: &options.all_cpus,
    };
    setting.start().await
}

/// Removed when it is done with.
struct Buffer(PathBuf);

impl Drop for Buffer {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Of the telemetry that was acknowledged, bytes a second.
async fn at_full_speed(gateway: &Gateway, options: &ScenarioOptions) -> anyhow::Result<(f64, Taken)> {
    let counted = options.window * COUNTED_WINDOWS;
    let load = gateway.load().concurrency(CONNECTIONS, STREAMS).duration(WARM_UP + counted).retry(Retry::SDK);
    let bytes_per_item = load.shape.bytes_per_item();
    let running = load.start()?;
    sleep(WARM_UP).await;
    let before = (gateway.reading()?, running.progress().accepted(), Instant::now());
    sleep(counted).await;
    let after = (gateway.reading()?, running.progress().accepted(), Instant::now());
    let report = running.finish().await?;
    let items = after.1 - before.1;
    ensure!(items > 0, "nothing was acknowledged: {:?}", report.messages);
    let bytes_per_s = items as f64 * bytes_per_item / (after.2 - before.2).as_secs_f64();
    Ok((bytes_per_s, before.0.until(&after.0)))
}

async fn at_a_rate(gateway: &Gateway, options: &ScenarioOptions) -> anyhow::Result<Latency> {
    let load = gateway.load().concurrency(CONNECTIONS, STREAMS).rate(options.spans_per_s).retry(Retry::SDK);
    let report = load.duration(options.window * COUNTED_WINDOWS).run().await?;
    let whole = report.accepted == report.offered;
    ensure!(whole, "{} of {} acknowledged: {:?}", report.accepted, report.offered, report.messages);
    Ok(report.acknowledged_after)
}

impl Turn {
    fn bandwidth(&self) -> f64 {
        self.bytes_per_s / self.disk.bytes_per_s
    }
}

impl Round {
    /// Of the 99th percentiles.
    fn latency(&self) -> f64 {
        self.acknowledged.p99.as_secs_f64() / self.sync.p99.as_secs_f64()
    }
}

fn rounds(turns: &[Turn]) -> impl Iterator<Item = &Round> {
    turns.iter().flat_map(|turn| &turn.rounds)
}

fn holds(turns: &[Turn]) -> bool {
    Spread::of(turns.iter().map(Turn::bandwidth)).is_some_and(|bandwidth| bandwidth.median >= BANDWIDTH_BAR)
        && Spread::of(rounds(turns).map(Round::latency)).is_some_and(|latency| latency.median <= LATENCY_BAR)
}

fn describe(turn: &Turn) -> String {
    let turn_only = std::slice::from_ref(turn);
    format!(
        "{:.0} MB/s of the disk's {:.0} (subject {:.0} % and bench {:.0} % of a core), acknowledged p99 {} ms (from memory {:.2}), the disk's sync p99 {} ms ({:.2} back to back)",
        turn.bytes_per_s / 1e6,
        turn.disk.bytes_per_s / 1e6,
        100.0 * turn.full.subject_core,
        100.0 * turn.full.bench_core,
        median(rounds(turn_only).map(|round| milliseconds(round.acknowledged.p99)), 2),
        milliseconds(turn.from_memory.p99),
        median(rounds(turn_only).map(|round| milliseconds(round.sync.p99)), 2),
        milliseconds(turn.disk.sync_back_to_back.p99),
    )
}

fn notes(options: &ScenarioOptions) -> String {
    format!(
        "`ack: durable`, the backend away, spans of 40 attributes: as fast as they go, then {:.0} spans/s. The subject has all CPUs, one of \
         them shared with the generator. The disk by itself: sequential writes to a preallocated file, each with fdatasync, of 4 MiB for \
         the bandwidth and 192 KiB, as often as requests come and in turns with them, for the latency. The throttled disk is an ext4 image behind a loop device of {} MB/s.\n\
         Bar: at least {BANDWIDTH_BAR} of the disk's bandwidth, acknowledged within {LATENCY_BAR} × the disk's p99 at the 99th percentile. \
         What the log by itself makes of this machine's disk is shown by the example `log_speed`. From memory: the same rate, acknowledged \
         without a disk.",
        options.spans_per_s,
        THROTTLED_BYTES_PER_S / 1_000_000
    )
}

fn table(all: &[(Where, Vec<Turn>)]) -> String {
    const HEADER: [&str; 12] = [
        "Subject",
        "disk",
        "disk MB/s",
        "MB/s",
        "share",
        "subject core",
        "sync p99 ms",
        "back to back",
        "ack p99 ms",
        "×",
        "from memory p99 ms",
        "holds",
    ];
    let row = |(place, turns): &(Where, Vec<Turn>)| {
        vec![
            "sluice".to_owned(),
            place.name().to_owned(),
            median(turns.iter().map(|turn| turn.disk.bytes_per_s / 1e6), 0),
            median(turns.iter().map(|turn| turn.bytes_per_s / 1e6), 0),
            median(turns.iter().map(Turn::bandwidth), 2),
            median(turns.iter().map(|turn| turn.full.subject_core), 2),
            median(rounds(turns).map(|round| milliseconds(round.sync.p99)), 2),
            median(turns.iter().map(|turn| milliseconds(turn.disk.sync_back_to_back.p99)), 2),
            median(rounds(turns).map(|round| milliseconds(round.acknowledged.p99)), 2),
            median(rounds(turns).map(Round::latency), 2),
            median(turns.iter().map(|turn| milliseconds(turn.from_memory.p99)), 2),
            yes_or_no(holds(turns)),
        ]
    };
    markdown(&HEADER, 2, all.iter().map(row).collect())
}

fn turn_json(turn: &Turn) -> Value {
    let round_json = |round: &Round| {
        json!({
            "disk_sync_p50_ms": milliseconds(round.sync.p50),
            "disk_sync_p99_ms": milliseconds(round.sync.p99),
            "acknowledged_p50_ms": milliseconds(round.acknowledged.p50),
            "acknowledged_p99_ms": milliseconds(round.acknowledged.p99),
        })
    };
    json!({
        "disk_bytes_per_s": turn.disk.bytes_per_s,
        "disk_sync_back_to_back_p99_ms": milliseconds(turn.disk.sync_back_to_back.p99),
        "bytes_per_s": turn.bytes_per_s,
        "rounds": turn.rounds.iter().map(round_json).collect::<Vec<_>>(),
        "acknowledged_from_memory_p99_ms": milliseconds(turn.from_memory.p99),
        "subject_core_at_full_speed": turn.full.subject_core,
        "bench_core_at_full_speed": turn.full.bench_core,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(bytes_per_s: f64, p99_ms: u64) -> Turn {
        let latency = |p99_ms| Latency { p99: Duration::from_millis(p99_ms), ..Latency::default() };
        let disk = DiskItself { bytes_per_s: 100.0, ..DiskItself::default() };
        let rounds = vec![Round { sync: latency(10), acknowledged: latency(p99_ms) }];
        Turn { disk, bytes_per_s, rounds, ..Turn::default() }
    }

    #[test]
    fn both_bandwidth_and_latency_have_to_hold() {
        assert!(holds(&[turn(81.0, 24)]));
        assert!(!holds(&[turn(79.0, 24)]), "too little of the disk");
        assert!(!holds(&[turn(81.0, 26)]), "acknowledged too late");
        assert!(!holds(&[]), "what was not measured does not hold");
    }
}
