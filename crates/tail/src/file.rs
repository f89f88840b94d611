//! One content, and the file that holds it.

use std::collections::VecDeque;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::FileId;
use crate::identity::{Head, Inode, Mark, hash};
use crate::known::Known;
use crate::sent::SentRanges;
use crate::window::Window;

/// Where the file of a content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At a path that is meant.
    Listed,
    /// Open, and no longer at such a path.
    Away,
    /// Unknown: it may come back, under another name or compressed.
    Missing,
}

/// There may be a hundred thousand: what few of them have at a time stands apart.
pub(crate) struct File {
    pub path: Arc<Path>,
    pub inode: Inode,
    pub place: Place,
    pub open: Option<fs::File>,
    pub head: Head,
    /// Reading goes on here.
    pub mark: Mark,
    pub is_gzip: bool,
    /// The end of what is read lies within compressed data that goes on later.
    pub is_cut: bool,
    /// Its file was removed or written anew: it can only come back as a copy or compressed.
    pub is_over: bool,
    /// Its file was removed here once it was read: a like one holds another content.
    pub is_deleted: bool,
    /// It is from the checkpoint of a process before, and its file was not seen since.
    pub is_from_disk: bool,
    /// The content was compared with those that are known.
    pub is_identified: bool,
    /// Its inode held another content before.
    pub is_anew: bool,
    /// The bytes before the mark were compared since it was found.
    pub is_verified: bool,
    /// It went away with bytes that were not read, which is counted.
    pub is_lost: bool,
    /// The last look at which it was at its path.
    pub seen_at: u64,
    /// It is not looked at before, as it had nothing new for long.
    pub look_at: Instant,
    /// Its size when it was last looked at.
    pub size: u64,
    /// Of its size and time when it was last read.
    pub version: u64,
    /// When something was last read, or the file left.
    pub active: Instant,
    pub rare: Seldom,
}

/// Of files that are read, linked, renamed, held, compressed or from a checkpoint.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Rare {
    /// The path at which it was known, until its file is verified.
    pub known_path: Option<Arc<Path>>,
    /// Where it can be opened after it left its path, if that is known.
    pub moved: Option<Box<Path>>,
    /// The target, if the path is a link.
    pub target: Option<Arc<Path>>,
    /// The beginnings of the ranges that are not resolved.
    pub begun: VecDeque<Mark>,
    /// Those that were sent, here or by a process before.
    pub sent: SentRanges,
    /// The size at which all of it was read, and since when it has that.
    pub whole: Option<(u64, Instant)>,
    /// The size at which all of it was read, if it is compressed.
    pub inflated_size: u64,
    /// Bytes that were not read when it became known, until its file is found.
    pub known_unread: u64,
    /// The end of the bytes that no record ends, and the time at which they came.
    pub partial: Option<(u64, Instant)>,
    /// Since when it may be a copy of another content, and until when it is not read for that.
    pub held: Option<(Instant, Instant)>,
    /// The size at which it could not be read.
    pub failed_size: Option<u64>,
    /// Bytes that were there at the first look, and are not read: it could not be opened then.
    pub old_bytes: u64,
}

static NOTHING: Rare = Rare {
    known_path: None,
    moved: None,
    target: None,
    begun: VecDeque::new(),
    sent: SentRanges::new(),
    whole: None,
    inflated_size: 0,
    known_unread: 0,
    partial: None,
    held: None,
    failed_size: None,
    old_bytes: 0,
};

/// Takes memory from when something is set until [`Seldom::release`].
#[derive(Default)]
pub(crate) struct Seldom(Option<Box<Rare>>);

impl Seldom {
    /// Gives the memory back if nothing is set any more.
    pub(crate) fn release(&mut self) {
        self.0.take_if(|rare| **rare == NOTHING);
    }
}

impl From<Rare> for Seldom {
    fn from(rare: Rare) -> Seldom {
        Seldom((rare != NOTHING).then(|| Box::new(rare)))
    }
}

impl Deref for Seldom {
    type Target = Rare;

    fn deref(&self) -> &Rare {
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

impl DerefMut for Seldom {
    fn deref_mut(&mut self) -> &mut Rare {
        self.0.get_or_insert_default()
    }
}

impl File {
    pub(crate) fn new(path: Arc<Path>, inode: Inode, now: Instant) -> File {
        File {
            path,
            inode,
            place: Place::Listed,
            open: None,
            head: Head::default(),
            mark: Mark::default(),
            is_gzip: false,
            is_cut: false,
            is_over: false,
            is_deleted: false,
            is_from_disk: false,
            is_identified: false,
            is_anew: false,
            is_verified: false,
            is_lost: false,
            seen_at: 0,
            look_at: now,
            size: 0,
            version: 0,
            active: now,
            rare: Seldom::default(),
        }
    }

    pub(crate) fn known(known: Known, begun: Vec<Mark>) -> File {
        let Known { inode, path, head, mark, unread, sent } = known;
        let rare = Rare {
            begun: begun.into(),
            sent: sent.into_iter().collect(),
            known_unread: unread,
            ..Rare::default()
        };
        let size = mark.offset.saturating_add(unread);
        // Without a fingerprint it was not identified: the place is where that was to begin.
        let is_identified = head.len > 0;
        let (mark, old_bytes) =
            if is_identified { (mark, 0) } else { (Mark::default(), mark.offset) };
        let (place, rare) = (Place::Missing, Rare { old_bytes, ..rare }.into());
        let file = File::new(path.into(), inode, Instant::now());
        File { head, mark, is_identified, place, size, rare, ..file }
    }

    /// Whether a checkpoint has it. Of those that are not identified, those that would not be found
    /// again, or not be read from the same place.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_identified
            || self.is_anew
            || self.rare.old_bytes > 0
            || match self.place {
                Place::Listed => false,
                Place::Away => self.size > 0,
                Place::Missing => self.rare.known_unread > 0,
            }
    }

    /// Without the ranges that were sent.
    pub(crate) fn known_at(&self, mark: Mark) -> Known {
        let path = self.rare.known_path.as_ref().unwrap_or(&self.path).to_path_buf();
        let old_bytes = self.rare.old_bytes;
        let (mark, unread) = match self.is_identified {
            true => (mark, self.unread_behind(mark)),
            false => {
                (Mark { offset: old_bytes, ..Mark::default() }, self.size.saturating_sub(old_bytes))
            }
        };
        Known { inode: self.inode, path, head: self.head, mark, unread, sent: Vec::new() }
    }

    pub(crate) fn known_with_sent(&self, mark: Mark) -> Known {
        Known { sent: self.rare.sent.iter().copied().collect(), ..self.known_at(mark) }
    }

    /// Bytes of the file that were not read, as far as known.
    pub(crate) fn unread(&self) -> u64 {
        self.unread_behind(self.mark)
    }

    /// The same if reading went on at a mark before. Of a compressed file they are compressed.
    pub(crate) fn unread_behind(&self, mark: Mark) -> u64 {
        match self.is_gzip {
            _ if self.is_lost => 0,
            true if mark.offset < self.mark.offset => self.size,
            true => self.size.saturating_sub(self.rare.inflated_size),
            false => self.size.saturating_sub(mark.offset),
        }
    }

    /// Notes the bytes before the place that was reached.
    pub(crate) fn seal(&mut self, window: &Window, id: FileId) {
        if window.holds(id) {
            self.mark.lead = hash(window.lead(self.mark.offset));
        }
    }
}
