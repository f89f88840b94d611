//! The escapes of Go's literals, which those of expressions have too.

/// The meaning of an escape.
#[derive(Debug, PartialEq)]
pub(crate) enum Escape {
    /// `\n`, `\\`: a character of ASCII.
    Simple(u8),
    /// `\xff`, `\377`: a byte in Go.
    Byte(u8),
    /// `\u20ac`: the number of a character, if there is one.
    Code(u32),
}

/// Reads an escape, whose backslash was read. Returns the text behind it too. Nothing if there is
/// no such escape.
pub(crate) fn escape(text: &str) -> Option<(Escape, &str)> {
    let kind = text.chars().next()?;
    let rest = &text[kind.len_utf8()..];
    let byte = |(code, rest)| Some((Escape::Byte(u8::try_from(code).ok()?), rest));
    let code = |(code, rest)| (Escape::Code(code), rest);
    let simple = match kind {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' | '\'' | '"' => kind as u8,
        'x' => return byte(number(rest, 2, 16)?),
        '0'..='7' => return byte(number(text, 3, 8)?),
        'u' => return number(rest, 4, 16).map(code),
        'U' => return number(rest, 8, 16).map(code),
        _ => return None,
    };
    Some((Escape::Simple(simple), rest))
}

/// A number of exactly so many digits, and the text behind it.
pub(crate) fn number(text: &str, digits: usize, radix: u32) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_at_checked(digits)?;
    let all = digits.chars().all(|digit| digit.is_digit(radix));
    Some((u32::from_str_radix(digits, radix).ok().filter(|_| all)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read_with_all_their_digits() {
        for (text, expected) in [
            ("n.", Some((Escape::Simple(10), "."))),
            ("\"", Some((Escape::Simple(34), ""))),
            ("xe4x", Some((Escape::Byte(0xe4), "x"))),
            ("3770", Some((Escape::Byte(255), "0"))),
            ("u20ac1", Some((Escape::Code(0x20ac), "1"))),
            ("U0001f600", Some((Escape::Code(0x1f600), ""))),
            ("400", None),
            ("x4", None),
            ("x+4", None),
            ("u20é", None),
            ("q", None),
            ("", None),
        ] {
            assert_eq!(escape(text), expected, "{text}");
        }
    }
}
