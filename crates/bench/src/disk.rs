//! Disks as yardsticks: the machine's own without any format, and one of known bandwidth.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use sluice_load::latency::{Latency, new_histogram, record};
use tempfile::TempDir;

/// Bytes a sync where bandwidth is measured: enough that more would not be faster.
pub(crate) const LARGE_BYTES: usize = 4 << 20;
/// Bytes a sync where latency is measured: one request of a hundred spans.
pub(crate) const SMALL_BYTES: usize = 192 << 10;
/// Bytes that are reserved beforehand, as a log does. A full file is followed by a new one:
/// overwriting old data would spare the file system its work for new data.
const FILE_BYTES: u64 = 512 << 20;

/// Sequential writes to preallocated files, each followed by fdatasync: bytes a second, and the
/// latency of a write with its sync. Without a rate, writes follow one another; a disk that has
/// rested in between takes longer. The time to reserve a file does not count. Blocks.
pub(crate) fn write_for(
    folder: &Path,
    len_bytes: usize,
    lasts: Duration,
    syncs_per_s: Option<f64>,
) -> Result<(f64, Latency)> {
    let bytes = vec![0xa5; len_bytes];
    let mut syncs_us = new_histogram();
    let (mut file, mut position) = (reserve(folder)?, 0);
    let (mut took, mut syncs) = (Duration::ZERO, 0_u32);
    let begun = Instant::now();
    while syncs_per_s.map_or(took, |_| begun.elapsed()) < lasts {
        if position + len_bytes as u64 > FILE_BYTES {
            (file, position) = (reserve(folder)?, 0);
        }
        if let Some(syncs_per_s) = syncs_per_s {
            let due = begun + Duration::from_secs_f64(f64::from(syncs) / syncs_per_s);
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let before = Instant::now();
        file.write_all_at(&bytes, position)?;
        fdatasync(&file)?;
        took += before.elapsed();
        record(&mut syncs_us, before.elapsed(), 1);
        position += len_bytes as u64;
        syncs += 1;
    }
    let written_bytes = f64::from(syncs) * len_bytes as f64;
    Ok((written_bytes / took.as_secs_f64(), Latency::of(&syncs_us)))
}

fn reserve(folder: &Path) -> Result<File> {
    let file = tempfile::tempfile_in(folder)?;
    fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES)?;
    file.sync_all()?;
    Ok(file)
}

/// The file that throttles writes to a device (cgroup v1, for all processes).
const WRITE_LIMITS: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

/// An ext4 image in a file, mounted through a loop device that the kernel throttles; removed when
/// dropped. With it, requests wait for a disk also on a machine with a fast one.
pub(crate) struct LimitedDisk {
    folder: TempDir,
    device: String,
    /// As the kernel wants it: `major:minor`.
    number: String,
}

impl LimitedDisk {
    /// Needs root, loop devices and cgroup v1's `blkio`.
    pub(crate) fn mount(size_bytes: u64, bytes_per_s: u64) -> Result<LimitedDisk> {
        ensure!(
            Path::new(WRITE_LIMITS).exists(),
            "cgroup v1 with blkio is not there, which throttles a disk"
        );
        let folder = TempDir::with_prefix("sluice-bench-disk-")?;
        let image = folder.path().join("image");
        File::create(&image)?.set_len(size_bytes)?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        let device =
            run(Command::new("losetup").args(["--find", "--show"]).arg(&image))?.trim().to_owned();
        // From here on dropping it cleans up.
        let mut disk = LimitedDisk { folder, device, number: String::new() };
        let numbers = fs::metadata(&disk.device)?.rdev();
        disk.number = format!("{}:{}", rustix::fs::major(numbers), rustix::fs::minor(numbers));
        fs::create_dir(disk.path())?;
        run(Command::new("mount").arg(&disk.device).arg(disk.path()))?;
        fs::write(WRITE_LIMITS, format!("{} {bytes_per_s}", disk.number))
            .context("cannot throttle the device")?;
        Ok(disk)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }
}

impl Drop for LimitedDisk {
    fn drop(&mut self) {
        if !self.number.is_empty() {
            let _ = fs::write(WRITE_LIMITS, format!("{} 0", self.number));
        }
        let _ = run(Command::new("umount").arg(self.path()));
        let _ = run(Command::new("losetup").args(["--detach", &self.device]));
    }
}

/// Returns the output. Fails with the standard error of a command that fails.
fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_a_bandwidth_and_a_latency() {
        let (folder, lasts) = (std::env::temp_dir(), Duration::from_millis(50));
        let (bytes_per_s, _) = write_for(&folder, LARGE_BYTES, lasts, None).unwrap();
        assert!(bytes_per_s > 0.0, "{bytes_per_s}");
        let (_, back_to_back) = write_for(&folder, SMALL_BYTES, lasts, None).unwrap();
        let (_, syncs) = write_for(&folder, SMALL_BYTES, lasts, Some(100.0)).unwrap();
        assert!(syncs.count <= 6, "the first at once, then no more than were asked for: {syncs:?}");
        for latency in [back_to_back, syncs] {
            assert!(latency.p99 > Duration::ZERO && latency.p50 <= latency.p99, "{latency:?}");
        }
    }
}
