//! A disk of a known bandwidth: an ext4 image in a file, mounted through a loop device that the kernel throttles. On
//! a machine whose own disk takes more than one core can receive, it shows what happens where the disk is what all
//! requests wait for.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// What is written to a loop device is throttled here (cgroup v1, for all processes).
const WRITE_LIMITS: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

/// A mounted disk; gone when this is dropped.
pub(in crate::bench) struct LimitedDisk {
    folder: TempDir,
    device: String,
    /// As the kernel wants it: `major:minor`.
    number: String,
}

impl LimitedDisk {
    /// Needs root, loop devices and cgroup v1's `blkio`.
    pub(in crate::bench) fn mount(size_bytes: u64, bytes_per_s: u64) -> Result<LimitedDisk> {
        ensure!(Path::new(WRITE_LIMITS).exists(), "cgroup v1 with blkio is not there, which throttles a disk");
        let folder = TempDir::with_prefix("sluice-bench-disk-")?;
        let image = folder.path().join("image");
        File::create(&image)?.set_len(size_bytes)?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(&image))?.trim().to_owned();
        // From here on dropping it cleans up.
        let mut disk = LimitedDisk { folder, device, number: String::new() };
        let numbers = fs::metadata(&disk.device)?.rdev();
        disk.number = format!("{}:{}", rustix::fs::major(numbers), rustix::fs::minor(numbers));
        fs::create_dir(disk.path())?;
        run(Command::new("mount").arg(&disk.device).arg(disk.path()))?;
        fs::write(WRITE_LIMITS, format!("{} {bytes_per_s}", disk.number)).context("cannot throttle the device")?;
        Ok(disk)
    }

    pub(in crate::bench) fn path(&self) -> PathBuf {
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

/// Its output. An error with what it said where it fails.
fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
