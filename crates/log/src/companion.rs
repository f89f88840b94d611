//! Text of the log's user that is kept beside the cursors, and the frames that were written since.
//!
//! Invariants
//! - It is written when cursors are: after them, and before a segment is removed whose frames they
//!   have resolved. On a disk that refuses it, segments are removed all the same: a full disk would
//!   never get free.
//! - Frames that a start reads for it are durable before their user learns of them.

use std::path::Path;

use crate::cursors::replace_file;
use crate::disk::{Access, Disk, read_full_at, write_all_at};
use crate::error::{FileError, IoContext as _, Result};
use crate::types::{Offset, StoredRecord};

const FILE_NAME: &str = "window";
const CHECKSUM: &str = "crc32c ";

/// State of the log's user. One thread asks for it, without the log's lock.
pub trait Companion: Send + Sync {
    /// Frames from this offset on are shown to it when the log is opened, before anything else
    /// is asked.
    fn asks_from(&self) -> Offset;

    /// A whole frame that is on disk and counts.
    fn found(&self, record: StoredRecord);

    /// All frames were shown, but for the rest of segments that could not be read. The log gives
    /// the offset `head` next.
    fn opened(&self, head: Offset, errors: Vec<FileError>);

    /// Whether its text has changed since it was last stored.
    fn is_changed(&self) -> bool;

    /// Lines of text, each with its end.
    fn text(&self) -> String;

    /// The result for the text that was asked for last.
    fn stored(&self, result: Result<()>);
}

/// Writes the text; durable when this returns.
pub fn store(disk: &dyn Disk, directory: &Path, text: &str) -> Result<()> {
    let checksum = crc32c::crc32c(text.as_bytes());
    let text = format!("{text}{CHECKSUM}{checksum:08x}\n");
    let write = |file: &dyn crate::disk::DiskFile, path: &Path| {
        write_all_at(file, text.as_bytes(), 0).at(path, "cannot write")
    };
    replace_file(disk, &directory.join(FILE_NAME), write).map(drop)
}

/// The text that was stored last. None if there is none, or if it is damaged.
pub fn load(disk: &dyn Disk, directory: &Path) -> Result<Option<String>> {
    let path = directory.join(FILE_NAME);
    let file = match disk.open(&path, Access::Read).at(&path, "cannot open") {
        Err(error) if error.is_not_found() => return Ok(None),
        file => file?,
    };
    let len_bytes = file.len_bytes().at(&path, "cannot read the length")?;
    let mut bytes = vec![0; len_bytes as usize];
    let len = read_full_at(&*file, &mut bytes, 0).at(&path, "cannot read")?;
    bytes.truncate(len);
    Ok(String::from_utf8(bytes).ok().and_then(|text| checked(&text).map(str::to_owned)))
}

/// The text before its checksum, if that is right.
fn checked(text: &str) -> Option<&str> {
    let start = text.strip_suffix('\n')?.rfind('\n').map_or(0, |end| end + 1);
    let (checked, last) = text.split_at(start);
    let checksum = last.trim_end().strip_prefix(CHECKSUM)?;
    let is_right = u32::from_str_radix(checksum, 16).ok()? == crc32c::crc32c(checked.as_bytes());
    is_right.then_some(checked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;

    #[test]
    fn a_text_comes_back_unless_it_is_damaged() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE_NAME);
        let load = || load(&RealDisk, folder.path()).expect("can be read");
        assert_eq!(load(), None);
        for text in ["", "one\n", "two\nlines\n"] {
            store(&RealDisk, folder.path(), text).expect("is written");
            assert_eq!(load().as_deref(), Some(text));
        }
        let whole = std::fs::read_to_string(&path).expect("is there");
        for end in 0..whole.len() {
            std::fs::write(&path, &whole[..end]).expect("is written");
            assert_eq!(load(), None, "cut at {end}");
        }
        std::fs::write(&path, whole.replace("two", "few")).expect("is written");
        assert_eq!(load(), None);
    }
}
