//! Reads the options of one section; reading, validating and documenting an option is one call.
//!
//! ```
//! use std::time::Duration;
//! use sluice_config::Fields;
//!
//! struct Config { endpoint: String, timeout: Duration }
//!
//! fn read(fields: &mut Fields<'_>) -> Config {
//!     Config {
//!         endpoint: fields.string("endpoint", "localhost:4317", "Address to send to."),
//!         timeout: fields.duration("timeout", Duration::from_secs(5), "Deadline of one request."),
//!     }
//! }
//! let options = Fields::describe(|fields| { read(fields); });
//! assert_eq!(options[1].path, "timeout");
//! assert_eq!(options[1].default, "`5s`");
//! ```
//!
//! The same function runs in two modes. *Reading*, it returns the file's value. If that is absent
//! or wrong, it returns the default; a wrong value is among the diagnostics, which the caller
//! checks before it uses the result. *Describing*, it returns defaults and records the options. So
//! the values that a function reads must not decide which options exist.

mod collections;
mod describe;
mod remarks;
mod scalars;
mod sections;

pub use describe::{Effect, OptionDoc};
pub use scalars::Integer;

use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::nearest::nearest;
use crate::source::Span;
use crate::yaml::{Entry, Node, Value};

/// The options of one section while they are read.
pub struct Fields<'a> {
    /// For messages: `exporters.otlp/2.sending_queue`; when describing, relative to the component.
    path: String,
    mode: Mode<'a>,
}

enum Mode<'a> {
    Reading(Reading<'a>),
    Describing(&'a mut Vec<OptionDoc>),
}

struct Reading<'a> {
    entries: &'a [Entry],
    /// The position of errors about the section as a whole.
    span: Span,
    /// Every option that the read function declared.
    known: Vec<KnownName>,
    diagnostics: &'a mut Diagnostics,
}

struct KnownName {
    name: String,
    is_secret: bool,
}

impl<'a> Fields<'a> {
    /// Reads a section: runs `read`, then reports every key that it did not ask for. `path` names
    /// the section in messages; `span` is shown for errors about the section as a whole.
    pub fn read<T>(
        path: &str,
        node: &'a Node,
        span: Span,
        diagnostics: &'a mut Diagnostics,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> T {
        let entries = match &node.value {
            Value::Mapping(entries) => entries.as_slice(),
            _ if node.is_null() => &[],
            _ => {
                diagnostics.error(
                    node.span,
                    format!("`{path}` must be a mapping of options, not {}", node.kind()),
                );
                &[]
            }
        };
        Self::read_entries(path.to_owned(), entries, span, diagnostics, read)
    }

    fn read_entries<T>(
        path: String,
        entries: &'a [Entry],
        span: Span,
        diagnostics: &'a mut Diagnostics,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> T {
        let reading = Reading { entries, span, known: Vec::new(), diagnostics };
        let mut fields = Fields { path, mode: Mode::Reading(reading) };
        let result = read(&mut fields);
        fields.report_unknown();
        result
    }

    /// Runs a read function without a file and returns its options, in the order in which it
    /// declares them.
    pub fn describe(read: impl FnOnce(&mut Fields<'_>)) -> Vec<OptionDoc> {
        let mut options = Vec::new();
        read(&mut Fields { path: String::new(), mode: Mode::Describing(&mut options) });
        options
    }

    /// True while [`Fields::describe`] runs.
    pub fn is_describing(&self) -> bool {
        matches!(self.mode, Mode::Describing(_))
    }

    /// The section's name in messages.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The full name of an option of this section.
    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Declares an option and returns its entry, if the file has it.
    fn take(&mut self, key: &str, option: Declaration<'_>) -> Option<&'a Entry> {
        let path = self.path_of(key);
        match &mut self.mode {
            Mode::Describing(options) => {
                options.push(option.into_doc(path));
                None
            }
            Mode::Reading(reading) => {
                reading.known.push(KnownName { name: key.to_owned(), is_secret: option.is_secret });
                let entry = reading.find(key);
                if let (Some(entry), true) = (entry, option.is_secret) {
                    mark_secret(reading.diagnostics, &entry.value);
                }
                entry
            }
        }
    }

    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        if let Mode::Reading(reading) = &mut self.mode {
            reading.diagnostics.push(diagnostic);
        }
    }

    fn report_unknown(&mut self) {
        let path = std::mem::take(&mut self.path);
        let Mode::Reading(reading) = &mut self.mode else { return };
        for entry in reading.entries {
            if reading.known.iter().any(|known| known.name == entry.key) {
                continue;
            }
            let names = reading.known.iter().map(|known| known.name.as_str());
            let meant = nearest(&entry.key, names.clone());
            let hint = match meant {
                Some(name) => Some(format!("did you mean `{name}`?")),
                None => list_of_names(names),
            };
            let is_meant = |known: &KnownName| Some(known.name.as_str()) == meant;
            if reading.known.iter().any(|known| known.is_secret && is_meant(known)) {
                mark_secret(reading.diagnostics, &entry.value);
            }
            let message = match path.as_str() {
                "" => format!("there is no top-level option `{}`", entry.key),
                path => format!("`{path}` has no option `{}`", entry.key),
            };
            reading.diagnostics.push(Diagnostic::error(entry.key_span, message).with_hint_if(hint));
        }
    }
}

impl<'a> Reading<'a> {
    fn find(&self, key: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

/// "the options are `a`, `b` and `c`", where they are few enough to be read.
fn list_of_names<'n>(names: impl Iterator<Item = &'n str>) -> Option<String> {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => Some("it has no options".to_owned()),
        [only] => Some(format!("its only option is {only}")),
        [first @ .., last] if names.len() <= 12 => {
            Some(format!("the options are {} and {last}", first.join(", ")))
        }
        _ => None,
    }
}

fn mark_secret(diagnostics: &mut Diagnostics, node: &Node) {
    diagnostics.mark_secret(node.span);
    match &node.value {
        Value::Scalar(_) => {}
        Value::List(items) => items.iter().for_each(|item| mark_secret(diagnostics, item)),
        Value::Mapping(entries) => {
            entries.iter().for_each(|entry| mark_secret(diagnostics, &entry.value))
        }
    }
}

/// The declaration of an option.
struct Declaration<'d> {
    kind: String,
    default: String,
    doc: &'d str,
    effect: Effect,
    is_secret: bool,
}

impl<'d> Declaration<'d> {
    fn new(kind: impl Into<String>, default: impl Into<String>, doc: &'d str) -> Self {
        Declaration {
            kind: kind.into(),
            default: default.into(),
            doc,
            effect: Effect::Used,
            is_secret: false,
        }
    }

    fn without_value(effect: Effect) -> Self {
        Declaration { effect, ..Declaration::new("any", "", "") }
    }

    fn secret(kind: impl Into<String>, doc: &'d str) -> Self {
        Declaration { is_secret: true, ..Declaration::new(kind, "", doc) }
    }

    fn into_doc(self, path: String) -> OptionDoc {
        OptionDoc {
            path,
            kind: self.kind,
            default: self.default,
            doc: self.doc.to_owned(),
            effect: self.effect,
        }
    }
}

#[cfg(test)]
mod tests;
