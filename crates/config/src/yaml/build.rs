//! Parser events to a node tree: anchors, merge keys, duplicate keys, bounds on hostile files.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError, Tag};

use super::node::{Entry, Node, Scalar, ScalarValue, Value};
use super::scalar::resolve_plain;
use crate::diagnostics::Diagnostic;
use crate::source::{FileId, Span};

/// The longest text that is read.
pub(crate) const TEXT_LIMIT_BYTES: usize = 16 << 20;
/// Depth of nested lists and mappings.
pub(crate) const DEPTH_LIMIT: usize = 64;
/// Nodes after aliases were expanded.
const NODES_LIMIT: usize = 200_000;

/// Parses one document, nested at most `depth_limit` deep. An empty text is null.
pub fn parse(text: &str, file: FileId, depth_limit: usize) -> Step<Node> {
    let whole = Span { file, start: 0, end: 0, line: 1, column: 1 };
    if text.len() > TEXT_LIMIT_BYTES {
        let (bytes, limit) = (text.len(), TEXT_LIMIT_BYTES);
        return fail(whole, format!("the text has {bytes} bytes; at most {limit} are read"));
    }
    let options = granit_parser::options! {
        emit_comments: false,
        emit_unresolved_aliases: true,
        flow_nesting_limit: depth_limit,
        block_nesting_limit: depth_limit,
    };
    let mut builder = Builder { depth_limit, ..Builder::default() };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| syntax_error(&error, text, file, depth_limit))?;
        builder.take(event, span_of(file, span.start, span.end))?;
    }
    Ok(builder.root.unwrap_or_else(|| Node::null(whole)))
}

fn span_of(file: FileId, start: Marker, end: Marker) -> Span {
    // The texts are limited to 16 MiB, so offsets fit.
    let offset = |marker: Marker| marker.byte_offset().unwrap_or(0) as u32;
    let (line, column) = (start.line() as u32, start.col() as u32 + 1);
    Span { file, start: offset(start), end: offset(end), line, column }
}

fn syntax_error(error: &ScanError, text: &str, file: FileId, limit: usize) -> Box<Diagnostic> {
    let span = span_of(file, *error.marker(), *error.marker());
    // The parser may stop just after the end of the text.
    let start = span.start.min(text.len() as u32);
    let span = Span { start, end: start, ..span };
    use ErrorKind::{TabInBlockIndentation, TabInIndentation, TabNotAllowed};
    let is_tab_error =
        matches!(error.kind(), TabNotAllowed | TabInBlockIndentation | TabInIndentation)
            || error.info().ends_with("found a tab");
    if let Some(span) = tab_at(text, span, is_tab_error) {
        let error = Diagnostic::error(span, "a tab is used for indentation");
        return Box::new(error.with_hint("indent with spaces"));
    }
    let (before, after) = text.split_at(start as usize);
    let invalid = || format!("not valid YAML: {}", error.info());
    let (message, hint) = match error.kind() {
        ErrorKind::RecursionLimitExceeded => (too_deep(limit), None),
        _ if is_tab_error => ("a tab is not allowed here".to_owned(), Some("write spaces")),
        _ if after.starts_with('\t') || before.ends_with('\t') => {
            (invalid(), Some("there is a tab here: indent with spaces"))
        }
        ErrorKind::MappingValueNotAllowed | ErrorKind::InvalidColonPlacement => {
            (invalid(), Some("a value that has `: ` in it must be put in quotes"))
        }
        _ => (invalid(), None),
    };
    Box::new(Diagnostic::error(span, message).with_hint_if(hint.map(str::to_owned)))
}

/// The tab in an indentation that is the cause of an error: in its line, or in the last one before
/// that is not empty. If the error is about tabs, in the next one, or in any line before.
fn tab_at(text: &str, error: Span, is_tab_error: bool) -> Option<Span> {
    let is_full = |line: &&str| !line.trim().is_empty();
    let (before, after) = text.split_at(error.start as usize);
    let end = after.find('\n').map_or(text.len(), |at| before.len() + at);
    let mut until = text[..end].rsplit('\n');
    let (own, mut above) = (until.next(), until.filter(is_full));
    let below = text[end..].split('\n').find(is_full).filter(|_| is_tab_error);
    let last = above.next();
    let farther = above.filter(|_| is_tab_error);
    let lines = own.into_iter().chain(below).chain(last).chain(farther);
    let (line, at) = lines.into_iter().find_map(|line| {
        let indentation = line.len() - line.trim_start().len();
        Some((line, line[..indentation].find('\t')?))
    })?;
    let start = line.as_ptr() as usize - text.as_ptr() as usize;
    let number = 1 + text[..start].matches('\n').count() as u32;
    let column = 1 + line[..at].chars().count() as u32;
    let start = (start + at) as u32;
    Some(Span { start, end: start + 1, line: number, column, ..error })
}

fn too_deep(limit: usize) -> String {
    format!("lists and mappings are nested more than {limit} deep")
}

#[derive(Default)]
struct Builder {
    depth_limit: usize,
    /// Nodes so far, including those of aliases.
    nodes: usize,
    /// Collections that have not ended yet, outermost first.
    open: Vec<OpenCollection>,
    anchors: HashMap<usize, Finished>,
    root: Option<Node>,
    has_document: bool,
}

struct OpenCollection {
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
    Mapping(OpenMapping),
}

#[derive(Default)]
struct OpenMapping {
    entries: Vec<Entry>,
    merges: Vec<Node>,
    /// The key whose value comes next.
    key: Option<Key>,
    positions: HashMap<String, Span>,
}

enum Key {
    Named(String, Span),
    Merge(Span),
}

#[derive(Clone)]
struct Finished {
    node: Node,
    nodes: usize,
    depth: usize,
}

pub(crate) type Step<T = ()> = Result<T, Box<Diagnostic>>;

fn fail<T>(span: Span, message: impl Into<String>) -> Step<T> {
    Err(Box::new(Diagnostic::error(span, message)))
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Step {
        match event {
            Event::DocumentStart(..) if self.has_document => {
                let error = Diagnostic::error(span, "the file has several YAML documents");
                let hint = "keep one; several files can be given with several `--config`";
                Err(Box::new(error.with_hint(hint)))
            }
            Event::DocumentStart(..) => {
                self.has_document = true;
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                // The parser reports an absent value as `~`.
                let text = if span.start == span.end { String::new() } else { text.into_owned() };
                self.count(1, span)?;
                let plain = style == ScalarStyle::Plain;
                if let Some(mapping) = self.mapping_without_key()
                    && (plain && tag.is_none() && text == "<<")
                {
                    mapping.key = Some(Key::Merge(span));
                    return Ok(());
                }
                let value = Value::Scalar(scalar(text, plain, tag.as_deref(), span)?);
                self.finish(anchor, Finished { node: Node::new(value, span), nodes: 1, depth: 0 })
            }
            Event::SequenceStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), "seq", span)?;
                self.open(span, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), "map", span)?;
                self.open(span, anchor, Content::Mapping(OpenMapping::default()))
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span),
            Event::Alias(id) => self.alias(id, span),
            Event::UnresolvedAlias(name) => {
                fail(span, format!("there is no anchor `&{name}` before this alias"))
            }
            // Comments, and the borders of the stream and its documents.
            _ => Ok(()),
        }
    }

    fn count(&mut self, nodes: usize, span: Span) -> Step {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > NODES_LIMIT {
            let message = format!(
                "the document has more than {NODES_LIMIT} values once its aliases are expanded"
            );
            return fail(span, message);
        }
        Ok(())
    }

    /// The innermost collection, if it is a mapping that waits for a key.
    fn mapping_without_key(&mut self) -> Option<&mut OpenMapping> {
        match &mut self.open.last_mut()?.content {
            Content::Mapping(mapping) if mapping.key.is_none() => Some(mapping),
            _ => None,
        }
    }

    fn open(&mut self, span: Span, anchor: usize, content: Content) -> Step {
        if self.mapping_without_key().is_some() {
            return fail(span, "a key must be a single value, not a list or a mapping");
        }
        if self.open.len() >= self.depth_limit {
            return fail(span, too_deep(self.depth_limit));
        }
        let nodes_before = self.nodes;
        self.count(1, span)?;
        self.open.push(OpenCollection { span, anchor, nodes_before, depth: 1, content });
        Ok(())
    }

    fn close(&mut self, end: Span) -> Step {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let value = match open.content {
            Content::List(items) => Value::List(items),
            Content::Mapping(mapping) => Value::Mapping(mapping.merged()),
        };
        let span = Span { end: end.start.max(open.span.start), ..open.span };
        let (nodes, depth) = (self.nodes - open.nodes_before, open.depth);
        self.finish(open.anchor, Finished { node: Node::new(value, span), nodes, depth })
    }

    fn finish(&mut self, anchor: usize, finished: Finished) -> Step {
        if anchor != 0 {
            self.anchors.insert(anchor, finished.clone());
        }
        self.add(finished.node, finished.depth)
    }

    /// Replaces the alias by its value. Nodes are counted before they are copied, because a file of
    /// few lines can expand to billions of nodes.
    fn alias(&mut self, id: usize, span: Span) -> Step {
        let Some(&Finished { nodes, depth, .. }) = self.anchors.get(&id) else {
            return fail(span, "the alias is inside the value that it refers to");
        };
        if self.open.len() + depth > self.depth_limit {
            return fail(span, too_deep(self.depth_limit));
        }
        self.count(nodes, span)?;
        self.add(self.anchors[&id].node.clone(), depth)
    }

    /// Adds a finished node to the open collection: as an item, a key or a value.
    fn add(&mut self, node: Node, depth: usize) -> Step {
        if let Some(mapping) = self.mapping_without_key() {
            return mapping.take_key(&node);
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.depth = open.depth.max(depth + 1);
        match &mut open.content {
            Content::List(items) => items.push(node),
            Content::Mapping(mapping) => match mapping.key.take() {
                Some(Key::Named(key, key_span)) => {
                    mapping.positions.insert(key.clone(), key_span);
                    mapping.entries.push(Entry { key, key_span, value: node });
                }
                Some(Key::Merge(span)) => mapping.merges.extend(merged_mappings(node, span)?),
                None => {}
            },
        }
        Ok(())
    }
}

impl OpenMapping {
    /// Keys are strings; a number or a boolean keeps its text.
    fn take_key(&mut self, node: &Node) -> Step {
        let span = node.span;
        let name = match &node.value {
            Value::Scalar(scalar) if scalar.is_null() => return fail(span, "a key is empty"),
            Value::Scalar(scalar) => scalar.text.clone(),
            _ => return fail(span, "a key must be a single value, not a list or a mapping"),
        };
        if let Some(first) = self.positions.get(&name) {
            let message = format!("duplicate key `{name}`, first in line {}", first.line);
            let error = Diagnostic::error(span, message);
            return Err(Box::new(error.with_related(*first, "first here")));
        }
        self.key = Some(Key::Named(name, span));
        Ok(())
    }

    /// The mapping's own entries win, then those of earlier merged mappings.
    fn merged(self) -> Vec<Entry> {
        let OpenMapping { mut entries, merges, mut positions, .. } = self;
        for node in merges {
            let Value::Mapping(merged) = node.value else { continue };
            let is_new = |it: &Entry| positions.insert(it.key.clone(), it.key_span).is_none();
            entries.extend(merged.into_iter().filter(is_new));
        }
        entries
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

fn scalar(text: String, plain: bool, tag: Option<&Tag>, span: Span) -> Step<Scalar> {
    let scalar = Scalar { value: resolve_plain(&text), text, expanded: false };
    let resolved = scalar.value;
    let fitting = |fits: bool| fits.then_some(resolved);
    let name = tag.and_then(Tag::core_suffix);
    let value = match (tag, name) {
        (None, _) if plain => Some(resolved),
        (None, _) | (_, Some("str")) => Some(ScalarValue::String),
        (_, Some("null")) => fitting(resolved == ScalarValue::Null),
        (_, Some("bool")) => fitting(matches!(resolved, ScalarValue::Boolean(_))),
        (_, Some("int")) => fitting(matches!(resolved, ScalarValue::Integer(_))),
        (_, Some("float")) => scalar.as_float().map(ScalarValue::Float),
        (Some(tag), _) if tag.original() == "!" => Some(ScalarValue::String),
        (Some(tag), _) => {
            return fail(span, format!("the tag `{}` is not supported", tag.original()));
        }
    };
    match value {
        Some(value) => Ok(Scalar { value, ..scalar }),
        None => {
            let name = name.unwrap_or_default();
            fail(span, format!("the value does not fit its tag `!!{name}`"))
        }
    }
}

fn check_tag(tag: Option<&Tag>, wanted: &str, span: Span) -> Step {
    match tag.filter(|tag| tag.core_suffix() != Some(wanted)) {
        Some(tag) => fail(span, format!("the tag `{}` is not supported here", tag.original())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
