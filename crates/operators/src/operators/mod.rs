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
mod sanitize_utf8;
mod unquote;

use crate::operator::{Kind, Read};
use crate::parsers::PARSERS;
pub use document::document;

const fn kind(name: &'static str, summary: &'static str, read: Read) -> Kind {
    Kind { name, summary, read }
}

static OPERATORS: [Kind; 14] = [
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
        "sanitize_utf8",
        "Replaces bytes that are not UTF-8 in a text.",
        Read::Transform(sanitize_utf8::read),
    ),
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
