//! OTLP/JSON → protobuf, in one pass over the body and without an intermediate tree.

use std::ops::RangeInclusive;

use super::binary::{decode_base64, decode_id};
use super::error::{Failure, JsonError, JsonReason};
use super::lexer::Lexer;
use super::number::{double, integer};
use crate::schema::{Field, Kind, Message, Presence};
use crate::wire::{LEN, varint_len, write_varint};
use crate::{NESTING_LIMIT, Signal};

/// Translates the OTLP/JSON of an export request into protobuf of at most `limit_bytes`.
///
/// It passes [`crate::scan`]: lengths of ids, UTF-8 in strings, nesting within [`NESTING_LIMIT`].
///
/// # Errors
/// [`JsonError`] with the member and the position of the first thing that is wrong.
pub fn from_json(signal: Signal, json: &[u8], limit_bytes: usize) -> Result<Vec<u8>, JsonError> {
    let mut reader = Reader {
        lexer: Lexer::new(json),
        // Protobuf takes about half the length of JSON.
        out: Vec::with_capacity((json.len() / 2).min(limit_bytes)),
        scratch: String::new(),
        limit_bytes,
    };
    let read = reader.object(signal.request(), 0).and_then(|()| reader.lexer.end());
    read.map(|()| reader.out).map_err(|failure| failure.into_error(json))
}

type Result<T, E = Failure> = std::result::Result<T, E>;

struct Reader<'a> {
    lexer: Lexer<'a>,
    out: Vec<u8>,
    /// The last string that had escapes.
    scratch: String,
    limit_bytes: usize,
}

impl Reader<'_> {
    fn object(&mut self, message: &'static Message, depth: usize) -> Result<()> {
        if depth > NESTING_LIMIT {
            return self.lexer.fail(JsonReason::TooDeep { limit: NESTING_LIMIT });
        }
        self.lexer.expect(b'{', "an object")?;
        if self.lexer.take(b'}')? {
            return Ok(());
        }
        let mut seen = 0u32;
        let mut hint = 0;
        loop {
            let found = message.named(self.lexer.string(&mut self.scratch)?, hint);
            self.lexer.expect(b':', "`:`")?;
            if let Some(index) = found {
                let occurred_before = seen & 1 << index != 0;
                seen |= 1 << index;
                hint = index + 1;
                let field = &message.fields[index];
                self.member(field, occurred_before, depth)
                    .map_err(|failure| failure.within(field.name))?;
            } else {
                self.lexer.skip(&mut self.scratch, 0)?;
            }
            if !self.lexer.more(b'}')? {
                return Ok(());
            }
        }
    }

    fn member(&mut self, field: &'static Field, occurred_before: bool, depth: usize) -> Result<()> {
        if self.lexer.take_null()? {
            return Ok(());
        }
        match (field.presence, field.kind) {
            (Presence::Repeated, kind) => self.repeated(field.number, kind, depth)?,
            (_, Kind::Message(child)) => {
                let open = self.open(field.number);
                self.object(child, depth + 1)?;
                self.close(open);
            }
            (presence, kind) => {
                let start = self.out.len();
                self.tag(field.number, kind.wire_type());
                let is_default = self.value(kind)?;
                // A default value need not be written, unless it replaces an earlier one.
                if is_default && presence == Presence::Implicit && !occurred_before {
                    self.out.truncate(start);
                }
            }
        }
        self.check_limit()
    }

    /// Messages and strings each have a field of their own; scalars share one.
    fn repeated(&mut self, number: u32, kind: Kind, depth: usize) -> Result<()> {
        match kind {
            Kind::Message(child) => self.elements(|reader| {
                let open = reader.open(number);
                // `null` is an empty message, as the Collector reads it.
                if !reader.lexer.take_null()? {
                    reader.object(child, depth + 1)?;
                }
                reader.close(open);
                Ok(())
            }),
            Kind::String => self.elements(|reader| {
                reader.tag(number, LEN);
                reader.value(Kind::String).map(drop)
            }),
            kind => {
                let before = self.out.len();
                let open = self.open(number);
                self.elements(|reader| reader.value(kind).map(drop))?;
                match self.out.len() == open {
                    true => self.out.truncate(before),
                    false => self.close(open),
                }
                Ok(())
            }
        }
    }

    fn elements(&mut self, mut element: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.lexer.expect(b'[', "an array")?;
        if self.lexer.take(b']')? {
            return Ok(());
        }
        let mut index = 0;
        loop {
            element(self)
                .and_then(|()| self.check_limit())
                .map_err(|failure| failure.within(format_args!("[{index}]")))?;
            if !self.lexer.more(b']')? {
                return Ok(());
            }
            index += 1;
        }
    }

    /// Reads one value and writes it without its tag. True if it is the default of its type.
    fn value(&mut self, kind: Kind) -> Result<bool> {
        self.lexer.peek()?;
        // A wrong value is reported at its beginning.
        let start = self.lexer.position();
        let wrong = |reason| Failure::new(start, reason);
        match kind {
            Kind::Bool => {
                let value = self.lexer.boolean()?;
                self.out.push(u8::from(value));
                Ok(!value)
            }
            Kind::Enum(prefix, names) => {
                let value = self.enumeration(prefix, names, wrong)?;
                write_varint(&mut self.out, value as u64);
                Ok(value == 0)
            }
            Kind::Double => {
                let value = double(self.number_text("a number")?).map_err(wrong)?;
                self.out.extend_from_slice(&value.to_le_bytes());
                Ok(value == 0.0)
            }
            Kind::String => {
                let text = self.lexer.string(&mut self.scratch)?;
                write_varint(&mut self.out, text.len() as u64);
                self.out.extend_from_slice(text.as_bytes());
                Ok(text.is_empty())
            }
            Kind::Bytes | Kind::Id(_) => {
                let open = self.begin();
                let text = self.lexer.string(&mut self.scratch)?;
                let decoded = match kind {
                    Kind::Id(len) => decode_id(text, len, &mut self.out),
                    _ => decode_base64(text, &mut self.out),
                };
                decoded.map_err(wrong)?;
                let is_empty = self.out.len() == open;
                self.close(open);
                Ok(is_empty)
            }
            Kind::Message(_) => unreachable!("messages are objects, not values"),
            kind => self.integer(kind, wrong),
        }
    }

    fn integer(&mut self, kind: Kind, wrong: impl Fn(JsonReason) -> Failure) -> Result<bool> {
        let (what, range): (_, RangeInclusive<i128>) = match kind {
            Kind::Int32 | Kind::Sint32 => {
                ("a signed 32-bit integer", i32::MIN.into()..=i32::MAX.into())
            }
            Kind::Int64 | Kind::Sfixed64 => {
                ("a signed 64-bit integer", i64::MIN.into()..=i64::MAX.into())
            }
            Kind::Uint32 | Kind::Fixed32 => ("an unsigned 32-bit integer", 0..=u32::MAX.into()),
            _ => ("an unsigned 64-bit integer", 0..=u64::MAX.into()),
        };
        let value = integer(self.number_text(what)?).map_err(&wrong)?;
        if !range.contains(&value) {
            return Err(wrong(JsonReason::OutOfRange(what)));
        }
        match kind {
            Kind::Fixed32 => self.out.extend_from_slice(&(value as u32).to_le_bytes()),
            Kind::Fixed64 | Kind::Sfixed64 => {
                self.out.extend_from_slice(&(value as u64).to_le_bytes());
            }
            Kind::Sint32 => write_varint(&mut self.out, ((value << 1 ^ value >> 31) as u32).into()),
            _ => write_varint(&mut self.out, value as u64),
        }
        Ok(value == 0)
    }

    /// The text of a number, or of a string that should contain one.
    fn number_text(&mut self, what: &'static str) -> Result<&str> {
        match self.lexer.peek()? {
            b'"' => self.lexer.string(&mut self.scratch),
            b'-' | b'0'..=b'9' => self.lexer.number(),
            _ => self.lexer.fail(JsonReason::Expected(what)),
        }
    }

    fn enumeration(
        &mut self,
        prefix: &str,
        names: &str,
        wrong: impl Fn(JsonReason) -> Failure,
    ) -> Result<i32> {
        if self.lexer.peek()? == b'"' {
            let name = self.lexer.string(&mut self.scratch)?.strip_prefix(prefix);
            let value = names.split(' ').position(|known| Some(known) == name);
            return value.map(|it| it as i32).ok_or_else(|| wrong(JsonReason::UnknownEnumName));
        }
        let what = "an enum value";
        let value = integer(self.number_text(what)?).map_err(&wrong)?;
        i32::try_from(value).map_err(|_| wrong(JsonReason::OutOfRange(what)))
    }

    fn tag(&mut self, number: u32, wire_type: u8) {
        write_varint(&mut self.out, u64::from(number << 3 | u32::from(wire_type)));
    }

    /// Begins a length-delimited field; answers the position at which its content begins.
    fn open(&mut self, number: u32) -> usize {
        self.tag(number, LEN);
        self.begin()
    }

    /// Keeps one byte free, as most lengths are below 128; [`Reader::close`] moves longer content.
    fn begin(&mut self) -> usize {
        self.out.push(0);
        self.out.len()
    }

    fn close(&mut self, content: usize) {
        let len = self.out.len() - content;
        if let Ok(len @ 0..=0x7f) = u8::try_from(len) {
            self.out[content - 1] = len;
            return;
        }
        let shift = varint_len(len) - 1;
        self.out.resize(self.out.len() + shift, 0);
        self.out.copy_within(content..content + len, content + shift);
        let varint = &mut self.out[content - 1..content + shift];
        for (index, byte) in varint.iter_mut().enumerate() {
            *byte = (len >> (7 * index)) as u8 | 0x80;
        }
        varint[shift] &= 0x7f;
    }

    fn check_limit(&self) -> Result<()> {
        if self.out.len() > self.limit_bytes {
            return self.lexer.fail(JsonReason::TooLarge { limit_bytes: self.limit_bytes });
        }
        Ok(())
    }
}
