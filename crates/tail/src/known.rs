//! Known contents, in a file that is replaced as a whole.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::identity::{Head, Inode, Mark};

const VERSION: u32 = 1;
const MAGIC: &str = "sluice-tail";

/// A content whose beginning was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The file that holds it, and the path at which that was seen last.
    pub inode: Inode,
    pub path: PathBuf,
    pub head: Head,
    /// Reading goes on here.
    pub mark: Mark,
}

impl Known {
    /// One line, without its end.
    pub fn to_line(&self) -> String {
        let Known { inode, path, head, mark } = self;
        let mut line = format!(
            "{:x} {:x} {} {} {:x} {} {} {:x} ",
            inode.device,
            inode.number,
            mark.offset,
            mark.records,
            mark.lead,
            u8::from(mark.is_within),
            head.len,
            head.hash
        );
        for byte in path.as_os_str().as_bytes() {
            match byte {
                b'!'..=b'$' | b'&'..=b'~' => line.push(char::from(*byte)),
                _ => drop(write!(line, "%{byte:02x}")),
            }
        }
        line
    }

    /// Reads a line. `None`: it is no such line.
    pub fn of_line(line: &str) -> Option<Known> {
        let mut words = line.split(' ');
        let mut word = || words.next();
        let hexadecimal = |word: &str| u64::from_str_radix(word, 16).ok();
        let inode = Inode { device: hexadecimal(word()?)?, number: hexadecimal(word()?)? };
        let (offset, records) = (word()?.parse().ok()?, word()?.parse().ok()?);
        let (lead, is_within) = (hexadecimal(word()?)?, word()? == "1");
        let head = Head { len: word()?.parse().ok()?, hash: hexadecimal(word()?)? };
        let path = unescaped(word()?)?;
        let mark = Mark { offset, records, lead, is_within };
        words.next().is_none().then_some(Known { inode, path, head, mark })
    }
}

fn unescaped(text: &str) -> Option<PathBuf> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first == b'%' {
            let code = str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(code, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

/// The text of a checkpoint.
pub fn encode(known: &[Known]) -> String {
    let mut text = format!("{MAGIC} {VERSION}\n");
    for known in known {
        text.push_str(&known.to_line());
        text.push('\n');
    }
    let sum = crc32c::crc32c(text.as_bytes());
    let _ = writeln!(text, "crc32c {sum:08x}");
    text
}

/// # Errors
/// The reason, in a line: it is damaged, or from a newer version.
pub fn decode(bytes: &[u8]) -> Result<Vec<Known>, String> {
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let version = str::from_utf8(first).ok().and_then(|it| it.strip_prefix(MAGIC));
    let version: Option<u32> = version.and_then(|it| it.trim().parse().ok());
    match version {
        Some(VERSION) => {}
        Some(newer) => return Err(format!("it has version {newer}, this build knows {VERSION}")),
        None => return Err("it does not begin as a checkpoint".to_owned()),
    }
    let damaged = || "it is damaged".to_owned();
    let text = str::from_utf8(bytes).map_err(|_| damaged())?;
    let (body, sum) = text.rsplit_once("crc32c ").ok_or_else(damaged)?;
    let sum = sum.strip_suffix('\n').and_then(|sum| u32::from_str_radix(sum, 16).ok());
    if sum != Some(crc32c::crc32c(body.as_bytes())) {
        return Err(damaged());
    }
    body.lines().skip(1).map(|line| Known::of_line(line).ok_or_else(damaged)).collect()
}

/// The file of a checkpoint, which one process may use at a time.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    /// Keeps others out.
    _lock: File,
}

impl Checkpoint {
    /// Makes the directory if need be, reads what is known, and keeps other processes out. `None`:
    /// there is no checkpoint yet, or one that cannot be used and was renamed.
    ///
    /// # Errors
    /// The reason, with the path.
    pub fn open(path: &Path) -> Result<(Checkpoint, Option<Vec<Known>>), String> {
        let failed = |what: &str, at: &Path, error: io::Error| {
            format!("cannot {what} `{}`: {error}", at.display())
        };
        let directory = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory)
            .map_err(|error| failed("make the directory of checkpoints", directory, error))?;
        let lock_path = beside(path, ".lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&lock_path);
        let lock =
            lock.map_err(|error| failed("write the checkpoint's lock", &lock_path, error))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| format!("another process uses the checkpoint `{}`", path.display()))?;
        let known = match fs::read(path) {
            Ok(bytes) => match decode(&bytes) {
                Ok(known) => Some(known),
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
        Ok((Checkpoint { path: path.to_owned(), _lock: lock }, known))
    }

    /// Replaces it as a whole. It is on disk then.
    ///
    /// # Errors
    /// The one before is still there.
    pub fn save(&self, text: &str) -> io::Result<()> {
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

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn known() -> impl Strategy<Value = Known> {
        let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
        (numbers, any::<bool>(), any::<u32>(), prop::collection::vec(1_u8.., 1..20)).prop_map(
            |((device, number, offset, lead, hash), is_within, len, path)| Known {
                inode: Inode { device, number },
                path: PathBuf::from(OsString::from_vec(path)),
                head: Head { len, hash },
                mark: Mark { offset, records: offset / 2, lead, is_within },
            },
        )
    }

    proptest! {
        #[test]
        fn a_checkpoint_is_read_as_it_was_written(
            known in prop::collection::vec(known(), 0..5),
            flipped in any::<prop::sample::Index>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let text = encode(&known);
            prop_assert_eq!(decode(text.as_bytes()), Ok(known));
            let mut damaged = text.clone().into_bytes();
            let at = flipped.index(damaged.len());
            damaged[at] ^= 1;
            prop_assert!(decode(&damaged).is_err());
            prop_assert!(decode(&text.as_bytes()[..cut.index(text.len())]).is_err());
        }
    }

    /// Scenario: a checkpoint that is damaged, and one of a newer version. Guarantee: each is put
    /// aside, and a new one can be written.
    #[test]
    fn a_checkpoint_that_cannot_be_used_is_kept_aside() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("below/checkpoint");
        for content in ["sluice-tail 1\nx\ncrc32c 00000000\n", "sluice-tail 2\n", "", "other"] {
            let (checkpoint, known) = Checkpoint::open(&path).expect("opens");
            assert_eq!(known, None);
            checkpoint.save(content).expect("is written");
            drop(checkpoint);
            let (checkpoint, known) = Checkpoint::open(&path).expect("opens");
            assert_eq!(known, None);
            assert!(fs::read(beside(&path, ".unusable")).expect("is there") == content.as_bytes());
            assert!(!path.exists());
            assert!(Checkpoint::open(&path).expect_err("is in use").contains("another process"));
            drop(checkpoint);
        }
        let (checkpoint, _) = Checkpoint::open(&path).expect("opens");
        checkpoint.save(&encode(&[])).expect("is written");
        drop(checkpoint);
        assert_eq!(Checkpoint::open(&path).expect("opens").1, Some(Vec::new()));
        let error = Checkpoint::open(&path.join("below")).expect_err("is below a file");
        assert!(error.contains("cannot make the directory"), "{error}");
    }
}
