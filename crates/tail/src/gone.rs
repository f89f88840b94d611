//! Files that leave their paths, and contents whose files are gone.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::file::{File, Place};
use crate::identify::is_gzip;
use crate::identity::Inode;
use crate::listing::Listings;
use crate::shown::Shown;
use crate::{FileId, Tail};

/// Contents whose file may come back as it was, as when a volume is mounted late. Each takes about
/// half a KiB.
const MISSING_MAX: usize = 20_000;
/// Contents whose file was removed or written anew: they may come back as copies or compressed.
const OVER_MAX: usize = 1000;

impl Tail {
    /// A file is no longer at a path that is meant. It is read to its end if it can be opened.
    pub(crate) fn leave(&mut self, id: FileId, now: Instant) {
        let Some(file) = self.files.get_mut(&id) else { return };
        if file.open.is_none() {
            match moved(file, &mut self.listings) {
                Ok(moved) => file.rare.moved = moved.map(PathBuf::into_boxed_path),
                Err(error) => {
                    self.failed(id, &error, now);
                    return;
                }
            }
            if file.rare.moved.is_none() {
                self.give_up(id);
                return;
            }
        }
        self.unset_path(id);
        let Some(file) = self.files.get_mut(&id) else { return };
        if file.place == Place::Listed {
            file.place = Place::Away;
            file.active = now;
            self.counts.rotated += 1;
            self.away.push_back(id);
        }
        self.schedule.soon(id);
        self.bound_away();
    }

    /// Open files of contents that have left their paths: of a file that was removed, its bytes are
    /// nowhere else. And of those that are not read to their end, which may be removed before the
    /// next tail finds them.
    pub fn take_left(&mut self) -> Vec<(FileId, fs::File)> {
        let mut left = Vec::new();
        for (id, file) in &mut self.files {
            if (file.place == Place::Away || !file.is_identified || file.unread() > 0)
                && let Some(open) = file.open.take()
            {
                self.open_count -= 1;
                left.push((*id, open));
            }
        }
        left
    }

    /// Goes on with an open file, as [`Tail::take_left`] of another tail gave it. The content is
    /// remembered already.
    pub fn follow(&mut self, id: FileId, open: fs::File, now: Instant) {
        let is_gzip = is_gzip(self.options.compression, &open);
        let Ok(metadata) = open.metadata() else { return };
        let Some(file) = self.files.get(&id) else { return };
        // It may be no longer meant.
        if is_at(&file.path, file.inode) && !self.is_meant(&file.path) {
            if !file.is_identified {
                self.set_present(id);
                self.forget(id);
            }
            return;
        }
        self.set_present(id);
        let Some(file) = self.files.get_mut(&id) else { return };
        file.is_gzip = is_gzip.ok().flatten().unwrap_or(false);
        (file.place, file.active, file.size) = (Place::Away, now, metadata.len());
        file.open = Some(open);
        self.open_count += 1;
        self.note_open(id);
        self.away.push_back(id);
        self.schedule.soon(id);
    }

    /// Forgets where a content is. What was not read of it is counted.
    pub(crate) fn give_up(&mut self, id: FileId) {
        let Some(file) = self.files.get_mut(&id) else { return };
        if let Some(metadata) = file.open.as_ref().and_then(|open| open.metadata().ok()) {
            file.size = metadata.len();
            file.is_over = metadata.nlink() == 0;
        }
        let (unread, is_identified) = (file.unread(), file.is_identified);
        if unread > 0 {
            // It is not known how much the rest of a compressed file would be.
            let bytes = if file.is_gzip { 0 } else { unread };
            tracing::warn!(path = %Shown(&file.path), bytes, compressed = file.is_gzip,
                "a file went away before it was read to its end");
            self.count_lost(id, bytes);
        }
        if is_identified { self.set_missing(id) } else { self.forget(id) }
    }

    /// Counts bytes of a file that is gone, and the file if it is not counted yet.
    fn count_lost(&mut self, id: FileId, bytes: u64) {
        let file = self.files.get_mut(&id);
        let was_lost = file.is_some_and(|file| std::mem::replace(&mut file.is_lost, true));
        self.counts.lost_files += u64::from(!was_lost);
        self.counts.lost_bytes += bytes;
    }

    /// Bytes that were read of a content were not delivered, and its file is gone.
    pub fn lose(&mut self, id: FileId, bytes: u64) {
        let path = Shown(self.path(id).unwrap_or(Path::new(""))).to_string();
        tracing::warn!(
            path,
            bytes,
            "lines of a file were refused after it went away: they cannot be read again"
        );
        self.count_lost(id, bytes);
    }

    /// Counts the contents that were known at the start, were not read to their end, and are not
    /// found again.
    pub(crate) fn count_vanished(&mut self) {
        const NAMED: usize = 3;
        let is_vanished = |file: &File| file.place == Place::Missing && file.rare.known_unread > 0;
        let (mut files, mut bytes, mut paths) = (0, 0_u64, Vec::new());
        for file in self.files.values_mut().filter(|file| is_vanished(file)) {
            files += 1;
            bytes = bytes.saturating_add(std::mem::take(&mut file.rare.known_unread));
            file.is_lost = true;
            paths.push(Shown(&file.path).to_string());
        }
        if files == 0 {
            return;
        }
        paths.sort_unstable();
        paths.truncate(NAMED);
        self.counts.lost_files += files;
        self.counts.lost_bytes = self.counts.lost_bytes.saturating_add(bytes);
        tracing::warn!(
            files,
            bytes,
            first = paths.join(", "),
            "files went away unseen before they were read to their end"
        );
    }

    pub(crate) fn set_missing(&mut self, id: FileId) {
        if self.files.get(&id).is_some_and(|file| file.is_deleted) {
            return self.forget(id);
        }
        self.close(id);
        self.unset_path(id);
        self.schedule.forget(id);
        self.missing_count += 1;
        let order = self.missing_count;
        let Some(file) = self.files.get_mut(&id) else { return };
        file.place = Place::Missing;
        file.rare.partial = None;
        file.rare.release();
        file.seen_at = order;
        if file.head.len > 0 {
            self.missing.entry(file.head).or_default().push(id);
        }
        let orders = if file.is_over { &mut self.over_order } else { &mut self.missing_order };
        orders.insert((order, id));
    }

    pub(crate) fn set_present(&mut self, id: FileId) {
        let Some(file) = self.files.get_mut(&id) else { return };
        if let Some(same) = self.missing.get_mut(&file.head) {
            same.retain(|it| *it != id);
            if same.is_empty() {
                self.missing.remove(&file.head);
            }
        }
        self.missing_order.remove(&(file.seen_at, id));
        self.over_order.remove(&(file.seen_at, id));
        file.place = Place::Listed;
        if !file.is_identified && file.rare.known_unread > 0 {
            file.rare.known_unread = 0;
        }
        (file.is_verified, file.is_over, file.is_lost) = (false, false, false);
    }

    /// Forgets the contents that are missing for longest, if they are resolved. Files that are not
    /// identified yet may have any of them: so many more are kept.
    pub(crate) fn trim_missing(&mut self) {
        let over = self.over_order.len().saturating_sub(OVER_MAX);
        self.forget_oldest(|tail| &tail.over_order, over);
        if self.missing_order.len() <= MISSING_MAX {
            return;
        }
        let new = self.files.values().filter(|file| !file.is_identified && file.size > 0).count();
        let excess = self.missing_order.len().saturating_sub(MISSING_MAX.max(new));
        let forgotten = self.forget_oldest(|tail| &tail.missing_order, excess);
        if let Some((example, count)) = forgotten {
            self.counts.forgotten += count;
            tracing::warn!(files = count, example = %Shown(&example), limit = MISSING_MAX,
                "files that are missing for longest are forgotten: if they come back, they are \
                 read from their beginning");
        }
    }

    /// Returns the path of one, and their number.
    fn forget_oldest(
        &mut self,
        orders: impl Fn(&Tail) -> &std::collections::BTreeSet<(u64, FileId)>,
        count: usize,
    ) -> Option<(PathBuf, u64)> {
        if count == 0 {
            return None;
        }
        let settled = |(_, id): &&(u64, FileId)| self.files[id].rare.begun.is_empty();
        let oldest: Vec<FileId> =
            orders(self).iter().filter(settled).take(count).map(|(_, id)| *id).collect();
        let example = self.files.get(oldest.first()?)?.path.to_path_buf();
        for id in &oldest {
            self.set_present(*id);
            self.forget(*id);
        }
        Some((example, oldest.len() as u64))
    }

    pub(crate) fn forget(&mut self, id: FileId) {
        self.close(id);
        self.unset_path(id);
        self.schedule.forget(id);
        if let Some(file) = self.files.remove(&id)
            && self.by_inode.get(&file.inode) == Some(&id)
        {
            self.by_inode.remove(&file.inode);
        }
    }

    /// Files that have left and are followed: at most half of those that may be open, beside those
    /// that are not read to their end.
    fn away_max(&self) -> usize {
        (self.options.max_open / 2).max(1)
    }

    /// Whether more files have left than are followed.
    pub(crate) fn has_many_away(&mut self) -> bool {
        if self.away.len() > self.away_max() {
            self.trim_away();
        }
        self.away.len() > self.away_max()
    }

    fn trim_away(&mut self) {
        let (mut seen, files) = (HashSet::new(), &self.files);
        let is_away = |id: &FileId| files.get(id).is_some_and(|it| it.place == Place::Away);
        self.away.retain(|id| is_away(id) && seen.insert(*id));
    }

    /// Closes the oldest of too many files that have left. Each is opened again for its turn,
    /// unless it has no name any more.
    fn bound_away(&mut self) {
        if self.away.len() <= self.away_max() {
            return;
        }
        self.trim_away();
        let is_open = |id: &FileId| self.files[id].open.is_some();
        let open: Vec<FileId> = self.away.iter().copied().filter(is_open).collect();
        let excess = open.len().saturating_sub(self.away_max());
        for id in open.into_iter().take(excess) {
            let Some(file) = self.files.get_mut(&id) else { continue };
            if file.rare.moved.as_ref().is_none_or(|path| !is_at(path, file.inode)) {
                let moved = moved(file, &mut self.listings);
                file.rare.moved = moved.ok().flatten().map(PathBuf::into_boxed_path);
            }
            if file.rare.moved.is_some() {
                self.close(id);
            } else {
                self.give_up(id);
            }
        }
    }
}

/// Whether the path leads to this inode.
pub(crate) fn is_at(path: &Path, inode: Inode) -> bool {
    fs::metadata(path).is_ok_and(|metadata| Inode::of(&metadata) == inode)
}

/// Where a file is that was renamed: in its directory, or beside the target of its link.
pub(crate) fn moved(file: &File, listings: &mut Listings) -> io::Result<Option<PathBuf>> {
    let beside = [Some(&file.path), file.rare.target.as_ref()];
    for path in beside.into_iter().flatten() {
        let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let same = match listings.paths(directory, file.inode.number) {
            Ok(same) => same,
            Err(error) if is_lasting(&error) => continue,
            Err(error) => return Err(error),
        };
        if let Some(path) = same.into_iter().find(|it| is_at(it, file.inode)) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// The directory is gone, or not ours. Other errors, as of too many open files, pass.
fn is_lasting(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
    )
}
