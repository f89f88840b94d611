//! A note behind the body of a packed request: numbers by which its answer is judged, and behind
//! them whatever else the exporter notes. It is not sent.

use bytes::Bytes;
use sluice_flow::{Outcome, Packed};

/// The bytes of numbers, little-endian.
pub(crate) fn bytes_of(numbers: &[u64]) -> impl Iterator<Item = u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes())
}

/// The first numbers of a note; zero where there are none.
pub(crate) fn numbers_of<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut numbers = [0; N];
    for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = bytes.try_into().map_or(0, u64::from_le_bytes);
    }
    numbers
}

/// The body and the note of a packed request.
///
/// # Errors
/// The outcome of a request without a note.
pub(crate) fn body_and_note(request: &Packed) -> Result<(&Bytes, &Bytes), Outcome> {
    match &*request.chunks {
        [body, note] => Ok((body, note)),
        _ => {
            let reason = "the request was packed by another exporter".to_owned();
            Err(Outcome::Failed { reason })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluice_otlp::{Encoding, Signal};

    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_noted() {
        let bytes: Vec<u8> = bytes_of(&[3, u64::MAX]).chain(*b"more").collect();
        assert_eq!(numbers_of::<2>(&bytes), [3, u64::MAX]);
        assert_eq!(numbers_of::<1>(&bytes), [3]);
        assert_eq!(numbers_of::<2>(&bytes[..15]), [3, 0]);
    }

    #[test]
    fn a_request_without_a_note_fails() {
        let packed = |chunks: Vec<Bytes>| {
            Packed::new(Signal::Metrics, 1, chunks, Encoding::Identity, Arc::default())
        };
        let [body, note] = ["body", "note"].map(Bytes::from);
        let request = packed(vec![body.clone(), note.clone()]);
        assert_eq!(body_and_note(&request), Ok((&body, &note)));
        for chunks in [vec![], vec![body.clone()], vec![body.clone(), note.clone(), note]] {
            let outcome = body_and_note(&packed(chunks)).expect_err("has no note");
            assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
        }
    }
}
