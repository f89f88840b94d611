//! The file of a checkpoint: known contents, and behind them what changed since.
//!
//! ```text
//! sluice-tail 3
//! 1 <content>
//! 2 <content>
//! 2 sent <range>
//! crc32c <checksum of all bytes before>
//! 2 <content>
//! 1 gone
//! crc32c <checksum of the lines behind the one before>
//! ```
//!
//! The first part is written as a whole into a new file, which is renamed. Changes are appended, a
//! few lines with their checksum at a time. A content has a number within its file: its line
//! replaces the one before. A last part that is not whole is left out: a write that was torn by a
//! crash, after which nothing was appended. One with whole parts behind it is damaged: it is left
//! out too, and the file is kept aside. A range that is about to be sent is appended
//! without a sync: a kill leaves it, and if a power cut does not, the range has another name later.
//! Version 2 has no ranges; version 1 is a first part without numbers.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::journal::Write;
use crate::known::Known;
use crate::sent::Sent;
use crate::shown::Shown;

const VERSION: u32 = 3;
const MAGIC: &str = "sluice-tail";
const SUM: &str = "crc32c ";
const GONE: &str = "gone";
const SENT: &str = "sent ";
const LOCK_INTERVAL: Duration = Duration::from_millis(50);
/// It has the paths of files.
const MODE: u32 = 0o600;

/// Adds the line of a content, or that it is gone.
pub(crate) fn add_line(text: &mut String, number: u64, known: Option<&Known>) {
    let line = known.map_or_else(|| GONE.to_owned(), Known::to_line);
    let _ = writeln!(text, "{number:x} {line}");
}

/// Adds the line of a range of a content.
pub(crate) fn add_sent(text: &mut String, number: u64, sent: &Sent) {
    let _ = writeln!(text, "{number:x} {SENT}{}", sent.to_words());
}

/// Adds the line behind which a part of a checkpoint is whole.
pub(crate) fn add_sum(text: &mut String) {
    let sum = crc32c::crc32c(text.as_bytes());
    let _ = writeln!(text, "{SUM}{sum:08x}");
}

/// The first line of a checkpoint.
pub(crate) fn header() -> String {
    format!("{MAGIC} {VERSION}\n")
}

/// The text of a checkpoint.
pub fn encode(known: &[Known]) -> String {
    let mut text = header();
    for (number, known) in (0..).zip(known) {
        add_line(&mut text, number, Some(known));
        known.sent.iter().for_each(|sent| add_sent(&mut text, number, sent));
    }
    add_sum(&mut text);
    text
}

/// # Errors
/// The reason, in a line: it is damaged, or from a newer version.
pub fn decode(bytes: &[u8]) -> Result<Vec<Known>, String> {
    read(bytes).map(|read| read.known)
}

#[derive(Debug)]
struct Read {
    known: Vec<Known>,
    /// Bytes of a last part that is not whole.
    torn_bytes: usize,
    /// Bytes of parts that are not whole, before one that is.
    damaged_bytes: usize,
}

fn read(bytes: &[u8]) -> Result<Read, String> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let version = str::from_utf8(first).ok().and_then(|it| it.strip_prefix(MAGIC));
    let version: Option<u32> = version.and_then(|it| it.trim().parse().ok());
    match version {
        Some(1..=VERSION) => {}
        Some(newer) => return Err(format!("it has version {newer}, this build knows {VERSION}")),
        None => return Err("it does not begin as a checkpoint".to_owned()),
    }
    let mut contents = Contents::default();
    let (mut at, mut part_start, mut whole, mut damaged_bytes) = (first.len(), 0, 0, 0);
    for line in lines {
        let start = at;
        at += line.len();
        let sum = line.strip_suffix(b"\n").and_then(|line| line.strip_prefix(SUM.as_bytes()));
        let Some(sum) = sum.and_then(|sum| str::from_utf8(sum).ok()) else { continue };
        let part = &bytes[part_start..start];
        let text = &part[first.len() * usize::from(part_start == 0)..];
        let is_whole = u32::from_str_radix(sum, 16) == Ok(crc32c::crc32c(part));
        let changes = is_whole.then(|| changes_of(text, version == Some(1))).flatten();
        if let Some(changes) = changes {
            changes.into_iter().for_each(|change| contents.change(change));
            damaged_bytes += part_start - whole;
            whole = at;
        } else if part_start == 0 {
            break;
        }
        part_start = at;
    }
    if whole == 0 {
        return Err("it is damaged".to_owned());
    }
    let known = contents.in_order.into_iter().flatten().collect();
    Ok(Read { known, torn_bytes: bytes.len() - whole, damaged_bytes })
}

/// The changes of a part, by the number of their content. Nothing if a line is none.
fn changes_of(part: &[u8], has_no_numbers: bool) -> Option<Vec<(u64, Change)>> {
    let lines = str::from_utf8(part).ok()?.lines();
    if has_no_numbers {
        let known = lines.map(|line| Known::of_line(line).map(Change::Content));
        return (0..).zip(known).map(|(number, change)| Some((number, change?))).collect();
    }
    lines.map(change_of).collect()
}

#[derive(Clone, Debug)]
enum Change {
    Content(Known),
    Sent(Sent),
    Gone,
}

fn change_of(line: &str) -> Option<(u64, Change)> {
    let (number, content) = line.split_once(' ')?;
    let number = u64::from_str_radix(number, 16).ok()?;
    let change = match content.strip_prefix(SENT) {
        _ if content == GONE => Change::Gone,
        Some(words) => Change::Sent(Sent::of_words(words)?),
        None => Change::Content(Known::of_line(content)?),
    };
    Some((number, change))
}

/// In the order in which they were written first.
#[derive(Default)]
struct Contents {
    in_order: Vec<Option<Known>>,
    places: HashMap<u64, usize>,
}

impl Contents {
    fn change(&mut self, (number, change): (u64, Change)) {
        let place = self.places.get(&number).copied();
        let before = place.and_then(|place| self.in_order[place].as_mut());
        match (change, before) {
            (Change::Content(known), Some(before)) => {
                let mut sent = std::mem::take(&mut before.sent);
                sent.retain(|it| it.end > known.mark.offset);
                let is_moved = before.inode != known.inode;
                *before = Known { sent, ..known };
                // Others of that inode were there before.
                if is_moved && let Some(place) = place {
                    let moved = self.in_order[place].take();
                    self.places.insert(number, self.in_order.len());
                    self.in_order.push(moved);
                }
            }
            (Change::Content(known), None) => {
                self.places.insert(number, self.in_order.len());
                self.in_order.push(Some(known));
            }
            (Change::Sent(sent), Some(before)) => before.sent.push(sent),
            (Change::Gone, Some(_)) => {
                self.in_order[self.places[&number]] = None;
                self.places.remove(&number);
            }
            (Change::Sent(_) | Change::Gone, None) => {}
        }
    }
}

/// The file of a checkpoint, which one receiver may use at a time.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    growing: Mutex<Growing>,
    /// Keeps others out.
    _lock: File,
}

/// The file that is appended to.
#[derive(Debug, Default)]
struct Growing {
    /// `None`: this process has not written it as a whole, or the end of it may be torn.
    file: Option<File>,
    /// The text that was appended since that was made which is being written as a whole.
    since: Option<String>,
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
        let try_lock = |file: &File| flock(file, FlockOperation::NonBlockingLockExclusive);
        let lock = lock(path, patience, try_lock)?;
        let known = match fs::read(path) {
            Ok(bytes) => match read(&bytes) {
                Ok(Read { known, torn_bytes, damaged_bytes }) => {
                    if torn_bytes > 0 {
                        tracing::warn!(checkpoint = %Shown(path), bytes = torn_bytes,
                            "the last changes of the checkpoint are not whole: some lines may \
                             arrive again");
                    }
                    if damaged_bytes > 0 {
                        let copied_to = copy_aside(path, |to| to.write_all(&bytes));
                        tracing::error!(checkpoint = %Shown(path), bytes = damaged_bytes,
                            copied_to, "changes within the checkpoint are damaged: some lines may \
                             arrive again");
                    }
                    Some(known)
                }
                Err(reason) => {
                    let aside = aside(path);
                    fs::rename(path, &aside)
                        .map_err(|error| failed("rename the unusable checkpoint", path, error))?;
                    tracing::error!(
                        checkpoint = %Shown(path), renamed_to = %Shown(&aside), reason,
                        "the checkpoint cannot be used: files are read from where start_at says"
                    );
                    None
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("read the checkpoint", path, error)),
        };
        let (path, growing) = (path.to_owned(), Mutex::default());
        Ok((Checkpoint { path, growing, _lock: lock }, known))
    }

    /// Begins to write it, as a whole or what changed: call it when the text is made, and then
    /// [`Checkpoint::finish`], on any thread. Does not wait for the disk.
    ///
    /// # Errors
    /// The checkpoint before is still there. The next write has to be a whole one.
    pub fn begin(&self, write: &Write) -> io::Result<()> {
        match write {
            Write::Whole(_) => self.growing().since = Some(String::new()),
            Write::Changes(text) => {
                // It may have been removed.
                let file = File::options().append(true).open(&self.path);
                self.growing().file = Some(file?);
                self.append(text)?;
            }
        }
        Ok(())
    }

    /// Waits until it is on disk.
    ///
    /// # Errors
    /// As [`Checkpoint::begin`].
    pub fn finish(&self, write: &Write) -> io::Result<()> {
        match write {
            Write::Whole(text) => self.save(text),
            Write::Changes(_) => File::open(&self.path)?.sync_data(),
        }
    }

    /// Whether a text can be appended: not before this process has written a whole checkpoint, and
    /// not behind an end that may be torn.
    pub fn can_append(&self) -> bool {
        self.growing().file.is_some()
    }

    /// Appends a text of [`crate::Journal::sent`]. A kill leaves it; it is not on disk.
    ///
    /// # Errors
    /// The next write has to be a whole one, and nothing can be appended before.
    pub fn append(&self, text: &str) -> io::Result<()> {
        let mut growing = self.growing();
        let Some(file) = growing.file.as_mut() else {
            return Err(io::Error::other("there is no whole checkpoint"));
        };
        if let Err(error) = file.write_all(text.as_bytes()) {
            // A part of it may be there.
            growing.file = None;
            return Err(error);
        }
        growing.since.iter_mut().for_each(|since| since.push_str(text));
        Ok(())
    }

    fn save(&self, text: &str) -> io::Result<()> {
        let new = beside(&self.path, ".new");
        let mut file = create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        let mut growing = self.growing();
        file.write_all(growing.since.take().unwrap_or_default().as_bytes())?;
        fs::rename(&new, &self.path)?;
        growing.file = Some(file);
        drop(growing);
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }

    fn growing(&self) -> MutexGuard<'_, Growing> {
        self.growing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Takes the lock. It has the number of its process, whose receivers follow each other at a reload.
/// On a full disk it has none.
fn lock(
    path: &Path,
    patience: Duration,
    try_lock: impl Fn(&File) -> Result<(), Errno>,
) -> Result<File, String> {
    let lock_path = beside(path, ".lock");
    let unlocked = |error| failed("lock the checkpoint with", &lock_path, error);
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true).mode(MODE);
    let mut file = options.open(&lock_path).map_err(unlocked)?;
    let own = std::process::id().to_string();
    let until = Instant::now() + patience;
    while let Err(error) = try_lock(&file) {
        if error == Errno::INTR {
            continue;
        }
        if error != Errno::WOULDBLOCK {
            return Err(unlocked(error.into()));
        }
        let mut holder = String::new();
        let _ = file.rewind().and_then(|()| (&mut file).take(32).read_to_string(&mut holder));
        if holder != own && !holder.is_empty() {
            return Err(format!("another process uses the checkpoint `{}`", Shown(path)));
        }
        if Instant::now() >= until {
            return Err(format!(
                "the receiver as it was configured before does not end, and uses the checkpoint \
                 `{}`: reload again later",
                Shown(path)
            ));
        }
        std::thread::sleep(LOCK_INTERVAL);
    }
    let noted = file.set_len(0).and_then(|()| file.rewind());
    if let Err(error) = noted.and_then(|()| file.write_all(own.as_bytes())) {
        tracing::warn!(lock = %Shown(&lock_path), %error,
            "cannot write the process's number into the checkpoint's lock, which is held");
    }
    Ok(file)
}

fn failed(what: &str, at: &Path, error: io::Error) -> String {
    format!("cannot {what} `{}`: {error}", Shown(at))
}

/// A new file that only its owner reads.
fn create(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(true).write(true).mode(MODE).open(path)?;
    // It may be left of a release before. Some file systems have no modes.
    let _ = file.set_permissions(fs::Permissions::from_mode(MODE));
    Ok(file)
}

/// Keeps a copy of a damaged checkpoint, if there is room. Returns its name, or the error.
fn copy_aside(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> String {
    let aside = aside(path);
    match create(&aside).and_then(|mut file| write(&mut file)) {
        Ok(()) => Shown(&aside).to_string(),
        Err(error) => {
            let _ = fs::remove_file(&aside);
            failed("copy it to", &aside, error)
        }
    }
}

/// A name for a checkpoint that is kept, which none has yet.
fn aside(path: &Path) -> PathBuf {
    let first = std::iter::once(".unusable".to_owned());
    let mut endings = first.chain((2_u64..).map(|number| format!(".unusable.{number}")));
    let free = endings.find_map(|ending| Some(beside(path, &ending)).filter(|it| !it.exists()));
    free.unwrap_or_else(|| beside(path, ".unusable"))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
