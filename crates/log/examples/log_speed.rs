//! Costs of the log by itself, without a gateway around it: `cargo run --release -p sluice-log
//! --example log_speed [DIRECTORY]`.
//!
//! Prints the CPU time of an append, a read and a resolve in memory and on a disk with healthy
//! readers. Compares the rate of durable appends with that of the disk by itself, in turns.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::fs::{FallocateFlags, fallocate};
use sluice_log::disk::RealDisk;
use sluice_log::{
    Charge, CursorId, Log, Next, OpenOptions, Record, RecordFacts, StoredRecord, Subscription,
    Undecodable,
};

type Failure = Box<dyn std::error::Error>;

struct Payload {
    bytes: bytes::Bytes,
    appended: Instant,
    told: Option<Arc<Told>>,
}

/// Times from the append of each frame until it was durable.
#[derive(Default)]
struct Told {
    latencies: Mutex<Vec<Duration>>,
    changed: Condvar,
}

impl Told {
    fn wait_for(&self, frames: u64) {
        let mut latencies = self.latencies.lock();
        while (latencies.len() as u64) < frames {
            self.changed.wait(&mut latencies);
        }
    }
}

impl Record for Payload {
    fn facts(&self) -> RecordFacts {
        RecordFacts { uncompressed_len_bytes: self.bytes.len() as u32, ..RecordFacts::default() }
    }

    fn encode_metadata(&self, _output: &mut Vec<u8>) {}

    fn payload(&self) -> &[u8] {
        &self.bytes
    }

    fn decode(stored: StoredRecord) -> Result<Self, Undecodable> {
        Ok(Payload { bytes: stored.payload, appended: Instant::now(), told: None })
    }

    fn durable(&self) {
        if let Some(told) = &self.told {
            told.latencies.lock().push(self.appended.elapsed());
            told.changed.notify_one();
        }
    }
}

/// One request of a hundred spans.
const FRAME_BYTES: usize = 192 << 10;
/// Bytes a sync when the disk's bandwidth is measured: more would not be faster.
const LARGE_BYTES: usize = 4 << 20;
/// Bytes that are written at full speed.
const WRITTEN_BYTES: usize = 2 << 30;
/// Frames appended at a fixed rate.
const SPACED_FRAMES: u64 = 600;
const SPACE: Duration = Duration::from_millis(5);
/// Limit of frames that are appended and not durable: as many senders would have in flight.
const IN_FLIGHT_FRAMES: u64 = 128;
const TURNS: usize = 5;

fn main() -> Result<(), Failure> {
    let base = std::env::args().nth(1).map_or_else(std::env::temp_dir, Into::into);
    let directory = base.join(format!("log-speed-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let result = measure(&directory);
    std::fs::remove_dir_all(&directory)?;
    result
}

fn measure(directory: &Path) -> Result<(), Failure> {
    for _ in 0..2 {
        healthy("in memory", &Log::default());
        let options = OpenOptions {
            memory_limit_bytes: 256 << 20,
            ..OpenOptions::new(Arc::new(RealDisk), directory.join("healthy"), "healthy")
        };
        let log = Log::open(options)?.0;
        healthy("on demand", &log);
        println!("  written meanwhile: {} frames", log.stats().frames_written);
    }
    let mut turns = Vec::new();
    for number in 1..=TURNS {
        let turn = Turn::measure(directory)?;
        println!("turn {number}: {turn}");
        turns.push(turn);
    }
    let bandwidth = median(turns.iter().map(|turn| turn.log.bytes_per_s / turn.disk.bytes_per_s));
    let latency =
        median(turns.iter().map(|turn| turn.log.p99.as_secs_f64() / turn.disk.p99.as_secs_f64()));
    println!(
        "durable: {bandwidth:.2} of the disk's bandwidth, {latency:.2} x its p99 \
         (medians of {TURNS} turns)"
    );
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn healthy(name: &str, log: &Log<Payload>) {
    const FRAMES: u64 = 2_000_000;
    let id = log.subscribe(Subscription::new("reader"));
    let readers: Arc<[CursorId]> = [id].into();
    let bytes = bytes::Bytes::from(vec![1; 1000]);
    let (started, cpu) = (Instant::now(), cpu_time());
    for _ in 0..FRAMES {
        let payload = Payload { bytes: bytes.clone(), appended: started, told: None };
        log.append(Arc::new(payload), Charge { bytes: 1000, items: 1 }, &readers);
        if let Next::Entry(offset, _) = log.read(id) {
            log.resolve(id, offset);
        }
    }
    let per_frame = |time: Duration| time.as_nanos() as u64 / FRAMES;
    println!(
        "{name}: {} ns a frame, {} ns of CPU",
        per_frame(started.elapsed()),
        per_frame(cpu_time() - cpu)
    );
}

/// User and system time of this process.
fn cpu_time() -> Duration {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return Duration::ZERO };
    let fields: Vec<i64> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .filter_map(|field| field.parse().ok())
        .collect();
    // Behind the name, the state is no number: user and system time are the 11th and 12th field of
    // the rest.
    Duration::from_millis(10 * (fields.get(10).unwrap_or(&0) + fields.get(11).unwrap_or(&0)) as u64)
}

/// Rate at which bytes become durable in a row, and the times that [`FRAME_BYTES`] of them take.
struct Durable {
    bytes_per_s: f64,
    p50: Duration,
    p99: Duration,
}

/// The disk and the log, one after the other.
struct Turn {
    disk: Durable,
    log: Durable,
    cpu_s_per_gb: f64,
}

impl Turn {
    fn measure(directory: &Path) -> Result<Turn, Failure> {
        let (bytes_per_s, _) = sync_each(directory, LARGE_BYTES, WRITTEN_BYTES)?;
        let (_, latencies) =
            sync_each(directory, FRAME_BYTES, FRAME_BYTES * SPACED_FRAMES as usize)?;
        let disk = Durable::new(bytes_per_s, latencies);
        let options = OpenOptions {
            flush_after: Duration::ZERO,
            ..OpenOptions::new(Arc::new(RealDisk), directory.join("durable"), "durable")
        };
        let log = Log::open(options.clone())?.0;
        let readers: Arc<[CursorId]> = [log.subscribe(Subscription::new("reader"))].into();
        let (_, latencies) = append(&log, &readers, SPACED_FRAMES, Some(SPACE));
        let cpu = cpu_time();
        let (bytes_per_s, _) = append(&log, &readers, (WRITTEN_BYTES / FRAME_BYTES) as u64, None);
        let cpu_s_per_gb = (cpu_time() - cpu).as_secs_f64() / WRITTEN_BYTES as f64 * 1e9;
        log.close(Duration::from_secs(10));
        drop(log);
        std::fs::remove_dir_all(options.directory)?;
        Ok(Turn { disk, log: Durable::new(bytes_per_s, latencies), cpu_s_per_gb })
    }
}

impl std::fmt::Display for Turn {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Turn { disk, log, cpu_s_per_gb } = self;
        write!(formatter, "disk by itself {disk}; log {log}, {cpu_s_per_gb:.2} s of CPU a GB")
    }
}

impl std::fmt::Display for Durable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{:.0} MB/s, p50 {:.2?}, p99 {:.2?}",
            self.bytes_per_s / 1e6,
            self.p50,
            self.p99
        )
    }
}

impl Durable {
    fn new(bytes_per_s: f64, mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
        Durable { bytes_per_s, p50: at(0.5), p99: at(0.99) }
    }
}

/// The disk by itself: writes into files whose space is reserved, through the page cache as usual,
/// each with a sync. Returns bytes a second and the time of each write.
fn sync_each(
    directory: &Path,
    len_bytes: usize,
    whole_bytes: usize,
) -> Result<(f64, Vec<Duration>), Failure> {
    const FILE_BYTES: usize = 64 << 20;
    let bytes = vec![7; len_bytes];
    let mut times = Vec::new();
    for number in 0..whole_bytes.div_ceil(FILE_BYTES) {
        let path = directory.join(format!("alone-{number}"));
        let file = std::fs::File::create_new(&path)?;
        fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES as u64)?;
        file.sync_all()?;
        for index in 0..FILE_BYTES / len_bytes {
            let began = Instant::now();
            file.write_all_at(&bytes, (index * len_bytes) as u64)?;
            file.sync_data()?;
            times.push(began.elapsed());
        }
        std::fs::remove_file(path)?;
    }
    let whole: Duration = times.iter().sum();
    Ok(((times.len() * len_bytes) as f64 / whole.as_secs_f64(), times))
}

/// Appends frames at a fixed rate, or as fast as they become durable. Returns bytes a second and
/// the time until each was durable.
fn append(
    log: &Log<Payload>,
    readers: &Arc<[CursorId]>,
    frames: u64,
    space: Option<Duration>,
) -> (f64, Vec<Duration>) {
    let told = Arc::new(Told::default());
    let bytes = bytes::Bytes::from(vec![1; FRAME_BYTES]);
    let started = Instant::now();
    for index in 0..frames {
        let payload =
            Payload { bytes: bytes.clone(), appended: Instant::now(), told: Some(told.clone()) };
        log.append(Arc::new(payload), Charge { bytes: FRAME_BYTES as u64, items: 1 }, readers);
        if let Some(space) = space {
            std::thread::sleep(space);
        }
        told.wait_for((index + 1).saturating_sub(IN_FLIGHT_FRAMES));
    }
    told.wait_for(frames);
    let bytes_per_s = (frames * FRAME_BYTES as u64) as f64 / started.elapsed().as_secs_f64();
    let latencies = std::mem::take(&mut *told.latencies.lock());
    (bytes_per_s, latencies)
}
