//! What the disk does by itself, without anybody's format: the yardstick of what is written through.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, fdatasync};

use crate::latency::{Latency, new_histogram, record};

/// Bytes a sync where bandwidth is measured: enough that more would not be faster.
const LARGE_BYTES: usize = 4 << 20;
/// Bytes a sync where latency is measured: one request of a hundred spans.
const SMALL_BYTES: usize = 192 << 10;
/// Reserved beforehand, as a log does. The next one begins when it is full: to write again what was written once would spare the
/// file system what it has to do for new data.
const FILE_BYTES: u64 = 512 << 20;

/// Sequential writes to preallocated files, each followed by fdatasync.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DiskItself {
    pub(super) bytes_per_s: f64,
    /// Of a write of [`SMALL_BYTES`] with its sync.
    pub(super) sync: Latency,
}

/// Measures for this time at each length. Blocks.
pub(super) fn measure_disk(folder: &Path, lasts: Duration) -> io::Result<DiskItself> {
    let (bytes_per_s, _) = write_for(folder, LARGE_BYTES, lasts)?;
    let (_, sync) = write_for(folder, SMALL_BYTES, lasts)?;
    Ok(DiskItself { bytes_per_s, sync })
}

/// The time that it takes to reserve a file does not count.
fn write_for(folder: &Path, len_bytes: usize, lasts: Duration) -> io::Result<(f64, Latency)> {
    let bytes = vec![0xa5; len_bytes];
    let mut syncs_us = new_histogram();
    let (mut file, mut position) = (reserve(folder)?, 0);
    let (mut took, mut written) = (Duration::ZERO, 0_u64);
    while took < lasts {
        if position + len_bytes as u64 > FILE_BYTES {
            (file, position) = (reserve(folder)?, 0);
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
        let disk = measure_disk(&std::env::temp_dir(), Duration::from_millis(20)).unwrap();
        assert!(disk.bytes_per_s > 0.0 && disk.sync.p99 > Duration::ZERO, "{disk:?}");
        assert!(disk.sync.p50 <= disk.sync.p99);
    }
}
