//! `${env:NAME}`, `${env:NAME:-default}`, `${NAME}`, `${file:PATH}`, `${yaml:TEXT}` in values, with
//! the Collector's rules:
//!
//! - A value that is one `${…}` and nothing else is read as YAML: `${PORT}` can be a number,
//!   `${LIST}` a list. An option that wants a string gets the text as it was, so that `0123` stays
//!   `0123`.
//! - Within a longer value the text is inserted, and the result is a string.
//! - Inserted text is expanded again; `${env:${NAME}}` from the inside out.
//! - `$$` stands for `$`.

use std::io::{Error, Read};
use std::path::Path;

use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::source::{FileId, Source, Span};
use crate::yaml::{self, DEPTH_LIMIT, EmptiedBy, Entry, Node, Scalar, ScalarValue, Value};

/// Access to variables and files. Tests have their own.
pub trait Environment {
    /// The value of an environment variable, if it is set.
    fn variable(&self, name: &str) -> Option<String>;

    /// The contents of a file, of at most `limit_bytes`.
    fn read_file(&self, path: &Path, limit_bytes: u64) -> std::io::Result<String>;
}

/// The process's environment and file system.
pub struct SystemEnvironment;

impl Environment for SystemEnvironment {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    }

    fn read_file(&self, path: &Path, limit_bytes: u64) -> std::io::Result<String> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(limit_bytes + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit_bytes {
            return Err(Error::other(format!("it is larger than {limit_bytes} bytes")));
        }
        String::from_utf8(bytes).map_err(|_| Error::other("it is not UTF-8 text"))
    }
}

/// The most `${…}` in one configuration, including those in inserted text.
const EXPANSIONS_LIMIT: usize = 10_000;
/// The most bytes of all intermediate results: limits time and memory of references that double.
const WORK_LIMIT_BYTES: usize = 64 << 20;
/// Longest text that one `${…}` or one value can become.
pub(crate) const TEXT_LIMIT_BYTES: u64 = 1 << 20;

/// Expands all values of a tree. Keys are not expanded, as in the Collector.
pub fn expand(node: Node, environment: &dyn Environment, diagnostics: &mut Diagnostics) -> Node {
    Expander::new(environment, diagnostics).node(node, 0)
}

struct Expander<'e> {
    environment: &'e dyn Environment,
    diagnostics: &'e mut Diagnostics,
    expansions: usize,
    work_bytes: usize,
    /// A limit was exceeded and reported; the rest is not expanded.
    exhausted: bool,
    /// A variable of this value is not set, and has a default in the file.
    took_default: bool,
}

/// The value of a `${…}`.
struct Retrieved {
    /// The text as it was.
    text: String,
    /// Set if the text is a source of its own that errors can point into.
    source: Option<FileId>,
    /// A string, whatever it would be as YAML.
    is_string: bool,
}

impl<'e> Expander<'e> {
    fn new(environment: &'e dyn Environment, diagnostics: &'e mut Diagnostics) -> Self {
        let (expansions, work_bytes, exhausted, took_default) = (0, 0, false, false);
        Expander { environment, diagnostics, expansions, work_bytes, exhausted, took_default }
    }

    fn node(&mut self, node: Node, depth: usize) -> Node {
        let span = node.span;
        let value = match node.value {
            Value::Scalar(scalar)
                if scalar.value == ScalarValue::String && scalar.text.contains('$') =>
            {
                let references = references(&scalar.text);
                let begins_with_one = scalar.text.starts_with("${");
                self.took_default = false;
                let node = self.scalar(scalar, span, depth);
                if let Some(references) = references.as_deref().filter(|_| begins_with_one) {
                    self.warn_of_no_host(&node, references);
                }
                let is_wrong = node.as_scalar().is_some_and(|it| it.is_null() && !it.expanded);
                let is_chosen = self.took_default;
                let by = references.map(|references| EmptiedBy { references, is_chosen });
                return Node { emptied_by: by.filter(|_| node.is_empty() && !is_wrong), ..node };
            }
            value @ Value::Scalar(_) => value,
            Value::List(items) => {
                Value::List(items.into_iter().map(|item| self.node(item, depth + 1)).collect())
            }
            Value::Mapping(entries) => {
                let entries = entries.into_iter();
                let expand =
                    |entry: Entry| Entry { value: self.node(entry.value, depth + 1), ..entry };
                Value::Mapping(entries.map(expand).collect())
            }
        };
        Node { value, ..node }
    }

    /// Expands one value until nothing is left to expand.
    fn scalar(&mut self, scalar: Scalar, span: Span, depth: usize) -> Node {
        let mut text = scalar.text;
        let mut expanded = scalar.expanded;
        let mut is_written = true;
        while let Some(range) = find_reference(&text) {
            if !self.charge(text.len(), span) {
                break;
            }
            let is_whole = range == (0..text.len());
            let Some(retrieved) = self.retrieve(&text[range.clone()], is_written, span) else {
                return Node::null(span);
            };
            if !is_whole {
                let reference = text[range].to_owned();
                // Replaced everywhere at once, so that long lists of the same reference stay cheap.
                text = text.replace(&reference, &retrieved.text);
                is_written = false;
                if !self.fits(text.len(), span) {
                    return Node::null(span);
                }
                continue;
            }
            let node = self.parse(&retrieved, span, depth);
            match node.value {
                Value::Scalar(Scalar { value: ScalarValue::String, .. }) => {
                    text = retrieved.text;
                    expanded = true;
                    is_written = false;
                }
                Value::Scalar(Scalar { value, .. }) => {
                    let scalar = Scalar { value, text: retrieved.text, expanded: true };
                    return Node::new(Value::Scalar(scalar), span);
                }
                _ => {
                    let text = self.text(retrieved.text, span);
                    return Node { text, ..self.node(node, depth) };
                }
            }
        }
        if is_written {
            self.warn_of_dollars(&text, span);
        }
        let scalar = Scalar { value: ScalarValue::String, text: text.replace("$$", "$"), expanded };
        Node::new(Value::Scalar(scalar), span)
    }

    /// The text of a list or a mapping, with the references in it expanded. Without a diagnostic:
    /// few options want a string there, and the list or mapping is expanded too.
    fn text(&mut self, mut text: String, span: Span) -> Option<Box<Scalar>> {
        while let Some(range) = find_reference(&text) {
            if !self.charge(text.len(), span) {
                return None;
            }
            let reference = text[range].to_owned();
            let mut unreported = Diagnostics::default();
            let mut silent = Expander::new(self.environment, &mut unreported);
            let retrieved = silent.retrieve(&reference, false, span)?;
            text = text.replace(&reference, &retrieved.text);
            if text.len() as u64 > TEXT_LIMIT_BYTES {
                return None;
            }
        }
        let (value, text) = (ScalarValue::String, text.replace("$$", "$"));
        Some(Box::new(Scalar { value, text, expanded: true }))
    }

    /// Warns of a value that was meant to have a reference and has none. Any text may be a secret:
    /// the message does not show it.
    fn warn_of_dollars(&mut self, text: &str, span: Span) {
        let (what, hint) = if has_unclosed(text) {
            ("a `${` without its `}` is taken as it stands", "close it, as in `${env:NAME}`")
        } else if starts_with_variable(text) {
            ("a `$` without braces is taken as it stands", "write `${env:NAME}` for a variable")
        } else {
            return;
        };
        let hint = format!("{hint}, `$$` for a literal `$`");
        self.diagnostics.push(Diagnostic::warning(span, what).with_hint(hint));
    }

    /// Warns of `${env:POD_IP}:4317` if nothing is left before the colon. That is no error: the
    /// Collector listens on all interfaces, too.
    fn warn_of_no_host(&mut self, node: &Node, references: &str) {
        let port = node.as_scalar().and_then(|it| it.text.trim().strip_prefix(':'));
        if port.is_some_and(|port| port.parse::<u16>().is_ok()) {
            let message = format!(
                "{references} leaves the host of this address empty: a receiver listens on all \
                 interfaces then"
            );
            let hint = format!("set {references}, or write the host as `localhost` or `0.0.0.0`");
            self.diagnostics.push(Diagnostic::warning(node.span, message).with_hint(hint));
        }
    }

    /// Reads the text as YAML; text that is not YAML is a string.
    fn parse(&mut self, retrieved: &Retrieved, span: Span, depth: usize) -> Node {
        let Retrieved { text, source, is_string } = retrieved;
        let depth_left = DEPTH_LIMIT.saturating_sub(depth);
        let parsed = (!is_string)
            .then(|| yaml::parse(text, source.unwrap_or(span.file), depth_left).ok())
            .flatten();
        let mut node = parsed.unwrap_or_else(|| {
            let (value, text) = (ScalarValue::String, text.clone());
            Node::new(Value::Scalar(Scalar { value, text, expanded: false }), span)
        });
        if source.is_none() || node.as_scalar().is_some() {
            set_spans(&mut node, span);
        }
        node
    }

    /// Counts one expansion of a text of `bytes`; false once a limit is hit.
    fn charge(&mut self, bytes: usize, span: Span) -> bool {
        self.expansions += 1;
        self.work_bytes = self.work_bytes.saturating_add(bytes);
        if self.expansions > EXPANSIONS_LIMIT || self.work_bytes > WORK_LIMIT_BYTES {
            if !self.exhausted {
                let message = "the references `${…}` of this configuration expand without end";
                let hint = "does a variable or a file refer to itself?";
                self.diagnostics.push(Diagnostic::error(span, message).with_hint(hint));
            }
            self.exhausted = true;
        }
        !self.exhausted
    }

    fn fits(&mut self, bytes: usize, span: Span) -> bool {
        let fits = bytes as u64 <= TEXT_LIMIT_BYTES;
        if !fits {
            let message = format!("this value becomes longer than {TEXT_LIMIT_BYTES} bytes");
            self.diagnostics.error(span, message);
        }
        fits
    }

    /// The value of a `${…}`. `is_written`: the file has the reference, so messages may show it.
    fn retrieve(&mut self, reference: &str, is_written: bool, span: Span) -> Option<Retrieved> {
        let inner = &reference[2..reference.len() - 1];
        let shown =
            if is_written { format!("`{reference}`") } else { "a nested `${…}`".to_owned() };
        let (scheme, rest) = inner.split_once(':').unwrap_or(("env", inner));
        match scheme {
            "env" => self.retrieve_variable(rest, &shown, span),
            "file" => self.retrieve_file(rest, &shown, span),
            "yaml" => Some(Retrieved { text: rest.to_owned(), source: None, is_string: false }),
            _ => {
                let message = format!("{shown} is not a known kind of reference");
                let hint = match rest.strip_prefix('-') {
                    Some(_) if is_written => format!("did you mean `${{env:{inner}}}`?"),
                    _ => "known are `${NAME}`, `${env:NAME}`, `${env:NAME:-default}`, \
                         `${file:PATH}` and `${yaml:TEXT}`"
                        .to_owned(),
                };
                self.diagnostics.push(Diagnostic::error(span, message).with_hint(hint));
                None
            }
        }
    }

    fn retrieve_variable(&mut self, variable: &str, shown: &str, span: Span) -> Option<Retrieved> {
        let (name, default) = variable.split_once(":-").unzip();
        let name = name.unwrap_or(variable);
        if !is_variable_name(name) {
            let message = format!("{shown} has no valid name of an environment variable");
            let hint = "names have letters, digits and `_`, and do not start with a digit; write \
                        `$$` for a literal `$`";
            self.diagnostics.push(Diagnostic::error(span, message).with_hint(hint));
            return None;
        }
        let value = self.environment.variable(name);
        let is_set = value.is_some();
        self.took_default |= !is_set && default.is_some();
        let value = value.or_else(|| default.map(str::to_owned));
        if value.is_none() {
            let message =
                format!("the environment variable `{name}` is not set and is taken as empty");
            let hint = format!("give a default with `${{env:{name}:-…}}`");
            self.diagnostics.push(Diagnostic::warning(span, message).with_hint(hint));
        }
        let text = value.unwrap_or_default();
        // A default that is written and empty is the empty string. Other empty text is null.
        let is_string = !is_set && default == Some("");
        self.fits(text.len(), span).then_some(Retrieved { text, source: None, is_string })
    }

    fn retrieve_file(&mut self, path: &str, shown: &str, span: Span) -> Option<Retrieved> {
        let (name, path) = (path, Path::new(path));
        match self.environment.read_file(path, TEXT_LIMIT_BYTES) {
            Ok(mut text) => {
                let path = Some(path.to_owned());
                let source = Source { path, confidential: true, ..Source::new(name, text.clone()) };
                let source = Some(self.diagnostics.sources.add_once(source));
                // Editors add a line break at the end of a file; it is not part of a password.
                let line = text.strip_suffix('\n');
                let line = line.map(|text| text.strip_suffix('\r').unwrap_or(text).len());
                text.truncate(line.unwrap_or(text.len()));
                Some(Retrieved { text, source, is_string: false })
            }
            Err(error) => {
                self.diagnostics.sources.unreadable.push(path.to_owned());
                self.diagnostics.error(span, format!("{shown} cannot be read: {error}"));
                None
            }
        }
    }
}

/// The innermost `${…}` that ends first and is not escaped by an odd number of `$` before it.
fn find_reference(text: &str) -> Option<std::ops::Range<usize>> {
    let mut from = 0;
    while let Some(close) = text[from..].find('}').map(|position| from + position) {
        if let Some(open) = text[from..close].rfind("${").map(|position| from + position) {
            let dollars = text[..open].bytes().rev().take_while(|byte| *byte == b'$').count();
            if dollars.is_multiple_of(2) {
                return Some(open..close + 1);
            }
        }
        from = close + 1;
    }
    None
}

/// The references of a value as it is written, for messages: "`${env:A}` and `${env:B}`". Without
/// defaults, which may be secrets.
fn references(text: &str) -> Option<Box<str>> {
    find_reference(text)?;
    let name_of = |(at, _): (usize, _)| {
        let inner = &text[at + 2..];
        let name = &inner[..inner.find(['}', '$']).unwrap_or(inner.len())];
        let name = name.split(":-").next().unwrap_or_default();
        if name.starts_with("yaml:") { "${yaml:…}".to_owned() } else { format!("${{{name}}}") }
    };
    let names = text.match_indices("${").map(name_of);
    let quoted: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    Some(quoted.join(" and ").into_boxed_str())
}

/// `${env:HOST` and the like: the last `${` that is no `$$` is not closed.
fn has_unclosed(text: &str) -> bool {
    let after = text.rfind("${").filter(|open| {
        let dollars = text[..*open].bytes().rev().take_while(|byte| *byte == b'$').count();
        dollars.is_multiple_of(2)
    });
    after.is_some_and(|open| !text[open..].contains('}'))
}

/// `$HOST` or `$HOST:4317`. Not `$apr1$…` or `$2y$…`, which are hashes.
fn starts_with_variable(text: &str) -> bool {
    bare_variable(text).is_some_and(|name| {
        text.starts_with('$')
            && !text[1..].starts_with('$')
            && !text[1 + name.len()..].contains('$')
    })
}

/// The name of the first `$NAME` without braces. `$env` is a word of the language of operators.
pub(crate) fn bare_variable(text: &str) -> Option<&str> {
    let names = text.match_indices('$').map(|(at, _)| {
        let rest = &text[at + 1..];
        let is_end = |character: char| !character.is_ascii_alphanumeric() && character != '_';
        &rest[..rest.find(is_end).unwrap_or(rest.len())]
    });
    names.into_iter().find(|name| is_variable_name(name) && *name != "env")
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn set_spans(node: &mut Node, span: Span) {
    node.span = span;
    match &mut node.value {
        Value::Scalar(_) => {}
        Value::List(items) => items.iter_mut().for_each(|item| set_spans(item, span)),
        Value::Mapping(entries) => entries.iter_mut().for_each(|entry| {
            entry.key_span = span;
            set_spans(&mut entry.value, span);
        }),
    }
}

#[cfg(test)]
pub(crate) mod tests;
