//! Changes in directories, as the kernel tells them.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

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
    /// Watches and their paths, in order: links may lead to one directory by several. There may be
    /// as many as files, so each path stands here once.
    directories: Vec<(i32, Box<Path>)>,
    /// All directories tell their changes. If not, files are looked at again and again.
    is_complete: bool,
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
        Watcher { fd, directories: Vec::new(), is_complete }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(OwnedFd::as_fd)
    }

    /// Watches these directories and no others. Returns whether some are new: they have to be
    /// looked into again.
    pub(crate) fn watch(&mut self, directories: impl Iterator<Item = PathBuf>) -> bool {
        let Some(fd) = &self.fd else { return false };
        let mut watched = Vec::new();
        self.is_complete = true;
        let flags = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        for path in directories {
            match inotify::add_watch(fd, &path, flags) {
                Ok(watch) => {
                    self.is_complete &= !is_remote(&path);
                    watched.push((watch, path.into_boxed_path()));
                }
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
                Err(error) => {
                    if self.is_complete && error == rustix::io::Errno::NOSPC {
                        tracing::warn!(directory = %path.display(),
                            "there are no inotify watches left (fs.inotify.max_user_watches): \
                             files are looked at every poll_interval");
                    }
                    self.is_complete = false;
                }
            }
        }
        watched.sort_unstable();
        watched.dedup();
        watched.shrink_to_fit();
        let before = std::mem::replace(&mut self.directories, watched);
        let mut gone: Vec<i32> = before.iter().map(|(watch, _)| *watch).collect();
        gone.dedup();
        for watch in gone.into_iter().filter(|watch| self.paths_of(*watch).next().is_none()) {
            let _ = inotify::remove_watch(fd, watch);
        }
        self.directories.iter().any(|it| before.binary_search(it).is_err())
    }

    fn paths_of(&self, watch: i32) -> impl Iterator<Item = &Path> {
        let first = self.directories.partition_point(|(it, _)| *it < watch);
        let of_watch = self.directories[first..].iter().take_while(move |(it, _)| *it == watch);
        of_watch.map(|(_, path)| &**path)
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
            for directory in self.paths_of(event.wd()) {
                let path = join(directory, OsStr::from_bytes(name.to_bytes()));
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
