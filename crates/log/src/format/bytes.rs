//! Little-endian numbers at fixed places of a block.

pub(super) fn put_u16(block: &mut [u8], at: usize, value: u16) {
    block[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u32(block: &mut [u8], at: usize, value: u32) {
    block[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u64(block: &mut [u8], at: usize, value: u64) {
    block[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn get_u16(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(block, at))
}

pub(super) fn get_u32(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(block, at))
}

pub(super) fn get_u64(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(block, at))
}

pub(super) fn get_u128(block: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(array(block, at))
}

fn array<const LEN: usize>(block: &[u8], at: usize) -> [u8; LEN] {
    *block[at..].first_chunk().expect("a block has its fields")
}

/// The longest start of a text that fits into `limit_bytes`, cut between characters.
pub(super) fn cut_text(text: &str, limit_bytes: usize) -> &[u8] {
    let mut end = text.len().min(limit_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text.as_bytes()[..end]
}
