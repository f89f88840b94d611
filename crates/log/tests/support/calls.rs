//! The calls of a disk, counted, and the errors that they may return.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// One kind of system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    CreateNew,
    Open,
    CreateDirectory,
    List,
    RemoveFile,
    Rename,
    SyncDirectory,
    Write,
    Read,
    SyncData,
    Allocate,
    SetLen,
    Len,
}

/// A call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Number of calls made before, counted from the last [`FaultyDisk::reset_counts`].
    pub number: u64,
    pub operation: Operation,
    pub path: &'a Path,
}

/// The error of a full disk.
pub fn no_space() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error())
}

/// The error of a broken disk.
pub fn input_output() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())
}

/// The error of a process that has too many files open.
pub fn too_many_open_files() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error())
}

/// Calls of the disk, and bytes that were read and written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub calls: BTreeMap<Operation, u64>,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Counts {
    pub fn of(&self, operation: Operation) -> u64 {
        self.calls.get(&operation).copied().unwrap_or(0)
    }

    pub fn total(&self) -> u64 {
        self.calls.values().sum()
    }
}
