//! The file of one reader: two slots written in turn. The newer one that is whole counts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Access, Disk, DiskFile, read_full_at, remove_if_there, write_all_at};
use crate::error::{FileError, IoContext as _, Result};
use crate::format::{BlockError, CursorState, SLOT_LEN_BYTES, decode_slot, encode_slot};
use crate::segment::list_files;
use crate::types::Offset;

/// Folder of the cursor files within a log's directory.
pub const CURSORS_DIRECTORY: &str = "cursors";

pub const CURSOR_EXTENSION: &str = ".cursor";

/// Extension of a file that is being written. It counts only after it is renamed.
pub const TEMPORARY_EXTENSION: &str = ".tmp";

/// Longest stem of a file name. The longest name on usual file systems is 255 bytes.
const STEM_LIMIT_BYTES: usize = 200;

/// More offsets than can lie between the heads of two slots, or in one segment. If the disk
/// refuses the slot that may be newer, offsets skip this many: none in that slot is given again.
pub(crate) const UNREAD_OFFSETS: Offset = 1 << 40;

/// Paths of the cursor files of a log.
pub(crate) fn cursor_paths(disk: &dyn Disk, log_directory: &Path) -> Result<Vec<PathBuf>> {
    let directory = log_directory.join(CURSORS_DIRECTORY);
    let files = list_files(disk, &directory)?.filter(|file| is_cursor(&file.name));
    Ok(files.map(|file| directory.join(file.name)).collect())
}

pub(super) fn is_cursor(file_name: &str) -> bool {
    file_name.ends_with(CURSOR_EXTENSION)
}

/// A cursor file, open for writing.
pub struct CursorFile {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    /// Sequence number of the newest slot.
    sequence: u64,
    /// A write or a sync failed: the next write replaces the file.
    failed: bool,
}

impl CursorFile {
    /// Creates or replaces a file. Durable when this returns.
    pub fn create(disk: &dyn Disk, path: &Path, state: &CursorState) -> Result<Self> {
        Self::replace(disk, path, state, 0)
    }

    /// Opens a file and reads the newer of its whole slots. An error if the disk refuses a slot: it
    /// may be the newer one.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<(Self, CursorState)> {
        let (file, state, refused) = Self::open_in_part(disk, path)?;
        refused.map_or(Ok((file, state)), Err)
    }

    /// Opens a file although the disk may have refused a slot for long; returns its error. The
    /// other slot counts. The head then has to skip [`UNREAD_OFFSETS`], and [`Self::store`] writes
    /// a new file.
    pub(crate) fn open_in_part(
        disk: &dyn Disk,
        path: &Path,
    ) -> Result<(Self, CursorState, Option<FileError>)> {
        let file = disk.open(path, Access::ReadWrite).at(path, "cannot open")?;
        let (sequence, state, refused) = read_newest(&*file, path)?;
        let failed = refused.is_some();
        Ok((CursorFile { path: path.to_owned(), file, sequence, failed }, state, refused))
    }

    /// Reads a file, opened for reading only.
    pub fn read(disk: &dyn Disk, path: &Path) -> Result<CursorState> {
        let (state, refused) = Self::read_in_part(disk, path)?;
        refused.map_or(Ok(state), Err)
    }

    /// As [`CursorFile::read`], but the other slot counts if the disk refuses one. Returns its
    /// error.
    pub(crate) fn read_in_part(
        disk: &dyn Disk,
        path: &Path,
    ) -> Result<(CursorState, Option<FileError>)> {
        let file = disk.open(path, Access::Read).at(path, "cannot open")?;
        let (_, state, refused) = read_newest(&*file, path)?;
        Ok((state, refused))
    }

    /// Writes the state into the older slot; durable when this returns. After an error the newer
    /// slot still counts, and the next call writes a new file: a file that failed to sync is never
    /// synced again.
    pub fn store(&mut self, disk: &dyn Disk, state: &CursorState) -> Result<()> {
        if self.failed {
            *self = Self::replace(disk, &self.path, state, self.sequence)?;
            return Ok(());
        }
        let sequence = self.sequence + 1;
        let slot = encode_slot(state, sequence);
        let written = write_all_at(&*self.file, &slot, slot_position(sequence))
            .and_then(|()| self.file.sync_data())
            .and_then(|()| self.file.is_at(&self.path));
        self.failed = !matches!(written, Ok(true));
        self.sequence = sequence;
        match written.at(&self.path, "cannot write")? {
            true => Ok(()),
            false => Err(FileError::Removed { path: self.path.clone() }),
        }
    }

    /// The next write makes the file anew.
    pub(super) fn forget_written(&mut self) {
        self.failed = true;
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes both slots, so that one damaged slot never costs the reader.
    fn replace(disk: &dyn Disk, path: &Path, state: &CursorState, sequence: u64) -> Result<Self> {
        let file = replace_file(disk, path, |file, temporary| {
            file.allocate(2 * SLOT_LEN_BYTES).at(temporary, "cannot reserve space")?;
            for sequence in [sequence + 1, sequence + 2] {
                write_all_at(file, &encode_slot(state, sequence), slot_position(sequence))
                    .at(temporary, "cannot write")?;
            }
            Ok(())
        })?;
        Ok(CursorFile { path: path.to_owned(), file, sequence: sequence + 2, failed: false })
    }
}

/// Creates or replaces a file, all at once. Durable when this returns.
pub(crate) fn replace_file(
    disk: &dyn Disk,
    path: &Path,
    write: impl FnOnce(&dyn DiskFile, &Path) -> Result<()>,
) -> Result<Arc<dyn DiskFile>> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMPORARY_EXTENSION);
    let temporary = PathBuf::from(temporary);
    remove_if_there(disk, &temporary).at(&temporary, "cannot remove")?;
    let written = || {
        let file = disk.create_new(&temporary).at(&temporary, "cannot create")?;
        write(&*file, &temporary)?;
        file.sync_data().at(&temporary, "cannot sync")?;
        disk.rename(&temporary, path).at(path, "cannot rename")?;
        Ok(file)
    };
    // The file may take the space that is missing. If it stays, the next attempt removes it.
    let file = written().inspect_err(|_| drop(disk.remove_file(&temporary)))?;
    let directory = path.parent().unwrap_or(Path::new("."));
    disk.sync_directory(directory).at(directory, "cannot sync the directory")?;
    Ok(file)
}

/// Slots alternate: an odd sequence number goes to the second slot.
fn slot_position(sequence: u64) -> u64 {
    (sequence % 2) * SLOT_LEN_BYTES
}

/// The newest whole slot with its sequence number, and the error of the disk if it refused one.
fn read_newest(file: &dyn DiskFile, path: &Path) -> Result<(u64, CursorState, Option<FileError>)> {
    let (whole, refused) = read_slots(file, path)?;
    match (whole.into_iter().max_by_key(|(sequence, _)| *sequence), refused) {
        (Some((sequence, state)), refused) => Ok((sequence, state, refused)),
        (None, Some(refused)) => Err(refused),
        (None, None) => Err(FileError::DamagedCursor { path: path.to_owned() }),
    }
}

/// A sequence number and the state that was stored with it.
type Slot = (u64, CursorState);

/// The slots that are whole, and the last error of the disk.
fn read_slots(file: &dyn DiskFile, path: &Path) -> Result<(Vec<Slot>, Option<FileError>)> {
    let mut buffer = vec![0; SLOT_LEN_BYTES as usize];
    let (mut whole, mut refused) = (Vec::new(), None);
    for position in [0, SLOT_LEN_BYTES] {
        match read_full_at(file, &mut buffer, position).at(path, "cannot read") {
            Err(error) => refused = Some(error),
            Ok(len) => match decode_slot(&buffer[..len]) {
                Ok(slot) => whole.push(slot),
                Err(BlockError::NewerVersion { found }) => {
                    return Err(FileError::NewerVersion { path: path.to_owned(), found });
                }
                Err(BlockError::Empty | BlockError::Damaged) => {}
            },
        }
    }
    Ok((whole, refused))
}

/// Number of damaged slots of a file, 0 to 2. One may be left of an interrupted write; two mean
/// that the reader's position is lost. An error if the disk refuses a slot.
pub fn damaged_slots(disk: &dyn Disk, path: &Path) -> Result<usize> {
    let file = disk.open(path, Access::Read).at(path, "cannot open")?;
    let (whole, refused) = read_slots(&*file, path)?;
    refused.map_or(Ok(2 - whole.len()), Err)
}

pub fn file_name(name: &str) -> String {
    escape(name) + CURSOR_EXTENSION
}

/// A name as a file or directory name: letters, digits, `-`, `_` and dots but a first one stay,
/// every other byte becomes `%xx`. Long names are cut and told apart by a hash of the whole name.
pub fn escape(name: &str) -> String {
    let mut stem = String::new();
    for (index, byte) in name.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => stem.push(char::from(byte)),
            b'.' if index > 0 => stem.push('.'),
            _ => stem.push_str(&format!("%{byte:02x}")),
        }
    }
    if stem.len() > STEM_LIMIT_BYTES || stem.is_empty() {
        stem.truncate(STEM_LIMIT_BYTES);
        stem.push_str(&format!("~{:016x}", fowler_noll_vo(name.as_bytes())));
    }
    stem
}

/// The name that [`escape`] was given. None if a part of it is not in the escaped one.
pub(crate) fn unescape(stem: &str) -> Option<String> {
    let (mut name, mut rest) = (Vec::new(), stem.as_bytes());
    while let [first, behind @ ..] = rest {
        let (byte, behind) = match (first, behind) {
            (b'~', _) => return None,
            (b'%', [high, low, behind @ ..]) => {
                let digits = [*high, *low];
                (u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?, behind)
            }
            (byte, behind) => (*byte, behind),
        };
        name.push(byte);
        rest = behind;
    }
    String::from_utf8(name).ok()
}

/// FNV-1a, 64 bits.
fn fowler_noll_vo(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
