//! The file of a checkpoint: known contents, and behind them what changed since.
//!
//! ```text
//! sluice-tail 2 <id of the machine's boot>
//! 1 <content>
//! 2 <content>
//! crc32c <checksum of all bytes before>
//! 2 <content>
//! 1 gone
//! crc32c <checksum of the lines behind the one before>
//! ```
//!
//! The first part is written as a whole into a new file, which is renamed. Changes are appended, a
//! few lines with their checksum at a time. A content has a number within its file: its line
//! replaces the one before. Reading stops before the first part that is not whole: a write that was
//! torn by a crash, after which nothing was appended. After another boot of the machine contents
//! have no ids of streams.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::journal::{Write, resolved_mark};
use crate::known::Known;
use crate::streams::{StreamIds, boot_id, path_beside};
use crate::{FileId, Tail};

const VERSION: u32 = 2;
const MAGIC: &str = "sluice-tail";
const SUM: &str = "crc32c ";
const GONE: &str = "gone";
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// Adds the line of a content, or that it is gone.
pub(crate) fn add_line(text: &mut String, number: u64, known: Option<&Known>) {
    let line = known.map_or_else(|| GONE.to_owned(), Known::to_line);
    let _ = writeln!(text, "{number:x} {line}");
}

/// Adds the line behind which a part of a checkpoint is whole.
pub(crate) fn add_sum(text: &mut String) {
    let sum = crc32c::crc32c(text.as_bytes());
    let _ = writeln!(text, "{SUM}{sum:08x}");
}

/// The first line of a checkpoint.
pub(crate) fn header() -> String {
    format!("{MAGIC} {VERSION} {}\n", boot_id())
}

/// The text of a checkpoint.
pub fn encode(known: &[Known]) -> String {
    let mut text = header();
    for (number, known) in (0..).zip(known) {
        add_line(&mut text, number, Some(known));
    }
    add_sum(&mut text);
    text
}

/// # Errors
/// The reason, in a line: it is damaged, or from a newer version.
pub fn decode(bytes: &[u8]) -> Result<Vec<Known>, String> {
    read(bytes).map(|(known, _)| known)
}

/// Returns the contents, and the length of what is whole.
fn read(bytes: &[u8]) -> Result<(Vec<Known>, usize), String> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let version = str::from_utf8(first).ok().and_then(|it| it.strip_prefix(MAGIC));
    let mut words = version.unwrap_or_default().split_whitespace();
    let version: Option<u32> = words.next().and_then(|it| it.parse().ok());
    let (boot, known_boot) = (boot_id(), words.next().unwrap_or_default());
    let is_of_this_boot = !boot.is_empty() && boot == known_boot;
    match version {
        Some(VERSION) => {}
        Some(newer) => return Err(format!("it has version {newer}, this build knows {VERSION}")),
        None => return Err("it does not begin as a checkpoint".to_owned()),
    }
    let mut contents = Contents::default();
    let mut changes = Vec::new();
    let (mut at, mut part_start, mut whole) = (first.len(), 0, 0);
    for line in lines {
        let start = at;
        at += line.len();
        let line = line.strip_suffix(b"\n").and_then(|line| str::from_utf8(line).ok());
        let Some(line) = line else { break };
        if let Some(sum) = line.strip_prefix(SUM) {
            let expected = crc32c::crc32c(&bytes[part_start..start]);
            if u32::from_str_radix(sum, 16) != Ok(expected) {
                break;
            }
            changes.drain(..).for_each(|change| contents.change(change));
            (part_start, whole) = (at, at);
        } else {
            let Some((number, mut known)) = change_of(line) else { break };
            if let Some(known) = known.as_mut().filter(|_| !is_of_this_boot) {
                known.stream = 0;
            }
            changes.push((number, known));
        }
    }
    if whole == 0 {
        return Err("it is damaged".to_owned());
    }
    Ok((contents.in_order.into_iter().flatten().collect(), whole))
}

fn change_of(line: &str) -> Option<(u64, Option<Known>)> {
    let (number, content) = line.split_once(' ')?;
    let number = u64::from_str_radix(number, 16).ok()?;
    if content == GONE {
        Some((number, None))
    } else {
        Some((number, Some(Known::of_line(content)?)))
    }
}

/// In the order in which they were written first.
#[derive(Default)]
struct Contents {
    in_order: Vec<Option<Known>>,
    places: HashMap<u64, usize>,
}

impl Contents {
    fn change(&mut self, (number, known): (u64, Option<Known>)) {
        match (self.places.get(&number), known) {
            (Some(place), Some(known)) => self.in_order[*place] = Some(known),
            (Some(place), None) => {
                self.in_order[*place] = None;
                self.places.remove(&number);
            }
            (None, Some(known)) => {
                self.places.insert(number, self.in_order.len());
                self.in_order.push(Some(known));
            }
            (None, None) => {}
        }
    }
}

/// The file of a checkpoint, which one receiver may use at a time.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    streams: Mutex<StreamIds>,
    /// Keeps others out.
    _lock: File,
}

impl Checkpoint {
    /// Makes the directory if need be, reads what is known, and keeps others out. Waits `patience`
    /// for one of the same process that ends. `None`: there is no checkpoint yet, or one that
    /// cannot be used and was renamed.
    ///
    /// # Errors
    /// The reason, with the path.
    pub fn open(
        path: &Path,
        patience: Duration,
    ) -> Result<(Checkpoint, Option<Vec<Known>>), String> {
        let directory = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory)
            .map_err(|error| failed("make the directory of checkpoints", directory, error))?;
        let lock = lock(path, patience)?;
        let mut known = match fs::read(path) {
            Ok(bytes) => match read(&bytes) {
                Ok((known, whole)) => {
                    if whole < bytes.len() {
                        tracing::warn!(checkpoint = %path.display(), bytes = bytes.len() - whole,
                            "the last changes of the checkpoint are not whole: some lines may \
                             arrive again");
                    }
                    Some(known)
                }
                Err(reason) => {
                    let aside = beside(path, ".unusable");
                    fs::rename(path, &aside)
                        .map_err(|error| failed("rename the unusable checkpoint", path, error))?;
                    tracing::error!(
                        checkpoint = %path.display(), renamed_to = %aside.display(), reason,
                        "the checkpoint cannot be used: files are read from where start_at says"
                    );
                    None
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("read the checkpoint", path, error)),
        };
        let streams = Mutex::new(StreamIds::open(path_beside(path), &mut known));
        Ok((Checkpoint { path: path.to_owned(), streams, _lock: lock }, known))
    }

    /// Notes the id of the content's stream, so that it is known after a kill. Writes a line, and
    /// does not wait for the disk.
    ///
    /// # Errors
    /// The id must not be used.
    pub fn note_stream(&self, tail: &Tail, id: FileId) -> io::Result<()> {
        let known = tail.files.get(&id).map(|file| file.known_at(resolved_mark(file)));
        let known = known.ok_or(io::ErrorKind::NotFound)?;
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.note(&known, || tail.known())
    }

    /// Writes it, as a whole or what changed. It is on disk then.
    ///
    /// # Errors
    /// The checkpoint before is still there. The next write has to be a whole one.
    pub fn write(&self, write: &Write) -> io::Result<()> {
        match write {
            Write::Whole(text) => self.save(text),
            Write::Changes(text) => {
                let mut file = File::options().append(true).open(&self.path)?;
                file.write_all(text.as_bytes())?;
                file.sync_data()
            }
        }
    }

    fn save(&self, text: &str) -> io::Result<()> {
        let new = beside(&self.path, ".new");
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Takes the lock. It has the number of its process, whose receivers follow each other at a reload.
fn lock(path: &Path, patience: Duration) -> Result<File, String> {
    let lock_path = beside(path, ".lock");
    let unwritten = |error| failed("write the checkpoint's lock", &lock_path, error);
    let file = File::options().create(true).truncate(false).read(true).write(true).open(&lock_path);
    let mut file = file.map_err(unwritten)?;
    let own = std::process::id().to_string();
    let until = Instant::now() + patience;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut holder = String::new();
        let _ = file.rewind().and_then(|()| (&mut file).take(32).read_to_string(&mut holder));
        if holder != own {
            return Err(format!("another process uses the checkpoint `{}`", path.display()));
        }
        if Instant::now() >= until {
            return Err(format!(
                "the receiver as it was configured before does not end, and uses the checkpoint \
                 `{}`: reload again later",
                path.display()
            ));
        }
        std::thread::sleep(LOCK_INTERVAL);
    }
    let noted = file.set_len(0).and_then(|()| file.rewind());
    let noted = noted.and_then(|()| file.write_all(own.as_bytes()));
    noted.map_err(unwritten)?;
    Ok(file)
}

fn failed(what: &str, at: &Path, error: io::Error) -> String {
    format!("cannot {what} `{}`: {error}", at.display())
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
