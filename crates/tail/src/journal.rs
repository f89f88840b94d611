//! Changes since a checkpoint was written.

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
    /// In order.
    written: Vec<Written>,
    whole_bytes: usize,
    changes_bytes: usize,
    sent_bytes: usize,
    is_begun: bool,
}

/// A content that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    id: FileId,
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
        let (mut count, mut new) = (0, Vec::new());
        for (id, file) in kept(tail) {
            count += 1;
            if self.place_of(id).is_ok() {
                self.note(&mut text, id, file);
            } else {
                new.push((id, file));
            }
        }
        put_in_order(&mut new);
        let new: Vec<Written> =
            new.into_iter().filter_map(|(id, file)| self.note(&mut text, id, file)).collect();
        self.add(new);
        if self.written.len() > count {
            self.written.retain(|Written { id, .. }| {
                let is_there = tail.files.get(id).is_some_and(|file| file.is_kept());
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
        let written = self.place_of(id).ok().map(|at| self.written[at]);
        if written.is_none_or(|it| it.resets != file.rare.sent.resets) {
            let new = self.note(&mut text, id, file);
            self.add(new);
        }
        add_sent(&mut text, id.0, sent);
        add_sum(&mut text);
        self.sent_bytes += text.len();
        Some(text)
    }

    /// Where it is written, or would be.
    fn place_of(&self, id: FileId) -> Result<usize, usize> {
        self.written.binary_search_by_key(&id, |it| it.id)
    }

    fn add(&mut self, new: impl IntoIterator<Item = Written>) {
        let before = self.written.len();
        self.written.extend(new);
        if self.written.len() > before {
            self.written.sort_unstable_by_key(|it| it.id);
        }
    }

    /// Adds to a text what changed of a content. Returns what [`Journal::add`] has to add.
    fn note(&mut self, text: &mut String, id: FileId, file: &File) -> Option<Written> {
        let mark = resolved_mark(file);
        let now = Written::of(id, file, mark);
        let place = self.place_of(id).ok();
        let before = place.map(|at| std::mem::replace(&mut self.written[at], now));
        if before == Some(now) {
            return None;
        }
        let is_reset = before.is_some_and(|before| before.resets != now.resets);
        if is_reset {
            add_line(text, id.0, None);
        }
        add_line(text, id.0, Some(&file.known_at(mark)));
        if is_reset {
            file.rare.sent.iter().for_each(|sent| add_sent(text, id.0, sent));
        }
        before.is_none().then_some(now)
    }

    /// A text was not written: the next one is a whole checkpoint.
    pub fn failed(&mut self) {
        self.is_begun = false;
    }

    fn whole(&mut self, tail: &Tail) -> String {
        let files = in_order(tail, File::is_kept);
        self.written = Vec::with_capacity(files.len());
        let mut text = header();
        for (id, file) in files {
            let mark = resolved_mark(file);
            self.written.push(Written::of(id, file, mark));
            add_line(&mut text, id.0, Some(&file.known_at(mark)));
            file.rare.sent.iter().for_each(|sent| add_sent(&mut text, id.0, sent));
        }
        self.written.sort_unstable_by_key(|it| it.id);
        add_sum(&mut text);
        (self.whole_bytes, self.changes_bytes, self.sent_bytes) = (text.len(), 0, 0);
        self.is_begun = true;
        text
    }
}

fn kept(tail: &Tail) -> impl Iterator<Item = (FileId, &File)> {
    tail.files.iter().filter(|(_, file)| file.is_kept()).map(|(id, file)| (*id, &**file))
}

/// Contents that are missing come first, in the order in which they are forgotten: of several that
/// an inode has had, the one that it has is the last.
pub(crate) fn in_order(tail: &Tail, is_wanted: impl Fn(&File) -> bool) -> Vec<(FileId, &File)> {
    let wanted = tail.files.iter().filter(|(_, file)| is_wanted(file));
    let mut files: Vec<(FileId, &File)> = wanted.map(|(id, file)| (*id, &**file)).collect();
    put_in_order(&mut files);
    files
}

fn put_in_order(files: &mut [(FileId, &File)]) {
    files.sort_by_key(|(id, file)| {
        let missing = (file.place == Place::Missing).then_some(file.seen_at);
        (missing.is_none(), missing, &file.path, *id)
    });
}

/// The place up to which a content is resolved.
pub(crate) fn resolved_mark(file: &File) -> Mark {
    file.rare.begun.front().copied().unwrap_or(file.mark)
}

impl Written {
    fn of(id: FileId, file: &File, mark: Mark) -> Written {
        Written { id, hash: hash_of(file, mark), resets: file.rare.sent.resets }
    }
}

fn hash_of(file: &File, mark: Mark) -> u64 {
    let mut hasher = DefaultHasher::new();
    let path = file.rare.known_path.as_ref().unwrap_or(&file.path);
    (file.inode, file.head, path.as_os_str()).hash(&mut hasher);
    // The number of unread bytes is worth no write of its own.
    let has_unread = file.unread_behind(mark) > 0;
    (mark.offset, mark.records, mark.lead, mark.is_within, has_unread).hash(&mut hasher);
    hasher.finish()
}
