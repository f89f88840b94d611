//! Reads one line where it lies.

use memchr::{memchr, memchr2};

use crate::fault::Reason;
use crate::line::{FieldAt, Line, Span, ValueAt};
use crate::number;
use crate::precision::{FIRST_NS, LAST_NS, Precision};

/// Length of measurement and tags, and of these with the key of a field, in InfluxDB.
const KEY_LIMIT_BYTES: usize = 65_535;

/// Fields of a line: each takes 48 bytes while it is read.
const FIELDS_LIMIT: usize = 65_536;

/// The bytes at which a part of a line ends, or that need a look.
const fn stops(bytes: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] = true;
        at += 1;
    }
    table
}

static MEASUREMENT: [bool; 256] = stops(b", \n\\");
static KEY: [bool; 256] = stops(b"=, \n\\");
static BARE: [bool; 256] = stops(b", \n\r");

/// Places in the line that was read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    pub(crate) measurement: Span,
    pub(crate) tags: Span,
    pub(crate) time_ns: Option<i64>,
}

/// The outcome at some place. `next` is the place of the line behind.
#[derive(Debug)]
pub(crate) enum Step {
    Line {
        places: Places,
        next: usize,
    },
    /// A comment, or nothing.
    Blank {
        next: usize,
    },
    Stop(Stop),
}

/// Why no line was read.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The bytes end within the line.
    Partial,
    Fault(Reason),
}

impl Stop {
    /// Of a line, all of which is there.
    pub(crate) fn reason(self) -> Reason {
        match self {
            Stop::Fault(reason) => reason,
            Stop::Partial => Reason::Borrowed("unexpected end"),
        }
    }
}

fn fault<T>(reason: &'static str) -> Result<T, Stop> {
    Err(Stop::Fault(Reason::Borrowed(reason)))
}

pub(crate) struct Parser {
    pub(crate) precision: Precision,
    /// The fields of the line that was read.
    pub(crate) fields: Vec<FieldAt>,
    /// The tags of a line that was read before: most lines have those of the line before.
    tags: Vec<u8>,
    keys: Vec<Span>,
}

/// The bytes of which a line is read.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// No bytes will follow.
    is_last: bool,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The next byte, which may be missing only for good. None is the end of the line.
    fn byte(&self) -> Result<Option<u8>, Stop> {
        match self.peek() {
            None if !self.is_last => Err(Stop::Partial),
            Some(b'\n') => Ok(None),
            byte => Ok(byte),
        }
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | 0)) {
            self.at += 1;
        }
    }

    /// Goes to the next stop that no backslash stands before; its byte, or None at the line's end.
    #[inline(always)]
    fn scan(&mut self, stops: &[bool; 256]) -> Result<Option<u8>, Stop> {
        loop {
            while let Some(byte) = self.peek()
                && !stops[usize::from(byte)]
            {
                self.at += 1;
            }
            match self.byte()? {
                Some(b'\\') => {
                    self.at += 1;
                    if !matches!(self.byte()?, None | Some(b'\\')) {
                        self.at += 1;
                    }
                }
                stop => return Ok(stop),
            }
        }
    }

    /// The place behind the line's end, if it is here.
    fn end_of_line(&self) -> Result<Option<usize>, Stop> {
        match (self.peek(), self.bytes.get(self.at + 1)) {
            (None, _) if self.is_last => Ok(Some(self.at)),
            (Some(b'\n'), _) => Ok(Some(self.at + 1)),
            (Some(b'\r'), Some(b'\n')) => Ok(Some(self.at + 2)),
            (Some(b'\r'), None) if self.is_last => Ok(Some(self.at + 1)),
            (None, _) | (Some(b'\r'), None) => Err(Stop::Partial),
            _ => Ok(None),
        }
    }

    fn since(&self, start: usize) -> Span {
        Span { start, end: self.at }
    }
}

impl Parser {
    pub(crate) fn new(precision: Precision) -> Parser {
        Parser { precision, fields: Vec::new(), tags: Vec::new(), keys: Vec::new() }
    }

    /// Reads the line that starts at `start`. `is_last`: no bytes follow.
    pub(crate) fn parse(&mut self, bytes: &[u8], start: usize, is_last: bool) -> Step {
        let mut cursor = Cursor { bytes, at: start, is_last };
        self.line(&mut cursor).unwrap_or_else(Step::Stop)
    }

    /// Gives memory back beyond that for so many fields.
    pub(crate) fn trim(&mut self, fields: usize) {
        if self.fields.capacity() > fields {
            self.fields = Vec::new();
        }
        if self.keys.capacity() > fields {
            self.keys = Vec::new();
        }
    }

    /// The line that was read of these bytes last.
    pub(crate) fn line_at<'a>(&'a self, bytes: &'a [u8], places: Places) -> Line<'a> {
        let Places { measurement, tags, time_ns } = places;
        Line { bytes, measurement, tags, fields: &self.fields, time_ns }
    }

    fn line(&mut self, cursor: &mut Cursor<'_>) -> Result<Step, Stop> {
        cursor.skip_blanks();
        if let Some(next) = cursor.end_of_line()? {
            return Ok(Step::Blank { next });
        }
        if cursor.peek() == Some(b'#') {
            return match memchr(b'\n', &cursor.bytes[cursor.at..]) {
                Some(len) => Ok(Step::Blank { next: cursor.at + len + 1 }),
                None if cursor.is_last => Ok(Step::Blank { next: cursor.bytes.len() }),
                None => Err(Stop::Partial),
            };
        }
        let (measurement, tags) = self.head(cursor)?;
        let fields_start = cursor.at;
        self.fields(cursor)?;
        // Head and fields together are what InfluxDB limits.
        let head_len = tags.end.max(measurement.end) - measurement.start;
        let time_ns = self.time(cursor)?;
        let rest = &cursor.bytes[fields_start..cursor.at];
        if !rest.is_ascii() && std::str::from_utf8(rest).is_err() {
            return fault("invalid UTF-8");
        }
        let longest = self.fields.iter().map(|field| field.key.end - field.key.start).max();
        let key_len = head_len + 4 + longest.unwrap_or(0);
        if key_len > KEY_LIMIT_BYTES {
            return Err(Stop::Fault(key_too_long(key_len)));
        }
        let Some(next) = cursor.end_of_line()? else { return fault("point is invalid") };
        Ok(Step::Line { places: Places { measurement, tags, time_ns }, next })
    }

    /// Reads measurement and tags, up to the space.
    fn head(&mut self, cursor: &mut Cursor<'_>) -> Result<(Span, Span), Stop> {
        let start = cursor.at;
        if cursor.peek() == Some(b',') {
            return fault("missing measurement");
        }
        let stop = cursor.scan(&MEASUREMENT)?;
        let measurement = cursor.since(start);
        let name = measurement.of(cursor.bytes);
        if !name.is_ascii() && std::str::from_utf8(name).is_err() {
            return fault("invalid UTF-8");
        }
        let tags = match stop {
            None => return fault("missing fields"),
            Some(b' ') => Span { start: cursor.at, end: cursor.at },
            Some(_) => {
                cursor.at += 1;
                self.tags(cursor)?
            }
        };
        if cursor.at - start > KEY_LIMIT_BYTES {
            return Err(Stop::Fault(key_too_long(cursor.at - start)));
        }
        Ok((measurement, tags))
    }

    #[inline(always)]
    fn tags(&mut self, cursor: &mut Cursor<'_>) -> Result<Span, Stop> {
        let (start, known) = (cursor.at, self.tags.len());
        if known > 0
            && cursor.bytes[start..].starts_with(&self.tags)
            && cursor.bytes.get(start + known) == Some(&b' ')
        {
            cursor.at += known;
            return Ok(cursor.since(start));
        }
        self.new_tags(cursor)
    }

    fn new_tags(&mut self, cursor: &mut Cursor<'_>) -> Result<Span, Stop> {
        let start = cursor.at;
        self.keys.clear();
        loop {
            let key_start = cursor.at;
            if matches!(cursor.byte()?, None | Some(b' ' | b',' | b'=')) {
                return fault("missing tag key");
            }
            if cursor.scan(&KEY)? != Some(b'=') {
                return fault("missing tag value");
            }
            self.keys.push(cursor.since(key_start));
            cursor.at += 1;
            if matches!(cursor.byte()?, None | Some(b' ' | b',')) {
                return fault("missing tag value");
            }
            match cursor.scan(&KEY)? {
                Some(b',') => cursor.at += 1,
                Some(b' ') => break,
                Some(_) => return fault("invalid tag format"),
                None => return fault("missing fields"),
            }
            if cursor.at - start > KEY_LIMIT_BYTES {
                return Err(Stop::Fault(key_too_long(cursor.at - start)));
            }
        }
        self.check_keys(cursor.bytes)?;
        let tags = cursor.since(start);
        let text = tags.of(cursor.bytes);
        if !text.is_ascii() && std::str::from_utf8(text).is_err() {
            return fault("invalid UTF-8");
        }
        self.tags.clear();
        self.tags.extend_from_slice(text);
        Ok(tags)
    }

    /// No key may occur twice. Most senders sort them.
    fn check_keys(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        if self.keys.windows(2).all(|pair| pair[0].of(bytes) < pair[1].of(bytes)) {
            return Ok(());
        }
        self.keys.sort_unstable_by(|one, other| one.of(bytes).cmp(other.of(bytes)));
        match self.keys.windows(2).any(|pair| pair[0].of(bytes) == pair[1].of(bytes)) {
            true => fault("duplicate tags"),
            false => Ok(()),
        }
    }

    fn fields(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        self.fields.clear();
        while cursor.peek() == Some(b' ') {
            cursor.at += 1;
        }
        loop {
            let start = cursor.at;
            match cursor.scan(&KEY)? {
                Some(b'=') => {}
                _ => return fault("invalid field format"),
            }
            if cursor.at == start {
                return fault("missing field key");
            }
            let key = cursor.since(start);
            cursor.at += 1;
            if self.fields.len() == FIELDS_LIMIT {
                return fault("a line has too many fields");
            }
            let value = self.value(cursor)?;
            self.fields.push(FieldAt { key, value });
            match cursor.byte()? {
                Some(b',') => cursor.at += 1,
                Some(b' ') => return Ok(()),
                _ if cursor.end_of_line()?.is_some() => return Ok(()),
                _ => return fault("invalid field format"),
            }
        }
    }

    #[inline(always)]
    fn value(&self, cursor: &mut Cursor<'_>) -> Result<ValueAt, Stop> {
        match cursor.byte()? {
            None | Some(b',' | b' ' | b'\r') => return fault("missing field value"),
            Some(b'"') => cursor.at += 1,
            Some(_) => {
                let start = cursor.at;
                while let Some(byte) = cursor.peek()
                    && !BARE[usize::from(byte)]
                {
                    cursor.at += 1;
                }
                cursor.byte()?;
                return number::read(cursor.since(start).of(cursor.bytes)).map_err(Stop::Fault);
            }
        }
        let start = cursor.at;
        loop {
            match memchr2(b'"', b'\\', &cursor.bytes[cursor.at..]) {
                Some(len) => cursor.at += len,
                None if cursor.is_last => return fault("unbalanced quotes"),
                None => return Err(Stop::Partial),
            }
            if cursor.bytes[cursor.at] == b'"' {
                break;
            }
            cursor.at = (cursor.at + 2).min(cursor.bytes.len());
        }
        let text = cursor.since(start);
        cursor.at += 1;
        Ok(ValueAt::String(text))
    }

    /// Reads the timestamp, if there is one, and the blanks behind it.
    #[inline(always)]
    fn time(&self, cursor: &mut Cursor<'_>) -> Result<Option<i64>, Stop> {
        cursor.skip_blanks();
        if cursor.end_of_line()?.is_some() {
            return Ok(None);
        }
        let is_negative = cursor.peek() == Some(b'-');
        cursor.at += usize::from(is_negative);
        let start = cursor.at;
        while let Some(b'0'..=b'9') = cursor.peek() {
            cursor.at += 1;
        }
        let digits = cursor.since(start).of(cursor.bytes);
        match cursor.byte()? {
            None | Some(b' ' | b'\r') if !digits.is_empty() => {}
            _ => return fault("bad timestamp"),
        }
        while cursor.peek() == Some(b' ') {
            cursor.at += 1;
        }
        let time = unsigned(digits).and_then(|time| match is_negative {
            true => 0_i64.checked_sub_unsigned(time),
            false => i64::try_from(time).ok(),
        });
        match time.and_then(|time| self.precision.nanos(time)) {
            None => {
                let reason = format!("time outside range {FIRST_NS} - {LAST_NS}");
                Err(Stop::Fault(reason.into()))
            }
            time => Ok(time),
        }
    }
}

/// The number that decimal digits are.
fn unsigned(digits: &[u8]) -> Option<u64> {
    match digits.len() {
        // No number of 19 digits overflows.
        0..=19 => Some(digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'))),
        _ => std::str::from_utf8(digits).ok()?.parse().ok(),
    }
}

fn key_too_long(len: usize) -> Reason {
    format!("max key length exceeded: {len} > {KEY_LIMIT_BYTES}").into()
}
