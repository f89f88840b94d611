//! Old files: `traces.json` becomes `traces-2026-11-21T02-30-00.000.json`; the oldest are removed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sluice_otlp::civil_time;

use super::{Rotation, directory_of};

/// Renames the file and removes old ones, by age and number. The caller opens a new one.
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
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
    (stem, extension.unwrap_or_default())
}

/// The stamp is `2006-01-02T15-04-05.000`.
fn backup_name(path: &Path, at: SystemTime) -> PathBuf {
    let (stem, extension) = parts(path);
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since.as_secs().cast_signed(), since.subsec_millis());
    let stamp = format!("{}.{millis:03}", civil_time(seconds).replace(':', "-"));
    path.with_file_name(format!("{stem}-{stamp}{extension}"))
}

/// The old files, the newest first: their names sort by time.
fn backups(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (stem, extension) = parts(path);
    let directory = directory_of(path);
    let is_backup = |name: &str| {
        let name = name.strip_prefix(&stem)?.strip_prefix('-')?;
        let stamp = name.strip_suffix(&extension)?.as_bytes();
        Some(stamp.len() == 23 && stamp[10] == b'T' && stamp[0].is_ascii_digit())
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        if name.to_str().and_then(is_backup) == Some(true) {
            found.push(directory.join(name));
        }
    }
    found.sort_by(|one, other| other.cmp(one));
    Ok(found)
}

fn remove_old(path: &Path, rotation: &Rotation, now: SystemTime) -> io::Result<()> {
    let age = Duration::from_secs(rotation.max_days.saturating_mul(86_400));
    let oldest = now.checked_sub(age).map(|oldest| backup_name(path, oldest));
    let is_old = |backup: &PathBuf| {
        let oldest = oldest.as_ref().filter(|_| rotation.max_days > 0);
        oldest.is_some_and(|oldest| backup.file_name() < oldest.file_name())
    };
    for (index, backup) in backups(path)?.into_iter().enumerate() {
        let is_one_too_many = rotation.max_backups > 0 && index >= rotation.max_backups;
        if is_one_too_many || is_old(&backup) {
            std::fs::remove_file(backup)?;
        }
    }
    Ok(())
}
