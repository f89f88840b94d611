//! Renders findings as text.

use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{
    AnnotationKind, Group, Level, Origin, Renderer, Snippet, normalize_untrusted_str,
};

use crate::diagnostics::{Diagnostic, Diagnostics, Severity};
use crate::masking::mask_line;
use crate::source::Span;

/// A longer line is not shown: it is unreadable, and cutting it could leave half a secret unmasked.
const LINE_LIMIT_BYTES: usize = 400;

impl Diagnostics {
    /// All findings with their lines. Errors come last, where a terminal shows them.
    pub fn render(&self, colours: bool) -> String {
        let renderer = match colours {
            true => Renderer::styled().decor_style(DecorStyle::Unicode),
            false => Renderer::plain(),
        };
        let in_order = self.warnings().chain(self.errors());
        let shown =
            in_order.map(|diagnostic| renderer.render(&[self.group(diagnostic)]).to_string());
        shown.collect::<Vec<_>>().join("\n\n")
    }

    fn group<'a>(&'a self, diagnostic: &'a Diagnostic) -> Group<'a> {
        let level = match diagnostic.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        // Control characters of the input must not reach the terminal.
        let title = level.primary_title(normalize_untrusted_str(&diagnostic.message));
        let mut group = Group::with_title(title);
        if let Some(span) = diagnostic.span {
            group = self.add_place(group, span, None);
        }
        for (span, why) in &diagnostic.related {
            group = self.add_place(group, *span, Some(why));
        }
        if let Some(hint) = &diagnostic.hint {
            group = group.element(Level::HELP.message(normalize_untrusted_str(hint)));
        }
        group
    }

    /// Adds the line in which a span starts, or only its position if the line cannot be shown.
    fn add_place<'a>(&'a self, group: Group<'a>, span: Span, label: Option<&'a str>) -> Group<'a> {
        let source = self.sources.get(span.file);
        let (start, end) = (span.start as usize, span.end as usize);
        let line = line_around(&source.text, start);
        if source.confidential || line.len() > LINE_LIMIT_BYTES {
            let origin = Origin::path(source.name.as_str()).line(span.line as usize);
            let group = group.element(origin.char_column(span.column as usize));
            return match label {
                Some(label) => group.element(Level::NOTE.message(label)),
                None => group,
            };
        }
        let end = end.clamp(start, line.end.max(start));
        let secrets = self.secrets.iter().filter(|secret| secret.file == span.file);
        let secrets = secrets.map(|secret| secret.start as usize..secret.end as usize);
        let masked = mask_line(&source.text, line.clone(), secrets);
        let shown = masked.map(start - line.start..end - line.start);
        let kind = if label.is_some() { AnnotationKind::Context } else { AnnotationKind::Primary };
        let annotation = kind.span(shown).label(label);
        let snippet = Snippet::source(masked.text).line_start(span.line as usize);
        group.element(snippet.path(source.name.as_str()).annotation(annotation))
    }
}

/// The line that a byte offset lies in, without its line break.
fn line_around(text: &str, offset: usize) -> Range<usize> {
    let offset = offset.min(text.len());
    let start = text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[start..].find('\n').map_or(text.len(), |length| start + length);
    let end = if text[start..end].ends_with('\r') { end - 1 } else { end };
    start..end.max(start)
}
