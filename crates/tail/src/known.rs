//! Contents that were read, each as a line.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use crate::identity::{Head, Inode, Mark};
use crate::sent::Sent;

/// A content whose beginning was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The file that holds it, and the path at which that was seen last.
    pub inode: Inode,
    pub path: PathBuf,
    pub head: Head,
    /// Reading goes on here.
    pub mark: Mark,
    /// Ranges that were sent and are not resolved.
    pub sent: Vec<Sent>,
    /// Bytes behind the mark, as far as known.
    pub unread: u64,
}

impl Known {
    /// One line, without its end and without what was sent.
    pub fn to_line(&self) -> String {
        let Known { inode, path, head, mark, unread, sent: _ } = self;
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
        if *unread > 0 {
            let _ = write!(line, " {unread}");
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
        let unread = words.next().map_or(Ok(0), str::parse).ok()?;
        words.next().is_none().then_some(Known {
            inode,
            path,
            head,
            mark,
            unread,
            sent: Vec::new(),
        })
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
