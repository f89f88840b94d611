//! Tells which content a file holds.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::copies::{COPY_INTERVAL, derived_from};
use crate::file::{File, Place};
use crate::gone::moved;
use crate::identity::{Head, Mark, hash};
use crate::listing::Listings;
use crate::open::open_file;
use crate::shown::Shown;
use crate::whole_read::is_damage;
use crate::{Compression, FileId, Tail, inflate, window};

/// Pause before a file that cannot be opened or read is tried again.
pub(crate) const FAILED_PAUSE: Duration = Duration::from_secs(5);

impl Tail {
    /// Opens a file that is known by its inode, and compares the bytes before its mark. If they are
    /// others, the inode has another content by now.
    pub(crate) fn verify(&mut self, id: FileId, now: Instant) -> bool {
        if !self.open(id, now) {
            return false;
        }
        let Some(file) = self.files.get_mut(&id) else { return false };
        let Some(open) = &file.open else { return false };
        file.size = open.metadata().map_or(file.size, |it| it.len());
        let is_long = file.is_gzip || file.size >= file.mark.offset;
        let is_same = if is_long { has_lead(open, file.is_gzip, file) } else { Ok(false) };
        let rest = is_same.and_then(|is_same| {
            let rest = || end_of_rest(open, file.is_gzip, file, file.size);
            if is_same { Ok(Some(file.mark)) } else { rest() }
        });
        match rest {
            Ok(Some(mark)) => {
                self.go_on(id, mark);
                true
            }
            Ok(None) => {
                self.replaced(id, now);
                false
            }
            // It fails again when it is read.
            Err(error) if is_damage(&error) => true,
            Err(error) => {
                self.failed(id, &error, now);
                false
            }
        }
    }

    /// The file has the content that is known, up to a place that is before its mark if the file
    /// has lost its tail.
    fn go_on(&mut self, id: FileId, mark: Mark) {
        let Some(file) = self.files.get_mut(&id) else { return };
        (file.is_verified, file.is_from_disk, file.rare.known_path) = (true, false, None);
        file.rare.known_unread = 0;
        if mark.offset < file.mark.offset {
            self.counts.shortened += 1;
            tracing::warn!(path = %Shown(&file.path), read = file.mark.offset,
                size = mark.offset, "the file is shorter than it was when it was read before, and \
                begins alike: it is read on at its end");
            file.mark = mark;
            // Other bytes may come there.
            file.rare.sent.reset();
        }
    }

    pub(crate) fn failed(&mut self, id: FileId, error: &io::Error, now: Instant) {
        self.counts.failed += 1;
        let Some(file) = self.files.get_mut(&id) else { return };
        let path = Shown(&file.path).to_string();
        let is_damaged = is_damage(error);
        if is_damaged {
            file.rare.failed_size = Some(file.size);
        }
        if !is_damaged || file.place == Place::Away {
            self.schedule.at(id, now + FAILED_PAUSE);
        }
        if self.is_news(format!("file {path}: {error}")) {
            let remedy = if is_damaged {
                "its compressed content is damaged: it is read again when it changes"
            } else {
                "it is tried again every 5 s"
            };
            tracing::error!(path, %error, "cannot read this file: {remedy}");
        }
    }

    /// Tells which content a file holds that was not seen before. Returns the content's id, unless
    /// that is not sure yet.
    pub(crate) fn identify(&mut self, id: FileId, now: Instant) -> io::Result<Option<FileId>> {
        let compression = self.options.compression;
        let Some(file) = self.files.get_mut(&id) else { return Ok(None) };
        let Some(open) = &file.open else { return Ok(None) };
        let Some(is_gzip) = is_gzip(compression, open)? else { return Ok(None) };
        file.is_gzip = is_gzip;
        let file = &self.files[&id];
        let Some(open) = &file.open else { return Ok(None) };
        let begin = begin(open, file)?;
        let head = window::peek(open, is_gzip, 0, self.options.head_bytes)?;
        if head.is_empty() || (begin >= file.size && file.rare.old_bytes == 0) {
            return Ok(None);
        }
        if let Some((known, mark)) = self.find_missing(open, is_gzip, &head, file)? {
            self.take_over(known, id);
            self.go_on(known, mark);
            return Ok(Some(known));
        }
        if self.is_copy(id, &head, now)? {
            self.schedule.at(id, now + COPY_INTERVAL);
            return Ok(None);
        }
        let Some(file) = self.files.get_mut(&id) else { return Ok(None) };
        if begin > 0 {
            let Some(open) = &file.open else { return Ok(None) };
            file.mark = mark_at(open, is_gzip, begin)?;
        }
        file.head = Head::of(&head);
        (file.is_identified, file.rare.held, file.rare.old_bytes) = (true, None, 0);
        file.rare.known_path = None;
        Ok(Some(id))
    }

    /// A content without a file that goes on in this one, and where. Of several, that of the same
    /// number on any device, or of the path, or that was read furthest. A short one must have had
    /// that number, or a name of which this one is made.
    pub(crate) fn find_missing(
        &self,
        open: &fs::File,
        is_gzip: bool,
        head: &[u8],
        at: &File,
    ) -> io::Result<Option<(FileId, Mark)>> {
        if self.missing.is_empty() {
            return Ok(None);
        }
        let names = derived_from(&at.path);
        let is_meant = |file: &File| self.may_go_on(file, at, &names);
        let found = Head::all_of(head).filter_map(|head| self.missing.get(&head)).flatten();
        let mut found: Vec<(bool, bool, u64, FileId)> = found
            .map(|id| (id, &self.files[id]))
            .filter(|(_, file)| is_meant(file))
            .map(|(id, file)| {
                let is_same_number = file.inode.number == at.inode.number;
                (is_same_number, file.path == at.path, file.mark.offset, *id)
            })
            .collect();
        found.sort_unstable();
        for (.., id) in found.iter().rev() {
            let content = &self.files[id];
            match has_lead(open, is_gzip, content) {
                // A compressed one beside it is its copy; a like one is another file.
                Ok(true) if !is_gzip && self.is_elsewhere(*id, at) => {}
                Ok(true) => return Ok(Some((*id, content.mark))),
                Err(error) if !is_damage(&error) => return Err(error),
                Ok(false) | Err(_) => {}
            }
        }
        for (is_same_number, is_same_path, _, id) in found.iter().rev() {
            if *is_same_number
                && *is_same_path
                && let Some(mark) = end_of_rest(open, is_gzip, &self.files[id], at.size)?
            {
                return Ok(Some((*id, mark)));
            }
        }
        Ok(None)
    }

    /// Whether a content of which a file has the bytes is meant by that, not a like one. `names`:
    /// those of which the file's name may be made.
    pub(crate) fn may_go_on(&self, content: &File, at: &File, names: &[PathBuf]) -> bool {
        // A content that was written into its own file anew is another one.
        if content.is_over && content.inode == at.inode {
            return false;
        }
        content.head.len as usize >= self.options.head_bytes
            || content.inode.number == at.inode.number
            || names.iter().any(|name| **name == *content.path)
    }

    /// Whether a missing content is in its own file still, which was renamed, and not in this one.
    fn is_elsewhere(&self, id: FileId, at: &File) -> bool {
        let content = &self.files[&id];
        let is_its_own = self.by_inode.get(&content.inode) == Some(&id);
        if !is_its_own || content.inode.number == at.inode.number {
            return false;
        }
        let found = moved(content, &mut Listings::default()).ok().flatten();
        let Some(open) = found.and_then(|path| open_file(&path).ok()) else { return false };
        let is_gzip = is_gzip(self.options.compression, &open).ok().flatten().unwrap_or(false);
        has_lead(&open, is_gzip, content).unwrap_or(false)
    }

    /// The content `known` goes on in the file of `id`, which is forgotten.
    fn take_over(&mut self, known: FileId, id: FileId) {
        self.set_present(known);
        self.unset_path(id);
        let Some(file) = self.files.remove(&id) else { return };
        let Some(content) = self.files.get_mut(&known) else { return };
        if self.by_inode.get(&content.inode) == Some(&known) {
            self.by_inode.remove(&content.inode);
        }
        let (mark, head) = (content.mark, content.head);
        let mut rare = file.rare;
        rare.begun = std::mem::take(&mut content.rare.begun);
        rare.sent = std::mem::take(&mut content.rare.sent);
        rare.held = None;
        let is_identified = true;
        let (path, target) = (file.path.clone(), rare.target.clone());
        // A file that waited may have grown unseen.
        let found = file.open.as_ref().and_then(|open| open.metadata().ok());
        let size = found.map_or(file.size, |found| found.len());
        self.by_inode.insert(file.inode, known);
        **content = File { mark, rare, head, size, is_identified, ..*file };
        for path in std::iter::once(path).chain(target) {
            self.by_path.entry(path).or_insert(known);
        }
        self.note_open(known);
        if self.place_of(known) == Some(Place::Away) {
            self.away.push_back(known);
        }
    }

    /// The file holds another content than before: it was truncated or written anew. The content
    /// that it had is missing, and its file gets another id.
    pub(crate) fn replaced(&mut self, id: FileId, now: Instant) {
        self.counts.truncated += 1;
        self.window.clear();
        let new = self.new_id();
        let Some(file) = self.files.get_mut(&id) else { return };
        let mut next = File::new(file.path.clone(), file.inode, now);
        next.open = file.open.take();
        next.rare.target = file.rare.target.take();
        (next.place, next.seen_at) = (file.place, file.seen_at);
        (next.size, next.is_gzip, next.is_anew) = (file.size, file.is_gzip, true);
        tracing::info!(path = %Shown(&next.path), "the file was truncated or written anew");
        let (inode, paths) = (next.inode, [Some(next.path.clone()), next.rare.target.clone()]);
        for path in paths.into_iter().flatten() {
            if self.by_path.get(&path) == Some(&id) {
                self.by_path.insert(path, new);
            }
        }
        self.by_inode.insert(inode, new);
        if next.place == Place::Away {
            self.away.push_back(new);
        }
        if let Some(path) = file.rare.known_path.take() {
            file.path = path;
        }
        file.is_over = true;
        // Its size is that of the next content, and how long it was is known only to a checkpoint.
        file.size = file.mark.offset.saturating_add(file.rare.known_unread);
        file.is_gzip = false;
        let is_open = next.open.is_some();
        self.files.insert(new, Box::new(next));
        if is_open {
            self.note_open(new);
        }
        self.set_missing(id);
        self.schedule.soon(new);
    }
}

/// Whether the file has the bytes before the place up to which a content was read.
pub(crate) fn has_lead(open: &fs::File, is_gzip: bool, content: &File) -> io::Result<bool> {
    let length = content.mark.lead_len();
    let lead = window::peek(open, is_gzip, content.mark.offset - length as u64, length)?;
    Ok(content.mark.fits(&lead))
}

/// The end of a file that has lost its tail since the checkpoint, as after a power cut: it is
/// shorter than the mark, and begins as the content did.
fn end_of_rest(
    open: &fs::File,
    is_gzip: bool,
    content: &File,
    size: u64,
) -> io::Result<Option<Mark>> {
    let is_possible = content.is_from_disk
        && content.rare.begun.is_empty()
        && !is_gzip
        && content.head.len > 0
        && (u64::from(content.head.len)..content.mark.offset).contains(&size);
    if !is_possible {
        return Ok(None);
    }
    let head = window::peek(open, false, 0, content.head.len as usize)?;
    if !content.head.begins(&head) {
        return Ok(None);
    }
    Ok(Some(Mark { records: content.mark.records, ..mark_at(open, false, size)? }))
}

/// Whether the file is compressed. `None`: its first bytes are not there yet.
pub(crate) fn is_gzip(compression: Compression, open: &fs::File) -> io::Result<Option<bool>> {
    match compression {
        Compression::None => Ok(Some(false)),
        Compression::Gzip => Ok(Some(true)),
        Compression::Auto => inflate::begins_as_gzip(open),
    }
}

/// A place in a content from which it is read as a new one.
pub(crate) fn mark_at(open: &fs::File, is_gzip: bool, offset: u64) -> io::Result<Mark> {
    let mark = Mark { offset, ..Mark::default() };
    let length = mark.lead_len();
    let lead = window::peek(open, is_gzip, offset - length as u64, length)?;
    Ok(Mark { lead: hash(&lead), ..mark })
}

/// Where reading begins in a content that is not known.
fn begin(open: &fs::File, file: &File) -> io::Result<u64> {
    match file.rare.old_bytes {
        0 if file.is_gzip => Ok(0),
        0 => behind_hole(open, file.size),
        _ if file.is_gzip => Ok(inflate::end(open)?.offset),
        old_bytes => Ok(old_bytes.min(file.size)),
    }
}

/// Where a file's bytes begin. A writer that goes on at its offset after its file was truncated
/// leaves a hole before them.
fn behind_hole(open: &fs::File, size: u64) -> io::Result<u64> {
    const BLOCK_BYTES: usize = 64 << 10;
    if size == 0 {
        return Ok(0);
    }
    let data = match rustix::fs::seek(open, rustix::fs::SeekFrom::Data(0)) {
        Ok(0) => return Ok(0),
        Ok(data) => data,
        Err(rustix::io::Errno::NXIO) => return Ok(size),
        // The file system knows no holes.
        Err(_) => return Ok(0),
    };
    let block = window::peek(open, false, data, BLOCK_BYTES)?;
    Ok(data + block.iter().take_while(|byte| **byte == 0).count() as u64)
}
