//! Parser events to a node tree: anchors, merge keys, duplicate keys, and bounds against hostile
//! files.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError, Tag};

use super::node::{Entry, Node, Scalar, ScalarValue, Value};
use super::scalar::resolve_plain;
use crate::diagnostics::Diagnostic;
use crate::source::{FileId, Span};

/// Bounds on one text.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of text.
    pub text_bytes: usize,
    /// Depth of nested lists and mappings.
    pub depth: usize,
    /// Nodes after aliases were expanded.
    pub nodes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { text_bytes: 16 << 20, depth: 64, nodes: 200_000 }
    }
}

/// Parses one document. An empty text is null.
pub fn parse(text: &str, file: FileId, limits: &Limits) -> Result<Node, Box<Diagnostic>> {
    let whole = Span { file, start: 0, end: 0, line: 1, column: 1 };
    if text.len() > limits.text_bytes {
        let message =
            format!("the text has {} bytes; at most {} are read", text.len(), limits.text_bytes);
        return Err(Box::new(Diagnostic::error(whole, message)));
    }
    let options = granit_parser::options! {
        emit_comments: false,
        emit_unresolved_aliases: true,
        flow_nesting_limit: limits.depth,
        block_nesting_limit: limits.depth,
    };
    let mut builder = Builder {
        limits,
        nodes: 0,
        open: Vec::new(),
        anchors: HashMap::new(),
        root: None,
        documents: 0,
    };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| syntax_error(&error, text, file, limits))?;
        let span = Span { end: end_of(span.end), ..start_span(file, &span.start) };
        builder.take(event, span)?;
    }
    Ok(builder.root.unwrap_or_else(|| Node::null(whole)))
}

fn start_span(file: FileId, start: &Marker) -> Span {
    let offset = end_of(*start);
    Span {
        file,
        start: offset,
        end: offset,
        line: start.line() as u32,
        column: start.col() as u32 + 1,
    }
}

/// The texts are limited to 16 MiB, so offsets fit.
fn end_of(marker: Marker) -> u32 {
    marker.byte_offset().unwrap_or(0) as u32
}

fn syntax_error(error: &ScanError, text: &str, file: FileId, limits: &Limits) -> Box<Diagnostic> {
    let span = start_span(file, error.marker());
    // The parser may stop just after the end of the text.
    let span = Span {
        start: span.start.min(text.len() as u32),
        end: span.end.min(text.len() as u32),
        ..span
    };
    let is_tab = text[span.start as usize..].starts_with('\t')
        || text[..span.start as usize].ends_with('\t');
    let (message, hint) = match error.kind() {
        ErrorKind::RecursionLimitExceeded => (too_deep(limits), None),
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation => {
            ("a tab is used for indentation".to_owned(), Some("indent with spaces"))
        }
        _ if is_tab => (
            format!("not valid YAML: {}", error.info()),
            Some("there is a tab here: indent with spaces"),
        ),
        ErrorKind::MappingValueNotAllowed | ErrorKind::InvalidColonPlacement => (
            format!("not valid YAML: {}", error.info()),
            Some("a value that has `: ` in it must be put in quotes"),
        ),
        _ => (format!("not valid YAML: {}", error.info()), None),
    };
    Box::new(Diagnostic::error(span, message).with_hint_if(hint.map(str::to_owned)))
}

fn too_deep(limits: &Limits) -> String {
    format!("lists and mappings are nested more than {} deep", limits.depth)
}

struct Builder<'l> {
    limits: &'l Limits,
    /// Nodes so far, including those of aliases.
    nodes: usize,
    /// Collections that have not ended yet, outermost first.
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored>,
    root: Option<Node>,
    documents: usize,
}

struct Open {
    span: Span,
    anchor: usize,
    /// Value of `nodes` before it.
    nodes_before: usize,
    /// The deepest nesting inside it.
    depth: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Mapping {
        entries: Vec<Entry>,
        merges: Vec<Node>,
        key: Option<Key>,
        positions: HashMap<String, usize>,
    },
}

enum Key {
    Named(String, Span),
    Merge(Span),
}

struct Anchored {
    node: Node,
    nodes: usize,
    depth: usize,
}

type Step<T = ()> = Result<T, Box<Diagnostic>>;

fn fail<T>(span: Span, message: impl Into<String>) -> Step<T> {
    Err(Box::new(Diagnostic::error(span, message)))
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: Span) -> Step {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let error = Diagnostic::error(span, "the file has several YAML documents");
                    return Err(Box::new(error.with_hint(
                        "keep one; several files can be given with several `--config`",
                    )));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                // The parser reports an absent value as `~`.
                let text = if span.start == span.end { String::new() } else { text.into_owned() };
                self.count(1, span)?;
                let key_position = self.expects_key();
                let plain = style == ScalarStyle::Plain;
                let is_merge = key_position && plain && tag.is_none() && text == "<<";
                if is_merge {
                    return self.take_key(Key::Merge(span), span);
                }
                let node =
                    Node { value: Value::Scalar(scalar(text, plain, tag.as_deref(), span)?), span };
                self.remember(anchor, &node, 1, 0);
                self.add(node, 0)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), "seq", span)?;
                self.open(span, anchor, Content::List(Vec::new()))?;
            }
            Event::MappingStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), "map", span)?;
                let content = Content::Mapping {
                    entries: Vec::new(),
                    merges: Vec::new(),
                    key: None,
                    positions: HashMap::new(),
                };
                self.open(span, anchor, content)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span)?,
            Event::Alias(id) => self.alias(id, span)?,
            Event::UnresolvedAlias(name) => {
                return fail(span, format!("there is no anchor `&{name}` before this alias"));
            }
            // Comments, and the borders of the stream and its documents.
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize, span: Span) -> Step {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > self.limits.nodes {
            let limit = self.limits.nodes;
            let message =
                format!("the document has more than {limit} values once its aliases are expanded");
            return fail(span, message);
        }
        Ok(())
    }

    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { content: Content::Mapping { key: None, .. }, .. }))
    }

    fn open(&mut self, span: Span, anchor: usize, content: Content) -> Step {
        if self.expects_key() {
            return fail(span, "a key must be a single value, not a list or a mapping");
        }
        if self.open.len() >= self.limits.depth {
            return fail(span, too_deep(self.limits));
        }
        let nodes_before = self.nodes;
        self.count(1, span)?;
        self.open.push(Open { span, anchor, nodes_before, depth: 1, content });
        Ok(())
    }

    fn close(&mut self, end: Span) -> Step {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let value = match open.content {
            Content::List(items) => Value::List(items),
            Content::Mapping { entries, merges, .. } => Value::Mapping(merge_into(entries, merges)),
        };
        let node = Node { value, span: Span { end: end.start.max(open.span.start), ..open.span } };
        self.remember(open.anchor, &node, self.nodes - open.nodes_before, open.depth);
        self.add(node, open.depth)
    }

    fn remember(&mut self, anchor: usize, node: &Node, nodes: usize, depth: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, Anchored { node: node.clone(), nodes, depth });
        }
    }

    /// Replaces the alias by its value. Nodes are counted before they are copied, because a file of
    /// few lines can expand to billions of nodes.
    fn alias(&mut self, id: usize, span: Span) -> Step {
        let Some(anchored) = self.anchors.get(&id) else {
            return fail(span, "the alias is inside the value that it refers to");
        };
        let (nodes, depth) = (anchored.nodes, anchored.depth);
        if self.open.len() + depth > self.limits.depth {
            return fail(span, too_deep(self.limits));
        }
        self.count(nodes, span)?;
        let node = self.anchors[&id].node.clone();
        self.add(node, depth)
    }

    /// Adds a finished node to the open collection: as an item, a key or a value.
    fn add(&mut self, node: Node, depth: usize) -> Step {
        if self.expects_key() {
            let span = node.span;
            return match key_text(&node) {
                Some(text) => self.take_key(Key::Named(text, span), span),
                None if node.is_null() => fail(span, "a key is empty"),
                None => fail(span, "a key must be a single value, not a list or a mapping"),
            };
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.depth = open.depth.max(depth + 1);
        match &mut open.content {
            Content::List(items) => items.push(node),
            Content::Mapping { entries, merges, key, positions } => match key.take() {
                Some(Key::Named(name, key_span)) => {
                    positions.insert(name.clone(), entries.len());
                    entries.push(Entry { key: name, key_span, value: node });
                }
                Some(Key::Merge(span)) => merges.extend(merged_mappings(node, span)?),
                None => {}
            },
        }
        Ok(())
    }

    fn take_key(&mut self, new_key: Key, span: Span) -> Step {
        let Some(Open { content: Content::Mapping { entries, key, positions, .. }, .. }) =
            self.open.last_mut()
        else {
            return Ok(());
        };
        if let Key::Named(name, _) = &new_key
            && let Some(first) = positions.get(name)
        {
            let first = entries[*first].key_span;
            let error = Diagnostic::error(
                span,
                format!("duplicate key `{name}`, first in line {}", first.line),
            );
            return Err(Box::new(error.with_related(first, "first here")));
        }
        *key = Some(new_key);
        Ok(())
    }
}

/// The value of `<<`: one mapping or a list of them.
fn merged_mappings(node: Node, span: Span) -> Step<Vec<Node>> {
    match node.value {
        Value::Mapping(_) => Ok(vec![node]),
        Value::List(items) if items.iter().all(|item| item.as_mapping().is_some()) => Ok(items),
        _ => fail(span, "`<<` takes a mapping or a list of mappings"),
    }
}

/// The mapping's own entries win, then those of earlier merged mappings.
fn merge_into(mut entries: Vec<Entry>, merges: Vec<Node>) -> Vec<Entry> {
    if merges.is_empty() {
        return entries;
    }
    let mut names: std::collections::HashSet<String> =
        entries.iter().map(|entry| entry.key.clone()).collect();
    for node in merges {
        let Value::Mapping(merged) = node.value else { continue };
        entries.extend(merged.into_iter().filter(|entry| names.insert(entry.key.clone())));
    }
    entries
}

/// Keys are strings; a number or a boolean keeps its text.
fn key_text(node: &Node) -> Option<String> {
    match &node.value {
        Value::Scalar(scalar) if scalar.is_null() => None,
        Value::Scalar(scalar) => Some(scalar.text.clone()),
        _ => None,
    }
}

fn scalar(text: String, plain: bool, tag: Option<&Tag>, span: Span) -> Step<Scalar> {
    let resolved = if plain { resolve_plain(&text) } else { ScalarValue::String };
    let Some(tag) = tag else { return Ok(Scalar { value: resolved, text, expanded: false }) };
    let forced = resolve_plain(&text);
    let value = match tag.core_suffix() {
        Some("str") => ScalarValue::String,
        Some("null") if forced == ScalarValue::Null => forced,
        Some("bool") if matches!(forced, ScalarValue::Boolean(_)) => forced,
        Some("int") if matches!(forced, ScalarValue::Integer(_) | ScalarValue::Unsigned(_)) => {
            forced
        }
        Some("float") => match forced {
            ScalarValue::Integer(value) => ScalarValue::Float(value as f64),
            ScalarValue::Unsigned(value) => ScalarValue::Float(value as f64),
            ScalarValue::Float(_) => forced,
            _ => return fail(span, "the value does not fit its tag `!!float`"),
        },
        Some(name @ ("null" | "bool" | "int")) => {
            return fail(span, format!("the value does not fit its tag `!!{name}`"));
        }
        _ if tag.original() == "!" => ScalarValue::String,
        _ => return fail(span, format!("the tag `{}` is not supported", tag.original())),
    };
    Ok(Scalar { value, text, expanded: false })
}

fn check_tag(tag: Option<&Tag>, wanted: &str, span: Span) -> Step {
    match tag {
        Some(tag) if tag.core_suffix() != Some(wanted) => {
            fail(span, format!("the tag `{}` is not supported here", tag.original()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
