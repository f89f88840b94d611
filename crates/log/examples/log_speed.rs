//! What the log costs: `cargo run --release -p sluice-log --example log_speed [DIRECTORY]`.
//!
//! Prints the CPU time of an append, a read and a resolve in memory and on a disk with healthy readers, the speed of durable appends
//! beside that of the disk's own syncs, of a drain, and of a start with many segments.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sluice_log::disk::RealDisk;
use sluice_log::{
    Charge, CursorId, DecodeError, FlushPolicy, Log, Next, OpenOptions, Record, RecordFacts, StoredRecord, Subscription,
};

type Failure = Box<dyn std::error::Error>;

struct Payload {
    bytes: bytes::Bytes,
    appended: Instant,
    told: Option<Arc<Told>>,
}

/// What became durable, and when.
#[derive(Default)]
struct Told {
    frames: AtomicU64,
    latencies_us: parking_lot::Mutex<Vec<u64>>,
}

impl Record for Payload {
    fn facts(&self) -> RecordFacts {
        RecordFacts { uncompressed_len_bytes: self.bytes.len() as u32, ..RecordFacts::default() }
    }

    fn encode_metadata(&self, _output: &mut Vec<u8>) {}

    fn payload(&self) -> &[u8] {
        &self.bytes
    }

    fn decode(stored: StoredRecord) -> Result<Self, DecodeError> {
        Ok(Payload { bytes: stored.payload, appended: Instant::now(), told: None })
    }

    fn durable(&self) {
        if let Some(told) = &self.told {
            told.latencies_us.lock().push(self.appended.elapsed().as_micros() as u64);
            told.frames.fetch_add(1, Ordering::SeqCst);
        }
    }
}

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
    disk_alone(directory)?;
    durable_and_drain(directory)
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
    println!("{name}: {} ns a frame, {} ns of CPU", per_frame(started.elapsed()), per_frame(cpu_time() - cpu));
}

/// User and system time of this process.
fn cpu_time() -> Duration {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return Duration::ZERO };
    let fields: Vec<i64> =
        stat.rsplit(')').next().unwrap_or("").split_whitespace().filter_map(|field| field.parse().ok()).collect();
    // Of the fields behind the name the state is no number: user and system time are the 11th and 12th of the rest.
    Duration::from_millis(10 * (fields.get(10).unwrap_or(&0) + fields.get(11).unwrap_or(&0)) as u64)
}

fn disk_alone(directory: &Path) -> Result<(), Failure> {
    let mut file = File::create(directory.join("alone"))?;
    let chunk = vec![7; 8 << 20];
    let started = Instant::now();
    for _ in 0..64 {
        file.write_all(&chunk)?;
        file.sync_data()?;
    }
    let bytes_per_second = (64 * chunk.len()) as f64 / started.elapsed().as_secs_f64();
    println!("disk alone: {:.0} MB/s in syncs of 8 MiB", bytes_per_second / 1e6);
    let mut latencies = Vec::new();
    for _ in 0..300 {
        let started = Instant::now();
        file.write_all(&chunk[..4096])?;
        file.sync_data()?;
        latencies.push(started.elapsed().as_micros() as u64);
    }
    print_latencies("disk alone, 4 KiB", latencies);
    Ok(())
}

fn print_latencies(name: &str, mut latencies_us: Vec<u64>) {
    latencies_us.sort_unstable();
    let at = |share: f64| latencies_us[((latencies_us.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    println!("{name}: p50 {:.1} ms, p99 {:.1} ms", at(0.5), at(0.99));
}

fn durable_and_drain(directory: &Path) -> Result<(), Failure> {
    let options = OpenOptions {
        flush: FlushPolicy::AtOnce,
        ..OpenOptions::new(Arc::new(RealDisk), directory.join("durable"), "durable")
    };
    let log = Log::open(options.clone())?.0;
    let readers: Arc<[CursorId]> = [log.subscribe(Subscription::new("reader"))].into();
    append_at(&log, &readers, 300, Some(Duration::from_millis(5)), 10_000);
    append_at(&log, &readers, 16_000, None, 64_000);
    log.close(Duration::from_secs(10));
    drop(log);

    let started = Instant::now();
    let (log, recovered) = Log::<Payload>::open(options)?;
    println!(
        "start: {:?}, {} segments, {} bytes looked at",
        started.elapsed(),
        recovered.segments,
        recovered.bytes_scanned
    );
    drain(log);
    Ok(())
}

/// Appends frames as a sender would: spaced, or with at most 64 MiB that are not durable.
fn append_at(log: &Log<Payload>, readers: &Arc<[CursorId]>, frames: u64, pause: Option<Duration>, len: usize) {
    let told = Arc::new(Told::default());
    let bytes = bytes::Bytes::from(vec![1; len]);
    let (started, cpu) = (Instant::now(), cpu_time());
    for index in 0..frames {
        let payload = Payload { bytes: bytes.clone(), appended: Instant::now(), told: Some(told.clone()) };
        log.append(Arc::new(payload), Charge { bytes: len as u64, items: 1 }, readers);
        if let Some(pause) = pause {
            std::thread::sleep(pause);
        }
        while index.saturating_sub(told.frames.load(Ordering::SeqCst)) * len as u64 > 64 << 20 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    while told.frames.load(Ordering::SeqCst) < frames {
        std::thread::sleep(Duration::from_micros(200));
    }
    let bytes_per_second = (frames * len as u64) as f64 / started.elapsed().as_secs_f64();
    let name = if pause.is_some() { "durable, spaced" } else { "durable, all at once" };
    print_latencies(name, told.latencies_us.lock().clone());
    println!("  {:.0} MB/s, {:?} of CPU, {:?}", bytes_per_second / 1e6, cpu_time() - cpu, log.stats());
}

fn drain(log: Log<Payload>) {
    let woken = Arc::new((parking_lot::Mutex::new(false), parking_lot::Condvar::new()));
    let wake = woken.clone();
    let id = log.subscribe(Subscription {
        wake: Arc::new(move || {
            *wake.0.lock() = true;
            wake.1.notify_one();
        }),
        ..Subscription::new("reader")
    });
    let (started, cpu) = (Instant::now(), cpu_time());
    let (mut frames, mut bytes) = (0u64, 0u64);
    loop {
        match log.read(id) {
            Next::Entry(offset, payload) => {
                frames += 1;
                bytes += payload.bytes.len() as u64;
                log.resolve(id, offset);
            }
            Next::Loading => {
                let mut is_woken = woken.0.lock();
                while !std::mem::take(&mut *is_woken) {
                    woken.1.wait(&mut is_woken);
                }
            }
            Next::Full | Next::Empty => break,
        }
    }
    let (elapsed, cpu) = (started.elapsed(), cpu_time() - cpu);
    println!(
        "drain: {frames} frames, {:.0} MB/s, {:.0} MB per second of CPU",
        bytes as f64 / elapsed.as_secs_f64() / 1e6,
        bytes as f64 / cpu.as_secs_f64().max(0.01) / 1e6
    );
}
