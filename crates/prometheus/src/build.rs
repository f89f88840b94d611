//! Parts of OTLP's points, as scrapes and remote write make them.

use sluice_otlp::wire::{LEN, varint_len, write_len_field, write_message, write_varint};

use crate::native::{Native, Side};

/// Writes a field of eight bytes.
pub fn fixed64(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(field << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Writes a double.
pub fn double(out: &mut Vec<u8>, field: u8, value: f64) {
    fixed64(out, field, value.to_bits());
}

fn signed(out: &mut Vec<u8>, field: u8, value: i32) {
    out.push(field << 3);
    write_varint(out, u64::from((value << 1 ^ value >> 31) as u32));
}

/// One attribute with a text.
pub fn attribute(out: &mut Vec<u8>, field: u8, name: &str, value: &str) {
    let value_len = 1 + varint_len(value.len()) + value.len();
    let name_len = 1 + varint_len(name.len()) + name.len();
    out.push(field << 3 | LEN);
    write_varint(out, (name_len + 1 + varint_len(value_len) + value_len) as u64);
    write_len_field(out, 1, name.as_bytes());
    out.push(2 << 3 | LEN);
    write_varint(out, value_len as u64);
    write_len_field(out, 1, value.as_bytes());
}

/// Writes an exemplar. `labels` tells its labels; those with ids become ids.
pub fn exemplar(
    out: &mut Vec<u8>,
    field: u8,
    time_ns: u64,
    value: f64,
    labels: impl FnOnce(&mut dyn FnMut(&str, &str)),
) {
    write_message(out, u32::from(field), 1, |out| {
        fixed64(out, 2, time_ns);
        double(out, 3, value);
        labels(&mut |name, text| {
            let id = match name.to_ascii_lowercase().as_str() {
                "span_id" => id::<8>(text).map(|id| write_len_field(out, 4, &id)),
                "trace_id" => id::<16>(text).map(|id| write_len_field(out, 5, &id)),
                _ => None,
            };
            if id.is_none() {
                attribute(out, 7, name, text);
            }
        });
    });
}

/// An id of hexadecimal digits: the first ones of longer ones, shorter ones get zeros in front.
fn id<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let len = (digits.len() / 2).min(N);
    if len < N && !digits.len().is_multiple_of(2) {
        return None;
    }
    let mut id = [0; N];
    for (byte, pair) in id[N - len..].iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(id).filter(|id| *id != [0; N])
}

/// Writes the fields of an exponential histogram's point that its buckets are.
pub fn native_content(out: &mut Vec<u8>, native: &Native) {
    fixed64(out, 4, native.count);
    double(out, 5, native.sum);
    signed(out, 6, native.schema);
    fixed64(out, 7, native.zero_count);
    for (field, side) in [(8, &native.positive), (9, &native.negative)] {
        if !side.counts.is_empty() {
            write_message(out, field, 1, |out| side_content(out, side));
        }
    }
    double(out, 14, native.zero_threshold);
}

fn side_content(out: &mut Vec<u8>, side: &Side) {
    signed(out, 1, side.offset);
    write_message(out, 2, 1, |out| {
        for count in &side.counts {
            write_varint(out, *count);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_cut_or_filled() {
        assert_eq!(id::<4>("00112233"), Some([0, 0x11, 0x22, 0x33]));
        assert_eq!(id::<4>("AB"), Some([0, 0, 0, 0xab]));
        assert_eq!(id::<2>("00112233"), Some([0, 0x11]));
        assert_eq!(id::<2>("00112"), Some([0, 0x11]));
        for text in ["", "0", "0x", "zz", "001", "+1", "0000"] {
            assert_eq!(id::<2>(text), None, "{text}");
        }
    }
}
