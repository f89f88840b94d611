//! The list of cursor files, which tells a lost one from one that was removed on purpose.
//!
//! It is a text file beside the segments: it does not go with the folder of cursors. A file is
//! listed before a frame of its reader is called durable. It is taken from the list before it is
//! removed. What a lost cursor needs is listed under the name for files that were set aside, until
//! it is forgotten.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::aside::{free_name, name_before};
use crate::cursor_file::{CURSOR_EXTENSION, replace_file};
use crate::disk::{Access, DirectoryEntry, Disk, read_full_at, write_all_at};
use crate::error::{FileError, IoContext as _, Result};
use crate::format::Version;

const FILE_NAME: &str = "cursors.list";
const TITLE: &str = "sluice cursors ";
const VERSION: u16 = 1;
const CHECKSUM: &str = "crc32c ";
/// Stands for all readers if neither a list nor a cursor file is left.
const UNKNOWN: &str = "unknown.cursor";

fn path(log_directory: &Path) -> PathBuf {
    log_directory.join(FILE_NAME)
}

/// Reads the list of a log. None if there is none: no release that has one ever wrote here.
pub(crate) fn read(disk: &dyn Disk, log_directory: &Path) -> Result<Option<BTreeSet<String>>> {
    let path = path(log_directory);
    let file = match disk.open(&path, Access::Read).at(&path, "cannot open") {
        Err(error) if error.is_not_found() => return Ok(None),
        file => file?,
    };
    let len_bytes = file.len_bytes().at(&path, "cannot read the length")?;
    let mut bytes = vec![0; len_bytes as usize];
    let len = read_full_at(&*file, &mut bytes, 0).at(&path, "cannot read")?;
    match decode(&bytes[..len]) {
        Some((VERSION, names)) => Ok(Some(names)),
        Some((major, _)) if major > VERSION => {
            Err(FileError::NewerVersion { path, found: Version { major, minor: 0 } })
        }
        _ => Err(FileError::DamagedList { path }),
    }
}

/// Replaces the list of a log. Durable when this returns.
pub(crate) fn write(disk: &dyn Disk, log_directory: &Path, names: &BTreeSet<String>) -> Result<()> {
    let path = path(log_directory);
    let text = encode(names);
    replace_file(disk, &path, |file, temporary| {
        write_all_at(file, text.as_bytes(), 0).at(temporary, "cannot write")
    })
    .map(drop)
}

fn encode(names: &BTreeSet<String>) -> String {
    let mut text = format!("{TITLE}{VERSION}\n");
    names.iter().for_each(|name| text.extend([name, "\n"]));
    let checksum = crc32c::crc32c(text.as_bytes());
    text + &format!("{CHECKSUM}{checksum:08x}\n")
}

/// The version and, if it is known, the names. None if the bytes are damaged.
fn decode(bytes: &[u8]) -> Option<(u16, BTreeSet<String>)> {
    let text = str::from_utf8(bytes).ok()?;
    let (checked, last) = text.split_at(text.strip_suffix('\n')?.rfind('\n')? + 1);
    let checksum = last.trim_end().strip_prefix(CHECKSUM)?;
    if u32::from_str_radix(checksum, 16).ok()? != crc32c::crc32c(checked.as_bytes()) {
        return None;
    }
    let mut lines = checked.lines();
    let version = lines.next()?.strip_prefix(TITLE)?.parse().ok()?;
    Some((version, lines.map(str::to_owned).collect()))
}

/// The cursor files of a log, and their list.
pub(crate) struct Found<'a> {
    /// Of the folder of cursors.
    pub(crate) entries: &'a [DirectoryEntry],
    pub(crate) listed: Option<&'a BTreeSet<String>>,
    /// The log has a segment with a frame.
    pub(crate) has_segments: bool,
}

impl Found<'_> {
    /// The lost cursors of a log, by the names under which everything on disk is kept for them; and
    /// the names that the damaged ones among them get, which are to be set aside.
    pub(crate) fn lost(&self, damaged: Vec<String>) -> (BTreeSet<String>, Vec<(String, String)>) {
        let mut lost = self.missing();
        let mut asides = Vec::new();
        for name in damaged {
            let aside = free_name(&name, |aside| self.has(aside) || lost.contains(aside));
            lost.insert(aside.clone());
            asides.push((name, aside));
        }
        (lost, asides)
    }

    /// Those that were set aside or are gone.
    pub(crate) fn missing(&self) -> BTreeSet<String> {
        let names = || self.entries.iter().map(|entry| &entry.name);
        let is_set_aside = |name: &&String| name_before(name).is_some_and(is_cursor);
        let listed = || self.listed.into_iter().flatten();
        let mut lost: BTreeSet<_> = names().chain(listed()).filter(is_set_aside).cloned().collect();
        for name in listed().filter(|name| is_cursor(name) && !self.has(name)) {
            if !lost.iter().any(|lost| name_before(lost) == Some(name)) {
                lost.insert(free_name(name, |_| false));
            }
        }
        let is_empty = lost.is_empty() && !names().any(|name| is_cursor(name));
        if is_empty && self.listed.is_none() && self.has_segments {
            lost.insert(free_name(UNKNOWN, |_| false));
        }
        lost
    }

    fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.name == name)
    }
}

/// Whether a lost cursor stands for all readers.
pub(crate) fn is_unknown(lost: &str) -> bool {
    name_before(lost) == Some(UNKNOWN)
}

fn is_cursor(file_name: &str) -> bool {
    file_name.ends_with(CURSOR_EXTENSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_round_trips_and_every_flipped_bit_is_found() {
        for names in [&[][..], &["a.cursor"], &["a.cursor", "b→c.cursor", "d.cursor.damaged-2"]] {
            let names: BTreeSet<String> = names.iter().map(|&name| name.to_owned()).collect();
            let bytes = encode(&names).into_bytes();
            assert_eq!(decode(&bytes), Some((VERSION, names)));
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                // The spelling of the checksum is the only part that is not checked by it.
                let is_the_same = damaged.eq_ignore_ascii_case(&bytes);
                assert!(is_the_same || decode(&damaged).is_none(), "bit {bit}");
            }
            (0..bytes.len()).for_each(|len| assert_eq!(decode(&bytes[..len]), None, "{len}"));
        }
    }

    #[test]
    fn what_is_listed_and_gone_is_lost() {
        let entry = |name: &&str| DirectoryEntry {
            name: (*name).to_owned(),
            is_directory: false,
            len_bytes: 1,
        };
        let lost_of = |there: &[&str], listed: Option<&[&str]>| {
            let entries: Vec<_> = there.iter().map(entry).collect();
            let listed: Option<BTreeSet<_>> =
                listed.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            let found = Found { entries: &entries, listed: listed.as_ref(), has_segments: true };
            found.missing().into_iter().collect::<Vec<_>>()
        };
        assert!(lost_of(&["a.cursor"], Some(&["a.cursor"])).is_empty());
        assert!(lost_of(&[], Some(&[])).is_empty());
        assert!(lost_of(&["a.cursor"], None).is_empty());
        let aside = "b.cursor.damaged-2";
        assert_eq!(lost_of(&["a.cursor"], Some(&["b.cursor"])), ["b.cursor.damaged"]);
        assert_eq!(lost_of(&[aside], Some(&["b.cursor"])), [aside], "one for both");
        assert_eq!(lost_of(&["b.cursor"], Some(&["b.cursor", aside])), [aside], "two of a name");
        assert_eq!(lost_of(&[aside], None), [aside]);
        assert_eq!(lost_of(&[], None), ["unknown.cursor.damaged"]);
        let new_log = Found { entries: &[], listed: None, has_segments: false };
        assert!(new_log.missing().is_empty());
    }
}
