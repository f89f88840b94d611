//! Positions in configuration texts: file, byte range, line and column.

use std::path::{Path, PathBuf};

/// Number of a file in [`Sources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(u32);

/// A range of one source text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub file: FileId,
    /// Byte offset of the first byte.
    pub start: u32,
    /// Byte offset after the last byte.
    pub end: u32,
    /// Line of the first byte, counted from 1.
    pub line: u32,
    /// Column of the first character in its line, counted from 1.
    pub column: u32,
}

impl Span {
    pub(crate) fn contains(&self, other: Span) -> bool {
        self.file == other.file && self.start <= other.start && other.end <= self.end
    }
}

#[derive(Clone)]
pub struct Source {
    /// Its name in messages: the path as the user gave it, or for example `env:NAME`.
    pub name: String,
    pub text: String,
    /// Set if the text came from a file, so that a change of the file can be noticed.
    pub path: Option<PathBuf>,
    /// The text is never shown: it was inserted by `${file:…}` and may be a password.
    pub confidential: bool,
}

impl Source {
    /// A text that is in no file.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Source { name: name.into(), text: text.into(), path: None, confidential: false }
    }
}

/// All texts of a configuration.
#[derive(Clone, Default)]
pub struct Sources {
    files: Vec<Source>,
    /// Source files that cannot be read.
    pub(crate) unreadable: Vec<PathBuf>,
}

impl Sources {
    pub fn add(&mut self, source: Source) -> FileId {
        let id = u32::try_from(self.files.len()).expect("fewer than 2^32 sources");
        self.files.push(source);
        FileId(id)
    }

    pub(crate) fn add_once(&mut self, source: Source) -> FileId {
        let same = |other: &Source| {
            (&other.path, &other.name, &other.text) == (&source.path, &source.name, &source.text)
        };
        match self.files.iter().position(same) {
            Some(position) => FileId(position as u32),
            None => self.add(source),
        }
    }

    pub fn get(&self, file: FileId) -> &Source {
        &self.files[file.0 as usize]
    }

    /// The requested files, each with its content if it could be read.
    pub fn files(&self) -> impl Iterator<Item = (&Path, Option<&str>)> {
        let read = self.files.iter().filter_map(|source| {
            let path = source.path.as_deref()?;
            Some((path, Some(source.text.as_str())))
        });
        read.chain(self.unreadable.iter().map(|path| (path.as_path(), None)))
    }
}
