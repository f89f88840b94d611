//! What the disk does by itself, without any format: the yardstick of what is written through.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, fdatasync};

use crate::latency::{Latency, new_histogram, record};

/// Bytes a sync where bandwidth is measured: enough that more would not be faster.
const LARGE_BYTES: usize = 4 << 20;
/// Bytes a sync where latency is measured: one request of a hundred spans.
const SMALL_BYTES: usize = 192 << 10;
/// Reserved beforehand, as a log does. The next one begins when it is full: to write again what was written once
/// would spare the file system what it has to do for new data.
const FILE_BYTES: u64 = 512 << 20;

/// Sequential writes to preallocated files, each followed by fdatasync.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::bench) struct DiskItself {
    pub(in crate::bench) bytes_per_s: f64,
    /// Of a write of [`SMALL_BYTES`] with its sync, one after the other.
    pub(in crate::bench) sync_back_to_back: Latency,
}

/// Measures for this time each. Blocks.
pub(in crate::bench) fn measure_disk(folder: &Path, lasts: Duration) -> io::Result<DiskItself> {
    let (bytes_per_s, _) = write_for(folder, LARGE_BYTES, lasts, None)?;
    let (_, sync_back_to_back) = write_for(folder, SMALL_BYTES, lasts, None)?;
    Ok(DiskItself { bytes_per_s, sync_back_to_back })
}

/// Of a write of [`SMALL_BYTES`] with its sync, as often as this: what has rested in between, disk and CPU, takes
/// longer than what is kept busy. Blocks.
pub(in crate::bench) fn measure_syncs(folder: &Path, lasts: Duration, syncs_per_s: f64) -> io::Result<Latency> {
    Ok(write_for(folder, SMALL_BYTES, lasts, Some(Duration::from_secs_f64(1.0 / syncs_per_s)))?.1)
}

/// Bytes a second and the latency of each sync; one in each interval, or one after the other. The time that it takes
/// to reserve a file does not count.
fn write_for(
    folder: &Path,
    len_bytes: usize,
    lasts: Duration,
    interval: Option<Duration>,
) -> io::Result<(f64, Latency)> {
    let bytes = vec![0xa5; len_bytes];
    let mut syncs_us = new_histogram();
    let (mut file, mut position) = (reserve(folder)?, 0);
    let (mut took, mut written) = (Duration::ZERO, 0_u64);
    let begun = Instant::now();
    while interval.map_or(took, |_| begun.elapsed()) < lasts {
        if position + len_bytes as u64 > FILE_BYTES {
            (file, position) = (reserve(folder)?, 0);
        }
        if let Some(interval) = interval {
            let due = begun + interval * (written / len_bytes as u64) as u32;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let before = Instant::now();
        file.write_all_at(&bytes, position)?;
        fdatasync(&file)?;
        took += before.elapsed();
        record(&mut syncs_us, before.elapsed(), 1);
        position += len_bytes as u64;
        written += len_bytes as u64;
    }
    Ok((written as f64 / took.as_secs_f64(), Latency::of(&syncs_us)))
}

fn reserve(folder: &Path) -> io::Result<File> {
    let file = tempfile::tempfile_in(folder)?;
    fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES)?;
    file.sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_a_bandwidth_and_a_latency() {
        let (folder, lasts) = (std::env::temp_dir(), Duration::from_millis(50));
        let disk = measure_disk(&folder, lasts).unwrap();
        assert!(disk.bytes_per_s > 0.0, "{disk:?}");
        let syncs = measure_syncs(&folder, lasts, 100.0).unwrap();
        assert!(syncs.count <= 6, "the first at once, then no more than were asked for: {syncs:?}");
        for latency in [disk.sync_back_to_back, syncs] {
            assert!(latency.p99 > Duration::ZERO && latency.p50 <= latency.p99, "{latency:?}");
        }
    }
}
