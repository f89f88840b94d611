//! The messages that carry events, and their acknowledgement.
//!
//! A sender chooses among three modes: one event (`[tag, time, record, options]`), several
//! (`[tag, [[time, record], …], options]`), or several in one binary, which may be compressed
//! (`[tag, bin, options]`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::msgpack::{Item, Malformed, Reader, Write as _};

/// A longer chunk id is not taken: the acknowledgement repeats it.
const CHUNK_MAX_BYTES: usize = 1 << 10;
/// The extension type of an `EventTime`: 32 bits of seconds and 32 of nanoseconds.
const EVENT_TIME: i8 = 0;
const NANOS: i64 = 1_000_000_000;
/// The `EventTime` of what is no record: Fluent Bit's -1 and -2, which are no times.
const GROUP_START: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
const GROUP_END: &[u8] = &[0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0];

/// Why bytes are no message of the forward protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    #[error("not MessagePack: {0}")]
    Malformed(#[from] Malformed),
    #[error("not the forward protocol: {0}")]
    Invalid(&'static str),
}

fn invalid<T>(reason: &'static str) -> Result<T, MessageError> {
    Err(MessageError::Invalid(reason))
}

/// One message, in the bytes that it came in.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub tag: &'a [u8],
    pub events: Events<'a>,
    /// The id by which the sender wants it acknowledged.
    pub chunk: Option<&'a [u8]>,
    /// The compression of packed events: `gzip`. `None`: they are plain.
    pub compressed: Option<&'a [u8]>,
    /// Fluent Bit's metadata of a single event: the reader stands before a map.
    pub metadata: Option<Reader<'a>>,
}

/// The events of a message, not looked at yet.
#[derive(Clone, Copy, Debug)]
pub enum Events<'a> {
    /// A time and a record, one after the other.
    Single(&'a [u8]),
    /// Pairs of a time and a record.
    Listed(&'a [u8]),
    /// The same as one binary, which may be compressed.
    Packed(&'a [u8]),
}

impl<'a> Message<'a> {
    /// Reads a whole message. `None`: it is a heartbeat.
    ///
    /// # Errors
    /// [`MessageError`]; nothing of the events has been looked at but where they end.
    pub fn read(bytes: &'a [u8]) -> Result<Option<Message<'a>>, MessageError> {
        let mut reader = Reader::new(bytes);
        let elements = match reader.item()? {
            Item::Array(elements) => elements,
            Item::Nil => return Ok(None),
            _ => return invalid("a message is an array"),
        };
        let (Item::Str(tag) | Item::Bin(tag)) = reader.item()? else {
            return invalid("the first element is no tag");
        };
        let at = reader.position();
        let (events, used) = match reader.item()? {
            Item::Array(_) => {
                reader = Reader::new(&bytes[at..]);
                (Events::Listed(reader.skip()?), 2)
            }
            Item::Str(packed) | Item::Bin(packed) => (Events::Packed(packed), 2),
            Item::Int(_) | Item::Large(_) | Item::Float(_) | Item::Ext(..) => {
                reader.skip()?;
                (Events::Single(&bytes[at..reader.position()]), 3)
            }
            _ => return invalid("the second element is neither events nor a time"),
        };
        let mut message = Message { tag, events, chunk: None, compressed: None, metadata: None };
        match elements {
            _ if elements == used => {}
            _ if elements == used + 1 => message.read_options(&mut reader)?,
            _ => return invalid("a message has two to four elements"),
        }
        Ok(Some(message))
    }

    fn read_options(&mut self, reader: &mut Reader<'a>) -> Result<(), MessageError> {
        let pairs = match reader.item()? {
            Item::Map(pairs) => pairs,
            Item::Nil => return Ok(()),
            _ => return invalid("the last element is no map of options"),
        };
        for _ in 0..pairs {
            let key = reader.item()?;
            let start = *reader;
            let value = Reader::new(reader.skip()?).item()?;
            match (key, value) {
                (Item::Str(b"metadata"), Item::Map(_)) => self.metadata = Some(start),
                (Item::Str(b"fluent_signal"), Item::Int(1..)) => {
                    return invalid("its events are no logs: Fluent Bit sends metrics or traces");
                }
                (Item::Str(b"chunk"), Item::Str(id)) if id.len() > CHUNK_MAX_BYTES => {
                    return invalid("a chunk id has at most 1024 bytes");
                }
                (Item::Str(b"chunk"), Item::Str(id)) if !id.is_empty() => self.chunk = Some(id),
                (Item::Str(b"compressed"), Item::Str(name)) if name != b"text" => {
                    self.compressed = Some(name);
                }
                // `size` is a hint, and other options are for later versions of the protocol.
                (Item::Str(_) | Item::Bin(_), _) => {}
                _ => return invalid("the name of an option is no string"),
            }
        }
        Ok(())
    }
}

/// The head of an event. Its record comes next.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Nanoseconds since 1970.
    pub time_ns: i64,
    /// Fluent Bit's metadata of the event: the reader stands before a map.
    pub metadata: Option<Reader<'a>>,
    pub kind: Kind,
}

/// The meaning of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Record,
    /// Not a record: it tells what the following records have in common, as `resource` and `scope`.
    GroupStart,
    /// Not a record: those of the group have come.
    GroupEnd,
}

/// Reads events one after the other: a head, then the record, which the caller reads.
#[derive(Debug)]
pub struct EventReader<'a> {
    pub reader: Reader<'a>,
    /// Events that are left, if the number was told.
    left: Option<usize>,
    is_single: bool,
}

impl<'a> EventReader<'a> {
    /// Events as they are once they are unpacked.
    ///
    /// # Errors
    /// [`MessageError`] if a list has no head.
    pub fn new(events: Events<'a>) -> Result<Self, MessageError> {
        let (bytes, is_single, is_listed) = match events {
            Events::Single(bytes) => (bytes, true, false),
            Events::Listed(bytes) => (bytes, false, true),
            Events::Packed(bytes) => (bytes, false, false),
        };
        let mut reader = Reader::new(bytes);
        let mut left = None;
        if is_listed {
            let Item::Array(events) = reader.item()? else { return invalid("events are a list") };
            left = Some(events);
        }
        Ok(EventReader { reader, left, is_single })
    }

    /// The next event's head: a time, or since Fluent Bit 2.1 a time and metadata. The reader
    /// stands before its record, which the caller has to read or to skip.
    ///
    /// # Errors
    /// [`MessageError`] if it is no event.
    pub fn next_head(&mut self) -> Result<Option<Head<'a>>, MessageError> {
        let is_last = self.is_single && self.reader.position() > 0;
        if is_last || self.left == Some(0) || self.left.is_none() && self.reader.is_at_end() {
            return Ok(None);
        }
        self.left = self.left.map(|left| left - 1);
        if !self.is_single && self.reader.item()? != Item::Array(2) {
            return invalid("an event is an array of a time and a record");
        }
        let mut time = self.reader.item()?;
        if self.is_single || time != Item::Array(2) {
            let time_ns = time_ns(time)?;
            return Ok(Some(Head { time_ns, metadata: None, kind: Kind::Record }));
        }
        time = self.reader.item()?;
        let metadata = self.reader;
        let Item::Map(_) = Reader::new(self.reader.skip()?).item()? else {
            return invalid("the metadata of an event is a map");
        };
        let kind = match time {
            Item::Ext(EVENT_TIME, GROUP_START) => Kind::GroupStart,
            Item::Ext(EVENT_TIME, GROUP_END) => Kind::GroupEnd,
            _ => Kind::Record,
        };
        Ok(Some(Head { time_ns: time_ns(time)?, metadata: Some(metadata), kind }))
    }
}

fn time_ns(item: Item<'_>) -> Result<i64, MessageError> {
    match item {
        Item::Int(seconds) => Ok(seconds.saturating_mul(NANOS)),
        Item::Large(_) => Ok(i64::MAX),
        // A cast saturates.
        Item::Float(seconds) => Ok((seconds * NANOS as f64) as i64),
        Item::Ext(EVENT_TIME, payload) if payload.len() == 8 => {
            let number = payload.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            Ok((number >> 32) as i64 * NANOS + (number & 0xffff_ffff) as i64)
        }
        _ => invalid("the time of an event is neither seconds nor an EventTime"),
    }
}

/// Writes a time in nanoseconds since 1970 as an `EventTime`, whose seconds have 32 bits: one after
/// 2106 becomes the last of these seconds.
pub fn write_event_time(out: &mut Vec<u8>, time_ns: u64) {
    let seconds = u32::try_from(time_ns / NANOS as u64).unwrap_or(u32::MAX);
    let nanos = (time_ns % NANOS as u64) as u32;
    let number = u64::from(seconds) << 32 | u64::from(nanos);
    out.write_ext8(EVENT_TIME, number.to_be_bytes());
}

/// Writes the message with these packed events, `count` of them. A `chunk` asks for an
/// acknowledgement.
pub fn write_packed(
    out: &mut Vec<u8>,
    tag: &str,
    events: &[u8],
    count: usize,
    chunk: Option<&str>,
    is_gzip: bool,
) {
    out.write_array(3);
    out.write_str(tag);
    out.write_bin(events);
    out.write_map(1 + usize::from(chunk.is_some()) + usize::from(is_gzip));
    out.write_str("size");
    out.write_int(i64::try_from(count).unwrap_or(i64::MAX));
    if let Some(chunk) = chunk {
        out.write_str("chunk");
        out.write_str(chunk);
    }
    if is_gzip {
        out.write_str("compressed");
        out.write_str("gzip");
    }
}

/// A chunk id as Fluentd makes them: 16 random bytes in base64.
pub fn chunk_id() -> String {
    STANDARD.encode(fastrand::u128(..).to_be_bytes())
}

/// Writes the acknowledgement of a chunk, whose id is UTF-8 as a rule and is repeated as it came.
pub fn write_ack(out: &mut Vec<u8>, chunk: &[u8]) {
    out.write_map(1);
    out.write_str("ack");
    match std::str::from_utf8(chunk) {
        Ok(chunk) => out.write_str(chunk),
        Err(_) => out.write_bin(chunk),
    }
}

/// The chunk that an answer acknowledges.
///
/// # Errors
/// [`MessageError`] if it is no acknowledgement.
pub fn read_ack(bytes: &[u8]) -> Result<&[u8], MessageError> {
    let mut reader = Reader::new(bytes);
    let Item::Map(pairs) = reader.item()? else { return invalid("an answer is a map") };
    for _ in 0..pairs {
        let is_ack = reader.item()? == Item::Str(b"ack");
        let value = Reader::new(reader.skip()?).item()?;
        if let (true, Item::Str(chunk) | Item::Bin(chunk)) = (is_ack, value) {
            return Ok(chunk);
        }
    }
    invalid("an answer has no `ack`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(events: Events<'_>) -> Result<Vec<i64>, MessageError> {
        let mut reader = EventReader::new(events)?;
        let mut times = Vec::new();
        while let Some(head) = reader.next_head()? {
            times.push(head.time_ns);
            reader.reader.skip()?;
        }
        Ok(times)
    }

    fn message(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }

    /// `count` events `[i, {}]`.
    fn pairs(out: &mut Vec<u8>, count: i64) {
        for index in 0..count {
            out.write_array(2);
            out.write_int(index);
            out.write_map(0);
        }
    }

    #[test]
    fn all_modes_are_read() {
        let single = message(|out| {
            out.write_array(3);
            out.write_str("a.b");
            write_event_time(out, 1_500_000_002);
            out.write_map(1);
            out.write_str("log");
            out.write_str("x");
        });
        let read = Message::read(&single).unwrap().unwrap();
        assert_eq!((read.tag, read.chunk, read.compressed), (&b"a.b"[..], None, None));
        assert_eq!(times(read.events), Ok(vec![1_500_000_002]));
        let listed = message(|out| {
            out.write_array(3);
            out.write_str("t");
            out.write_array(20);
            pairs(out, 20);
            out.write_map(3);
            out.write_str("size");
            out.write_int(20);
            out.write_str("chunk");
            out.write_str("id");
            out.write_str("later");
            out.write_array(1);
            out.write_nil();
        });
        let read = Message::read(&listed).unwrap().unwrap();
        assert_eq!(read.chunk, Some(&b"id"[..]));
        assert_eq!(times(read.events).unwrap().len(), 20);
        let events = message(|out| pairs(out, 3));
        let mut packed = Vec::new();
        write_packed(&mut packed, "t", &events, 3, Some("id"), true);
        let read = Message::read(&packed).unwrap().unwrap();
        assert_eq!((read.chunk, read.compressed), (Some(&b"id"[..]), Some(&b"gzip"[..])));
        assert_eq!(times(read.events), Ok(vec![0, NANOS, 2 * NANOS]));
        assert!(Message::read(&[0xc0]).unwrap().is_none());
    }

    /// Scenario: events as Fluent Bit sends them since 2.1, with the records that begin and end a
    /// group. Guarantee: they are told apart; times without metadata are always times.
    #[test]
    fn heads_with_metadata_are_read() {
        let head = |out: &mut Vec<u8>, time: &[u8]| {
            out.write_array(2);
            out.write_array(2);
            out.extend_from_slice(&[0xd7, 0]);
            out.extend_from_slice(time);
            out.write_map(1);
            out.write_str("k");
            out.write_int(1);
            out.write_map(0);
        };
        let events = message(|out| {
            head(out, GROUP_START);
            head(out, &[0, 0, 0, 1, 0, 0, 0, 2]);
            head(out, GROUP_END);
            out.write_array(2);
            out.extend_from_slice(&[0xd7, 0]);
            out.extend_from_slice(GROUP_START);
            out.write_map(0);
        });
        let mut reader = EventReader::new(Events::Packed(&events)).unwrap();
        let mut heads = Vec::new();
        while let Some(head) = reader.next_head().unwrap() {
            let metadata = head.metadata.map(|mut reader| reader.item().unwrap());
            heads.push((head.kind, head.time_ns, metadata));
            reader.reader.skip().unwrap();
        }
        let (map, last) = (Some(Item::Map(1)), i64::from(u32::MAX) * NANOS);
        let expected = [
            (Kind::GroupStart, last, map),
            (Kind::Record, NANOS + 2, map),
            (Kind::GroupEnd, last - NANOS, map),
            (Kind::Record, last, None),
        ];
        assert_eq!(heads, expected);
        for bad in [&[0x92, 0x92, 1, 1, 0x80][..], &[0x92, 0x91, 1, 0x80], &[0x92, 0x93, 1]] {
            assert!(times(Events::Packed(bad)).is_err(), "{bad:x?}");
        }
    }

    #[test]
    fn the_options_of_fluent_bit_are_known() {
        let with = |key: &str, value: &[u8]| {
            message(|out| {
                out.extend_from_slice(&[0x94, 0xa1, b't', 1, 0x80]);
                out.write_map(1);
                out.write_str(key);
                out.extend_from_slice(value);
            })
        };
        let metadata = with("metadata", &[0x81, 0xa1, b'k', 1]);
        let read = Message::read(&metadata).unwrap().unwrap();
        assert_eq!(read.metadata.unwrap().item(), Ok(Item::Map(1)));
        assert_eq!(times(read.events), Ok(vec![NANOS]));
        assert!(Message::read(&with("fluent_signal", &[0])).is_ok());
        let refused = Message::read(&with("fluent_signal", &[1])).unwrap_err();
        assert!(refused.to_string().contains("metrics"), "{refused}");
    }

    #[test]
    fn other_structures_are_refused() {
        let cases: [&[u8]; 9] = [
            &[0x80],
            &[0x90],
            &[0x92, 0x01, 0x01],
            &[0x92, 0xa1, b't', 0xc2],
            &[0x92, 0xa1, b't', 0x01, 0x80],
            &[0x91, 0xa1, b't', 0x90],
            &[0x94, 0xa1, b't', 0x90, 0x80, 0x80],
            &[0x93, 0xa1, b't', 0x90, 0x01],
            &[0x93, 0xa1, b't', 0x90, 0x81, 0x01, 0x01],
        ];
        for bytes in cases {
            assert!(Message::read(bytes).is_err(), "{bytes:x?}");
        }
        let long = message(|out| {
            out.write_array(3);
            out.write_str("t");
            out.write_array(0);
            out.write_map(1);
            out.write_str("chunk");
            out.write_str(&"x".repeat(CHUNK_MAX_BYTES + 1));
        });
        assert!(Message::read(&long).is_err());
        for bytes in [&[0x91, 0x01][..], &[0x01, 0x80], &[0x92, 0xa1, b'x', 0x80]] {
            assert!(times(Events::Packed(bytes)).is_err(), "{bytes:x?}");
        }
    }

    #[test]
    fn times_of_all_forms_are_nanoseconds() {
        assert_eq!(time_ns(Item::Int(-3)), Ok(-3 * NANOS));
        assert_eq!(time_ns(Item::Int(i64::MAX)), Ok(i64::MAX));
        assert_eq!(time_ns(Item::Float(1.5)), Ok(1_500_000_000));
        assert_eq!(time_ns(Item::Float(f64::NAN)), Ok(0));
        let event_time = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 7];
        assert_eq!(time_ns(Item::Ext(0, &event_time)), Ok(i64::from(u32::MAX) * NANOS + 7));
        assert!(time_ns(Item::Ext(0, &event_time[..4])).is_err());
        assert!(time_ns(Item::Ext(1, &event_time)).is_err());
        let mut out = Vec::new();
        write_event_time(&mut out, u64::MAX);
        assert!(time_ns(Reader::new(&out).item().unwrap()).is_ok());
    }

    #[test]
    fn acknowledgements_are_read_as_they_were_written() {
        for chunk in [&b"p8n9gmxTQVC8/nh2wlKKeQ=="[..], b"\xff\xfe"] {
            let mut out = Vec::new();
            write_ack(&mut out, chunk);
            assert_eq!(read_ack(&out), Ok(chunk));
        }
        for bytes in [&[0x80][..], &[0x90], &[0x81, 0xa3, b'a', b'c', b'k', 0x01]] {
            assert!(read_ack(bytes).is_err());
        }
    }
}
