//! Ids of streams: a content is one, and its records have their places in it. A receiver that has
//! had some of them knows them again by the id and their offsets.
//!
//! An id has to be known after a kill before anything is sent under it. So it is appended to a file
//! beside the checkpoint, which is not synced: a kill leaves it. After another boot of the machine
//! bytes that were read may be gone from a file, and others in their place: then all ids are new.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};

use crate::known::Known;

const MAGIC: &str = "sluice-streams 1";
/// Beyond this length the file is written anew, with the contents that there are.
const LEN_MAX: usize = 1 << 20;

/// A random id. `None`: the kernel has no random bytes.
pub(crate) fn new_id() -> Option<u128> {
    let mut bytes = [0; 16];
    let filled = rustix::io::retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()));
    filled.ok().map(|_| u128::from_le_bytes(bytes)).filter(|id| *id != 0)
}

/// The id of this boot of the machine; empty if it is not known.
pub(crate) fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().chars().filter(|it| it.is_ascii_hexdigit() || *it == '-').collect()
}

/// The file of ids.
#[derive(Debug)]
pub(crate) struct StreamIds {
    path: PathBuf,
    file: Option<File>,
    len: usize,
}

impl StreamIds {
    /// Adds the contents that the file knows beyond the checkpoint.
    pub(crate) fn open(path: PathBuf, known: &mut Option<Vec<Known>>) -> StreamIds {
        let text = fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.split_inclusive('\n');
        let boot = boot_id();
        let is_of_this_boot = !boot.is_empty() && lines.next() == Some(&header(&boot));
        let (mut file, mut len) = (None, 0);
        if is_of_this_boot {
            let mut had: HashSet<u128> = known.iter().flatten().map(|it| it.stream).collect();
            // A line that a kill has cut ends the file.
            let added = lines.map_while(|line| Known::of_line(line.strip_suffix('\n')?));
            let added: Vec<Known> = added.filter(|it| had.insert(it.stream)).collect();
            if !added.is_empty() {
                known.get_or_insert_default().extend(added);
            }
            if text.ends_with('\n') {
                file = File::options().append(true).open(&path).ok();
                len = text.len();
            }
        }
        StreamIds { path, file, len }
    }

    /// Notes the id of a content, and the place up to which it is resolved. `all`: those that are
    /// to be kept if the file is written anew.
    ///
    /// # Errors
    /// The id must not be used.
    pub(crate) fn note(&mut self, known: &Known, all: impl Fn() -> Vec<Known>) -> io::Result<()> {
        let line = known.to_line() + "\n";
        if let Some(file) = self.file.as_mut().filter(|_| self.len < LEN_MAX) {
            let written = file.write_all(line.as_bytes());
            self.len += line.len();
            if written.is_err() {
                // A part of the line may be there.
                self.file = None;
            }
            return written;
        }
        let boot = boot_id();
        if boot.is_empty() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut text = header(&boot);
        let others = all().into_iter().filter(|it| it.stream != 0 && it.stream != known.stream);
        others.for_each(|it| text += &(it.to_line() + "\n"));
        text += &line;
        let new = self.path.with_extension("streams.new");
        fs::write(&new, &text)?;
        fs::rename(&new, &self.path)?;
        self.file = Some(File::options().append(true).open(&self.path)?);
        self.len = text.len();
        Ok(())
    }
}

fn header(boot: &str) -> String {
    format!("{MAGIC} {boot}\n")
}

/// The file beside a checkpoint.
pub(crate) fn path_beside(checkpoint: &Path) -> PathBuf {
    let mut name = checkpoint.as_os_str().to_owned();
    name.push(".streams");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Head, Inode, Mark};

    fn known(stream: u128) -> Known {
        Known {
            inode: Inode { device: 1, number: stream as u64 },
            path: PathBuf::from(format!("/logs/{stream}")),
            head: Head::default(),
            mark: Mark::default(),
            stream,
        }
    }

    fn open(path: &Path, checkpoint: Option<Vec<Known>>) -> (StreamIds, Vec<u128>) {
        let mut known = checkpoint;
        let ids = StreamIds::open(path.to_owned(), &mut known);
        (ids, known.into_iter().flatten().map(|it| it.stream).collect())
    }

    /// Guarantee: an id that was noted is known after a kill, also if the kill cut the next line,
    /// and is not known after another boot.
    #[test]
    fn ids_are_known_after_a_kill_and_new_after_another_boot() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c.streams");
        let (mut ids, at_first) = open(&path, None);
        assert_eq!(at_first, []);
        for stream in [5, 6] {
            ids.note(&known(stream), Vec::new).expect("is noted");
        }
        let (mut ids, found) = open(&path, Some(vec![known(6), known(9)]));
        assert_eq!(found, [6, 9, 5]);
        ids.note(&known(7), Vec::new).expect("is noted");
        let text = fs::read_to_string(&path).expect("is there");
        for cut in 1..10 {
            fs::write(&path, &text[..text.len() - cut]).expect("is written");
            let (mut ids, found) = open(&path, None);
            assert_eq!(found, [5, 6], "cut by {cut}");
            ids.note(&known(8), || vec![known(5)]).expect("is noted");
            assert_eq!(open(&path, None).1, [5, 8], "a cut line is not written on");
        }
        let other = text.replacen(&boot_id(), "00000000-0000-0000-0000-000000000000", 1);
        fs::write(&path, other).expect("is written");
        assert_eq!(open(&path, Some(vec![known(6)])).1, [6]);
    }

    #[test]
    fn the_file_is_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c.streams");
        let (mut ids, _) = open(&path, None);
        for stream in 1..=30_000 {
            ids.note(&known(stream), || vec![known(stream - 1)]).expect("is noted");
        }
        assert!(fs::metadata(&path).expect("is there").len() < LEN_MAX as u64 + 200);
        assert!(open(&path, None).1.contains(&30_000));
    }
}
