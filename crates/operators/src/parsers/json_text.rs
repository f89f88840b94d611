//! Reads JSON into values, as leniently as the Collector's library: control characters in strings,
//! such as tabs, and halves of surrogate pairs occur in logs.

use std::borrow::Cow;
use std::mem;

use sluice_otlp::AnyValue;
use sluice_otlp::json::unescape;

use super::values::{Budget, Map, keep_last};

/// Values nest this deep: as OTLP, with the request around them, they stay within its limit.
const DEPTH_LIMIT: usize = 24;

/// A place in a JSON text.
pub(super) struct Json<'t> {
    text: &'t str,
    place: usize,
    numbers: Numbers,
    budget: Budget,
}

/// Numbers in a JSON text.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Numbers {
    /// All numbers are doubles.
    Doubles,
    /// Whole numbers of 64 bits are integers.
    Integers,
}

/// A value, or the bracket with which one begins.
#[derive(Clone)]
pub(crate) enum Token<'t> {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    /// Borrowed if it has no escapes.
    Text(Cow<'t, str>),
    Map,
    Array,
}

type Result<T> = std::result::Result<T, String>;

impl<'t> Json<'t> {
    pub(super) fn new(text: &'t str, numbers: Numbers) -> Json<'t> {
        Json { text, place: 0, numbers, budget: Budget::default() }
    }

    /// The object that the text begins with; `null` is an empty one.
    pub(super) fn object(&mut self) -> Result<Map> {
        if self.opens()? { self.map(0) } else { Ok(Map::new()) }
    }

    /// Goes behind the bracket of the object that the text begins with. False for `null`.
    pub(super) fn opens(&mut self) -> Result<bool> {
        if self.take(b'{') {
            return Ok(true);
        }
        match self.peek() {
            Some(b'n') => self.word("null").map(|()| false),
            _ => Err(self.wrong("an object")),
        }
    }

    /// The elements of the array that the text begins with, each as `read` reads it.
    pub(super) fn array<T>(
        &mut self,
        read: impl FnMut(&mut Json<'t>) -> Result<T>,
    ) -> Result<Vec<T>> {
        if !self.take(b'[') {
            return Err(self.wrong("an array"));
        }
        self.elements(read)
    }

    fn elements<T>(&mut self, mut read: impl FnMut(&mut Json<'t>) -> Result<T>) -> Result<Vec<T>> {
        let (mut values, mut is_first) = (Vec::new(), true);
        while self.more(b']', mem::take(&mut is_first))? {
            values.push(read(self)?);
        }
        Ok(values)
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

    /// The members behind an opening bracket.
    fn map(&mut self, depth: usize) -> Result<Map> {
        let (mut map, mut is_first) = (Map::new(), true);
        while self.more(b'}', mem::take(&mut is_first))? {
            let key = self.key()?.into_owned();
            map.push((key, self.value(depth + 1)?));
        }
        keep_last(&mut map);
        Ok(map)
    }

    fn value(&mut self, depth: usize) -> Result<AnyValue> {
        Ok(match self.token(depth)? {
            Token::Null => AnyValue::Empty,
            Token::Bool(value) => AnyValue::Bool(value),
            Token::Int(value) => AnyValue::Int(value),
            Token::Double(value) => AnyValue::Double(value),
            Token::Text(text) => AnyValue::String(text.into_owned()),
            Token::Map => AnyValue::Map(self.map(depth)?),
            Token::Array => AnyValue::Array(self.elements(|json| json.value(depth + 1))?),
        })
    }

    /// Whether another element or member follows: goes behind the comma, or behind the bracket.
    pub(super) fn more(&mut self, end: u8, is_first: bool) -> Result<bool> {
        if self.take(end) {
            return Ok(false);
        }
        if is_first || self.take(b',') {
            return Ok(true);
        }
        Err(self.wrong(if end == b'}' { "`,` or `}`" } else { "`,` or `]`" }))
    }

    /// A key and its colon.
    pub(super) fn key(&mut self) -> Result<Cow<'t, str>> {
        if self.peek() != Some(b'"') {
            return Err(self.wrong("a key in quotes"));
        }
        let key = self.string()?;
        if self.take(b':') { Ok(key) } else { Err(self.wrong("`:`")) }
    }

    /// The next value, within so many others.
    pub(super) fn token(&mut self, depth: usize) -> Result<Token<'t>> {
        if depth > DEPTH_LIMIT {
            return Err(format!("values nest more than {DEPTH_LIMIT} levels deep"));
        }
        self.budget.take()?;
        Ok(match self.peek() {
            Some(b'"') => Token::Text(self.string()?),
            Some(bracket @ (b'{' | b'[')) => {
                self.place += 1;
                if bracket == b'{' { Token::Map } else { Token::Array }
            }
            Some(b't') => self.word("true").map(|()| Token::Bool(true))?,
            Some(b'f') => self.word("false").map(|()| Token::Bool(false))?,
            Some(b'n') => self.word("null").map(|()| Token::Null)?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => return Err(self.wrong("a value")),
        })
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

    fn number(&mut self) -> Result<Token<'t>> {
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
            (Some(integer), Numbers::Integers) => Token::Int(integer),
            (Some(integer), _) if integer != 0 && integer.unsigned_abs() <= EXACT => {
                Token::Double(integer as f64)
            }
            _ => match text.parse::<f64>() {
                Ok(value) if value.is_finite() => Token::Double(value),
                _ => return Err(self.wrong("a number that fits into a double")),
            },
        };
        self.place = end;
        Ok(value)
    }

    fn string(&mut self) -> Result<Cow<'t, str>> {
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
                    return Ok(Cow::Borrowed(run));
                }
                found.push_str(run);
                return Ok(Cow::Owned(found));
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
        let rest = &self.text.as_bytes()[self.place..];
        let Some((character, length)) = unescape(rest) else {
            let is_unicode = rest.get(1) == Some(&b'u');
            let wanted =
                if is_unicode { "four hexadecimal digits" } else { "an escape that exists" };
            return Err(self.wrong(wanted));
        };
        self.place += length;
        Ok(character)
    }

    fn wrong(&self, expected: &str) -> String {
        format!("the text is not JSON: expected {expected} at byte {}", self.place)
    }
}
