//! The little of protobuf's wire format that generators and backends need: written on purpose apart from what is tested.

use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("malformed protobuf")]
pub(crate) struct Malformed;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// Iterates over the fields of one encoded message. After an error it ends.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Fields { rest: message }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for (index, byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| Malformed)?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| Malformed)?)),
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(len)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().map_err(|_| Malformed)?)),
            _ => return Err(Malformed),
        };
        Ok((number, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_unsigned(out: &mut Vec<u8>, field: u32, value: u64) {
    put_varint(out, u64::from(field) << 3);
    put_varint(out, value);
}

pub(crate) fn put_fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    put_varint(out, u64::from(field) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends `KeyValue { key, value: AnyValue { string_value } }` as field `field`.
pub(crate) fn put_attribute(out: &mut Vec<u8>, field: u32, key: &str, value: &[u8]) {
    let mut any = Vec::with_capacity(value.len() + 4);
    put_bytes(&mut any, 1, value);
    let mut pair = Vec::with_capacity(key.len() + any.len() + 8);
    put_bytes(&mut pair, 1, key.as_bytes());
    put_bytes(&mut pair, 2, &any);
    put_bytes(out, field, &pair);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back() {
        let mut message = Vec::new();
        put_unsigned(&mut message, 1, 300);
        put_fixed64(&mut message, 7, u64::MAX);
        put_bytes(&mut message, 16, b"abc");
        let fields: Result<Vec<_>, _> = Fields::of(&message).collect();
        assert_eq!(
            fields.unwrap(),
            [(1, Value::Varint(300)), (7, Value::Fixed64(u64::MAX)), (16, Value::Bytes(b"abc"))]
        );
    }

    #[test]
    fn lengths_beyond_the_end_and_endless_varints_are_malformed() {
        for bytes in [&[0x0a, 5, 1][..], &[0xff; 11], &[0x09, 1, 2], &[0x0b]] {
            assert!(Fields::of(bytes).any(|field| field.is_err()), "{bytes:?}");
        }
    }
}
