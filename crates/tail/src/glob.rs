//! Patterns of paths, as the Collector writes them: `*`, `?`, `[a-z]`, `{a,b}` and `**`.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use crate::identity::Inode;

/// Alternatives that the braces of one pattern may stand for.
const ALTERNATIVES_MAX: usize = 1000;
/// Directories below each other that `**` enters.
const DEPTH_MAX: usize = 64;
/// Paths with links by which `**` enters one directory. Without a limit, directories that link to
/// each other have more paths than can be visited.
pub(crate) const LINKED_PATHS_MAX: usize = 8;
/// The same with the paths on which all files are unwanted, which do not count otherwise.
const TRIED_PATHS_MAX: usize = 8 * LINKED_PATHS_MAX;

/// A pattern of paths. It matches bytes: names need not be UTF-8.
#[derive(Clone, Debug)]
pub struct Glob {
    text: String,
    alternatives: Vec<Vec<Part>>,
}

/// A part of a path between slashes.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// The root, or a name without wildcards.
    Name(Vec<u8>),
    Wild(Vec<u8>),
    /// `**`: any number of directories.
    Deep,
}

impl Glob {
    /// # Errors
    /// The reason, in a line.
    pub fn new(text: &str) -> Result<Glob, String> {
        if text.is_empty() {
            return Err("is empty".to_owned());
        }
        let mut expanded = Vec::new();
        expand(text.as_bytes(), &mut expanded)?;
        let alternatives = expanded.iter().map(|path| parts_of(path)).collect::<Result<_, _>>()?;
        Ok(Glob { text: text.to_owned(), alternatives })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn matches(&self, path: &Path) -> bool {
        let names: Vec<&[u8]> = path
            .components()
            .filter(|it| !matches!(it, Component::CurDir))
            .map(|it| it.as_os_str().as_bytes())
            .collect();
        self.alternatives.iter().any(|parts| matches_path(parts, &names))
    }

    /// Calls `visit` with the directories that it looks into and the paths that match. What cannot
    /// be read is told to `fail`; the rest is visited.
    pub fn walk(&self, visit: &mut dyn FnMut(Found<'_>), fail: &mut dyn FnMut(&Path, &io::Error)) {
        let mut visit = |found: Found<'_>| {
            visit(found);
            true
        };
        self.walk_for(&mut visit, fail);
    }

    /// The same for a part of the files: `visit` says which are wanted.
    pub(crate) fn walk_for(
        &self,
        visit: &mut dyn FnMut(Found<'_>) -> bool,
        fail: &mut dyn FnMut(&Path, &io::Error),
    ) {
        let (above, linked) = (HashSet::new(), HashMap::new());
        let files = Files::default();
        let mut walk = Walk { visit, fail, above, links: 0, linked, files };
        for parts in &self.alternatives {
            walk.linked.clear();
            walk.enter(&PathBuf::new(), parts, 0);
        }
    }
}

/// A path that a pattern leads to.
pub enum Found<'p> {
    /// A directory: a file that appears there may match.
    Directory(&'p Path),
    File(&'p Path),
    /// A directory that was entered by enough other paths.
    Skipped(&'p Path),
}

/// An entry of a directory, or what a link there leads to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    File,
    Directory,
    LinkedDirectory,
}

/// The paths with links by which `**` has entered a directory.
struct Linked {
    paths: usize,
    /// Of these, those on which all files were unwanted.
    unwanted: usize,
    least_depth: usize,
}

/// The files that a walk has found.
#[derive(Clone, Copy, Default)]
struct Files {
    wanted: usize,
    unwanted: usize,
}

struct Walk<'w> {
    visit: &'w mut dyn FnMut(Found<'_>) -> bool,
    fail: &'w mut dyn FnMut(&Path, &io::Error),
    /// Directories between the root and here: links may lead back to them.
    above: HashSet<Inode>,
    /// Links to directories on the path that `**` has gone.
    links: usize,
    /// By the directory, and the number of parts behind the `**`.
    linked: HashMap<(Inode, usize), Linked>,
    files: Files,
}

impl Walk<'_> {
    fn enter(&mut self, at: &Path, parts: &[Part], depth: usize) {
        match parts {
            [] => match (self.visit)(Found::File(at)) {
                true => self.files.wanted += 1,
                false => self.files.unwanted += 1,
            },
            [Part::Name(name), rest @ ..] => {
                let path = at.join(OsStr::from_bytes(name));
                let found = fs::metadata(&path);
                if rest.is_empty() || found.is_err() {
                    self.note(at);
                }
                match found {
                    Ok(found) if rest.is_empty() && !found.is_file() => {}
                    Ok(_) => self.enter(&path, rest, depth),
                    Err(error) => self.tell(&path, &error),
                }
            }
            [Part::Wild(pattern), rest @ ..] => {
                for (name, entry) in self.list(at) {
                    let is_wanted = (entry == Entry::File) == rest.is_empty();
                    if is_wanted && matches_name(pattern, name.as_bytes()) {
                        self.enter(&at.join(name), rest, depth);
                    }
                }
            }
            [Part::Deep, rest @ ..] => self.deep(at, rest, depth),
        }
    }

    /// `rest` here and in every directory below.
    fn deep(&mut self, at: &Path, rest: &[Part], depth: usize) {
        let everything = [Part::Wild(b"*".to_vec())];
        let rest = if rest.is_empty() { &everything } else { rest };
        let here = if at.as_os_str().is_empty() { Path::new(".") } else { at };
        let Ok(inode) = fs::metadata(here).map(|it| Inode::of(&it)) else { return };
        if depth >= DEPTH_MAX || self.above.contains(&inode) {
            return;
        }
        if self.links > 0 && !self.may_enter(inode, rest.len(), depth) {
            (self.visit)(Found::Skipped(at));
            return;
        }
        let before = self.files;
        self.above.insert(inode);
        self.enter(at, rest, depth);
        for (name, entry) in self.list(at) {
            let links = usize::from(entry == Entry::LinkedDirectory);
            if entry != Entry::File {
                self.links += links;
                self.deep(&at.join(name), rest, depth + 1);
                self.links -= links;
            }
        }
        self.above.remove(&inode);
        let Files { wanted, unwanted } = self.files;
        if wanted == before.wanted
            && unwanted > before.unwanted
            && let Some(linked) = self.linked.get_mut(&(inode, rest.len()))
            && self.links > 0
        {
            linked.unwanted += 1;
        }
    }

    /// Whether `**` enters the directory by one more path with links. By a shorter one it always
    /// does: by the others, what is below may have been too deep.
    fn may_enter(&mut self, inode: Inode, parts: usize, depth: usize) -> bool {
        let first = Linked { paths: 0, unwanted: 0, least_depth: depth };
        let linked = self.linked.entry((inode, parts)).or_insert(first);
        let may = linked.paths < TRIED_PATHS_MAX
            && linked.paths - linked.unwanted < LINKED_PATHS_MAX
            || depth < linked.least_depth;
        linked.paths += usize::from(may);
        linked.least_depth = linked.least_depth.min(depth);
        may
    }

    fn note(&mut self, directory: &Path) {
        let is_here = directory.as_os_str().is_empty();
        (self.visit)(Found::Directory(if is_here { Path::new(".") } else { directory }));
    }

    fn tell(&mut self, path: &Path, error: &io::Error) {
        if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            (self.fail)(path, error);
        }
    }

    /// The names in a directory of files and of directories, also behind links. In order, so that
    /// files are seen in that of their paths.
    fn list(&mut self, at: &Path) -> Vec<(OsString, Entry)> {
        let here = if at.as_os_str().is_empty() { Path::new(".") } else { at };
        (self.visit)(Found::Directory(here));
        let entries = match fs::read_dir(here) {
            Ok(entries) => entries,
            Err(error) => {
                self.tell(here, &error);
                return Vec::new();
            }
        };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let (name, kind) = (entry.file_name(), entry.file_type());
            let entry = match kind {
                Ok(kind) if kind.is_file() => Entry::File,
                Ok(kind) if kind.is_dir() => Entry::Directory,
                Ok(kind) if kind.is_symlink() => match fs::metadata(at.join(&name)) {
                    Ok(target) if target.is_file() => Entry::File,
                    Ok(target) if target.is_dir() => Entry::LinkedDirectory,
                    _ => continue,
                },
                _ => continue,
            };
            found.push((name, entry));
        }
        found.sort_unstable();
        found
    }
}

impl Inode {
    pub(crate) fn of(metadata: &fs::Metadata) -> Inode {
        Inode { device: metadata.dev(), number: metadata.ino() }
    }
}

/// Writes out the alternatives in braces.
fn expand(text: &[u8], out: &mut Vec<Vec<u8>>) -> Result<(), String> {
    let (mut open, mut depth, mut commas, mut index) = (None, 0_usize, Vec::new(), 0);
    while index < text.len() {
        match text[index] {
            b'\\' => index += 1,
            b'{' => {
                open = open.or(Some(index));
                depth += 1;
            }
            b',' if depth == 1 => commas.push(index),
            b'}' if depth > 0 => {
                depth -= 1;
                if let (0, Some(open)) = (depth, open) {
                    commas.push(index);
                    let mut start = open + 1;
                    for end in commas {
                        let whole = [&text[..open], &text[start..end], &text[index + 1..]];
                        expand(&whole.concat(), out)?;
                        start = end + 1;
                    }
                    return Ok(());
                }
            }
            _ => {}
        }
        index += 1;
    }
    if depth > 0 {
        return Err("has `{` without `}`".to_owned());
    }
    if out.len() >= ALTERNATIVES_MAX {
        return Err(format!("stands for more than {ALTERNATIVES_MAX} patterns"));
    }
    out.push(text.to_vec());
    Ok(())
}

fn parts_of(path: &[u8]) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    if path.first() == Some(&b'/') {
        parts.push(Part::Name(b"/".to_vec()));
    }
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b"**" => {
                if parts.last() != Some(&Part::Deep) {
                    parts.push(Part::Deep);
                }
            }
            part if part.iter().any(|byte| b"*?[\\".contains(byte)) => {
                check(part)?;
                parts.push(Part::Wild(part.to_vec()));
            }
            part => parts.push(Part::Name(part.to_vec())),
        }
    }
    Ok(parts)
}

fn check(mut pattern: &[u8]) -> Result<(), String> {
    while let Some((first, rest)) = pattern.split_first() {
        pattern = match first {
            b'\\' if rest.is_empty() => return Err("ends with `\\`".to_owned()),
            b'\\' => &rest[1..],
            b'[' => match class(rest, 0) {
                Some((_, behind)) => behind,
                None => return Err("has `[` without `]`".to_owned()),
            },
            _ => rest,
        };
    }
    Ok(())
}

fn matches_path(parts: &[Part], names: &[&[u8]]) -> bool {
    match (parts, names) {
        ([], []) => true,
        ([Part::Deep], names) => !names.is_empty(),
        ([Part::Deep, rest @ ..], names) => {
            (0..=names.len()).any(|skipped| matches_path(rest, &names[skipped..]))
        }
        ([Part::Name(name), rest @ ..], [first, others @ ..]) => {
            name == first && matches_path(rest, others)
        }
        ([Part::Wild(pattern), rest @ ..], [first, others @ ..]) => {
            matches_name(pattern, first) && matches_path(rest, others)
        }
        _ => false,
    }
}

/// Compares without recursion: the last `*` takes one more byte after each failure.
fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut of, mut star) = (0, 0, None);
    while of < name.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, of));
            at += 1;
        } else if let Some(length) = matches_one(&pattern[at..], &name[of..]) {
            (at, of) = (at + length.0, of + length.1);
        } else if let Some((behind, taken)) = star {
            (at, of, star) = (behind, taken + 1, Some((behind, taken + 1)));
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// The lengths of one element of the pattern and of the character that it matches.
fn matches_one(pattern: &[u8], name: &[u8]) -> Option<(usize, usize)> {
    let (first, rest) = pattern.split_first()?;
    let width = match name.first()? {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    };
    let character = name.get(..width).and_then(|bytes| str::from_utf8(bytes).ok()?.chars().next());
    let width = if character.is_some() { width } else { 1 };
    match first {
        b'?' => Some((1, width)),
        b'[' => {
            let code = character.map_or(u32::from(name[0]), u32::from);
            let (is_in, behind) = class(rest, code)?;
            is_in.then_some((pattern.len() - behind.len(), width))
        }
        b'\\' => (rest.first() == name.first()).then_some((2, 1)),
        byte => (Some(byte) == name.first()).then_some((1, 1)),
    }
}

/// Whether the class that begins here has the character, and the pattern behind the class.
fn class(pattern: &[u8], code: u32) -> Option<(bool, &[u8])> {
    let is_negated = matches!(pattern.first(), Some(b'!' | b'^'));
    let mut rest = &pattern[usize::from(is_negated)..];
    let (mut is_in, mut is_first) = (false, true);
    loop {
        if rest.first() == Some(&b']') && !is_first {
            return Some((is_in != is_negated, &rest[1..]));
        }
        is_first = false;
        let (low, behind) = member(rest)?;
        rest = behind;
        let mut high = low;
        if rest.first() == Some(&b'-') && rest.get(1).is_some_and(|byte| *byte != b']') {
            (high, rest) = member(&rest[1..])?;
        }
        is_in |= (low..=high).contains(&code);
    }
}

fn member(pattern: &[u8]) -> Option<(u32, &[u8])> {
    let pattern = pattern.strip_prefix(b"\\").unwrap_or(pattern);
    let first = *pattern.first()?;
    let width =
        (1..=4).find(|width| pattern.get(..*width).is_some_and(|it| str::from_utf8(it).is_ok()));
    match width {
        Some(width) => {
            let text = str::from_utf8(&pattern[..width]).ok()?;
            Some((u32::from(text.chars().next()?), &pattern[width..]))
        }
        None => Some((u32::from(first), &pattern[1..])),
    }
}

#[cfg(test)]
mod tests;
