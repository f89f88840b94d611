//! Changes since a checkpoint was written.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::checkpoint::{add_line, add_sent, add_sum, header};
use crate::file::{File, Place};
use crate::identity::Mark;
use crate::sent::Sent;
use crate::{FileId, Tail};

/// Changes are appended up to this length, or that of the whole checkpoint: then it is written
/// anew.
const CHANGES_BYTES: usize = 64 << 10;
/// The same for ranges that are sent, of which there are more.
const SENT_BYTES: usize = 1 << 20;

/// A text for [`crate::Checkpoint::begin`].
#[derive(Debug)]
pub enum Write {
    Whole(String),
    Changes(String),
}

/// Knows what a checkpoint has.
#[derive(Default)]
pub struct Journal {
    written: HashMap<FileId, Written>,
    whole_bytes: usize,
    changes_bytes: usize,
    sent_bytes: usize,
    is_begun: bool,
}

/// A content that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    /// Of its line.
    hash: u64,
    /// Of its ranges: see [`crate::sent::SentRanges::resets`].
    resets: u32,
}

impl Journal {
    /// The text that has to be written next. `None`: nothing changed.
    pub fn next(&mut self, tail: &Tail) -> Option<Write> {
        if !self.is_begun {
            return Some(Write::Whole(self.whole(tail)));
        }
        let mut text = String::new();
        let mut count = 0;
        for (id, file) in identified(tail) {
            count += 1;
            self.note(&mut text, id, file);
        }
        if self.written.len() > count {
            self.written.retain(|id, _| {
                let is_there = tail.files.get(id).is_some_and(|file| file.is_identified);
                if !is_there {
                    add_line(&mut text, id.0, None);
                }
                is_there
            });
        }
        if text.is_empty() {
            return None;
        }
        self.changes_bytes += text.len();
        if self.changes_bytes > self.whole_bytes.max(CHANGES_BYTES)
            || self.sent_bytes > self.whole_bytes.max(SENT_BYTES)
        {
            return Some(Write::Whole(self.whole(tail)));
        }
        add_sum(&mut text);
        Some(Write::Changes(text))
    }

    /// The text of a range that is about to be sent, for [`crate::Checkpoint::append`]. `None`: the
    /// last text was not written, so that nothing can be appended.
    pub fn sent(&mut self, tail: &Tail, id: FileId, sent: &Sent) -> Option<String> {
        let file = tail.files.get(&id).filter(|_| self.is_begun)?;
        let mut text = String::new();
        if self.written.get(&id).is_none_or(|it| it.resets != file.sent.resets) {
            self.note(&mut text, id, file);
        }
        add_sent(&mut text, id.0, sent);
        add_sum(&mut text);
        self.sent_bytes += text.len();
        Some(text)
    }

    /// Adds what changed of a content.
    fn note(&mut self, text: &mut String, id: FileId, file: &File) {
        let mark = resolved_mark(file);
        let now = Written { hash: hash_of(file, mark), resets: file.sent.resets };
        let before = self.written.insert(id, now);
        if before == Some(now) {
            return;
        }
        let is_reset = before.is_some_and(|before| before.resets != now.resets);
        if is_reset {
            add_line(text, id.0, None);
        }
        add_line(text, id.0, Some(&file.known_at(mark)));
        if is_reset {
            file.sent.iter().for_each(|sent| add_sent(text, id.0, sent));
        }
    }

    /// A text was not written: the next one is a whole checkpoint.
    pub fn failed(&mut self) {
        self.is_begun = false;
    }

    /// Contents that are missing come first, in the order in which they are forgotten.
    fn whole(&mut self, tail: &Tail) -> String {
        self.written.clear();
        let mut files: Vec<(FileId, &File)> = identified(tail).collect();
        files.sort_by_key(|(_, file)| {
            let missing = (file.place == Place::Missing).then_some(file.seen_at);
            (missing.is_none(), missing, &file.path)
        });
        let mut text = header();
        for (id, file) in files {
            let mark = resolved_mark(file);
            let written = Written { hash: hash_of(file, mark), resets: file.sent.resets };
            self.written.insert(id, written);
            add_line(&mut text, id.0, Some(&file.known_at(mark)));
            file.sent.iter().for_each(|sent| add_sent(&mut text, id.0, sent));
        }
        add_sum(&mut text);
        (self.whole_bytes, self.changes_bytes, self.sent_bytes) = (text.len(), 0, 0);
        self.is_begun = true;
        text
    }
}

fn identified(tail: &Tail) -> impl Iterator<Item = (FileId, &File)> {
    tail.files.iter().filter(|(_, file)| file.is_identified).map(|(id, file)| (*id, &**file))
}

/// The place up to which a content is resolved.
pub(crate) fn resolved_mark(file: &File) -> Mark {
    file.begun.front().copied().unwrap_or(file.mark)
}

fn hash_of(file: &File, mark: Mark) -> u64 {
    let mut hasher = DefaultHasher::new();
    let path = file.known_path.as_ref().unwrap_or(&file.path);
    (file.inode, file.head, path.as_os_str()).hash(&mut hasher);
    // The number of unread bytes is worth no write of its own.
    let has_unread = file.unread_behind(mark) > 0;
    (mark.offset, mark.records, mark.lead, mark.is_within, has_unread).hash(&mut hasher);
    hasher.finish()
}
