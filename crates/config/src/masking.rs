//! Keeps secrets out of the lines that messages show.
//!
//! Masked are the ranges that readers marked as values of secret options, the values of keys whose
//! names usually mean a secret, and users, passwords and queries in URLs: a file with a syntax
//! error is never read that far.

use std::ops::Range;

const MASK: &str = "[REDACTED]";

/// Parts of key names; the values of such keys are always masked.
const TELLING_NAMES: &str = "password passwd pasword passphrase secret token authorization \
                             auth_header api_key api-key apikey credential private_key key_pem";

/// Keys whose nested values are masked, all of them.
const TELLING_SECTIONS: [&str; 2] = ["headers", "endpoint_params"];

/// A line with its secrets replaced.
pub(crate) struct MaskedLine {
    pub(crate) text: String,
    /// The replaced ranges, in bytes of the original line.
    replaced: Vec<Range<usize>>,
}

impl MaskedLine {
    /// Converts a range of the original line to the masked one. One that touches a mask covers it.
    pub(crate) fn map(&self, range: Range<usize>) -> Range<usize> {
        let start = self.map_offset(range.start, false);
        let end = self.map_offset(range.end, true).max(start);
        start.min(self.text.len())..end.min(self.text.len())
    }

    fn map_offset(&self, offset: usize, is_end: bool) -> usize {
        let mut shift = 0isize;
        for replaced in &self.replaced {
            if offset <= replaced.start {
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
pub(crate) fn mask_line(
    text: &str,
    line: Range<usize>,
    secrets: impl Iterator<Item = Range<usize>>,
) -> MaskedLine {
    let original = &text[line.clone()];
    let here = secrets.filter(|secret| secret.start < line.end && secret.end > line.start);
    let within = here.map(|secret| {
        secret.start.max(line.start) - line.start..secret.end.min(line.end) - line.start
    });
    let by_text = telling_value(text, line.clone()).into_iter().chain(credentials(original));
    let by_text = by_text.chain(queries(original));
    let mut ranges: Vec<Range<usize>> = within.chain(by_text).collect();
    ranges.sort_by_key(|range| range.start);
    let mut replaced: Vec<Range<usize>> = Vec::new();
    for range in ranges.into_iter().filter(|range| !original[range.clone()].trim().is_empty()) {
        match replaced.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => replaced.push(range),
        }
    }
    let mut masked = original.to_owned();
    for range in replaced.iter().rev() {
        masked.replace_range(range.clone(), MASK);
    }
    MaskedLine { text: masked, replaced }
}

/// A URL, or an endpoint without a scheme, as plans, logs and reports show it: without user and
/// password, and with `?…` in place of a query, which may have a key.
pub fn shown_url(url: &str) -> String {
    if url.starts_with("unix:") {
        return url.to_owned();
    }
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at + "://".len()));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let end = rest.find(['?', '#']);
    let shown = end.map_or_else(|| rest.to_owned(), |end| format!("{}…", &rest[..=end]));
    scheme.to_owned() + &shown
}

/// A message without the users, passwords and queries of URLs.
pub(crate) fn mask_message(mut message: String) -> String {
    if let Some(range) = credentials(&message) {
        message.replace_range(range, MASK);
    }
    for range in queries(&message).into_iter().rev() {
        message.replace_range(range, MASK);
    }
    message
}

/// All from the start of the first URL to the last `@`: a password may have any character.
fn credentials(text: &str) -> Option<Range<usize>> {
    let start = text.find("://")? + "://".len();
    text.rfind('@').filter(|end| start < *end).map(|end| start..end)
}

const QUOTES: [char; 3] = ['\'', '"', '`'];

/// The queries of all URLs: to the quote that ends a quoted URL, else to a space or a quote.
fn queries(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (at, _) in text.match_indices("://") {
        if found.last().is_some_and(|last| at < last.end) {
            continue;
        }
        let before = text[..at].trim_end_matches(|it: char| it.is_ascii_alphanumeric());
        let quote = before.chars().next_back().filter(|it| QUOTES.contains(it));
        let is_end = |it: char| match quote {
            Some(quote) => it == quote,
            None => it.is_whitespace() || QUOTES.contains(&it),
        };
        let end = text[at..].find(is_end).map_or(text.len(), |end| at + end);
        // Before an `@` it is part of a password.
        let host = text[at..end].rfind('@').map_or(at, |sign| at + sign);
        let query = text[host..end].find('?').map(|mark| host + mark + 1);
        found.extend(query.filter(|start| *start < end).map(|start| start..end));
    }
    found.extend(queries_of_endpoints(text));
    found.sort_by_key(|range| range.start);
    found.dedup_by(|next, last| next.start < last.end);
    found
}

/// The queries of endpoints without a scheme, as `host:4317?key=…`.
fn queries_of_endpoints(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let is_end = |it: char| it.is_whitespace() || QUOTES.contains(&it);
    text.match_indices('?').filter_map(move |(mark, _)| {
        let before = &text[text[..mark].rfind(is_end).map_or(0, |at| at + 1)..mark];
        let (_, port) = before.split_once(':')?;
        let end = text[mark..].find(is_end).map_or(text.len(), |end| mark + end);
        let has_port = port.starts_with(|first: char| first.is_ascii_digit());
        // As `shown_url` has it.
        let is_shown = text[mark + 1..end].starts_with('…');
        (has_port && !is_shown && mark + 1 < end).then_some(mark + 1..end)
    })
}

/// The part of the line that is a secret by the name of its key or of an enclosing section.
fn telling_value(text: &str, line: Range<usize>) -> Option<Range<usize>> {
    let original = &text[line.clone()];
    let indent = indent_of(original);
    let around: Vec<&str> = enclosing_keys(&text[..line.start], indent).collect();
    if around.iter().any(|key| TELLING_SECTIONS.contains(key) || is_telling(key)) {
        // Directly inside `headers:`, keys are no secrets. Deeper lines may be the text of a value.
        let is_pair = around.first().is_some_and(|key| TELLING_SECTIONS.contains(key));
        let value_start =
            if is_pair { key_end(original).map_or(indent, |end| end + 1) } else { indent };
        return Some(trimmed(original, value_start));
    }
    // Flow mappings have several keys in a line: mask from the first secret value to its end.
    let lower = original.to_ascii_lowercase();
    let names = TELLING_NAMES.split(' ').filter_map(|name| lower.find(name));
    let sections = TELLING_SECTIONS.iter().filter_map(|name| lower.find(&format!("{name}:")));
    let start = names.chain(sections).min()?;
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
fn enclosing_keys(above: &str, mut indent: usize) -> impl Iterator<Item = &str> {
    above.lines().rev().filter_map(move |line| {
        let content = line.trim_start();
        if content.is_empty() || content.starts_with('#') || indent_of(line) >= indent {
            return None;
        }
        indent = indent_of(line);
        key_end(line).map(|end| line[..end].trim_start_matches([' ', '-', '\t']).trim())
    })
}

/// Bytes of spaces and tabs before a line's content. The dash of a list item is content.
fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t']).len()
}

/// Position of the colon that ends a line's key.
fn key_end(line: &str) -> Option<usize> {
    line.find(": ").or_else(|| line.trim_end().ends_with(':').then(|| line.trim_end().len() - 1))
}

fn is_telling(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    TELLING_NAMES.split(' ').any(|name| key.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Masks the line that has the marker `@` (removed first).
    fn masked(text: &str) -> String {
        let position = text.find('@').unwrap();
        let text = text.replace('@', "");
        let start = text[..position].rfind('\n').map_or(0, |newline| newline + 1);
        let end = text[position..].find('\n').map_or(text.len(), |length| position + length);
        mask_line(&text, start..end, std::iter::empty()).text
    }

    /// Scenario: lines that show by their keys that they contain secrets. Guarantee: the values are
    /// not shown.
    #[test]
    fn masks_by_the_names_of_keys() {
        for (text, expected) in [
            ("pass@word: hunter2", "password: [REDACTED]"),
            ("  api_token@: 'a b'", "  api_token: [REDACTED]"),
            ("headers:@ {x-key: abc}", "headers: [REDACTED]"),
            ("headers:\n  x-any: @abc: def", "  x-any: [REDACTED]"),
            ("headers:\n  - name: a\n    value: @abc", "    [REDACTED]"),
            ("headers:\n  x-any: |\n    @line: two", "    [REDACTED]"),
            ("client_secret: |\n  @line: two", "  [REDACTED]"),
            ("auth: {user: a, password: b}@", "auth: {user: a, password: [REDACTED]"),
            ("headers:\n  a: b\nend@point: c", "endpoint: c"),
            ("endpoint@: localhost:4317", "endpoint: localhost:4317"),
        ] {
            assert_eq!(masked(text), expected, "{text}");
        }
    }

    /// Lines and messages are masked alike.
    fn assert_masked(cases: &[(&str, &str)]) {
        for &(text, expected) in cases {
            assert_eq!(mask_line(text, 0..text.len(), std::iter::empty()).text, expected);
            assert_eq!(mask_message(text.to_owned()), expected);
        }
    }

    /// Scenario: URLs with a user and a password, which may have any character. Guarantee: they are
    /// shown neither in lines nor in messages.
    #[test]
    fn masks_users_and_passwords_in_urls() {
        assert_masked(&[
            ("endpoint: https://me:p@host:1/a", "endpoint: https://[REDACTED]@host:1/a"),
            ("a: {b: 'http://me:p /?#@@host', c: 1}", "a: {b: 'http://[REDACTED]@host', c: 1}"),
            ("https://a and http://me:p@b", "https://[REDACTED]@b"),
            ("a@b: http://c", "a@b: http://c"),
            ("http://@a", "http://@a"),
        ]);
    }

    /// Guarantee: the query of a URL, which may have a key, is not shown, and what follows is.
    #[test]
    fn masks_queries_of_urls() {
        assert_masked(&[
            ("endpoint: https://a/b?token=x#y # c", "endpoint: https://a/b?[REDACTED] # c"),
            ("a: {b: 'http://a?x y', c: 1?}", "a: {b: 'http://a?[REDACTED]', c: 1?}"),
            (
                "`http://a?x` and \"https://b?y\"",
                "`http://a?[REDACTED]` and \"https://b?[REDACTED]\"",
            ),
            ("is it http://a? or https://b", "is it http://a? or https://b"),
            ("a: {b: 'c:4317/d?key=x', e: 1?}", "a: {b: 'c:4317/d?[REDACTED]', e: 1?}"),
            ("\"backend:4317?…\" and at 12:30?", "\"backend:4317?…\" and at 12:30?"),
            ("did you mean `a`?", "did you mean `a`?"),
        ]);
    }

    /// Guarantee: a URL is shown without user, password and query, and an endpoint as it is.
    #[test]
    fn urls_are_shown_without_secrets() {
        for (url, shown) in [
            ("https://me:p?/#@a:1/b?token=x@y", "https://y"),
            ("https://me:p@a:1/b?token=x", "https://a:1/b?…"),
            ("https://a/b#x?y", "https://a/b#…"),
            ("me:p@backend:4317?x", "backend:4317?…"),
            ("https://a:1/b", "https://a:1/b"),
            ("dns:///backend:4317", "dns:///backend:4317"),
            ("unix:/run/user@1/a?b", "unix:/run/user@1/a?b"),
            ("", ""),
        ] {
            assert_eq!(shown_url(url), shown);
        }
    }

    /// Scenario: ranges marked by readers. Guarantee: exactly they are replaced, and positions
    /// after them move along.
    #[test]
    fn masks_marked_ranges_and_maps_positions() {
        let text = "a: [one, two, three]";
        let masked = mask_line(text, 0..text.len(), [4..7, 9..12].into_iter());
        assert_eq!(masked.text, "a: [[REDACTED], [REDACTED], three]");
        assert_eq!(&masked.text[masked.map(0..1)], "a");
        assert_eq!(&masked.text[masked.map(14..19)], "three");
        assert_eq!(&masked.text[masked.map(4..7)], "[REDACTED]");
        assert_eq!(&masked.text[masked.map(5..6)], "[REDACTED]");
        assert_eq!(&masked.text[masked.map(9..12)], "[REDACTED]");
        assert_eq!(&masked.text[masked.map(3..20)], "[[REDACTED], [REDACTED], three]");
    }
}
