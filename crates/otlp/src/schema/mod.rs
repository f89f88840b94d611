//! The OTLP messages (opentelemetry-proto 1.x): one table for scanning, splitting and JSON.
//!
//! The tests compile this folder too, to write requests in every form that the protocol allows;
//! `tests/schema.rs` compares the table with the official generated types.

mod messages;

pub(crate) use messages::{KEY_VALUE, LOGS_REQUEST, METRIC, METRICS_REQUEST, TRACES_REQUEST};

/// The wire types of protobuf.
pub const VARINT: u8 = 0;
pub const FIXED64: u8 = 1;
pub const LEN: u8 = 2;
pub const FIXED32: u8 = 5;

/// Its table by number comes first, so that scanning finds it without an offset.
#[repr(C)]
pub(crate) struct Message {
    by_number: [WireKind; NUMBERS],
    /// As in the `.proto` files.
    #[allow(dead_code, reason = "the tests find the official type of a message by it")]
    pub(crate) name: &'static str,
    /// In the order in which JSON is written. At most [`FIELDS_LIMIT`].
    pub(crate) fields: &'static [Field],
}

pub(crate) struct Field {
    pub(crate) number: u32,
    /// In lowerCamelCase.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) presence: Presence,
    wire: WireKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// A singular scalar whose default value means absent.
    Implicit,
    /// `optional`, or a singular message.
    Explicit,
    /// A member of the message's oneof. No OTLP message has two of them.
    Oneof,
    Repeated,
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Bool,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Fixed32,
    Fixed64,
    Sfixed64,
    Double,
    /// The prefix of its values' names, and the rest of each name, from 0 on. Enums are open.
    Enum(&'static str, &'static str),
    String,
    Bytes,
    /// A trace or span id of this many bytes (or none).
    Id(usize),
    Message(&'static Message),
}

/// The kind of a field for scanning: it decides how a value is validated.
#[derive(Clone, Copy)]
pub(crate) enum WireKind {
    Unknown,
    Varint,
    Fixed32,
    Fixed64,
    String,
    Bytes,
    TraceId,
    SpanId,
    /// Repeated scalars: packed or one a field, as protobuf demands of every reader.
    RepeatedVarint,
    RepeatedFixed64,
    KeyValue,
    Message(&'static Message),
    /// A message that leads to items: a ResourceX, a ScopeX, a metric.
    Level(&'static Message),
    /// A message that is counted: a span, a data point, a log record.
    Item(&'static Message),
    /// The variants of `Metric.data`, of which the last one on the wire counts.
    Data(&'static Message),
}

/// Most fields of a message: JSON keeps a slot for each.
pub(crate) const FIELDS_LIMIT: usize = 16;
/// Highest field number that is known anywhere, plus one.
const NUMBERS: usize = 17;

pub(crate) const TRACE_ID_BYTES: usize = 16;
pub(crate) const SPAN_ID_BYTES: usize = 8;

impl Kind {
    /// The wire type of one value that is not packed.
    pub(crate) const fn wire_type(self) -> u8 {
        match self {
            Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => FIXED64,
            Kind::Fixed32 => FIXED32,
            Kind::String | Kind::Bytes | Kind::Id(_) | Kind::Message(_) => LEN,
            _ => VARINT,
        }
    }

    const fn wire_kind(self, presence: Presence) -> WireKind {
        let is_repeated = matches!(presence, Presence::Repeated);
        match self {
            Kind::Message(message) => WireKind::Message(message),
            Kind::String => WireKind::String,
            Kind::Bytes => WireKind::Bytes,
            Kind::Id(TRACE_ID_BYTES) => WireKind::TraceId,
            Kind::Id(_) => WireKind::SpanId,
            Kind::Fixed32 => WireKind::Fixed32,
            _ => match (self.wire_type(), is_repeated) {
                (FIXED64, true) => WireKind::RepeatedFixed64,
                (FIXED64, false) => WireKind::Fixed64,
                (_, true) => WireKind::RepeatedVarint,
                (_, false) => WireKind::Varint,
            },
        }
    }
}

impl Field {
    const fn new(number: u32, name: &'static str, kind: Kind, presence: Presence) -> Field {
        Field { number, name, kind, presence, wire: kind.wire_kind(presence) }
    }
}

impl Message {
    const fn new(name: &'static str, fields: &'static [Field]) -> Message {
        let mut by_number = [WireKind::Unknown; NUMBERS];
        let mut index = 0;
        while index < fields.len() {
            by_number[fields[index].number as usize] = fields[index].wire;
            index += 1;
        }
        Message { by_number, name, fields }
    }

    #[inline(always)]
    pub(crate) fn wire_kind(&self, number: u32) -> WireKind {
        self.by_number.get(number as usize).copied().unwrap_or(WireKind::Unknown)
    }

    pub(crate) fn numbered(&self, number: u32) -> Option<usize> {
        self.fields.iter().position(|field| field.number == number)
    }

    /// The index of the field that JSON calls `name`. Looks at `hint` first: the order is fixed.
    pub(crate) fn named(&self, name: &str, hint: usize) -> Option<usize> {
        if self.fields.get(hint).is_some_and(|field| field.name == name) {
            return Some(hint);
        }
        self.fields
            .iter()
            .position(|field| field.name == name || is_original_name(name, field.name))
    }
}

/// Whether `original` is the snake_case form of `camel`.
fn is_original_name(original: &str, camel: &str) -> bool {
    let mut rest = original.bytes();
    camel.bytes().all(|byte| match byte.is_ascii_uppercase() {
        true => rest.next() == Some(b'_') && rest.next() == Some(byte.to_ascii_lowercase()),
        false => rest.next() == Some(byte),
    }) && rest.next().is_none()
}

/// Field numbers of all signals: requests contain resources, those scopes, those items or metrics.
pub(crate) const REQUEST_RESOURCES: u32 = 1;
pub(crate) const RESOURCE_X_RESOURCE: u32 = 1;
pub(crate) const RESOURCE_X_SCHEMA_URL: u32 = 3;
pub(crate) const RESOURCE_X_SCOPES: u32 = 2;
pub(crate) const SCOPE_X_SCOPE: u32 = 1;
pub(crate) const SCOPE_X_ENTRIES: u32 = 2;
pub(crate) const DATA_POINTS: u32 = 1;
