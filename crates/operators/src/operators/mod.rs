//! The kinds of operators, one file each.

mod add;
mod assign_keys;
mod copy;
mod document;
mod filter;
mod flatten;
mod moving;
mod noop;
mod recombine;
mod regex_replace;
mod remove;
mod retain;
mod router;
mod unquote;

pub use document::document;
pub(crate) use router::Route;

use sluice_config::Fields;

use crate::operator::{Stage, Transform};
use crate::parsers::PARSERS;

/// A kind of operators.
pub(crate) struct Kind {
    /// The `type` in the configuration.
    pub(crate) name: &'static str,
    /// Its purpose in sentences, for the documentation.
    pub(crate) summary: &'static str,
    pub(crate) read: Read,
}

/// Reads the options of an operator but those that all operators have (`id`, `type`, `output`,
/// `if`, `on_error`). Nothing if they are wrong, which the diagnostics say.
#[derive(Clone, Copy)]
pub(crate) enum Read {
    Transform(fn(&mut Fields<'_>) -> Option<Box<dyn Transform>>),
    Stage(fn(&mut Fields<'_>) -> Option<Box<dyn Stage>>),
    /// It has an output for each of its routes, and neither `output` nor `if` nor `on_error`.
    Router(fn(&mut Fields<'_>) -> Option<Routes>),
}

/// A router, and its routes in the order of its ways out.
pub(crate) type Routes = (Box<dyn Stage>, Vec<Route>);

const fn kind(name: &'static str, summary: &'static str, read: Read) -> Kind {
    Kind { name, summary, read }
}

static OPERATORS: [Kind; 13] = [
    kind(
        "add",
        "Sets a field to a value or to the result of an expression.",
        Read::Transform(add::read),
    ),
    kind(
        "assign_keys",
        "Makes a map of a list, with given keys.",
        Read::Transform(assign_keys::read),
    ),
    kind("copy", "Copies a field.", Read::Transform(copy::read)),
    kind("filter", "Drops the records for which an expression holds.", Read::Stage(filter::read)),
    kind(
        "flatten",
        "Moves the entries of a map up to where the map is.",
        Read::Transform(flatten::read),
    ),
    kind("move", "Moves a field, which also renames it.", Read::Transform(moving::read)),
    kind("noop", "Does nothing: a place for an `output` to lead to.", Read::Transform(noop::read)),
    kind("recombine", recombine::DOC, Read::Stage(recombine::read)),
    kind(
        "regex_replace",
        "Replaces all matches of a regular expression in a string.",
        Read::Transform(regex_replace::read),
    ),
    kind("remove", "Removes a field.", Read::Transform(remove::read)),
    kind(
        "retain",
        "Keeps fields and removes all others beside them.",
        Read::Transform(retain::read),
    ),
    kind("router", router::DOC, Read::Router(router::read)),
    kind(
        "unquote",
        "Takes a string out of its quotes, with Go's escapes.",
        Read::Transform(unquote::read),
    ),
];

/// All kinds of operators.
pub(crate) fn kinds() -> impl Iterator<Item = &'static Kind> + Clone {
    OPERATORS.iter().chain(PARSERS)
}

#[cfg(test)]
mod tests;
