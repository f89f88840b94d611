//! Text to tokens.

use crate::escape::{Escape, escape, number};

/// A token. Brackets and the words that are operators (`matches`, `not`, `let`) are signs.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'t> {
    Name(&'t str),
    Number(&'t str),
    Text(String),
    Bytes(Vec<u8>),
    Sign(&'t str),
    End,
}

/// Why a text is no expression, and the byte at which that shows.
#[derive(Debug)]
pub(super) struct Fault {
    pub at: usize,
    pub reason: String,
}

pub(super) type Step<T> = Result<T, Fault>;

pub(super) fn fault<T>(at: usize, reason: impl Into<String>) -> Step<T> {
    Err(Fault { at, reason: reason.into() })
}

const WORDS: [&str; 11] = [
    "in",
    "or",
    "and",
    "matches",
    "contains",
    "startsWith",
    "endsWith",
    "let",
    "if",
    "else",
    "not",
];

/// The longest come first.
const SIGNS: [&str; 37] = [
    "&&", "||", "!=", "==", "**", "<=", ">=", "?.", "??", "..", "::", "&", "!", "=", "*", "<", ">",
    "?", ".", ":", "|", "/", "#", "(", "[", "{", ")", "]", "}", ",", ";", "%", "+", "-", "^", "@",
    "~",
];

/// The tokens, each with the byte at which it begins. The last is [`Token::End`].
pub(super) fn tokens(text: &str) -> Step<Vec<(Token<'_>, usize)>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let (token, len) = match first {
            _ if first.is_whitespace() => {
                at += first.len_utf8();
                continue;
            }
            '/' if rest.starts_with("//") => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            '/' if rest.starts_with("/*") => {
                let Some(end) = rest[2..].find("*/") else {
                    return fault(at, "a comment has no end");
                };
                at += 2 + end + 2;
                continue;
            }
            '\'' | '"' => {
                let (inside, len) = quoted(rest, at)?;
                let bytes = unescape(inside, at + 1, false)?;
                (Token::Text(String::from_utf8_lossy(&bytes).into_owned()), len)
            }
            'b' | 'B' if matches!(rest.as_bytes().get(1), Some(b'\'' | b'"')) => {
                let (inside, len) = quoted(&rest[1..], at + 1)?;
                (Token::Bytes(unescape(inside, at + 2, true)?), len + 1)
            }
            '`' => raw(rest, at)?,
            _ if first.is_ascii_digit() || is_fraction(rest) => {
                let len = number_len(rest);
                if rest[len..].starts_with(is_name_part) {
                    return fault(at, "a number is not well formed");
                }
                (Token::Number(&rest[..len]), len)
            }
            _ if is_name_part(first) => {
                let len = rest.find(|next| !is_name_part(next)).unwrap_or(rest.len());
                let word = &rest[..len];
                (if WORDS.contains(&word) { Token::Sign(word) } else { Token::Name(word) }, len)
            }
            _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => (Token::Sign(&rest[..sign.len()]), sign.len()),
                None => return fault(at, format!("`{first}` has no meaning here")),
            },
        };
        tokens.push((token, at));
        at += len;
    }
    tokens.push((Token::End, text.len()));
    Ok(tokens)
}

fn is_name_part(character: char) -> bool {
    character == '_' || character == '$' || character.is_alphanumeric()
}

fn is_fraction(rest: &str) -> bool {
    rest.starts_with('.') && rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit)
}

fn number_len(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let run = |from: usize, is_digit: fn(u8) -> bool| {
        from + bytes[from..].iter().take_while(|byte| is_digit(**byte) || **byte == b'_').count()
    };
    let decimal = |byte: u8| byte.is_ascii_digit();
    if bytes[0] == b'0' && matches!(bytes.get(1), Some(b'x' | b'X' | b'o' | b'O' | b'b' | b'B')) {
        return run(2, |byte| byte.is_ascii_hexdigit());
    }
    let mut end = run(0, decimal);
    // `1..3` is a range.
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1) != Some(&b'.') {
        end = run(end + 1, decimal);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let signed = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        end = run(end + 1 + signed, decimal);
    }
    end
}

/// The text between the quotes at the start of `rest`, and the length with both quotes.
fn quoted(rest: &str, at: usize) -> Step<(&str, usize)> {
    let bytes = rest.as_bytes();
    let mut end = 1;
    while end < bytes.len() && bytes[end] != bytes[0] {
        if bytes[end] == b'\n' {
            return fault(at, "a quoted string has no end in its line");
        }
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    match rest.get(1..end) {
        Some(inside) if end < bytes.len() => Ok((inside, end + 1)),
        _ => fault(at, "a quoted string has no end"),
    }
}

/// A string in backquotes, in which two of them stand for one.
fn raw(rest: &str, at: usize) -> Step<(Token<'_>, usize)> {
    let mut text = String::new();
    let mut from = 1;
    while let Some(end) = rest[from..].find('`') {
        text.push_str(&rest[from..from + end]);
        from += end + 1;
        if !rest[from..].starts_with('`') {
            return Ok((Token::Text(text), from));
        }
        text.push('`');
        from += 1;
    }
    fault(at, "a string in backquotes has no end")
}

/// Replaces the escapes. In a string `\xff` is the character of that number, in bytes the byte.
fn unescape(text: &str, at: usize, is_bytes: bool) -> Step<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..place]);
        let at = at + text.len() - rest.len() + place;
        let behind = &rest[place + 1..];
        let (escape, behind) = escaped(behind)
            .filter(|(escape, _)| match escape {
                Escape::Code(code) => !is_bytes && *code <= u32::from(char::MAX),
                _ => true,
            })
            .ok_or_else(|| Fault {
                at,
                reason: no_escape(behind.chars().next().unwrap_or('\\')),
            })?;
        rest = behind;
        let code = match escape {
            Escape::Simple(byte) => u32::from(byte),
            Escape::Byte(byte) if is_bytes => {
                out.push(byte);
                continue;
            }
            Escape::Byte(byte) => u32::from(byte),
            Escape::Code(code) => code,
        };
        let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

/// Those of Go, and a few more.
fn escaped(text: &str) -> Option<(Escape, &str)> {
    let mark = text.as_bytes().first()?;
    match mark {
        b'`' | b'?' => Some((Escape::Simple(*mark), &text[1..])),
        b'X' => {
            let (code, rest) = number(&text[1..], 2, 16)?;
            Some((Escape::Byte(u8::try_from(code).ok()?), rest))
        }
        b'u' if text[1..].starts_with('{') => {
            let (digits, rest) = text[2..].split_once('}')?;
            let (code, _) = number(digits, digits.len(), 16).filter(|_| digits.len() <= 6)?;
            Some((Escape::Code(code), rest))
        }
        _ => escape(text),
    }
}

fn no_escape(kind: char) -> String {
    format!("`\\{kind}` is no escape: write `\\\\{kind}`, or the string in backquotes")
}
