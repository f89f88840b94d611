//! Tells which content a file holds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::file::{File, Place};
use crate::identity::{Head, Inode, Mark, hash};
use crate::open::open_file;
use crate::read::AWAY_TIME;
use crate::whole_read::is_damage;
use crate::{Compression, FileId, Tail, inflate, window};

/// A file that may be a copy of another one is not read for this long after it grew: the original
/// is about to be truncated or removed.
const COPY_PATIENCE: Duration = Duration::from_secs(10);
const COPY_INTERVAL: Duration = Duration::from_millis(200);
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
            tracing::warn!(path = %file.path.display(), read = file.mark.offset,
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
        let path = file.path.display().to_string();
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
    fn may_go_on(&self, content: &File, at: &File, names: &[PathBuf]) -> bool {
        content.head.len as usize >= self.options.head_bytes
            || content.inode.number == at.inode.number
            || names.iter().any(|name| **name == *content.path)
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
        self.by_inode.insert(file.inode, known);
        **content = File { mark, rare, head, is_identified, ..*file };
        for path in std::iter::once(path).chain(target) {
            self.by_path.entry(path).or_insert(known);
        }
        self.note_open(known);
        if self.place_of(known) == Some(Place::Away) {
            self.away.push_back(known);
        }
    }

    /// Whether the file begins as another one does that is there and of whose name its own is made:
    /// it may be the copy of it before that is truncated, or its compressed form. One that has left
    /// and had nothing new for long is no longer followed if this file goes on with its content.
    fn is_copy(&mut self, id: FileId, head: &[u8], now: Instant) -> io::Result<bool> {
        let file = &self.files[&id];
        let Some(open) = &file.open else { return Ok(false) };
        let mut original_is_away = false;
        let (mut originals, mut followed) = (Vec::new(), None);
        let names = derived_from(&file.path);
        for other in self.originals(&file.path) {
            let original = &self.files[&other];
            let is_none = original.place == Place::Missing || original.is_deleted;
            if other == id || is_none || original.rare.held.is_some() {
                continue;
            }
            let is_shorter = !file.is_gzip && file.size < original.mark.offset;
            // An original that cannot be read keeps no other file from being read.
            let begins_alike = || begins_as(original, head).unwrap_or(false);
            let has_lead = || has_lead(open, file.is_gzip, original);
            if is_at_rest(original, now) {
                if self.may_go_on(original, file, &names) && begins_alike() && has_lead()? {
                    followed = Some(other);
                }
            } else if begins_alike() && (is_shorter || has_lead()?) {
                originals.push(other);
                original_is_away |= original.place == Place::Away;
            }
        }
        if let Some(original) = followed {
            if let Some(file) = self.files.get_mut(&original) {
                file.is_over = true;
            }
            self.set_missing(original);
            return Ok(true);
        }
        let is_copy = !originals.is_empty();
        // It may be truncated already.
        originals.into_iter().for_each(|original| self.schedule.soon(original));
        let Some(file) = self.files.get_mut(&id) else { return Ok(false) };
        if !is_copy {
            return Ok(false);
        }
        let size =
            file.open.as_ref().and_then(|open| open.metadata().ok()).map_or(0, |it| it.len());
        if file.rare.held.is_none() || original_is_away || size != file.size {
            file.size = size;
            file.rare.held = Some(now + COPY_PATIENCE);
        }
        Ok(file.rare.held.is_some_and(|until| now < until))
    }

    /// Contents of whose names this one is made, and those that have left this directory.
    fn originals(&self, path: &Path) -> Vec<FileId> {
        let paths = derived_from(path);
        let mut found: Vec<FileId> =
            paths.iter().filter_map(|path| self.by_path.get(&**path).copied()).collect();
        found.extend(self.away.iter().filter(|id| {
            self.files.get(id).is_some_and(|file| file.path.parent() == path.parent())
        }));
        found.sort_unstable();
        found.dedup();
        found
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
        (next.size, next.is_gzip) = (file.size, file.is_gzip);
        tracing::info!(path = %next.path.display(), "the file was truncated or written anew");
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

/// The paths of which this one may be made: of `a.log.1.gz` those of `a.log.1` and `a.log`, of
/// `a-1.log` that of `a.log`.
fn derived_from(path: &Path) -> Vec<PathBuf> {
    let (Some(name), Some(directory)) = (path.file_name(), path.parent()) else {
        return Vec::new();
    };
    let Some(name) = name.to_str() else { return Vec::new() };
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    let cuts = name.match_indices(['.', '-', '_']).map(|(at, _)| at).filter(|at| *at > 0);
    let names = cuts.flat_map(|at| [name[..at].to_owned(), format!("{}.{ending}", &name[..at])]);
    names.map(|name| directory.join(name)).filter(|it| it != path).collect()
}

/// Whether a file has left and is read to its end, and nothing came for long.
fn is_at_rest(file: &File, now: Instant) -> bool {
    file.place == Place::Away
        && file.is_identified
        && file.rare.begun.is_empty()
        && file.rare.partial.is_none()
        && now >= file.active + AWAY_TIME
}

/// Whether a content begins, or began when it was read, as these bytes do.
fn begins_as(original: &File, head: &[u8]) -> io::Result<bool> {
    if original.head.len > 0 && original.head.begins(head) {
        return Ok(true);
    }
    let opened = match &original.open {
        Some(open) => open.try_clone(),
        None => open_file(original.rare.moved.as_deref().unwrap_or(&original.path)),
    };
    let opened = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    if Inode::of(&opened.metadata()?) != original.inode {
        return Ok(false);
    }
    let theirs = window::peek(&opened, original.is_gzip, 0, head.len())?;
    let length = theirs.len().min(head.len());
    Ok(length > 0 && theirs[..length] == head[..length])
}

/// Whether the file has the bytes before the place up to which a content was read.
fn has_lead(open: &fs::File, is_gzip: bool, content: &File) -> io::Result<bool> {
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
