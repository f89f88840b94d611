//! Remarks about options beyond their values: no effect, not there yet, wrong in combination.

use super::scalars::reference_hint;
use super::{Effect, Fields, Mode, OptionDoc, mark_secret};
use crate::diagnostics::{Diagnostic, Severity};
use crate::source::Span;
use crate::yaml::Node;

impl<'a> Fields<'a> {
    /// An option of the Collector without effect here: accepted, with a warning that says why.
    pub fn no_effect(&mut self, key: &str, why: &str) {
        let effect = Effect::NoEffect(why.to_owned());
        if self.take(key, OptionDoc { effect, ..OptionDoc::new("any", "", "") }).is_some() {
            self.warn_at(key, &format!("has no effect: {why}"));
        }
    }

    /// A component of the Collector without effect here: all its options are accepted, with one
    /// warning that says why.
    pub fn whole_has_no_effect(&mut self, why: &str) {
        self.accept_rest();
        self.warn(&format!("has no effect: {why}"));
    }

    /// Accepts all options of a section that is wrong as a whole, which an error has said.
    pub fn accept_rest(&mut self) {
        if let Mode::Reading(reading) = &mut self.mode {
            reading.known.extend(reading.entries.iter().map(|entry| entry.key.clone()));
        }
    }

    /// An option that a later release will have. Setting it is an error, except to nothing: null,
    /// false, an empty list or mapping, or a section that is not `enabled`.
    pub fn not_yet(&mut self, key: &str, what: &str) {
        let effect = Effect::NotYet(what.to_owned());
        let entry = self.take(key, OptionDoc { effect, ..OptionDoc::new("any", "", "") });
        if entry.is_some_and(|entry| !is_nothing(&entry.value)) {
            self.error_at(key, &format!("is not in this build of Sluice: {what}"));
        }
    }

    /// True if the file has the option, even empty. Does not declare it.
    pub fn is_present(&self, key: &str) -> bool {
        self.span_of(key).is_some()
    }

    /// True if the file gives the option a value, which null is not. Does not declare it.
    pub fn is_given(&self, key: &str) -> bool {
        self.find(key).is_some_and(|entry| !entry.value.is_null())
    }

    /// True if the file gives the option an empty list. Does not declare it.
    pub fn is_empty_list(&self, key: &str) -> bool {
        self.find(key).and_then(|entry| entry.value.as_list()).is_some_and(<[_]>::is_empty)
    }

    /// The position of errors about the section as a whole. None when describing.
    pub(crate) fn span(&self) -> Option<Span> {
        if let Mode::Reading(reading) = &self.mode { Some(reading.span) } else { None }
    }

    /// The position of the option's value, or of its key if the value is empty.
    pub fn span_of(&self, key: &str) -> Option<Span> {
        let entry = self.find(key)?;
        let value = entry.value.span;
        Some(if value.start < value.end { value } else { entry.key_span })
    }

    /// Never shows the option's value: it may contain a secret, which it should not.
    pub fn hide(&mut self, key: &str) {
        let entry = self.find(key);
        if let (Mode::Reading(reading), Some(entry)) = (&mut self.mode, entry) {
            mark_secret(reading.diagnostics, &entry.value);
        }
    }

    /// Reports that an option's value is wrong. The message continues "`path.key` ".
    pub fn error_at(&mut self, key: &str, message: &str) {
        self.remark(Severity::Error, Some(key), message, None);
    }

    pub fn error_at_with_hint(&mut self, key: &str, message: &str, hint: &str) {
        self.remark(Severity::Error, Some(key), message, Some(hint));
    }

    /// Reports a warning about an option. The message continues "`path.key` ".
    pub fn warn_at(&mut self, key: &str, message: &str) {
        self.remark(Severity::Warning, Some(key), message, None);
    }

    /// Reports a warning about the section as a whole. The message continues "`path` ".
    pub fn warn(&mut self, message: &str) {
        self.remark(Severity::Warning, None, message, None);
    }

    /// Reports that the section as a whole is wrong. The message continues "`path` ".
    pub fn error(&mut self, message: &str) {
        self.remark(Severity::Error, None, message, None);
    }

    pub fn error_with_hint(&mut self, message: &str, hint: &str) {
        self.remark(Severity::Error, None, message, Some(hint));
    }

    /// Reports that a required option is missing.
    pub fn error_missing(&mut self, key: &str) {
        let is_empty = self.is_present(key);
        self.error_at(key, if is_empty { "must not be empty" } else { "is required" });
    }

    /// True if an error was already reported for the option's value or something in it.
    pub(crate) fn has_error_at(&self, key: &str) -> bool {
        let (Mode::Reading(reading), Some(span)) = (&self.mode, self.span_of(key)) else {
            return false;
        };
        let mut errors = reading.diagnostics.errors().filter_map(|error| error.span);
        errors.any(|error| span.contains(error))
    }

    pub(super) fn remark(
        &mut self,
        severity: Severity,
        key: Option<&str>,
        message: &str,
        remedy: Option<&str>,
    ) {
        // That error has the cause; others about the same value would only repeat it.
        if severity == Severity::Error && key.is_some_and(|key| self.emptied_by(key).is_some()) {
            return;
        }
        let path = key.map_or_else(|| self.path.clone(), |key| self.path_of(key));
        let span = key.and_then(|key| self.span_of(key)).or(self.span());
        let scalar = key.and_then(|key| self.find(key)?.value.as_scalar());
        let scalar = scalar.filter(|_| severity == Severity::Error);
        let is_secret = matches!((&self.mode, key), (Mode::Reading(reading), Some(key))
            if reading.secrets.iter().any(|secret| secret == key));
        let hint = scalar.and_then(|scalar| reference_hint(scalar, is_secret));
        let hint = hint.or(remedy.map(str::to_owned));
        let remark = Diagnostic::error(span, format!("`{path}` {message}")).with_hint_if(hint);
        self.push(Diagnostic { severity, ..remark });
    }
}

fn is_nothing(value: &Node) -> bool {
    let is_off = |node: &Node| node.as_scalar().and_then(|it| it.as_boolean()) == Some(false);
    value.is_null()
        || is_off(value)
        || value.as_list().is_some_and(<[_]>::is_empty)
        || value.as_mapping().is_some_and(<[_]>::is_empty)
        || value.get("enabled").is_some_and(is_off)
}
