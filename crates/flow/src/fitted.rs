//! Payloads in memory of their length, which is what they are charged for as long as they are kept.

use bytes::Bytes;

/// A buffer of which more than an eighth is unused is copied: mimalloc keeps a block whole that is
/// shrunk by less than half.
pub fn fitted(bytes: Vec<u8>) -> Bytes {
    if bytes.capacity() - bytes.len() > bytes.len() / 8 {
        return Bytes::copy_from_slice(&bytes);
    }
    Bytes::from(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: little is kept beside the payload, whatever there was room for.
    #[test]
    fn a_payload_keeps_no_more_than_an_eighth_beside_it() {
        for (length, capacity) in [(0, 1000), (1, 1000), (600, 1000), (900, 1000), (1000, 1000)] {
            let mut buffer = Vec::with_capacity(capacity);
            buffer.resize(length, 7);
            let payload = fitted(buffer);
            assert_eq!(payload, vec![7; length]);
            let kept = Vec::from(payload).capacity();
            assert!(kept <= length + length / 8, "{kept} for {length}");
        }
    }
}
