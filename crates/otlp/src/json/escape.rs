//! The escapes of JSON strings (RFC 8259, section 7).

/// The character of the escape with which the text begins, and the escape's length in bytes.
/// Nothing if there is no such escape. Two `\u` that form a surrogate pair are one escape; a
/// surrogate alone becomes U+FFFD.
pub fn unescape(text: &[u8]) -> Option<(char, usize)> {
    let character = match text.get(1).filter(|_| text[0] == b'\\')? {
        byte @ (b'"' | b'\\' | b'/') => char::from(*byte),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let first = code_unit(text)?;
            let is_half = (0xd800..0xdc00).contains(&first);
            let second = if is_half { code_unit(&text[6..]) } else { None };
            let decoded = char::decode_utf16([first, second.unwrap_or(0)]).next();
            let character = decoded.and_then(Result::ok).unwrap_or(char::REPLACEMENT_CHARACTER);
            return Some((character, 6 * character.len_utf16()));
        }
        _ => return None,
    };
    Some((character, 2))
}

/// Of `\uXXXX`.
fn code_unit(text: &[u8]) -> Option<u16> {
    let digits = text.get(..6)?.strip_prefix(b"\\u")?;
    let all_hexadecimal = digits.iter().all(u8::is_ascii_hexdigit);
    u16::from_str_radix(str::from_utf8(digits).ok().filter(|_| all_hexadecimal)?, 16).ok()
}
