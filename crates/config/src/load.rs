//! Reads configuration locations, merges them into one tree, and makes a [`Document`] of it.

use std::path::PathBuf;

use crate::catalog::Catalog;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::document::Document;
use crate::expand::{Environment, expand};
use crate::fields::Fields;
use crate::merge::merge;
use crate::source::{Source, Sources, Span};
use crate::yaml::{self, DEPTH_LIMIT, Entry, Node, Step, TEXT_LIMIT_BYTES, Value};

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
    let read = |location: &String| read_location(location, environment, diagnostics);
    let trees: Vec<Node> = locations.iter().filter_map(read).collect();
    // With a file missing, the rest would look incomplete, and errors about that would mislead.
    if trees.len() < locations.len() {
        return None;
    }
    let tree = trees.into_iter().reduce(|earlier, later| merge(earlier, later, diagnostics))?;
    Some(expand(tree, environment, diagnostics))
}

/// Reads a text as the options of one section, without `${…}`. For tests of components.
pub fn read_text<T>(
    path: &str,
    text: &str,
    read: impl FnOnce(&mut Fields<'_>) -> T,
) -> (T, Diagnostics) {
    let mut diagnostics = Diagnostics::default();
    let file = diagnostics.sources.add(Source::new("config.yaml", text));
    let root = Span { file, start: 0, end: 0, line: 1, column: 1 };
    let node = yaml::parse(text, file, DEPTH_LIMIT).unwrap_or_else(|error| {
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
    let read = source_at(scheme, rest, environment).inspect_err(|_| {
        if scheme == "file" {
            diagnostics.sources.unreadable.push(PathBuf::from(rest));
        }
    });
    let node = read.and_then(|source| parse_root(source, &mut diagnostics.sources));
    let node = node.map_err(|error| diagnostics.push(*error)).ok()?;
    Some(unflatten(node))
}

fn source_at(scheme: &str, rest: &str, environment: &dyn Environment) -> Step<Source> {
    let error = |message: String| Box::new(Diagnostic::error(None, message));
    match scheme {
        "file" => {
            let path = PathBuf::from(rest);
            let failed =
                |why| error(format!("the configuration file `{rest}` cannot be read: {why}"));
            let text = environment.read_file(&path, TEXT_LIMIT_BYTES as u64).map_err(failed)?;
            Ok(Source { path: Some(path), ..Source::new(rest, text) })
        }
        "env" => {
            let unset =
                || format!("the environment variable `{rest}` with the configuration is not set");
            let text = environment.variable(rest).ok_or_else(|| error(unset()))?;
            Ok(Source::new(format!("env:{rest}"), text))
        }
        "yaml" => Ok(Source::new("yaml:", rest)),
        _ => {
            let error = error(format!("configuration cannot be read from `{scheme}:`"));
            Err(Box::new(error.with_hint("give a path, `file:PATH`, `env:NAME` or `yaml:TEXT`")))
        }
    }
}

/// A scheme has at least two characters; everything else is a path.
fn split_scheme(location: &str) -> (&str, &str) {
    let is_scheme = |scheme: &str| {
        let mut bytes = scheme.bytes();
        scheme.len() > 1
            && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte))
    };
    location.split_once(':').filter(|(scheme, _)| is_scheme(scheme)).unwrap_or(("file", location))
}

fn parse_root(source: Source, sources: &mut Sources) -> Step<Node> {
    let text = source.text.clone();
    let node = yaml::parse(&text, sources.add(source), DEPTH_LIMIT)?;
    if node.is_null() || node.as_mapping().is_some() {
        return Ok(node);
    }
    let message = format!("a configuration must be a mapping, not {}", node.kind());
    Err(Box::new(Diagnostic::error(node.span, message)))
}

/// `a::b: 1` → `a: {b: 1}`, at the top level, as in the Collector.
fn unflatten(node: Node) -> Node {
    let span = node.span;
    let is_flat = |entries: &[Entry]| entries.iter().any(|entry| entry.key.contains("::"));
    let entries = match node.value {
        Value::Mapping(entries) if is_flat(&entries) => entries,
        value => return Node { value, ..node },
    };
    let single = |entry: Entry| {
        let mut names = entry.key.rsplit("::").take(DEPTH_LIMIT);
        let last = names.next().unwrap_or_default().to_owned();
        let last = Entry { key: last, ..entry };
        let nested = names.fold(last, |inner, name| {
            let key_span = inner.key_span;
            let value = Node::new(Value::Mapping(vec![inner]), key_span);
            Entry { key: name.to_owned(), key_span, value }
        });
        Node::new(Value::Mapping(vec![nested]), span)
    };
    // A merge within one text removes nothing, so it has nothing to report.
    let mut unreported = Diagnostics::default();
    let single = entries.into_iter().map(single);
    let merged = single.reduce(|earlier, later| merge(earlier, later, &mut unreported));
    merged.unwrap_or_else(|| Node::null(span))
}

#[cfg(test)]
mod tests;
