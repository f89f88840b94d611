//! The note of a request: points that have no line, and the points of each measurement.

use bytes::Bytes;
use sluice_flow::{ItemNames, Packed, Reserved, Taken};
use sluice_influx::{K6_METRICS, Written, count_points};

use crate::note::{body_and_note, bytes_of, numbers_of};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// Points that cannot be written as lines.
    pub(super) left_out: u64,
    /// Of these, points without a time.
    pub(super) without_time: u64,
}

const NOTE_BYTES: usize = 16;

impl Note {
    pub(super) fn of(written: &Written) -> Note {
        let Written { left_out, without_time, .. } = *written;
        Note { left_out, without_time }
    }

    /// `measurements`: from [`note_measurement`].
    pub(super) fn to_bytes(self, measurements: &[u8]) -> Bytes {
        let numbers = [self.left_out, self.without_time];
        bytes_of(&numbers).chain(measurements.iter().copied()).collect()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Note {
        let [left_out, without_time] = numbers_of(bytes);
        Note { left_out, without_time }
    }
}

/// Appends a measurement: the length of its name, three numbers, its name.
pub(super) fn note_measurement(name: &[u8], written: &Written, out: &mut Vec<u8>) {
    // A point that ends a series needs no line.
    let items = written.points + written.ends;
    out.extend(bytes_of(&[name.len() as u64, items, written.left_out]));
    out.extend_from_slice(name);
}

/// Counts points by measurement.
pub(super) struct Measurements;

impl ItemNames for Measurements {
    fn reserved(&self) -> Reserved {
        &K6_METRICS
    }

    fn of_packed(&self, request: &Packed, count: &mut dyn FnMut(&[u8], Taken)) {
        const HEAD_BYTES: usize = 24;
        let Ok((_, note)) = body_and_note(request) else { return };
        let mut left = note.get(NOTE_BYTES..).unwrap_or_default();
        while let Some((head, behind)) = left.split_at_checked(HEAD_BYTES) {
            let [len, items, left_out] = numbers_of(head);
            let Some((name, next)) = behind.split_at_checked(len as usize) else { return };
            count(name, Taken { items, left_out });
            left = next;
        }
    }

    fn of_request(&self, request: &[u8], count: &mut dyn FnMut(&[u8], u64)) {
        // Nothing can be read behind a fault.
        let _ = count_points(request, count);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluice_otlp::{Encoding, Signal};

    use super::*;

    #[test]
    fn a_note_has_what_was_noted() {
        let mut measurements = Vec::new();
        let part = Written { points: 3, left_out: 1, ends: 2, ..Written::default() };
        note_measurement(b"http_reqs", &part, &mut measurements);
        note_measurement(b"", &Written::default(), &mut measurements);
        let note = Note { left_out: 3, without_time: 2 };
        let bytes = note.to_bytes(&measurements);
        assert_eq!(Note::from_bytes(&bytes), note);
        let told = |chunks: Vec<Bytes>| {
            let packed =
                Packed::new(Signal::Metrics, 6, chunks, Encoding::Identity, Arc::default());
            let mut told = Vec::new();
            let count = &mut |name: &[u8], taken: Taken| told.push((name.to_vec(), taken));
            Measurements.of_packed(&packed, count);
            told
        };
        let expected = [
            (b"http_reqs".to_vec(), Taken { items: 5, left_out: 1 }),
            (Vec::new(), Taken::default()),
        ];
        assert_eq!(told(vec![Bytes::from_static(b"lines"), bytes.clone()]), expected);
        assert_eq!(told(vec![Bytes::new(), bytes.slice(..bytes.len() - 1)]), expected[..1]);
        assert!(told(vec![bytes]).is_empty());
    }
}
