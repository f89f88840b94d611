//! A plain reader and writer of protobuf's wire format, for tests: clarity before speed, panics on malformed input.

/// One field occurrence: its number, wire type, and value. `value` holds the payload without the length prefix for wire
/// type 2, the little-endian bytes for types 1 and 5, and the minimal varint for type 0.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    pub number: u32,
    pub wire_type: u8,
    pub value: Vec<u8>,
}

/// The field occurrences of one message, in order.
pub fn records(mut bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let tag = read_varint(&mut bytes);
        let wire_type = (tag & 7) as u8;
        let value = match wire_type {
            0 => {
                let mut value = Vec::new();
                write_varint(&mut value, read_varint(&mut bytes), 0);
                value
            }
            1 => take(&mut bytes, 8),
            2 => {
                let len = read_varint(&mut bytes) as usize;
                take(&mut bytes, len)
            }
            5 => take(&mut bytes, 4),
            other => panic!("wire type {other} in a test's message"),
        };
        records.push(Record { number: (tag >> 3) as u32, wire_type, value });
    }
    records
}

/// Writes one record; `tag_padding` and `len_padding` are the bytes by which these varints exceed their minimal form.
pub fn write_record(out: &mut Vec<u8>, record: &Record, tag_padding: usize, len_padding: usize) {
    write_varint(out, u64::from(record.number) << 3 | u64::from(record.wire_type), tag_padding);
    if record.wire_type == 2 {
        write_varint(out, record.value.len() as u64, len_padding);
    }
    out.extend_from_slice(&record.value);
}

pub fn read_varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = bytes.split_first().expect("a varint ends within the message");
        *bytes = rest;
        if shift < 64 {
            value |= u64::from(byte & 0x7f) << shift;
        }
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a varint of more than ten bytes in a test's message");
}

/// Writes `value` with `padding` bytes more than it needs, ten at most in all.
pub fn write_varint(out: &mut Vec<u8>, mut value: u64, padding: usize) {
    let mut len = 1;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
        len += 1;
    }
    let padding = padding.min(10 - len);
    if padding == 0 {
        out.push(value as u8);
        return;
    }
    out.push(value as u8 | 0x80);
    out.extend(std::iter::repeat_n(0x80, padding - 1));
    out.push(0);
}

fn take(bytes: &mut &[u8], len: usize) -> Vec<u8> {
    let (head, rest) = bytes.split_at(len);
    *bytes = rest;
    head.to_vec()
}
