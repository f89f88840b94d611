//! Operators that a compiled chain may have: what it has to know of each.

use std::borrow::Cow;

use crate::parsers::{Groups, Numbers, Token};

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
    /// Fields that a parser of its own takes from parsed attributes.
    Sections(Sections),
}

/// Fields of a record that are taken from parsed attributes, each with the name of the attribute.
#[derive(Default)]
pub(crate) struct Sections {
    pub time: Option<(String, TimeOf)>,
    pub severity: Option<(String, SeverityOf)>,
}

/// The time of a record that was observed at this time and has this value. Nothing if the value is
/// no time.
pub(crate) type TimeOf = Box<dyn Fn(&Token<'_>, i64) -> Option<i64> + Send + Sync>;

/// The severity that a value means, and its text. Nothing if the value is none.
pub(crate) type SeverityOf =
    Box<dyn for<'v> Fn(&'v Token<'_>) -> Option<(u8, Cow<'v, str>)> + Send + Sync>;

/// The format of a container runtime's lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Format {
    Docker,
    Containerd,
    Crio,
}
