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

use crate::operator::Build;

/// A kind of operators.
pub(crate) struct Kind {
    pub name: &'static str,
    /// Its purpose, in sentences.
    pub doc: &'static str,
    pub read: Read,
}

/// Reads the options beside those that operators share. Nothing after an error.
pub(crate) enum Read {
    /// An operator with `output`, `if` and `on_error`.
    Plain(fn(&mut Fields<'_>) -> Option<Build>),
    /// An operator with an output for each of its routes.
    Routes(fn(&mut Fields<'_>) -> Option<Routes>),
}

/// A router, and its routes in the order of its ways out.
pub(crate) type Routes = (Build, Vec<Route>);

const fn plain(
    name: &'static str,
    doc: &'static str,
    read: fn(&mut Fields<'_>) -> Option<Build>,
) -> Kind {
    Kind { name, doc, read: Read::Plain(read) }
}

pub(crate) const KINDS: [Kind; 13] = [
    plain("add", "Sets a field to a value or to the result of an expression.", add::read),
    plain("assign_keys", "Makes a map of a list, with given keys.", assign_keys::read),
    plain("copy", "Copies a field.", copy::read),
    plain("filter", "Drops the records for which an expression holds.", filter::read),
    plain("flatten", "Moves the entries of a map up to where the map is.", flatten::read),
    plain("move", "Moves a field, which also renames it.", moving::read),
    plain("noop", "Does nothing: a place for an `output` to lead to.", noop::read),
    plain("recombine", recombine::DOC, recombine::read),
    plain(
        "regex_replace",
        "Replaces all matches of a regular expression in a string.",
        regex_replace::read,
    ),
    plain("remove", "Removes a field.", remove::read),
    plain("retain", "Keeps fields and removes all others beside them.", retain::read),
    Kind { name: "router", doc: router::DOC, read: Read::Routes(router::read) },
    plain("unquote", "Takes a string out of its quotes, with Go's escapes.", unquote::read),
];

#[cfg(test)]
mod tests;
