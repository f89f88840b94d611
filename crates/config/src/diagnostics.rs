//! All errors and warnings about a configuration.

use crate::masking::mask_message;
use crate::source::{Sources, Span};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Severity {
    /// The configuration cannot be used.
    #[default]
    Error,
    /// It can be used, but part of it is probably a mistake.
    Warning,
}

/// A finding. [`Diagnostics::render`] shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    pub severity: Severity,
    /// A sentence without full stop. Never contains the value of a secret.
    pub message: String,
    pub span: Option<Span>,
    pub hint: Option<String>,
    /// Other relevant positions, each with a short reason.
    pub related: Vec<(Span, String)>,
}

impl Diagnostic {
    pub fn error(span: impl Into<Option<Span>>, message: impl Into<String>) -> Self {
        let (severity, message, span) = (Severity::Error, message.into(), span.into());
        Diagnostic { severity, message, span, hint: None, related: Vec::new() }
    }

    pub fn warning(span: impl Into<Option<Span>>, message: impl Into<String>) -> Self {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(span, message) }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn with_hint_if(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }

    #[must_use]
    pub fn with_related(mut self, span: Span, why: impl Into<String>) -> Self {
        self.related.push((span, why.into()));
        self
    }
}

/// All findings, and the texts in which to show them.
#[derive(Default)]
pub struct Diagnostics {
    pub sources: Sources,
    items: Vec<Diagnostic>,
    /// Of an option that is not known. A warning for texts that a newer program may have written.
    pub unknown_options: Severity,
    /// Ranges with values of secret options, to be masked wherever they are shown.
    pub(crate) secrets: Vec<Span>,
}

/// The most findings that are kept. A file with more is probably not a configuration.
const ITEMS_LIMIT: usize = 1000;

impl Diagnostics {
    pub fn push(&mut self, mut diagnostic: Diagnostic) {
        diagnostic.message = mask_message(diagnostic.message);
        diagnostic.hint = diagnostic.hint.map(mask_message);
        // Aliases and merges can read one line many times: report it once.
        if self.items.contains(&diagnostic) {
            return;
        }
        if self.items.len() >= ITEMS_LIMIT {
            // An error takes the place of a warning: the error decides.
            let is_warning = |item: &Diagnostic| item.severity == Severity::Warning;
            let last = self.items.iter().rposition(is_warning);
            let Some(last) = last.filter(|_| !is_warning(&diagnostic)) else { return };
            self.items.remove(last);
        }
        self.items.push(diagnostic);
    }

    pub fn error(&mut self, span: impl Into<Option<Span>>, message: impl Into<String>) {
        self.push(Diagnostic::error(span, message));
    }

    pub fn warning(&mut self, span: impl Into<Option<Span>>, message: impl Into<String>) {
        self.push(Diagnostic::warning(span, message));
    }

    /// The file and line of a span: `gateway.yaml:3`.
    pub fn place(&self, span: Span) -> String {
        format!("{}:{}", self.sources.get(span.file).name, span.line)
    }

    /// A finding on one line, for a log: `gateway.yaml:3: the message (the hint)`.
    pub fn line(&self, diagnostic: &Diagnostic) -> String {
        let place = diagnostic.span.map(|span| self.place(span) + ": ").unwrap_or_default();
        let hint = diagnostic.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        format!("{place}{}{hint}", diagnostic.message)
    }

    pub fn items(&self) -> &[Diagnostic] {
        &self.items
    }

    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.items.iter().filter(|item| item.severity == Severity::Error)
    }

    pub fn warnings(&self) -> impl Iterator<Item = &Diagnostic> {
        self.items.iter().filter(|item| item.severity == Severity::Warning)
    }

    pub fn has_errors(&self) -> bool {
        self.errors().next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: the number of kept findings is bounded, and no number of warnings hides an error.
    #[test]
    fn errors_are_kept_before_warnings() {
        let mut diagnostics = Diagnostics::default();
        for number in 0..2 * ITEMS_LIMIT {
            diagnostics.warning(None, format!("warning {number}"));
        }
        assert_eq!((diagnostics.items().len(), diagnostics.has_errors()), (ITEMS_LIMIT, false));
        for number in 0..2 * ITEMS_LIMIT {
            diagnostics.error(None, format!("error {number}"));
        }
        let (errors, warnings) = (diagnostics.errors().count(), diagnostics.warnings().count());
        assert_eq!((errors, warnings), (ITEMS_LIMIT, 0));
    }
}
