//! A plain reader and writer of protobuf's wire format, for tests: clarity before speed, panics on
//! malformed input.

/// One field occurrence: its number, wire type, and value. `value` is the payload without the
/// length prefix for wire type 2, the little-endian bytes for types 1 and 5, the minimal varint for
/// type 0, and the bytes between the tags of a group for type 3.
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
        let (number, wire_type) = read_tag(&mut bytes);
        let value = read_value(&mut bytes, number, wire_type);
        records.push(Record { number, wire_type, value });
    }
    records
}

fn read_tag(bytes: &mut &[u8]) -> (u32, u8) {
    let tag = read_varint(bytes);
    ((tag >> 3) as u32, (tag & 7) as u8)
}

fn read_value(bytes: &mut &[u8], number: u32, wire_type: u8) -> Vec<u8> {
    match wire_type {
        0 => {
            let mut value = Vec::new();
            write_varint(&mut value, read_varint(bytes), 0);
            value
        }
        1 => take(bytes, 8),
        2 => {
            let len = read_varint(bytes) as usize;
            take(bytes, len)
        }
        3 => {
            let content = *bytes;
            loop {
                let len = content.len() - bytes.len();
                let (inner, wire_type) = read_tag(bytes);
                if wire_type == 4 {
                    assert_eq!(inner, number, "a test's groups end where they began");
                    return content[..len].to_vec();
                }
                read_value(bytes, inner, wire_type);
            }
        }
        5 => take(bytes, 4),
        other => panic!("wire type {other} in a test's message"),
    }
}

/// Writes one record; `tag_padding` and `len_padding` are the bytes by which these varints exceed
/// their minimal form.
pub fn write_record(out: &mut Vec<u8>, record: &Record, tag_padding: usize, len_padding: usize) {
    write_varint(out, u64::from(record.number) << 3 | u64::from(record.wire_type), tag_padding);
    if record.wire_type == 2 {
        write_varint(out, record.value.len() as u64, len_padding);
    }
    out.extend_from_slice(&record.value);
    if record.wire_type == 3 {
        write_varint(out, u64::from(record.number) << 3 | 4, tag_padding);
    }
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
