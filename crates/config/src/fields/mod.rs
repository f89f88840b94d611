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
//! let options = Fields::describe(read);
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
mod protection;
mod remarks;
mod scalars;
mod sections;
mod texts;

pub use describe::{Effect, OptionDoc};
pub use scalars::Integer;

use protection::EmptiedSection;

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
    known: Vec<String>,
    /// Options among them whose values are never shown.
    secrets: Vec<String>,
    /// This section, or one around it, if references left it empty.
    emptied: Option<EmptiedSection>,
    diagnostics: &'a mut Diagnostics,
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
        Self::read_within(None, path, node, span, diagnostics, read)
    }

    /// As [`Fields::read`]. `around`: an enclosing section that references left empty.
    fn read_within<T>(
        around: Option<EmptiedSection>,
        path: &str,
        node: &'a Node,
        span: Span,
        diagnostics: &'a mut Diagnostics,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> T {
        let entries = node.as_mapping().unwrap_or_default();
        if node.as_mapping().is_none() && !node.is_null() {
            let kind = node.kind();
            let message = format!("`{path}` must be a mapping of options, not {kind}");
            diagnostics.error(node.span, message);
        }
        let (known, secrets) = (Vec::new(), Vec::new());
        let emptied = EmptiedSection::of(path, node).or(around);
        let reading = Reading { entries, span, known, secrets, emptied, diagnostics };
        let mut fields = Fields { path: path.to_owned(), mode: Mode::Reading(reading) };
        let result = read(&mut fields);
        fields.report_unknown();
        result
    }

    /// Runs a read function without a file and returns its options, in the order of declaration.
    pub fn describe<T>(read: impl FnOnce(&mut Fields<'_>) -> T) -> Vec<OptionDoc> {
        let mut options = Vec::new();
        read(&mut Fields { path: String::new(), mode: Mode::Describing(&mut options) });
        options
    }

    /// True while [`Fields::describe`] runs.
    pub fn is_describing(&self) -> bool {
        matches!(self.mode, Mode::Describing(_))
    }

    /// The full name of this section.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The full name of an option of this section.
    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn find(&self, key: &str) -> Option<&'a Entry> {
        let Mode::Reading(reading) = &self.mode else { return None };
        reading.entries.iter().find(|entry| entry.key == key)
    }

    /// Declares an option and returns its entry, if the file has it.
    fn take(&mut self, key: &str, option: OptionDoc) -> Option<&'a Entry> {
        let path = self.path_of(key);
        let has_effect = !matches!(option.effect, Effect::NoEffect(_));
        match &mut self.mode {
            Mode::Describing(options) => options.push(OptionDoc { path, ..option }),
            Mode::Reading(reading) => reading.known.push(key.to_owned()),
        }
        if has_effect {
            self.refuse_emptied(key);
        }
        self.find(key)
    }

    /// Declares an option whose value is never shown.
    fn take_secret(&mut self, key: &str, kind: &str, doc: &str) -> Option<&'a Entry> {
        let entry = self.take(key, OptionDoc::new(kind, "", doc));
        let Mode::Reading(reading) = &mut self.mode else { return None };
        reading.secrets.push(key.to_owned());
        entry.inspect(|entry| mark_secret(reading.diagnostics, &entry.value))
    }

    /// Reports a finding at a place of its own, such as one that [`Fields::span_of`] gave.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if let Mode::Reading(reading) = &mut self.mode {
            reading.diagnostics.push(diagnostic);
        }
    }

    fn report_unknown(&mut self) {
        let path = std::mem::take(&mut self.path);
        let Mode::Reading(reading) = &mut self.mode else { return };
        for entry in reading.entries.iter().filter(|entry| !reading.known.contains(&entry.key)) {
            let names = reading.known.iter().map(String::as_str);
            let meant = nearest(&entry.key, names.clone());
            if meant.is_some_and(|meant| reading.secrets.iter().any(|name| name == meant)) {
                mark_secret(reading.diagnostics, &entry.value);
            }
            let hint = match meant {
                Some(name) => Some(format!("did you mean `{name}`?")),
                None => list_of_names(names),
            };
            let message = match path.as_str() {
                "" => format!("there is no top-level option `{}`", entry.key),
                path => format!("`{path}` has no option `{}`", entry.key),
            };
            let severity = reading.diagnostics.unknown_options;
            let found = Diagnostic { severity, ..Diagnostic::error(entry.key_span, message) };
            reading.diagnostics.push(found.with_hint_if(hint));
        }
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
    diagnostics.secrets.push(node.span);
    match &node.value {
        Value::Scalar(_) => {}
        Value::List(items) => items.iter().for_each(|item| mark_secret(diagnostics, item)),
        Value::Mapping(entries) => {
            entries.iter().for_each(|entry| mark_secret(diagnostics, &entry.value))
        }
    }
}

#[cfg(test)]
mod tests;
