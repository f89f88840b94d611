//! Operators that a compiled chain may have: what it has to know of each.

use crate::parsers::Groups;

pub(crate) enum Step {
    Container {
        format: Option<Format>,
        adds_metadata: bool,
    },
    Json(Numbers),
    /// `groups`: index and name of those with a name.
    Regex {
        pattern: Groups,
        groups: Vec<(usize, String)>,
    },
}

/// The format of a container runtime's lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Format {
    Docker,
    Containerd,
    Crio,
}

/// Numbers in a JSON text.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Numbers {
    /// All numbers are doubles.
    Doubles,
    /// Whole numbers of 64 bits are integers.
    Integers,
}
