//! The mapping of fields to metrics. A number or a boolean is a point whose attributes are the
//! line's tags; strings are attributes of the line's first point, because they say more about it.
//!
//! | line | metric |
//! |---|---|
//! | `m value=1` | `m` |
//! | `m f=1` | `m_f`, with the metadata `influxdb.field: f` |
//! | a float; an integer | a gauge of doubles; of integers |
//! | an unsigned integer | of integers, `influxdb.type: unsigned` |
//! | … beyond OTLP's integers | of doubles; the attribute `influxdb.unsigned` has the digits |
//! | a boolean | 0 or 1, `influxdb.type: boolean` |
//! | `m s="text",value=1` | the attribute `s`, with `influxdb.strings: [s]` |
//! | only strings | 1, `influxdb.type: string` |
//! | a counter of k6 | a sum of deltas instead of a gauge |
//!
//! Metadata stands once a metric: a point costs no more for it.

use sluice_otlp::wire::{LEN, varint_len, write_len_field, write_varint};

/// The attribute of a resource that names the database, or the bucket, that lines were written to.
pub const DATABASE: &str = "influxdb.database";

/// The attribute of a resource that names the retention policy.
pub const RETENTION_POLICY: &str = "influxdb.retention_policy";

/// Metadata of a metric: the field that it is.
pub const FIELD: &str = "influxdb.field";

/// Metadata of a metric: the type of that field, if it has to be said.
pub const TYPE: &str = "influxdb.type";

/// Metadata of a metric: the keys of attributes that are fields of text.
pub const STRINGS: &str = "influxdb.strings";

/// The [`TYPE`] of fields that have no numbers.
pub const BOOLEAN: &str = "boolean";
pub const STRING: &str = "string";

pub(crate) const UNSIGNED: &str = "influxdb.unsigned";

/// The field that a metric without metadata is.
pub(crate) const VALUE: &str = "value";

/// The values of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Float,
    Integer,
    Unsigned,
    /// Beyond OTLP's integers.
    LargeUnsigned,
    Boolean,
    /// None: the strings are attributes.
    String,
}

impl Kind {
    /// `influxdb.type`, if it has to be said.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Kind::Float | Kind::Integer => None,
            Kind::Unsigned | Kind::LargeUnsigned => Some("unsigned"),
            Kind::Boolean => Some(BOOLEAN),
            Kind::String => Some(STRING),
        }
    }
}

/// Field of a metric's metadata.
const METADATA: u8 = 12;

/// Writes a `KeyValue` with a text. `field` is below 16.
pub(crate) fn attribute(out: &mut Vec<u8>, field: u8, key: &[u8], value: &[u8]) {
    let value_len = 1 + varint_len(value.len()) + value.len();
    let key_len = 1 + varint_len(key.len()) + key.len();
    out.push(field << 3 | LEN);
    write_varint(out, (key_len + 1 + varint_len(value_len) + value_len) as u64);
    write_len_field(out, 1, key);
    out.push(2 << 3 | LEN);
    write_varint(out, value_len as u64);
    write_len_field(out, 1, value);
}

/// The metadata of a metric of these fields.
pub(crate) fn metadata(field: &[u8], kind: Kind, strings: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    if kind != Kind::String && field != VALUE.as_bytes() {
        attribute(&mut out, METADATA, FIELD.as_bytes(), field);
    }
    if let Some(name) = kind.name() {
        attribute(&mut out, METADATA, TYPE.as_bytes(), name.as_bytes());
    }
    if !strings.is_empty() {
        let mut values = Vec::new();
        for string in strings {
            let mut value = Vec::new();
            write_len_field(&mut value, 1, string);
            write_len_field(&mut values, 1, &value);
        }
        let (mut value, mut entry) = (Vec::new(), Vec::new());
        write_len_field(&mut value, 5, &values);
        write_len_field(&mut entry, 1, STRINGS.as_bytes());
        write_len_field(&mut entry, 2, &value);
        write_len_field(&mut out, u32::from(METADATA), &entry);
    }
    out
}
