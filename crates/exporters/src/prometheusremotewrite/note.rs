//! The note of a request: what its answer has to say of its samples.

use bytes::Bytes;
use sluice_prometheus::Counts;

use crate::note::{bytes_of, numbers_of};

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
        bytes_of(&[self.points, self.dropped, self.written]).collect()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Note {
        let [points, dropped, written] = numbers_of(bytes);
        Note { points, dropped, written }
    }
}
