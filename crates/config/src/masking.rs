//! Keeps secrets out of the lines that messages show.
//!
//! Two nets: the ranges that the readers marked as values of secret options, and, because a file with a syntax error
//! or a misspelt option never gets that far, the names of keys that usually hold secrets.

use std::ops::Range;

const MASK: &str = "[REDACTED]";

/// Parts of key names whose values are masked whatever option they turn out to be.
const TELLING_NAMES: [&str; 14] = [
    "password",
    "passwd",
    "pasword",
    "passphrase",
    "secret",
    "token",
    "authorization",
    "auth_header",
    "api_key",
    "api-key",
    "apikey",
    "credential",
    "private_key",
    "key_pem",
];

/// Keys whose nested values are masked, all of them.
const TELLING_SECTIONS: [&str; 2] = ["headers", "endpoint_params"];

/// A line with its secrets replaced.
pub(crate) struct MaskedLine {
    pub(crate) text: String,
    /// What was replaced, in the original line's bytes.
    replaced: Vec<Range<usize>>,
}

impl MaskedLine {
    /// Where a range of the original line is in the masked one. A range that touches a mask covers it.
    pub(crate) fn map(&self, range: Range<usize>) -> Range<usize> {
        let start = self.map_offset(range.start, false);
        let end = self.map_offset(range.end, true).max(start);
        start.min(self.text.len())..end.min(self.text.len())
    }

    fn map_offset(&self, offset: usize, is_end: bool) -> usize {
        let mut shift = 0isize;
        for replaced in &self.replaced {
            if offset <= replaced.start && !(is_end && offset > replaced.start) {
                break;
            }
            let masked_start = replaced.start.wrapping_add_signed(shift);
            if offset < replaced.end || (is_end && offset == replaced.end) {
                return if is_end { masked_start + MASK.len() } else { masked_start };
            }
            shift += MASK.len() as isize - replaced.len() as isize;
        }
        offset.wrapping_add_signed(shift)
    }
}

/// Masks the line `line` of `text`; `secrets` are ranges of `text`.
pub(crate) fn mask_line(text: &str, line: Range<usize>, secrets: impl Iterator<Item = Range<usize>>) -> MaskedLine {
    let original = &text[line.clone()];
    let mut ranges: Vec<Range<usize>> = secrets
        .filter(|secret| secret.start < line.end && secret.end > line.start)
        .map(|secret| secret.start.max(line.start) - line.start..secret.end.min(line.end) - line.start)
        .collect();
    ranges.extend(telling_value(text, line));
    ranges.sort_by_key(|range| range.start);
    let mut replaced: Vec<Range<usize>> = Vec::new();
    for range in ranges.into_iter().filter(|range| !original[range.clone()].trim().is_empty()) {
        match replaced.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => replaced.push(range),
        }
    }
    let mut masked = String::new();
    let mut copied = 0;
    for range in &replaced {
        masked.push_str(&original[copied..range.start]);
        masked.push_str(MASK);
        copied = range.end;
    }
    masked.push_str(&original[copied..]);
    MaskedLine { text: masked, replaced }
}

/// The part of the line that its key's name (or that of a section around it) says is a secret.
fn telling_value(text: &str, line: Range<usize>) -> Option<Range<usize>> {
    let original = &text[line.clone()];
    let indent = indent_of(original);
    let is_inside_telling =
        enclosing_keys(&text[..line.start], indent).any(|key| is_telling_section(key) || is_telling(key));
    if is_inside_telling {
        // Inside `headers:` keys are harmless and values are not; a line without key is a value as a whole.
        let value_start = key_end(original).map_or(indent, |end| end + 1);
        return Some(trimmed(original, value_start));
    }
    // Flow mappings put several keys into one line: mask from the first telling key's value to the end of the line.
    let lower = original.to_ascii_lowercase();
    let first = TELLING_NAMES.iter().filter_map(|name| lower.find(name)).min();
    let first_section = TELLING_SECTIONS.iter().filter_map(|name| lower.find(&format!("{name}:"))).min();
    let start = first.into_iter().chain(first_section).min()?;
    let colon = original[start..].find(':')?;
    Some(trimmed(original, start + colon + 1))
}

fn trimmed(line: &str, start: usize) -> Range<usize> {
    let start = start.min(line.len());
    let value = &line[start..];
    let leading = value.len() - value.trim_start().len();
    start + leading..start + leading + value.trim().len()
}

/// Keys of the lines above that enclose a line of the given indentation, innermost first.
fn enclosing_keys(above: &str, indent: usize) -> impl Iterator<Item = &str> {
    let mut indent = indent;
    above.lines().rev().filter_map(move |line| {
        let content = line.trim_start();
        if content.is_empty() || content.starts_with('#') || indent_of(line) >= indent {
            return None;
        }
        indent = indent_of(line);
        key_end(line).map(|end| line[..end].trim_start_matches([' ', '-', '\t']).trim())
    })
}

/// Where a line's content starts; the dashes of list items count as indentation.
fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t']).len()
}

/// Position of the colon that ends a line's key.
fn key_end(line: &str) -> Option<usize> {
    line.find(": ").or_else(|| line.trim_end().ends_with(':').then(|| line.trim_end().len() - 1))
}

fn is_telling(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    TELLING_NAMES.iter().any(|name| key.contains(name))
}

fn is_telling_section(key: &str) -> bool {
    TELLING_SECTIONS.contains(&key)
}
