//! Reading and writing scalars of protobuf.

use sluice_otlp::wire::{FIXED64, Field, LEN, VARINT, read_varint, write_varint};

/// The value of a field of eight bytes; zero for any other.
pub(crate) fn fixed64(bytes: &[u8], field: &Field) -> u64 {
    match field.wire_type {
        FIXED64 => eight(&bytes[field.content()]),
        _ => 0,
    }
}

pub(crate) fn double(bytes: &[u8], field: &Field) -> f64 {
    f64::from_bits(fixed64(bytes, field))
}

fn eight(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Appends numbers of eight bytes, packed or not.
pub(crate) fn all_fixed64(bytes: &[u8], field: &Field, mut each: impl FnMut(u64)) {
    match field.wire_type {
        FIXED64 => each(fixed64(bytes, field)),
        LEN => bytes[field.content()].chunks_exact(8).map(eight).for_each(each),
        _ => {}
    }
}

/// Appends varints, packed or not. An unreadable rest is left out.
pub(crate) fn all_varints(bytes: &[u8], field: &Field, mut each: impl FnMut(u64)) {
    match field.wire_type {
        VARINT => each(field.varint(bytes)),
        LEN => {
            let (packed, mut at) = (&bytes[field.content()], 0);
            while at < packed.len() {
                let Ok((value, next)) = read_varint(packed, at) else { return };
                each(value);
                at = next;
            }
        }
        _ => {}
    }
}

pub(crate) fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

pub(crate) fn to_zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// Writes a field of eight bytes. Zero is left out, as proto3 does; minus zero is not.
pub(crate) fn write_double(out: &mut Vec<u8>, field: u8, value: f64) {
    if value.to_bits() != 0 {
        write_present_double(out, field, value);
    }
}

/// Writes a field of eight bytes even if it is zero: a member of a `oneof`.
pub(crate) fn write_present_double(out: &mut Vec<u8>, field: u8, value: f64) {
    out.push(field << 3 | FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Writes a varint. Zero is left out.
pub(crate) fn write_int(out: &mut Vec<u8>, field: u8, value: u64) {
    if value != 0 {
        write_present_int(out, field, value);
    }
}

/// Writes a varint even if it is zero: a member of a `oneof`. `field` is below 32.
pub(crate) fn write_present_int(out: &mut Vec<u8>, field: u8, value: u64) {
    write_varint(out, u64::from(field) << 3 | u64::from(VARINT));
    write_varint(out, value);
}
