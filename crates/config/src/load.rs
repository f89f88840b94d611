//! Reads configuration locations, merges them into one tree, and makes a [`Document`] of it.

use std::path::{Path, PathBuf};

use crate::catalog::Catalog;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::document::{Component, Document};
use crate::expand::{Environment, expand};
use crate::fields::Fields;
use crate::merge::merge;
use crate::source::{Source, Span};
use crate::yaml::{self, Entry, Limits, Node, Value};

/// Reads the configuration at the given locations, merged in their order. A location is a path, or,
/// as for the Collector, `file:PATH`, `env:NAME` or `yaml:TEXT` (`yaml:exporters::debug::verbosity:
/// detailed`).
///
/// A document is returned if the text could be read at all, so that the options of its components
/// can be checked too. It may be used only if the diagnostics have no errors.
pub fn load(
    locations: &[String],
    environment: &dyn Environment,
    catalog: &dyn Catalog,
) -> (Option<Document>, Diagnostics) {
    let mut diagnostics = Diagnostics::default();
    let tree = read_tree(locations, environment, &mut diagnostics);
    let document = tree.map(|tree| Document::read(&tree, catalog, &mut diagnostics));
    (document, diagnostics)
}

/// Reads, merges and expands, without interpreting the content.
pub(crate) fn read_tree(
    locations: &[String],
    environment: &dyn Environment,
    diagnostics: &mut Diagnostics,
) -> Option<Node> {
    if locations.is_empty() {
        diagnostics.error(None, "no configuration was given");
    }
    let trees: Vec<Node> = locations
        .iter()
        .filter_map(|location| read_location(location, environment, diagnostics))
        .collect();
    // With a file missing, the rest would look incomplete, and errors about that would mislead.
    if trees.len() < locations.len() {
        return None;
    }
    let tree = trees.into_iter().reduce(|earlier, later| merge(earlier, later, diagnostics))?;
    Some(expand(tree, environment, diagnostics))
}

/// Reads a component's options and reports unknown ones.
pub fn read_component<T>(
    component: &Component,
    diagnostics: &mut Diagnostics,
    read: impl FnOnce(&mut Fields<'_>) -> T,
) -> T {
    Fields::read(&component.path, &component.node, component.span, diagnostics, read)
}

/// Reads a text as the options of one section, without `${…}`. For tests of components' read
/// functions.
pub fn read_text<T>(
    path: &str,
    text: &str,
    read: impl FnOnce(&mut Fields<'_>) -> T,
) -> (T, Diagnostics) {
    let mut diagnostics = Diagnostics::default();
    let file = diagnostics.sources.add(Source::new("config.yaml", text));
    let root = Span { file, start: 0, end: 0, line: 1, column: 1 };
    let node = yaml::parse(text, file, &Limits::default()).unwrap_or_else(|error| {
        diagnostics.push(*error);
        Node::null(root)
    });
    let value = Fields::read(path, &node, root, &mut diagnostics, read);
    (value, diagnostics)
}

fn read_location(
    location: &str,
    environment: &dyn Environment,
    diagnostics: &mut Diagnostics,
) -> Option<Node> {
    let (scheme, rest) = split_scheme(location);
    match source_at(scheme, rest, environment) {
        Ok(source) => {
            let node = parse_root(source, diagnostics)?;
            Some(if scheme == "yaml" { unflatten(node) } else { node })
        }
        Err(error) => {
            if scheme == "file" {
                diagnostics.sources.add_unreadable(Path::new(rest));
            }
            diagnostics.push(*error);
            None
        }
    }
}

fn source_at(
    scheme: &str,
    rest: &str,
    environment: &dyn Environment,
) -> Result<Source, Box<Diagnostic>> {
    let error = |message: String| Box::new(Diagnostic::error(None, message));
    match scheme {
        "file" => {
            let path = PathBuf::from(rest);
            let text = environment.read_file(&path, Limits::default().text_bytes as u64);
            let text = text.map_err(|why| {
                error(format!("the configuration file `{rest}` cannot be read: {why}"))
            })?;
            Ok(Source { path: Some(path), ..Source::new(rest, text) })
        }
        "env" => match environment.variable(rest) {
            Some(text) => Ok(Source::new(format!("env:{rest}"), text)),
            None => Err(error(format!(
                "the environment variable `{rest}` with the configuration is not set"
            ))),
        },
        "yaml" => Ok(Source::new("yaml:", rest)),
        _ => {
            let error = error(format!("configuration cannot be read from `{scheme}:`"));
            Err(Box::new(error.with_hint("give a path, `file:PATH`, `env:NAME` or `yaml:TEXT`")))
        }
    }
}

/// A scheme has at least two characters; everything else is a path.
fn split_scheme(location: &str) -> (&str, &str) {
    match location.split_once(':') {
        Some((scheme, rest))
            if scheme.len() > 1
                && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
                && scheme
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte)) =>
        {
            (scheme, rest)
        }
        _ => ("file", location),
    }
}

fn parse_root(source: Source, diagnostics: &mut Diagnostics) -> Option<Node> {
    let text = source.text.clone();
    let file = diagnostics.sources.add(source);
    match yaml::parse(&text, file, &Limits::default()) {
        Ok(node) if node.is_null() || node.as_mapping().is_some() => Some(node),
        Ok(node) => {
            diagnostics.error(
                node.span,
                format!("a configuration must be a mapping, not {}", node.kind()),
            );
            None
        }
        Err(error) => {
            diagnostics.push(*error);
            None
        }
    }
}

/// `a::b: 1` → `a: {b: 1}`.
fn unflatten(node: Node) -> Node {
    let span = node.span;
    let Value::Mapping(entries) = node.value else { return node };
    let single = |entry: Entry| {
        let mut names = entry.key.rsplit("::").take(Limits::default().depth);
        let last = names.next().unwrap_or_default().to_owned();
        let mut nested = Entry { key: last, key_span: entry.key_span, value: entry.value };
        for name in names {
            let value = Node { value: Value::Mapping(vec![nested]), span: entry.key_span };
            nested = Entry { key: name.to_owned(), key_span: entry.key_span, value };
        }
        Node { value: Value::Mapping(vec![nested]), span }
    };
    // A merge within one text removes nothing, so it has nothing to report.
    let mut unreported = Diagnostics::default();
    let merged = entries
        .into_iter()
        .map(single)
        .reduce(|earlier, later| merge(earlier, later, &mut unreported));
    merged.unwrap_or_else(|| Node::null(span))
}

#[cfg(test)]
mod tests;
