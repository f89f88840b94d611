//! A note behind the body of a packed request, of points that have no line. It is not sent.

use bytes::Bytes;
use sluice_influx::Written;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// Points that cannot be written as lines.
    pub(super) left_out: u64,
    /// Of these, points without a time.
    pub(super) without_time: u64,
}

impl Note {
    pub(super) fn of(written: &Written) -> Note {
        let Written { left_out, without_time, .. } = *written;
        Note { left_out, without_time }
    }

    pub(super) fn to_bytes(self) -> Bytes {
        let numbers = [self.left_out, self.without_time];
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Note {
        let mut numbers = [0; 2];
        for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = bytes.try_into().map_or(0, u64::from_le_bytes);
        }
        let [left_out, without_time] = numbers;
        Note { left_out, without_time }
    }
}
