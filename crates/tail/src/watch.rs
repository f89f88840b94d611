//! Changes in directories, as the kernel tells them.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use crate::directories::Directories;

/// File systems whose files others may change: the kernel does not know of that.
const REMOTE: [i64; 8] = [
    0x6969,      // NFS
    0x517b,      // SMB
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x6573_5546, // FUSE
    0x0102_1997, // 9P
    0x00c3_6400, // Ceph
    0x7461_636f, // OCFS2
];

pub(crate) struct Watcher {
    fd: Option<OwnedFd>,
    directories: Directories,
    /// All directories tell their changes. If not, files are looked at again and again.
    is_complete: bool,
    /// The look under way has seen one that does not.
    misses: bool,
    /// And one that was not watched before.
    has_new: bool,
}

/// Something that changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A file has new bytes.
    Written(PathBuf),
    /// A name appeared, went away or names another file.
    Named(PathBuf),
    /// Anything may have changed.
    Unknown,
}

impl Watcher {
    /// `is_wanted`: false for a watcher that tells nothing.
    pub(crate) fn new(is_wanted: bool) -> Watcher {
        let fd = is_wanted.then(|| inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC));
        let fd = fd.and_then(|fd| {
            fd.inspect_err(|error| {
                tracing::warn!(%error, "changes of files are not told by the kernel (inotify): \
                    they are looked for every poll_interval");
            })
            .ok()
        });
        let is_complete = fd.is_some();
        let (directories, misses, has_new) = (Directories::default(), false, false);
        Watcher { fd, directories, is_complete, misses, has_new }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(OwnedFd::as_fd)
    }

    /// Watches this directory from now on, up to the end of the next look at which it is not seen.
    pub(crate) fn see(&mut self, path: &Path) {
        let Some(fd) = &self.fd else { return };
        let flags = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        match inotify::add_watch(fd, path, flags) {
            Ok(watch) => match self.directories.see(watch, path, || is_remote(path)) {
                Some((is_new, is_remote)) => {
                    self.has_new |= is_new;
                    self.misses |= is_remote;
                }
                None => self.misses = true,
            },
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
            Err(error) => {
                let is_news = self.is_complete && !self.misses;
                if is_news && error == rustix::io::Errno::NOSPC {
                    tracing::warn!(directory = %crate::Shown(path),
                        "there are no inotify watches left (fs.inotify.max_user_watches): files \
                         are looked at every poll_interval");
                }
                self.misses = true;
            }
        }
    }

    /// Ends a look: directories that it did not see are no longer watched. Returns whether some are
    /// new: they have to be looked into again.
    pub(crate) fn end_look(&mut self) -> bool {
        let Some(fd) = &self.fd else { return false };
        self.directories.trim(|watch| {
            let _ = inotify::remove_watch(fd, watch);
        });
        self.is_complete = !std::mem::take(&mut self.misses);
        std::mem::take(&mut self.has_new)
    }

    /// Takes the changes that were told.
    pub(crate) fn drain(&mut self, mut tell: impl FnMut(Change)) {
        let Some(fd) = &self.fd else { return };
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(fd, &mut buffer);
        while let Ok(event) = reader.next() {
            let flags = event.events();
            let is_about_itself = flags.intersects(
                ReadFlags::QUEUE_OVERFLOW | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF,
            );
            if is_about_itself || flags.contains(ReadFlags::ISDIR) {
                tell(Change::Unknown);
                continue;
            }
            let Some(name) = event.file_name() else { continue };
            for directory in self.directories.paths_of(event.wd()) {
                let path = join(&directory, OsStr::from_bytes(name.to_bytes()));
                let is_written = flags.contains(ReadFlags::MODIFY);
                tell(if is_written { Change::Written(path) } else { Change::Named(path) });
            }
        }
    }
}

/// The path as patterns find it: without a `.` before.
fn join(directory: &Path, name: &OsStr) -> PathBuf {
    if directory == Path::new(".") { PathBuf::from(name) } else { directory.join(name) }
}

fn is_remote(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|it| REMOTE.contains(&(it.f_type & 0xffff_ffff)))
}
