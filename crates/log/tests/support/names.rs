//! The names on a disk, and changes of them that are not on it yet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    Directory,
    File(usize),
}

/// A change of names that is not on disk yet. Changes reach the disk in order.
#[derive(Clone, Debug)]
pub enum NameChange {
    Add(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl NameChange {
    pub fn directory(&self) -> Option<&Path> {
        match self {
            NameChange::Add(path, _) | NameChange::Remove(path) | NameChange::Rename(_, path) => {
                path.parent()
            }
        }
    }

    pub fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            NameChange::Add(path, node) => {
                names.insert(path.clone(), *node);
            }
            NameChange::Remove(path) => {
                names.remove(path);
            }
            NameChange::Rename(from, to) => {
                if let Some(node) = names.remove(from) {
                    names.insert(to.clone(), node);
                }
            }
        }
    }
}
