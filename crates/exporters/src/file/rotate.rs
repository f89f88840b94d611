//! Old files: `traces.json` becomes `traces-2026-11-21T02-30-00.000.json`, and the oldest are
//! removed.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sluice_otlp::civil_time;

use super::Rotation;

/// Renames the file and removes what is too old or too many. The caller opens a new one.
pub(super) fn rotate(path: &Path, rotation: &Rotation) -> io::Result<()> {
    let mut now = SystemTime::now();
    let mut name = backup_name(path, now);
    // Names have milliseconds: two rotations within one must not overwrite each other.
    while name.exists() {
        now += Duration::from_millis(1);
        name = backup_name(path, now);
    }
    std::fs::rename(path, name)?;
    if let Err(error) = remove_old(path, rotation, now) {
        tracing::warn!(path = %path.display(), %error, "old files cannot be removed");
    }
    Ok(())
}

fn parts(path: &Path) -> (String, String) {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let extension = path
        .extension()
        .map(|extension| format!(".{}", extension.to_string_lossy()))
        .unwrap_or_default();
    (stem, extension)
}

fn backup_name(path: &Path, at: SystemTime) -> PathBuf {
    let (stem, extension) = parts(path);
    path.with_file_name(OsString::from(format!("{stem}-{}{extension}", stamp(at))))
}

/// `2006-01-02T15-04-05.000`
fn stamp(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(0);
    format!("{}.{:03}", civil_time(seconds).replace(':', "-"), since.subsec_millis())
}

/// The old files, the newest first: their names sort by time.
fn backups(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (stem, extension) = parts(path);
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        let is_backup = name
            .to_str()
            .and_then(|name| name.strip_prefix(&stem)?.strip_prefix('-')?.strip_suffix(&extension))
            .is_some_and(|stamp| {
                stamp.len() == 23
                    && stamp.as_bytes()[10] == b'T'
                    && stamp.as_bytes()[0].is_ascii_digit()
            });
        if is_backup {
            found.push(directory.join(name));
        }
    }
    found.sort();
    found.reverse();
    Ok(found)
}

fn remove_old(path: &Path, rotation: &Rotation, now: SystemTime) -> io::Result<()> {
    let oldest = (rotation.max_days > 0)
        .then(|| now.checked_sub(Duration::from_secs(rotation.max_days.saturating_mul(86_400))))
        .flatten()
        .map(|oldest| backup_name(path, oldest));
    for (index, backup) in backups(path)?.into_iter().enumerate() {
        let too_many = rotation.max_backups > 0 && index >= rotation.max_backups;
        let too_old = oldest.as_ref().is_some_and(|oldest| backup.file_name() < oldest.file_name());
        if too_many || too_old {
            std::fs::remove_file(backup)?;
        }
    }
    Ok(())
}
