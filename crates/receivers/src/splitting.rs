//! Options of receivers of log lines: where a record ends, its text, and what all records have.

use std::borrow::Cow;

use regex::bytes::Regex;
use sluice_config::{Fields, Pattern, Value};
use sluice_operators::{Label, Root};
use sluice_otlp::AnyValue;
use sluice_tail::{Boundary, Charset};

pub(crate) fn encoding(fields: &mut Fields<'_>) -> Charset {
    let kind = "an encoding";
    let doc = "`utf-8` (invalid bytes become U+FFFD), `utf-8-raw` (a record with invalid bytes has \
               a body of bytes), `nop` (bytes, not cut into lines), `ascii`, `latin-1`, \
               `utf-16le`, `utf-16be`, or any encoding of the WHATWG standard, such as `big5`.";
    let charset = fields.parsed("encoding", kind, Some("utf-8"), doc, Charset::named);
    charset.unwrap_or(Charset::Utf8)
}

/// The boundary that the option names.
pub(crate) fn multiline(fields: &mut Fields<'_>, charset: Charset) -> Option<Boundary> {
    let doc = "Cuts records at a pattern instead of at line ends. Exactly one pattern.";
    let boundary = fields.section_unless_empty("multiline", doc, read_multiline).flatten();
    if boundary.is_some() && charset == Charset::Nop {
        fields.error_at("multiline", "cannot be used with `encoding: nop`");
    }
    boundary
}

fn read_multiline(fields: &mut Fields<'_>) -> Option<Boundary> {
    let mut pattern = |key: &str, doc: &str| {
        let compile = |text: &str| match text {
            "" => Ok(None),
            text => bytes_pattern(&format!("(?m){text}")).map(Some),
        };
        fields.parsed(key, "a regular expression", None, doc, compile).flatten()
    };
    let start = pattern("line_start_pattern", "A record begins where this matches.");
    let end = pattern("line_end_pattern", "A record ends behind what this matches.");
    let omit = fields.boolean("omit_pattern", false, "Leaves out what the pattern matches.");
    match (start, end) {
        (Some(pattern), None) => Some(Boundary::Start { pattern, omit }),
        (None, Some(pattern)) => Some(Boundary::End { pattern, omit }),
        (Some(_), Some(_)) => {
            fields.error("cannot have both `line_start_pattern` and `line_end_pattern`");
            None
        }
        (None, None) => None,
    }
}

/// Behind a NUL, which is left out.
pub(crate) fn behind_nul() -> Boundary {
    match Regex::new(r"\x00") {
        Ok(pattern) => Boundary::End { pattern, omit: true },
        Err(_) => Boundary::LineFeed,
    }
}

/// A pattern of the Collector, for bytes.
pub(crate) fn bytes_pattern(text: &str) -> Result<Regex, String> {
    let pattern = Pattern::new(text)?;
    Regex::new(pattern.regex().as_str()).map_err(|error| error.to_string().replace('\n', " "))
}

/// Whether white space before and behind a record's text is kept.
pub(crate) fn white_space(fields: &mut Fields<'_>) -> (bool, bool) {
    let doc = "Keeps white space before a record's text.";
    let keeps_leading = fields.boolean("preserve_leading_whitespaces", false, doc);
    let doc = "Keeps white space behind a record's text.";
    (keeps_leading, fields.boolean("preserve_trailing_whitespaces", false, doc))
}

/// Refused records are tried again as the engine says. `what`: the text of the warning.
pub(crate) fn retry_on_failure(fields: &mut Fields<'_>, doc: &str, what: &str) {
    fields.section_or_default("retry_on_failure", doc, |fields| {
        let doc = "Always on: `false` causes a warning.";
        if !fields.boolean("enabled", true, doc) {
            fields.warn_at("enabled", &format!("has no effect: {what}"));
        }
        fields.no_effect("initial_interval", "a refusal says when to try again");
        fields.no_effect("max_interval", "a refusal says when to try again");
        fields.no_effect("max_elapsed_time", "nothing is given up");
    });
}

/// A mapping of names to texts. Those with expressions are added to the labels.
pub(crate) fn constants(
    fields: &mut Fields<'_>,
    root: Root,
    doc: &str,
    labels: &mut Vec<Label>,
) -> Vec<(String, AnyValue)> {
    let key = if root == Root::Resource { "resource" } else { "attributes" };
    let Some(node) = fields.node(key, "map of strings", doc) else { return Vec::new() };
    let entries = match &node.value {
        Value::Mapping(entries) => entries.as_slice(),
        _ if node.is_null() => &[],
        _ => {
            fields.error_at(key, "must be a mapping of names to texts");
            &[]
        }
    };
    let mut constants = Vec::new();
    for entry in entries {
        let Some(scalar) = entry.value.as_scalar() else {
            fields.error_at(key, &format!("has `{}`, which must be a text", entry.key));
            continue;
        };
        // As in the Collector, null is the empty text.
        let text = if scalar.is_null() && !scalar.expanded { "" } else { &*scalar.text };
        if text.contains("EXPR(") {
            match Label::new(root, &entry.key, text) {
                Ok(label) => {
                    for warning in label.warnings() {
                        fields.warn_at(key, &format!("is probably wrong: {warning}"));
                    }
                    labels.push(label);
                }
                Err(why) => fields.error_at(key, &format!("has a wrong `{}`: {why}", entry.key)),
            }
            continue;
        }
        constants.push((entry.key.clone(), AnyValue::String(text.to_owned())));
    }
    constants
}

/// The text of a line; its bytes if it is none.
pub(crate) fn decoded(charset: Charset, line: &[u8]) -> Result<Cow<'_, str>, Vec<u8>> {
    if matches!(charset, Charset::Utf8 | Charset::Utf8Raw)
        && let Ok(text) = str::from_utf8(line)
    {
        return Ok(Cow::Borrowed(text));
    }
    match charset {
        Charset::Nop => Err(line.to_vec()),
        _ => match String::from_utf8(charset.decode(line).into_owned()) {
            Ok(text) => Ok(Cow::Owned(text)),
            Err(error) => Err(error.into_bytes()),
        },
    }
}
