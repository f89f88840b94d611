//! The text before a sample's value: a metric's name and its labels.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

/// Why bytes are not of the format, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) at: usize,
    pub(crate) reason: &'static str,
}

pub(crate) type Result<T, E = Mistake> = std::result::Result<T, E>;

pub(crate) fn mistake<T>(at: usize, reason: &'static str) -> Result<T> {
    Err(Mistake { at, reason })
}

/// A part of a series, still escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Name(&'a [u8]),
    Label(&'a [u8], &'a [u8]),
}

/// Which braces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Series { has_name: bool },
    Exemplar,
}

/// Reads the series that starts at `start`, and answers its end. `strict` is OpenMetrics: without
/// blanks, with all commas, and without line breaks within quotes.
pub(crate) fn series<'a>(
    bytes: &'a [u8],
    start: usize,
    strict: bool,
    visit: &mut impl FnMut(Part<'a>),
) -> Result<usize> {
    let end = name_end(bytes, start, true);
    if end > start {
        visit(Part::Name(&bytes[start..end]));
    }
    let brace = if strict || end == start { end } else { after_blanks(bytes, end) };
    match bytes.get(brace) {
        Some(b'{') => {
            let of = Of::Series { has_name: end > start };
            braces(bytes, brace + 1, strict, of, visit)
        }
        _ if end > start => Ok(end),
        _ => mistake(start, "the name of a metric is expected"),
    }
}

/// Reads the labels of an exemplar behind their opening brace, and answers their end.
pub(crate) fn exemplar_labels<'a>(
    bytes: &'a [u8],
    start: usize,
    visit: &mut impl FnMut(Part<'a>),
) -> Result<usize> {
    braces(bytes, start, true, Of::Exemplar, visit)
}

fn braces<'a>(
    bytes: &'a [u8],
    start: usize,
    strict: bool,
    of: Of,
    visit: &mut impl FnMut(Part<'a>),
) -> Result<usize> {
    let skip = |at| if strict { at } else { after_blanks(bytes, at) };
    let mut has_name = of != Of::Series { has_name: false };
    let mut at = skip(start);
    loop {
        let (name, end) = match bytes.get(at) {
            Some(b'}') if has_name => return Ok(at + 1),
            Some(b'}') => return mistake(at, "a metric has no name"),
            Some(b'"') => quoted(bytes, at, strict && of == Of::Exemplar)?,
            _ => (&bytes[at..name_end(bytes, at, false)], name_end(bytes, at, false)),
        };
        if end == at {
            return mistake(at, "the name of a label is expected");
        }
        let next = skip(end);
        if bytes[at] == b'"' && matches!(bytes.get(next), Some(b',' | b'}')) && of != Of::Exemplar {
            if has_name {
                return mistake(at, "a metric has two names");
            }
            has_name = true;
            visit(Part::Name(name));
            at = if bytes[next] == b',' { skip(next + 1) } else { next };
            continue;
        }
        if bytes.get(next) != Some(&b'=') {
            return mistake(next, "= is expected behind the name of a label");
        }
        let open = skip(next + 1);
        if bytes.get(open) != Some(&b'"') {
            return mistake(open, "the value of a label is expected, in quotes");
        }
        let (value, end) = quoted(bytes, open, strict)?;
        if std::str::from_utf8(value).is_err() {
            return mistake(open, "the value of a label is not UTF-8");
        }
        visit(Part::Label(name, value));
        at = skip(end);
        match bytes.get(at) {
            Some(b',') => at = skip(at + 1),
            Some(b'}') => {}
            _ if strict => return mistake(at, "a comma or } is expected behind a label"),
            _ => {}
        }
    }
}

/// The text within the quotes that open at `open`, and the place behind them.
pub(crate) fn quoted(bytes: &[u8], open: usize, one_line: bool) -> Result<(&[u8], usize)> {
    let mut at = open + 1;
    loop {
        let Some(offset) = memchr2(b'"', b'\\', &bytes[at..]) else {
            return mistake(open, "a quote is not closed");
        };
        at += offset;
        if bytes[at] == b'"' {
            break;
        }
        if bytes.get(at + 1).is_none_or(|escaped| *escaped == b'\n') {
            return mistake(at, "a backslash stands at the end of a line");
        }
        at += 2;
    }
    let text = &bytes[open + 1..at];
    if one_line && memchr(b'\n', text).is_some() {
        return mistake(open, "a quote spans lines");
    }
    Ok((text, at + 1))
}

/// The end of the name that starts at `start`: a metric's may have colons.
pub(crate) fn name_end(bytes: &[u8], start: usize, is_metric: bool) -> usize {
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {}
            b':' if is_metric => {}
            b'0'..=b'9' if at > start => {}
            _ => break,
        }
        at += 1;
    }
    at
}

/// The first place from `at` on that has no blank.
pub(crate) fn after_blanks(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t')) {
        at += 1;
    }
    at
}

/// Replaces `\\`, `\n` and, with `quotes`, `\"`. Other backslashes stay. None if it is not UTF-8.
pub(crate) fn unescape(bytes: &[u8], quotes: bool) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(bytes).ok()?;
    if memchr(b'\\', bytes).is_none() {
        return Some(text.into());
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(char) = rest.next() {
        let replaced = match rest.as_str().as_bytes().first() {
            _ if char != '\\' => None,
            Some(b'n') => Some('\n'),
            Some(b'\\') => Some('\\'),
            Some(b'"') if quotes => Some('"'),
            _ => None,
        };
        if replaced.is_some() {
            rest.next();
        }
        out.push(replaced.unwrap_or(char));
    }
    Some(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str, strict: bool) -> Result<(Vec<String>, usize)> {
        let mut parts = Vec::new();
        let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let end = series(text.as_bytes(), 0, strict, &mut |part| {
            parts.push(match part {
                Part::Name(name) => show(name),
                Part::Label(name, value) => format!("{}={}", show(name), show(value)),
            });
        })?;
        Ok((parts, end))
    }

    #[test]
    fn names_stand_before_or_within_the_braces() {
        for strict in [false, true] {
            for (text, expected) in [
                ("a:b_1 1", &["a:b_1"][..]),
                ("a{} 1", &["a"]),
                (r#"a{b="c"} 1"#, &["a", "b=c"]),
                (r#"a{b="c",} 1"#, &["a", "b=c"]),
                (r#"a{b="c",d="e"} 1"#, &["a", "b=c", "d=e"]),
                (r#"{"a.b"} 1"#, &["a.b"]),
                (r#"{"a b",c="}"} 1"#, &["a b", "c=}"]),
                (r#"{c="d","a"} 1"#, &["c=d", "a"]),
                (r#"a{"b c"="d"} 1"#, &["a", "b c=d"]),
                (r#"a{b="\"\\x\n"} 1"#, &["a", r#"b=\"\\x\n"#]),
            ] {
                let (parts, end) = parts(text, strict).expect(text);
                assert_eq!(parts, expected, "{text}");
                assert_eq!(&text[end..], " 1", "{text}");
            }
        }
    }

    /// Guarantee: blanks, missing commas and line breaks within quotes are the older format's only.
    #[test]
    fn the_older_format_is_lenient() {
        for (text, expected) in [
            (r#"a {	b = "c" , } 1"#, &["a", "b=c"][..]),
            (r#"a{b="c"d="e"} 1"#, &["a", "b=c", "d=e"]),
            (r#"a{b="c" d="e"} 1"#, &["a", "b=c", "d=e"]),
            (r#"{ "a" } 1"#, &["a"]),
            ("a{b=\"c\nd\"} 1", &["a", "b=c\nd"]),
        ] {
            let (found, end) = parts(text, false).expect(text);
            assert_eq!(found, expected, "{text}");
            assert_eq!(&text[end..], " 1", "{text}");
            let strict = parts(text, true);
            assert!(strict.is_err() || strict == Ok((vec!["a".to_owned()], 1)), "{text}");
        }
    }

    #[test]
    fn mistakes_are_found_in_both_formats() {
        for strict in [false, true] {
            for text in [
                "",
                "1",
                "{",
                "{}",
                "{a}",
                r#"{a="b"} 1"#,
                r#"a{,b="c"}"#,
                r#"a{b="c",,d="e"}"#,
                "a{b",
                "a{b=",
                "a{b='c'}",
                "a{b=\"c",
                "a{b=c}",
                r#"a{="b"}"#,
                r#"a{b:c="d"}"#,
                r#"a{"b"}"#,
                r#"{"a","b"}"#,
                r#"{"a" b="c"}"#,
                r#"{"a","b = "c"}"#,
                "a{b=\"\\",
                "a{b=\"\\\n\"}",
                "a{b=\0\"c\"}",
                "a{b\0=\"c\"}",
                r#"a{1="b"}"#,
            ] {
                assert!(parts(text, strict).is_err(), "{text:?}");
            }
        }
        let invalid = series(b"a{b=\"\xff\"}", 0, false, &mut |_| {});
        assert_eq!(invalid, mistake(4, "the value of a label is not UTF-8"));
        assert!(series(b"a{\xff=\"b\"}", 0, false, &mut |_| {}).is_err());
    }

    #[test]
    fn an_exemplar_has_labels_only() {
        let labels = |text: &str| exemplar_labels(text.as_bytes(), 0, &mut |_| {});
        assert_eq!(labels("} 1"), Ok(1));
        assert_eq!(labels(r#"a="b",} 1"#), Ok(7));
        assert_eq!(labels(r#""a c"="b"} 1"#), Ok(10));
        for text in [r#""a"}"#, r#""a",b="c"}"#, "bb}", "a=b}", r#"a="b",,c="d"}"#, r#" a="b"}"#] {
            assert!(labels(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_known_escapes_are_replaced() {
        let text = r#"\\ \n \" \x \"#;
        assert_eq!(unescape(text.as_bytes(), true).as_deref(), Some("\\ \n \" \\x \\"));
        assert_eq!(unescape(text.as_bytes(), false).as_deref(), Some("\\ \n \\\" \\x \\"));
        assert_eq!(unescape(b"\\n\xff", true), None);
    }
}
