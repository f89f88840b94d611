//! Reads JSON into values, as leniently as the Collector's library: control characters in strings,
//! such as tabs, and halves of surrogate pairs occur in logs.

use sluice_otlp::AnyValue;

use super::values::{Map, keep_last};

/// Values nest this deep: as OTLP, with the request around them, they stay within its limit.
const DEPTH_LIMIT: usize = 24;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Numbers {
    /// All numbers are doubles.
    Doubles,
    /// Whole numbers of 64 bits are integers.
    Integers,
}

/// A place in a JSON text.
pub(super) struct Json<'t> {
    text: &'t str,
    place: usize,
    numbers: Numbers,
}

type Result<T> = std::result::Result<T, String>;

impl<'t> Json<'t> {
    pub(super) fn new(text: &'t str, numbers: Numbers) -> Json<'t> {
        Json { text, place: 0, numbers }
    }

    /// The object that the text begins with; `null` is an empty one.
    pub(super) fn object(&mut self) -> Result<Map> {
        match self.peek() {
            Some(b'{') => self.map(0),
            Some(b'n') => self.word("null").map(|()| Map::new()),
            _ => Err(self.wrong("an object")),
        }
    }

    /// The elements of the array that the text begins with, each as `read` reads it.
    pub(super) fn array<T>(
        &mut self,
        mut read: impl FnMut(&mut Json<'t>) -> Result<T>,
    ) -> Result<Vec<T>> {
        if self.peek() != Some(b'[') {
            return Err(self.wrong("an array"));
        }
        self.place += 1;
        let mut values = Vec::new();
        if self.take(b']') {
            return Ok(values);
        }
        loop {
            values.push(read(self)?);
            if self.take(b']') {
                return Ok(values);
            }
            if !self.take(b',') {
                return Err(self.wrong("`,` or `]`"));
            }
        }
    }

    /// Nothing but whitespace may follow.
    pub(super) fn end(&mut self) -> Result<()> {
        if self.peek().is_none() { Ok(()) } else { Err(self.wrong("the end")) }
    }

    /// A value, and the text that it is written as.
    pub(super) fn value_with_text(&mut self) -> Result<(AnyValue, &'t str)> {
        self.peek();
        let start = self.place;
        let value = self.value(0)?;
        Ok((value, &self.text[start..self.place]))
    }

    fn map(&mut self, depth: usize) -> Result<Map> {
        self.place += 1;
        let mut map = Map::new();
        if self.take(b'}') {
            return Ok(map);
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.wrong("a key in quotes"));
            }
            let key = self.string()?;
            if !self.take(b':') {
                return Err(self.wrong("`:`"));
            }
            let value = self.value(depth + 1)?;
            map.push((key, value));
            if self.take(b'}') {
                keep_last(&mut map);
                return Ok(map);
            }
            if !self.take(b',') {
                return Err(self.wrong("`,` or `}`"));
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<AnyValue> {
        if depth > DEPTH_LIMIT {
            return Err(format!("values nest more than {DEPTH_LIMIT} levels deep"));
        }
        match self.peek() {
            Some(b'"') => self.string().map(AnyValue::String),
            Some(b'{') => self.map(depth).map(AnyValue::Map),
            Some(b'[') => self.array(|json| json.value(depth + 1)).map(AnyValue::Array),
            Some(b't') => self.word("true").map(|()| AnyValue::Bool(true)),
            Some(b'f') => self.word("false").map(|()| AnyValue::Bool(false)),
            Some(b'n') => self.word("null").map(|()| AnyValue::Empty),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.wrong("a value")),
        }
    }

    /// The byte at which the next token begins.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.place)?;
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(byte);
            }
            self.place += 1;
        }
    }

    fn take(&mut self, mark: u8) -> bool {
        let found = self.peek() == Some(mark);
        self.place += usize::from(found);
        found
    }

    fn word(&mut self, word: &str) -> Result<()> {
        if !self.text.as_bytes()[self.place..].starts_with(word.as_bytes()) {
            return Err(self.wrong("a value"));
        }
        self.place += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<AnyValue> {
        let bytes = self.text.as_bytes();
        let digits = |from: usize| {
            from + bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count()
        };
        let start = self.place + usize::from(bytes[self.place] == b'-');
        let mut end = digits(start);
        let mut is_valid = end == start + 1 || (end > start && bytes[start] != b'0');
        let mut is_whole = true;
        if bytes.get(end) == Some(&b'.') {
            let from = end + 1;
            end = digits(from);
            is_valid &= end > from;
            is_whole = false;
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let from = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            end = digits(from);
            is_valid &= end > from;
            is_whole = false;
        }
        if !is_valid {
            return Err(self.wrong("a number"));
        }
        let text = &self.text[self.place..end];
        let integer = if is_whole && end - start <= 19 { text.parse::<i64>().ok() } else { None };
        // A whole number of up to 2^53 is the same as a double.
        const EXACT: u64 = 1 << 53;
        let value = match (integer, self.numbers) {
            (Some(integer), Numbers::Integers) => AnyValue::Int(integer),
            (Some(integer), _) if integer != 0 && integer.unsigned_abs() <= EXACT => {
                AnyValue::Double(integer as f64)
            }
            _ => match text.parse::<f64>() {
                Ok(value) if value.is_finite() => AnyValue::Double(value),
                _ => return Err(self.wrong("a number that fits into a double")),
            },
        };
        self.place = end;
        Ok(value)
    }

    fn string(&mut self) -> Result<String> {
        let text = self.text;
        let mut from = self.place + 1;
        let mut found = String::new();
        loop {
            let rest = &text.as_bytes()[from..];
            let Some(length) = memchr::memchr2(b'"', b'\\', rest) else {
                self.place = text.len();
                return Err(self.wrong("the end of a string"));
            };
            let run = &text[from..from + length];
            self.place = from + length;
            if rest[length] == b'"' {
                self.place += 1;
                if found.is_empty() {
                    return Ok(run.to_owned());
                }
                found.push_str(run);
                return Ok(found);
            }
            if found.capacity() == 0 {
                found.reserve(length + 16);
            }
            found.push_str(run);
            found.push(self.escape()?);
            from = self.place;
        }
    }

    fn escape(&mut self) -> Result<char> {
        let character = match self.text.as_bytes().get(self.place + 1) {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(*byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.wrong("an escape that exists")),
        };
        self.place += 2;
        Ok(character)
    }

    /// One `\uXXXX`, or two that form a surrogate pair. A surrogate alone becomes U+FFFD.
    fn unicode_escape(&mut self) -> Result<char> {
        let unit = |place: usize| {
            let digits = self.text.get(place..place + 6)?.strip_prefix("\\u")?;
            let all = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            u16::from_str_radix(digits, 16).ok().filter(|_| all)
        };
        let Some(first) = unit(self.place) else {
            return Err(self.wrong("four hexadecimal digits"));
        };
        let is_half = (0xd800..0xdc00).contains(&first);
        let second = if is_half { unit(self.place + 6) } else { None };
        let decoded = char::decode_utf16([first, second.unwrap_or(0)]).next();
        let character = decoded.and_then(|found| found.ok()).unwrap_or('\u{fffd}');
        self.place += 6 * character.len_utf16();
        Ok(character)
    }

    fn wrong(&self, expected: &str) -> String {
        format!("the text is not JSON: expected {expected} at byte {}", self.place)
    }
}
