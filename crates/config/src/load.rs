//! Files → [`Document`].

use crate::catalog::Catalog;
use crate::diagnostics::Diagnostics;
use crate::document::{Component, Document};
use crate::expand::Environment;
use crate::fields::Fields;
use crate::source::{Source, Span};
use crate::yaml::{self, Node};

/// Reads the configuration at the given locations.
pub fn load(
    _locations: &[String],
    _environment: &dyn Environment,
    _catalog: &dyn Catalog,
) -> (Option<Document>, Diagnostics) {
    (None, Diagnostics::default())
}

/// Reads a component's options and reports those that it does not have.
pub fn read_component<T>(
    component: &Component,
    diagnostics: &mut Diagnostics,
    read: impl FnOnce(&mut Fields<'_>) -> T,
) -> T {
    Fields::read(&component.path, &component.node, component.span, diagnostics, read)
}

/// Reads a text as the options of one section, without `${…}`. For tests of components' read functions.
pub fn read_text<T>(path: &str, text: &str, read: impl FnOnce(&mut Fields<'_>) -> T) -> (T, Diagnostics) {
    let mut diagnostics = Diagnostics::default();
    let source = Source { name: "config.yaml".to_owned(), text: text.to_owned(), path: None, confidential: false };
    let file = diagnostics.sources.add(source);
    let root = Span { file, start: 0, end: 0, line: 1, column: 1 };
    let node = yaml::parse(text, file, &yaml::Limits::default()).unwrap_or_else(|error| {
        diagnostics.push(*error);
        Node::null(root)
    });
    let value = Fields::read(path, &node, root, &mut diagnostics, read);
    (value, diagnostics)
}
