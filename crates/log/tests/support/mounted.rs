//! A real ext4 file system in a file, whose power can be cut: unsynced data is gone, as after
//! pulling the plug.
//!
//! SIGKILL alone never tests a sync, since the page cache outlives the process. Here the file
//! system is shut down without its journal being flushed (FS_IOC_SHUTDOWN, NOLOGFLUSH), unmounted
//! and mounted again.

#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of this")]

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER_PREFIX: &str = "sluice-mounted-";
/// `_IOR('X', 125, __u32)` with EXT4_GOING_FLAGS_NOLOGFLUSH, 2. Rust's standard library has no
/// ioctl without `unsafe`.
const SHUT_DOWN: &str = "import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

/// Kind and size of a mounted file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// In an image file, through a loop device.
    Ext4 { mib: u64 },
    /// In memory, with limited space and inodes.
    Tmpfs { mib: u64, inodes: u64 },
}

/// A mounted file system of its own. Unmounted and removed when dropped.
#[derive(Debug)]
pub struct Mounted {
    file_system: FileSystem,
    folder: PathBuf,
    mount_point: PathBuf,
}

impl Mounted {
    /// Mounts an empty file system. If this machine does not allow it, says so and returns `None`;
    /// with CI=true it fails instead.
    pub fn new(file_system: FileSystem) -> Option<Mounted> {
        if !is_root() {
            skip("mounting a file system needs root");
            return None;
        }
        match Mounted::try_new(file_system) {
            Ok(mounted) => Some(mounted),
            Err(error) => {
                skip(&format!("no {file_system:?} can be mounted: {error}"));
                None
            }
        }
    }

    fn try_new(file_system: FileSystem) -> io::Result<Mounted> {
        remove_leftovers();
        let number = fastrand::u32(..);
        let folder = std::env::temp_dir()
            .join(format!("{FOLDER_PREFIX}{}-{number:08x}", std::process::id()));
        let mount_point = folder.join("mounted");
        fs::create_dir_all(&mount_point)?;
        let mounted = Mounted { file_system, folder, mount_point };
        if let FileSystem::Ext4 { mib } = file_system {
            fs::File::create(mounted.image())?.set_len(mib << 20)?;
            run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(mounted.image()))?;
        }
        mounted.mount()?;
        Ok(mounted)
    }

    /// The file system's root.
    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    fn mount(&self) -> io::Result<()> {
        let mut command = Command::new("mount");
        match self.file_system {
            FileSystem::Ext4 { .. } => command.args(["-t", "ext4", "-o", "loop"]).arg(self.image()),
            FileSystem::Tmpfs { mib, inodes } => command.args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={mib}m,nr_inodes={inodes}"),
                "tmpfs",
            ]),
        };
        run(command.arg(&self.mount_point))
    }

    /// Discards all unsynced data. Processes that use the file system must be dead, or get errors
    /// from here on.
    pub fn cut_power(&self) {
        assert!(
            matches!(self.file_system, FileSystem::Ext4 { .. }),
            "what is in memory survives nothing"
        );
        let shut_down = Command::new("python3")
            .args(["-S", "-E", "-c", SHUT_DOWN])
            .arg(&self.mount_point)
            .output();
        let shut_down = shut_down.expect("python3 runs");
        assert!(shut_down.status.success(), "{}", String::from_utf8_lossy(&shut_down.stderr));
        // The files of a killed process stay open for a moment.
        let unmounted = (0..200).any(|_| {
            let is_done = run(Command::new("umount").arg(&self.mount_point)).is_ok();
            if !is_done {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            is_done
        });
        assert!(unmounted, "{} is still in use", self.mount_point.display());
        self.mount().expect("mounted again");
    }

    /// Makes every write and sync wait, until the [`Frozen`] is dropped.
    pub fn freeze(&self) -> Frozen {
        run(Command::new("fsfreeze").arg("--freeze").arg(&self.mount_point)).expect("frozen");
        Frozen { mount_point: self.mount_point.clone() }
    }

    /// Takes all space but `left_bytes`, until the [`Ballast`] is dropped.
    pub fn fill_but(&self, left_bytes: u64) -> Ballast {
        let path = self.mount_point.join(format!("ballast-{:08x}", fastrand::u32(..)));
        let file = fs::File::create(&path).expect("a file");
        let available_bytes = || {
            let space = rustix::fs::statvfs(&self.mount_point).expect("the file system's space");
            space.f_bavail * space.f_frsize
        };
        // A part of the space is for the file system's own accounting: not all can be allocated at
        // once.
        let mut len_bytes = 0;
        let mut step = available_bytes().saturating_sub(left_bytes);
        while step >= 4096 {
            let none = rustix::fs::FallocateFlags::empty();
            match rustix::fs::fallocate(&file, none, len_bytes, step) {
                Ok(()) => len_bytes += step,
                Err(_) => step /= 2,
            }
            step = step.min(available_bytes().saturating_sub(left_bytes));
        }
        Ballast { paths: vec![path] }
    }

    /// Takes all inodes that are left, until the [`Ballast`] is dropped.
    pub fn take_inodes(&self) -> Ballast {
        let names = (0..).map(|number| self.mount_point.join(format!("inode-{number}")));
        Ballast { paths: names.take_while(|path| fs::File::create(path).is_ok()).collect() }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: it may still be in use after a failed test.
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.mount_point));
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Files that take up space or inodes of a file system, until it is dropped.
#[derive(Debug)]
pub struct Ballast {
    paths: Vec<PathBuf>,
}

impl Drop for Ballast {
    fn drop(&mut self) {
        for path in &self.paths {
            let _ = fs::remove_file(path);
        }
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says that a test is skipped; with CI=true it fails instead.
pub fn skip(reason: &str) {
    let has_to_be = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!has_to_be, "{reason}, and with CI=true nothing is skipped");
    // Not through the test harness, which would capture it.
    let _ = writeln!(io::stderr(), "skipped: {reason}");
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("{}: {said}", command.get_program().display())))
}

/// Unmounts and removes the file systems of test processes that were killed.
fn remove_leftovers() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix(FOLDER_PREFIX).and_then(|rest| rest.split('-').next())
        else {
            continue;
        };
        if !Path::new("/proc").join(pid).exists() {
            let _ = run(Command::new("umount").arg("--lazy").arg(entry.path().join("mounted")));
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A file system on which every write waits.
pub struct Frozen {
    mount_point: PathBuf,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        run(Command::new("fsfreeze").arg("--unfreeze").arg(&self.mount_point)).expect("thawed");
    }
}
