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

pub(crate) fn one_line(diagnostics: &Diagnostics, diagnostic: &Diagnostic) -> String {
    let severity = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let mut text = match diagnostic.span {
        Some(span) => format!("{}: {severity}: {}", place(diagnostics, span), diagnostic.message),
        None => format!("{severity}: {}", diagnostic.message),
    };
    for (span, why) in &diagnostic.related {
        text.push_str(&format!("; {why}: {}", place(diagnostics, *span)));
    }
    if let Some(hint) = &diagnostic.hint {
        text.push_str(&format!(" ({hint})"));
    }
    normalize_untrusted_str(&text).replace('\n', " ")
}

fn place(diagnostics: &Diagnostics, span: Span) -> String {
    format!("{}:{}:{}", diagnostics.sources.get(span.file).name, span.line, span.column)
}

pub(crate) fn with_snippet(
    diagnostics: &Diagnostics,
    diagnostic: &Diagnostic,
    colours: bool,
) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    // Control characters of the input must not reach the terminal.
    let mut group =
        Group::with_title(level.primary_title(normalize_untrusted_str(&diagnostic.message)));
    if let Some(span) = diagnostic.span {
        group = add_place(group, diagnostics, span, None);
    }
    for (span, why) in &diagnostic.related {
        group = add_place(group, diagnostics, *span, Some(why));
    }
    if let Some(hint) = &diagnostic.hint {
        group = group.element(Level::HELP.message(normalize_untrusted_str(hint)));
    }
    let renderer = if colours {
        Renderer::styled().decor_style(DecorStyle::Unicode)
    } else {
        Renderer::plain()
    };
    renderer.render(&[group]).to_string()
}

/// Adds the line in which a span starts, or only its position if the line cannot be shown.
fn add_place<'a>(
    group: Group<'a>,
    diagnostics: &'a Diagnostics,
    span: Span,
    label: Option<&'a str>,
) -> Group<'a> {
    let source = diagnostics.sources.get(span.file);
    let line_range = line_around(&source.text, span.start as usize);
    if source.confidential || line_range.len() > LINE_LIMIT_BYTES {
        let origin = Origin::path(source.name.as_str())
            .line(span.line as usize)
            .char_column(span.column as usize);
        return match label {
            Some(label) => group.element(origin).element(Level::NOTE.message(label)),
            None => group.element(origin),
        };
    }
    let wanted = span.start as usize
        ..(span.end as usize).clamp(span.start as usize, line_range.end.max(span.start as usize));
    let masked = mask_line(&source.text, line_range.clone(), secret_ranges(diagnostics, span));
    let shown = masked.map(wanted.start - line_range.start..wanted.end - line_range.start);
    let kind = if label.is_some() { AnnotationKind::Context } else { AnnotationKind::Primary };
    let mut annotation = kind.span(shown);
    if let Some(label) = label {
        annotation = annotation.label(label);
    }
    group.element(
        Snippet::source(masked.text)
            .line_start(span.line as usize)
            .path(source.name.as_str())
            .annotation(annotation),
    )
}

fn secret_ranges(diagnostics: &Diagnostics, span: Span) -> impl Iterator<Item = Range<usize>> {
    diagnostics
        .secrets()
        .iter()
        .filter(move |secret| secret.file == span.file)
        .map(|secret| secret.start as usize..secret.end as usize)
}

/// The line that a byte offset lies in, without its line break.
fn line_around(text: &str, offset: usize) -> Range<usize> {
    let offset = offset.min(text.len());
    let start = text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[start..].find('\n').map_or(text.len(), |length| start + length);
    let end = if text[start..end].ends_with('\r') { end - 1 } else { end };
    start..end.max(start)
}
