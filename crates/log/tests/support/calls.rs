//! The calls of a disk, counted, and the errors that they may return.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
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
    /// Whether a file has a name. Not counted.
    Linked,
    /// The file system's number. Not counted.
    Device,
}

impl Operation {
    fn changes(self) -> bool {
        use Operation::{Device, Len, Linked, List, Open, Read};
        ![Open, List, Read, Len, Linked, Device].contains(&self)
    }

    pub fn is_counted(self) -> bool {
        !matches!(self, Operation::Linked | Operation::Device)
    }
}

/// A call that is about to be made.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// Number of calls made before, counted from the last [`FaultyDisk::reset_counts`].
    pub number: u64,
    pub operation: Operation,
    pub path: &'a Path,
    /// The bytes that are read or written; empty for other operations.
    pub positions: Range<u64>,
    /// It changes something, or opens a file to change it.
    pub changes: bool,
}

impl<'a> Call<'a> {
    pub fn new(operation: Operation, path: &'a Path) -> Self {
        Call { number: 0, operation, path, positions: 0..0, changes: operation.changes() }
    }

    pub fn at(self, position: u64, len: usize) -> Self {
        Call { positions: position..position.saturating_add(len as u64), ..self }
    }
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
