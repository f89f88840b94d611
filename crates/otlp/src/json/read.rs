//! OTLP/JSON → protobuf, in one pass over the body and without an intermediate tree.

use super::binary::{decode_base64, decode_id};
use super::error::{Failure, JsonError, JsonReason};
use super::lexer::Lexer;
use super::number::{double, integer};
use crate::schema::{Field, Kind, Message, Presence};
use crate::wire::{LEN, encode_varint};
use crate::{NESTING_LIMIT, Signal};

/// Translates the OTLP/JSON of an export request into its protobuf encoding, which is at most
/// `limit_bytes` long.
///
/// What is answered passes [`crate::scan`]: ids have their length, strings are UTF-8, messages nest
/// within [`NESTING_LIMIT`].
///
/// # Errors
/// [`JsonError`] with the member and the position of the first thing that is wrong.
pub fn from_json(signal: Signal, json: &[u8], limit_bytes: usize) -> Result<Vec<u8>, JsonError> {
    let mut reader = Reader {
        lexer: Lexer::new(json),
        // Protobuf takes about half of what JSON takes.
        out: Vec::with_capacity((json.len() / 2).min(limit_bytes)),
        scratch: String::new(),
        limit_bytes,
    };
    match reader.request(signal.request()) {
        Ok(()) => Ok(reader.out),
        Err(failure) => Err(failure.into_error(json)),
    }
}

struct Reader<'a> {
    lexer: Lexer<'a>,
    out: Vec<u8>,
    /// Holds the last string that had escapes.
    scratch: String,
    limit_bytes: usize,
}

impl Reader<'_> {
    fn request(&mut self, message: &'static Message) -> Result<(), Failure> {
        self.object(message, 0)?;
        self.lexer.end()
    }

    fn object(&mut self, message: &'static Message, depth: usize) -> Result<(), Failure> {
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
                    .map_err(|failure| failure.in_member(field.name))?;
            } else {
                self.lexer.skip(&mut self.scratch)?;
            }
            if !self.lexer.more(b'}')? {
                return Ok(());
            }
        }
    }

    fn member(
        &mut self,
        field: &'static Field,
        occurred_before: bool,
        depth: usize,
    ) -> Result<(), Failure> {
        if self.lexer.take_null()? {
            return Ok(());
        }
        match (field.presence, field.kind) {
            (Presence::Repeated, Kind::Message(child)) => {
                self.messages(field.number, child, depth)?
            }
            (Presence::Repeated, Kind::String) => self.strings(field.number)?,
            (Presence::Repeated, kind) => self.packed(field.number, kind)?,
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

    /// An array of messages. `null` in it is an empty message, as the Collector reads it.
    fn messages(
        &mut self,
        number: u32,
        child: &'static Message,
        depth: usize,
    ) -> Result<(), Failure> {
        self.elements(|reader| {
            let open = reader.open(number);
            if !reader.lexer.take_null()? {
                reader.object(child, depth + 1)?;
            }
            reader.close(open);
            reader.check_limit()
        })
    }

    fn strings(&mut self, number: u32) -> Result<(), Failure> {
        self.elements(|reader| {
            reader.tag(number, LEN);
            reader.value(Kind::String)?;
            reader.check_limit()
        })
    }

    fn packed(&mut self, number: u32, kind: Kind) -> Result<(), Failure> {
        let before = self.out.len();
        let open = self.open(number);
        self.elements(|reader| {
            reader.value(kind)?;
            reader.check_limit()
        })?;
        if self.out.len() == open {
            self.out.truncate(before);
        } else {
            self.close(open);
        }
        Ok(())
    }

    fn elements(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.lexer.expect(b'[', "an array")?;
        if self.lexer.take(b']')? {
            return Ok(());
        }
        let mut index = 0;
        loop {
            element(self).map_err(|failure| failure.in_element(index))?;
            if !self.lexer.more(b']')? {
                return Ok(());
            }
            index += 1;
        }
    }

    /// Reads one value and writes it without its tag. True if it is the default of its type.
    fn value(&mut self, kind: Kind) -> Result<bool, Failure> {
        self.lexer.peek()?;
        let start = self.lexer.position();
        self.value_of(kind).map_err(|error| match error {
            ValueError::Syntax(failure) => failure,
            ValueError::Content(reason) => Failure::new(start, reason),
        })
    }

    fn value_of(&mut self, kind: Kind) -> Result<bool, ValueError> {
        match kind {
            Kind::Bool => {
                let value = self.lexer.boolean()?;
                self.out.push(u8::from(value));
                Ok(!value)
            }
            Kind::Enum(prefix, names) => {
                let value = self.enumeration(prefix, names)?;
                put_varint(&mut self.out, value as u64);
                Ok(value == 0)
            }
            Kind::Int32 => self.integer("a signed 32-bit integer", |out, value: i32| {
                put_varint(out, value as u64)
            }),
            Kind::Int64 => self.integer("a signed 64-bit integer", |out, value: i64| {
                put_varint(out, value as u64)
            }),
            Kind::Uint32 => self.integer("an unsigned 32-bit integer", |out, value: u32| {
                put_varint(out, value.into())
            }),
            Kind::Uint64 => {
                self.integer("an unsigned 64-bit integer", |out, value: u64| put_varint(out, value))
            }
            Kind::Sint32 => self.integer("a signed 32-bit integer", |out, value: i32| {
                put_varint(out, u64::from((value << 1 ^ value >> 31) as u32));
            }),
            Kind::Fixed32 => self.integer("an unsigned 32-bit integer", |out, value: u32| {
                out.extend_from_slice(&value.to_le_bytes());
            }),
            Kind::Fixed64 => self.integer("an unsigned 64-bit integer", |out, value: u64| {
                out.extend_from_slice(&value.to_le_bytes());
            }),
            Kind::Sfixed64 => self.integer("a signed 64-bit integer", |out, value: i64| {
                out.extend_from_slice(&value.to_le_bytes());
            }),
            Kind::Double => {
                let value = double(self.number_text("a number")?)?;
                self.out.extend_from_slice(&value.to_le_bytes());
                Ok(value == 0.0)
            }
            Kind::String => {
                let text = self.lexer.string(&mut self.scratch)?;
                put_varint(&mut self.out, text.len() as u64);
                self.out.extend_from_slice(text.as_bytes());
                Ok(text.is_empty())
            }
            Kind::Bytes => self.delimited(decode_base64),
            Kind::Id(len) => self.delimited(|text, out| decode_id(text, len, out)),
            Kind::Message(_) => unreachable!("messages are objects, not values"),
        }
    }

    fn integer<T: TryFrom<i128> + Default + PartialEq + Copy>(
        &mut self,
        what: &'static str,
        put: impl FnOnce(&mut Vec<u8>, T),
    ) -> Result<bool, ValueError> {
        let value = integer(self.number_text(what)?)?;
        let value = T::try_from(value).map_err(|_| JsonReason::OutOfRange(what))?;
        put(&mut self.out, value);
        Ok(value == T::default())
    }

    /// The text of a number, or of a string that should hold one.
    fn number_text(&mut self, what: &'static str) -> Result<&str, Failure> {
        match self.lexer.peek()? {
            b'"' => self.lexer.string(&mut self.scratch),
            b'-' | b'0'..=b'9' => self.lexer.number(),
            _ => self.lexer.fail(JsonReason::Expected(what)),
        }
    }

    fn enumeration(&mut self, prefix: &str, names: &str) -> Result<i32, ValueError> {
        if self.lexer.peek()? == b'"' {
            let name = self.lexer.string(&mut self.scratch)?.strip_prefix(prefix);
            let value = names.split(' ').position(|known| Some(known) == name);
            return Ok(value.map(|value| value as i32).ok_or(JsonReason::UnknownEnumName)?);
        }
        let what = "an enum value";
        let value = integer(self.number_text(what)?)?;
        Ok(i32::try_from(value).map_err(|_| JsonReason::OutOfRange(what))?)
    }

    /// A string that stands for bytes, which `decode` appends.
    fn delimited(
        &mut self,
        decode: impl FnOnce(&str, &mut Vec<u8>) -> Result<(), JsonReason>,
    ) -> Result<bool, ValueError> {
        let open = self.begin();
        let text = self.lexer.string(&mut self.scratch)?;
        decode(text, &mut self.out)?;
        let is_empty = self.out.len() == open;
        self.close(open);
        Ok(is_empty)
    }

    fn tag(&mut self, number: u32, wire_type: u8) {
        put_varint(&mut self.out, u64::from(number << 3 | u32::from(wire_type)));
    }

    /// Begins a length-delimited field; answers where its content begins.
    fn open(&mut self, number: u32) -> usize {
        self.tag(number, LEN);
        self.begin()
    }

    /// Most lengths are below 128: one byte is kept free for each, and [`Reader::close`] moves what
    /// is longer.
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
        let (varint, width) = encode_varint(len as u64);
        let shift = width - 1;
        self.out.resize(self.out.len() + shift, 0);
        self.out.copy_within(content..content + len, content + shift);
        self.out[content - 1..content + shift].copy_from_slice(&varint[..width]);
    }

    fn check_limit(&self) -> Result<(), Failure> {
        if self.out.len() > self.limit_bytes {
            return self.lexer.fail(JsonReason::TooLarge { limit_bytes: self.limit_bytes });
        }
        Ok(())
    }
}

/// What is wrong with a value: its JSON, at a position of its own, or what it says, which is
/// reported where it begins.
enum ValueError {
    Syntax(Failure),
    Content(JsonReason),
}

impl From<Failure> for ValueError {
    fn from(failure: Failure) -> Self {
        ValueError::Syntax(failure)
    }
}

impl From<JsonReason> for ValueError {
    fn from(reason: JsonReason) -> Self {
        ValueError::Content(reason)
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
