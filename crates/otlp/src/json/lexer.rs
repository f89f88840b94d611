//! JSON tokens (RFC 8259) of a body in memory. Strings without escapes are borrowed.

use std::str;

use super::error::{Failure, JsonReason};
use super::escape::unescape;

/// Values of unknown members may nest this deep; they are skipped recursively.
const SKIP_NESTING_LIMIT: usize = 128;

pub(super) struct Lexer<'a> {
    json: &'a [u8],
    position: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(json: &'a [u8]) -> Self {
        Lexer { json, position: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn fail<T>(&self, reason: JsonReason) -> Result<T, Failure> {
        Err(Failure::new(self.position, reason))
    }

    /// The first byte of the next token, which is not consumed.
    pub(super) fn peek(&mut self) -> Result<u8, Failure> {
        while let Some(&byte) = self.json.get(self.position) {
            match byte {
                b' ' | b'\n' | b'\t' | b'\r' => self.position += 1,
                _ => return Ok(byte),
            }
        }
        self.fail(JsonReason::UnexpectedEnd)
    }

    /// Consumes the next token if it is this punctuation mark.
    pub(super) fn take(&mut self, mark: u8) -> Result<bool, Failure> {
        let found = self.peek()? == mark;
        self.position += usize::from(found);
        Ok(found)
    }

    pub(super) fn expect(&mut self, mark: u8, what: &'static str) -> Result<(), Failure> {
        if self.take(mark)? { Ok(()) } else { self.fail(JsonReason::Expected(what)) }
    }

    /// After an element: true if another one follows, false after `end`.
    pub(super) fn more(&mut self, end: u8) -> Result<bool, Failure> {
        if self.take(b',')? {
            return Ok(true);
        }
        let what = if end == b'}' { "`,` or `}`" } else { "`,` or `]`" };
        self.expect(end, what).map(|()| false)
    }

    /// Consumes `null`, if that is next.
    pub(super) fn take_null(&mut self) -> Result<bool, Failure> {
        if self.peek()? != b'n' {
            return Ok(false);
        }
        self.literal(b"null").map(|()| true)
    }

    pub(super) fn boolean(&mut self) -> Result<bool, Failure> {
        match self.peek()? {
            b't' => self.literal(b"true").map(|()| true),
            b'f' => self.literal(b"false").map(|()| false),
            _ => self.fail(JsonReason::Expected("true or false")),
        }
    }

    /// Nothing but whitespace may follow.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        match self.peek() {
            Ok(_) => self.fail(JsonReason::TrailingData),
            Err(_) => Ok(()),
        }
    }

    fn literal(&mut self, word: &'static [u8]) -> Result<(), Failure> {
        if !self.json[self.position..].starts_with(word) {
            return self.fail(JsonReason::Expected("a JSON value"));
        }
        self.position += word.len();
        Ok(())
    }

    /// The text of a number as JSON writes it.
    pub(super) fn number(&mut self) -> Result<&'a str, Failure> {
        self.peek()?;
        let start = self.position;
        let mut end = start;
        let digits = |end: &mut usize| {
            let first = *end;
            while self.json.get(*end).is_some_and(u8::is_ascii_digit) {
                *end += 1;
            }
            *end - first
        };
        end += usize::from(self.json[end] == b'-');
        let leading_zero = self.json.get(end) == Some(&b'0');
        let integer_digits = digits(&mut end);
        let mut valid = integer_digits == 1 || (integer_digits > 1 && !leading_zero);
        if self.json.get(end) == Some(&b'.') {
            end += 1;
            valid &= digits(&mut end) > 0;
        }
        if matches!(self.json.get(end), Some(b'e' | b'E')) {
            end += 1;
            end += usize::from(matches!(self.json.get(end), Some(b'+' | b'-')));
            valid &= digits(&mut end) > 0;
        }
        match str::from_utf8(&self.json[start..end]) {
            Ok(text) if valid => {
                self.position = end;
                Ok(text)
            }
            _ => self.fail(JsonReason::Expected("a number")),
        }
    }

    /// A string: in `scratch` if it had to be unescaped or mended, else borrowed from the body.
    pub(super) fn string<'s>(&mut self, scratch: &'s mut String) -> Result<&'s str, Failure>
    where
        'a: 's,
    {
        self.expect(b'"', "a string")?;
        let first = self.plain_run()?;
        if self.json[self.position] == b'"'
            && let Ok(text) = str::from_utf8(first)
        {
            self.position += 1;
            return Ok(text);
        }
        scratch.clear();
        scratch.push_str(&String::from_utf8_lossy(first));
        while self.json[self.position] == b'\\' {
            let character = self.escape()?;
            scratch.push(character);
            let run = self.plain_run()?;
            scratch.push_str(&String::from_utf8_lossy(run));
        }
        self.position += 1;
        Ok(scratch)
    }

    /// The bytes up to the next quote or backslash, at which the position is left.
    fn plain_run(&mut self) -> Result<&'a [u8], Failure> {
        let rest = &self.json[self.position..];
        let Some(len) = memchr::memchr2(b'"', b'\\', rest) else {
            self.position = self.json.len();
            return self.fail(JsonReason::UnexpectedEnd);
        };
        let run = &rest[..len];
        if let Some(index) = run.iter().position(|&byte| byte < 0x20) {
            self.position += index;
            return self.fail(JsonReason::ControlCharacter);
        }
        self.position += len;
        Ok(run)
    }

    fn escape(&mut self) -> Result<char, Failure> {
        let rest = &self.json[self.position..];
        let Some((character, length)) = unescape(rest) else {
            let is_end = rest.len() < 2;
            let reason = if is_end { JsonReason::UnexpectedEnd } else { JsonReason::InvalidEscape };
            return self.fail(reason);
        };
        self.position += length;
        Ok(character)
    }

    /// Skips a value of any kind, checking its syntax. It lies within `depth` other values.
    pub(super) fn skip(&mut self, scratch: &mut String, depth: usize) -> Result<(), Failure> {
        if depth > SKIP_NESTING_LIMIT {
            return self.fail(JsonReason::TooDeep { limit: SKIP_NESTING_LIMIT });
        }
        match self.peek()? {
            b'"' => self.string(scratch).map(|_| ()),
            b'-' | b'0'..=b'9' => self.number().map(|_| ()),
            b't' | b'f' => self.boolean().map(|_| ()),
            b'n' => self.take_null().map(|_| ()),
            open @ (b'[' | b'{') => {
                // In ASCII, `]` and `}` are two behind their counterparts.
                let end = open + 2;
                self.position += 1;
                if self.take(end)? {
                    return Ok(());
                }
                loop {
                    if end == b'}' {
                        self.string(scratch)?;
                        self.expect(b':', "`:`")?;
                    }
                    self.skip(scratch, depth + 1)?;
                    if !self.more(end)? {
                        return Ok(());
                    }
                }
            }
            _ => self.fail(JsonReason::Expected("a JSON value")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> Result<String, JsonReason> {
        bytes(json.as_bytes())
    }

    fn bytes(json: &[u8]) -> Result<String, JsonReason> {
        let mut scratch = String::new();
        let mut lexer = Lexer::new(json);
        match lexer.string(&mut scratch) {
            Ok(text) => Ok(text.to_owned()),
            Err(failure) => Err(failure.into_error(json).reason),
        }
    }

    #[test]
    fn strings_are_unescaped() {
        assert_eq!(text(r#""plain é 😀""#).as_deref(), Ok("plain é 😀"));
        assert_eq!(
            text(r#""\"\\\/\b\f\n\r\t\u0041\u00e9""#).as_deref(),
            Ok("\"\\/\u{8}\u{c}\n\r\tAé")
        );
        assert_eq!(text(r#""a\ud83d\ude00b""#).as_deref(), Ok("a😀b"));
    }

    /// A telemetry string must not be lost for one bad character in it.
    #[test]
    fn what_is_not_unicode_is_replaced() {
        assert_eq!(text(r#""\ud83dx""#).as_deref(), Ok("\u{fffd}x"));
        assert_eq!(text(r#""\ud83d\n""#).as_deref(), Ok("\u{fffd}\n"));
        assert_eq!(text(r#""\ude00\ud83d""#).as_deref(), Ok("\u{fffd}\u{fffd}"));
        assert_eq!(bytes(b"\"a\xffb\"").as_deref(), Ok("a\u{fffd}b"));
        assert_eq!(bytes(b"\"\\n\xff\"").as_deref(), Ok("\n\u{fffd}"));
    }

    #[test]
    fn broken_strings_are_refused() {
        assert_eq!(text("\"abc"), Err(JsonReason::UnexpectedEnd));
        assert_eq!(text("\"abc\\"), Err(JsonReason::UnexpectedEnd));
        assert_eq!(text("\"a\nb\""), Err(JsonReason::ControlCharacter));
        for escape in [r#""\x""#, r#""\u12""#, r#""\u12g4""#, r#""\u+123""#, r#""\U0041""#] {
            assert_eq!(text(escape), Err(JsonReason::InvalidEscape), "{escape}");
        }
    }

    #[test]
    fn numbers_have_the_syntax_of_json() {
        for number in ["0", "-0", "12", "-1.50", "1e5", "1.5E-7", "10e+2"] {
            assert_eq!(Lexer::new(number.as_bytes()).number().expect("a number"), number);
        }
        for wrong in ["-", "01", "1.", ".5", "1e", "1e+", "+1", "NaN", "x"] {
            assert!(Lexer::new(wrong.as_bytes()).number().is_err(), "{wrong}");
        }
    }

    #[test]
    fn unknown_values_are_skipped_if_they_are_json() {
        let skip = |json: &str| {
            let mut lexer = Lexer::new(json.as_bytes());
            lexer.skip(&mut String::new(), 0).and_then(|()| lexer.end())
        };
        for valid in
            [r#" {"a":[1,-2.5e3,{"b":null}],"c":{},"d":[],"e":"\n"} "#, "true", "false", "[[[]]]"]
        {
            assert!(skip(valid).is_ok(), "{valid}");
        }
        for wrong in [
            "",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\" 1}",
            "[1}",
            "nul",
            "truex",
            "[1 2]",
            "]",
        ] {
            assert!(skip(wrong).is_err(), "{wrong}");
        }
        assert!(skip(&format!("{}{}", "[".repeat(100), "]".repeat(100))).is_ok());
        assert!(
            skip(&"[".repeat(1_000_000)).is_err(),
            "a depth bomb is refused without being followed"
        );
    }
}
