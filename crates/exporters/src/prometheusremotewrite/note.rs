//! A note behind the body of a packed request: the answer is judged by it. It is not sent.

use bytes::Bytes;
use sluice_prometheus::Counts;

const NUMBERS: usize = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// Points of the request.
    pub(super) points: u64,
    /// Of these, points that remote write cannot express.
    pub(super) dropped: u64,
    /// Samples and native histograms in the body.
    pub(super) written: u64,
}

impl Note {
    pub(super) fn of(counts: &Counts) -> Note {
        let Counts { points, dropped, samples, histograms, .. } = *counts;
        Note { points, dropped, written: samples + histograms }
    }

    pub(super) fn to_bytes(self) -> Bytes {
        let numbers = [self.points, self.dropped, self.written];
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Note {
        let mut numbers = [0; NUMBERS];
        for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = bytes.try_into().map_or(0, u64::from_le_bytes);
        }
        let [points, dropped, written] = numbers;
        Note { points, dropped, written }
    }
}
