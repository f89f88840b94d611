//! A file system that hands every call to another directory, and fails when a test says so: with
//! errors, slowly, not at all, or as one that is mounted read-only.
//!
//! It is served by this process through FUSE. Files are read and written past the kernel's cache,
//! so that every call of the gateway meets the faults.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, DirEntryExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenAccMode, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{FallocateFlags, Mode, OFlags};

/// Nothing is cached: every call is asked for.
const NOT_CACHED: Duration = Duration::ZERO;
/// Calls at a time. More than the gateway has threads for its disk.
const THREADS: usize = 16;

/// The behaviour of the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Behaviour {
    #[default]
    Healthy,
    /// This share of the calls gets an I/O error.
    Errors(f64),
    /// Each call takes up to this much longer.
    Slow(Duration),
    /// No call gets an answer.
    Hangs,
    ReadOnly,
}

#[derive(Default)]
struct Faults {
    behaviour: Mutex<Behaviour>,
    changed: Condvar,
}

/// A mounted file system. Unmounted when dropped.
pub(crate) struct FaultyMount {
    folder: tempfile::TempDir,
    faults: Arc<Faults>,
    session: Option<BackgroundSession>,
}

impl FaultyMount {
    /// Mounts a directory a second time.
    pub(crate) fn of(directory: &Path) -> io::Result<FaultyMount> {
        let folder = tempfile::TempDir::with_prefix("sluice-faulty-")?;
        let faults = Arc::<Faults>::default();
        let served = Served::new(directory, faults.clone())?;
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("sluice-faulty".to_owned())];
        config.n_threads = Some(THREADS);
        let session = Some(fuser::spawn_mount(served, folder.path(), &config)?);
        Ok(FaultyMount { folder, faults, session })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub(crate) fn behave(&self, behaviour: Behaviour) {
        *self.faults.behaviour.lock() = behaviour;
        self.faults.changed.notify_all();
    }
}

impl Drop for FaultyMount {
    fn drop(&mut self) {
        self.behave(Behaviour::Healthy);
        // Lazily: a gateway may still use it after a failed test.
        let _ = Command::new("umount").arg("--lazy").arg(self.folder.path()).status();
        drop(self.session.take());
    }
}

impl Faults {
    /// Waits, and fails, as a call has to.
    fn meet(&self, changes: bool) -> Result<(), Errno> {
        let mut behaviour = self.behaviour.lock();
        while *behaviour == Behaviour::Hangs {
            self.changed.wait(&mut behaviour);
        }
        let behaviour = {
            let now = *behaviour;
            drop(behaviour);
            now
        };
        match behaviour {
            Behaviour::Errors(share) if fastrand::f64() < share => Err(Errno::EIO),
            Behaviour::ReadOnly if changes => Err(Errno::EROFS),
            Behaviour::Slow(most) => {
                std::thread::sleep(most.mul_f64(fastrand::f64()));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// A file or directory that the kernel knows. Its descriptor stays valid without a name.
struct Node {
    path_only: File,
    lookups: u64,
}

#[derive(Default)]
struct Known {
    nodes: HashMap<u64, Node>,
    open: HashMap<u64, Arc<File>>,
    next_handle: u64,
}

struct Served {
    faults: Arc<Faults>,
    known: Mutex<Known>,
}

impl Served {
    fn new(directory: &Path, faults: Arc<Faults>) -> io::Result<Served> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let root = File::from(rustix::fs::open(directory, flags, Mode::empty())?);
        let mut known = Known::default();
        known.nodes.insert(INodeNo::ROOT.0, Node { path_only: root, lookups: 1 });
        Ok(Served { faults, known: Mutex::new(known) })
    }

    /// A path that leads to a node, whatever its name is by now.
    fn path_of(&self, node: INodeNo) -> Result<PathBuf, Errno> {
        let known = self.known.lock();
        let node = known.nodes.get(&node.0).ok_or(Errno::ESTALE)?;
        Ok(PathBuf::from(format!("/proc/self/fd/{}", node.path_only.as_raw_fd())))
    }

    fn file(&self, handle: FileHandle) -> Result<Arc<File>, Errno> {
        self.known.lock().open.get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    fn keep_open(&self, file: File) -> FileHandle {
        let mut known = self.known.lock();
        known.next_handle += 1;
        let handle = known.next_handle;
        known.open.insert(handle, Arc::new(file));
        FileHandle(handle)
    }

    /// Finds an entry of a directory and counts that the kernel knows it.
    fn look_up(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let path = self.path_of(parent)?.join(name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let found = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)?;
        let path_only = File::from(found);
        let metadata = path_only.metadata()?;
        let mut known = self.known.lock();
        let node = known.nodes.entry(metadata.ino()).or_insert(Node { path_only, lookups: 0 });
        node.lookups += 1;
        Ok(attributes(&metadata, INodeNo(metadata.ino())))
    }

    fn attributes_of(&self, node: INodeNo) -> Result<FileAttr, Errno> {
        let known = self.known.lock();
        let found = known.nodes.get(&node.0).ok_or(Errno::ESTALE)?;
        Ok(attributes(&found.path_only.metadata()?, node))
    }
}

fn attributes(metadata: &fs::Metadata, ino: INodeNo) -> FileAttr {
    let kind = if metadata.is_dir() { FileType::Directory } else { FileType::RegularFile };
    FileAttr {
        ino,
        size: metadata.size(),
        blocks: metadata.blocks(),
        atime: SystemTime::UNIX_EPOCH,
        mtime: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        ctime: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        crtime: SystemTime::UNIX_EPOCH,
        kind,
        perm: (metadata.mode() & 0o7777) as u16,
        nlink: metadata.nlink() as u32,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// Answers with the outcome of a call.
macro_rules! answer {
    ($reply:ident, $outcome:expr, $value:pat => $good:expr) => {
        match (|| -> Result<_, Errno> { $outcome })() {
            Ok($value) => $good,
            Err(error) => $reply.error(error),
        }
    };
}

#[allow(clippy::too_many_arguments, reason = "the arguments are those of the protocol")]
impl Filesystem for Served {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer!(reply, {
            self.faults.meet(false)?;
            self.look_up(parent, name)
        }, attr => reply.entry(&NOT_CACHED, &attr, Generation(0)));
    }

    fn forget(&self, _: &Request, node: INodeNo, lookups: u64) {
        let mut known = self.known.lock();
        if let Some(found) = known.nodes.get_mut(&node.0).filter(|_| node != INodeNo::ROOT) {
            found.lookups = found.lookups.saturating_sub(lookups);
            if found.lookups == 0 {
                known.nodes.remove(&node.0);
            }
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, {
            self.faults.meet(false)?;
            self.attributes_of(node)
        }, attr => reply.attr(&NOT_CACHED, &attr));
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        answer!(reply, {
            self.faults.meet(true)?;
            if let Some(size) = size {
                fs::OpenOptions::new().write(true).open(self.path_of(node)?)?.set_len(size)?;
            }
            self.attributes_of(node)
        }, attr => reply.attr(&NOT_CACHED, &attr));
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        answer!(reply, {
            self.faults.meet(true)?;
            fs::DirBuilder::new().mode(mode).create(self.path_of(parent)?.join(name))?;
            self.look_up(parent, name)
        }, attr => reply.entry(&NOT_CACHED, &attr, Generation(0)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, {
            self.faults.meet(true)?;
            Ok(fs::remove_file(self.path_of(parent)?.join(name))?)
        }, () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, {
            self.faults.meet(true)?;
            Ok(fs::remove_dir(self.path_of(parent)?.join(name))?)
        }, () => reply.ok());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        answer!(reply, {
            self.faults.meet(true)?;
            let from = self.path_of(parent)?.join(name);
            Ok(fs::rename(from, self.path_of(new_parent)?.join(new_name))?)
        }, () => reply.ok());
    }

    fn open(&self, _: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        answer!(reply, {
            let changes = flags.acc_mode() != OpenAccMode::O_RDONLY;
            self.faults.meet(changes)?;
            let file = fs::OpenOptions::new().read(true).write(changes).open(self.path_of(node)?)?;
            Ok(self.keep_open(file))
        }, handle => reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO));
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        answer!(reply, {
            self.faults.meet(true)?;
            let is_new = flags & OFlags::EXCL.bits().cast_signed() != 0;
            let mut options = fs::OpenOptions::new();
            options.read(true).write(true).create(true).create_new(is_new).truncate(false);
            let file = options.mode(mode).open(self.path_of(parent)?.join(name))?;
            Ok((self.look_up(parent, name)?, self.keep_open(file)))
        }, (attr, handle) => {
            reply.created(&NOT_CACHED, &attr, Generation(0), handle, FopenFlags::FOPEN_DIRECT_IO);
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        position: u64,
        len: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        answer!(reply, {
            self.faults.meet(false)?;
            let mut buffer = vec![0; len as usize];
            let read = self.file(handle)?.read_at(&mut buffer, position)?;
            buffer.truncate(read);
            Ok(buffer)
        }, buffer => reply.data(&buffer));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        position: u64,
        bytes: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        answer!(reply, {
            self.faults.meet(true)?;
            Ok(self.file(handle)?.write_at(bytes, position)? as u32)
        }, written => reply.written(written));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.known.lock().open.remove(&handle.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        answer!(reply, {
            self.faults.meet(true)?;
            Ok(self.file(handle)?.sync_data()?)
        }, () => reply.ok());
    }

    fn fsyncdir(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        answer!(reply, {
            self.faults.meet(true)?;
            Ok(File::open(self.path_of(node)?)?.sync_all()?)
        }, () => reply.ok());
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        position: u64,
        len: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        answer!(reply, {
            self.faults.meet(true)?;
            let file = self.file(handle)?;
            let allocated = rustix::fs::fallocate(&file, FallocateFlags::empty(), position, len);
            Ok(allocated.map_err(io::Error::from)?)
        }, () => reply.ok());
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        answer!(reply, {
            self.faults.meet(false)?;
            let mut entries = Vec::new();
            for entry in fs::read_dir(self.path_of(node)?)? {
                let entry = entry?;
                let is_directory = entry.file_type()?.is_dir();
                entries.push((entry.file_name(), entry.ino(), is_directory));
            }
            // The same order in each call: the offset counts entries.
            entries.sort();
            Ok(entries)
        }, entries => {
            for (number, (name, ino, is_directory)) in (1..).zip(entries).skip(offset as usize) {
                let kind =
                    if is_directory { FileType::Directory } else { FileType::RegularFile };
                if reply.add(INodeNo(ino), number, kind, name) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn statfs(&self, _: &Request, node: INodeNo, reply: ReplyStatfs) {
        answer!(reply, {
            let path = self.path_of(node)?;
            Ok(rustix::fs::statvfs(path).map_err(io::Error::from)?)
        }, space => reply.statfs(
            space.f_blocks,
            space.f_bfree,
            space.f_bavail,
            space.f_files,
            space.f_ffree,
            space.f_bsize as u32,
            255,
            space.f_frsize as u32,
        ));
    }
}
