//! Operators that a compiled chain may have: what it has to know of each.

use crate::parsers::Groups;

use crate::parsers::{Severity, Time};

pub(crate) enum Step {
    Container {
        format: Option<Format>,
        adds_metadata: bool,
    },
    Json {
        numbers: Numbers,
        sections: Sections,
    },
    /// `groups`: index and name of those with a name.
    Regex {
        pattern: Groups,
        groups: Vec<(usize, String)>,
        sections: Sections,
    },
    /// What a parser of its own takes from parsed attributes.
    Sections(Sections),
}

/// What is taken from parsed attributes, each with the name of the attribute.
#[derive(Default)]
pub(crate) struct Sections {
    pub time: Option<(String, Time)>,
    pub severity: Option<(String, Severity)>,
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
