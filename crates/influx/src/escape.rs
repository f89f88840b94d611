//! Backslashes: which characters they stand before depends on the part of a line.

use std::borrow::Cow;

use memchr::memchr;

/// A part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Measurement,
    /// The key or the value of a tag, or the key of a field.
    Key,
    /// A string, between its quotes.
    String,
}

impl Part {
    /// Whether a backslash before the byte belongs to it. Any other backslash stands for itself.
    fn escapes(self, byte: u8) -> bool {
        match self {
            Part::Measurement => matches!(byte, b',' | b' '),
            Part::Key => matches!(byte, b',' | b' ' | b'='),
            Part::String => matches!(byte, b'"' | b'\\'),
        }
    }
}

/// The text that `raw` stands for.
pub(crate) fn unescape(raw: &[u8], part: Part) -> Cow<'_, [u8]> {
    let Some(first) = memchr(b'\\', raw) else { return Cow::Borrowed(raw) };
    let mut text = Vec::with_capacity(raw.len());
    text.extend_from_slice(&raw[..first]);
    let mut at = first;
    while let Some(byte) = raw.get(at) {
        match raw.get(at + 1) {
            Some(next) if *byte == b'\\' && part.escapes(*next) => {
                text.push(*next);
                at += 2;
            }
            _ => {
                text.push(*byte);
                at += 1;
            }
        }
    }
    Cow::Owned(text)
}

/// Writes a text so that it reads the same. Beside strings no text ends with a backslash or has a
/// line break: backslashes at the end are left out, and a line break becomes a space.
pub(crate) fn escape(out: &mut Vec<u8>, text: &[u8], part: Part) {
    let text = match part {
        Part::String => text,
        _ => trimmed(text),
    };
    for byte in text {
        let byte = match byte {
            b'\n' if part != Part::String => b' ',
            byte => *byte,
        };
        if part.escapes(byte) {
            out.push(b'\\');
        }
        out.push(byte);
    }
}

/// Without the backslashes at the end: they would escape what follows.
pub(crate) fn trimmed(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte != b'\\').map_or(0, |last| last + 1);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backslashes_stand_for_themselves_unless_they_escape() {
        for (raw, text, part) in [
            (r"a\,b\ c\=d", r"a,b c\=d", Part::Measurement),
            (r"a\,b\ c\=d", "a,b c=d", Part::Key),
            (r"\\,", r"\,", Part::Key),
            (r"\\\ ", r"\\ ", Part::Key),
            (r"C:\temp\n", r"C:\temp\n", Part::Key),
            (r#"a\"b\\c\d"#, r#"a"b\c\d"#, Part::String),
            (r"\", r"\", Part::String),
            ("plain", "plain", Part::Key),
        ] {
            assert_eq!(unescape(raw.as_bytes(), part), text.as_bytes(), "{raw} {part:?}");
        }
    }

    #[test]
    fn a_text_that_no_line_can_have_is_changed_little() {
        let escaped = |text: &str, part| {
            let mut out = Vec::new();
            escape(&mut out, text.as_bytes(), part);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(escaped("a\nb,c", Part::Key), r"a\ b\,c");
        assert_eq!(escaped(r"share\dir\\", Part::Key), r"share\dir");
        assert_eq!(escaped(r"\", Part::Measurement), "");
        assert_eq!(escaped("a\nb\\", Part::String), "a\nb\\\\");
    }
}
