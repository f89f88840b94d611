//! The refusal of a dead letter, which stands before the frame's original metadata: time, status
//! and reason.

use super::bytes::{cut_text, get_u32, get_u64, put_u32, put_u64};

/// Longest reason; the rest is cut.
pub const REASON_LIMIT_BYTES: usize = 4096;

const FIXED_LEN_BYTES: usize = 16;

/// Why a frame was refused for good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// Wall clock.
    pub refused_unix_ns: u64,
    /// The backend's status, in codes of the log's user.
    pub code: u32,
    /// For people. At most [`REASON_LIMIT_BYTES`].
    pub reason: String,
}

impl Refusal {
    pub fn encode(&self, output: &mut Vec<u8>) {
        let reason = cut_text(&self.reason, REASON_LIMIT_BYTES);
        let mut fixed = [0; FIXED_LEN_BYTES];
        put_u64(&mut fixed, 0, self.refused_unix_ns);
        put_u32(&mut fixed, 8, self.code);
        put_u32(&mut fixed, 12, reason.len() as u32);
        output.extend_from_slice(&fixed);
        output.extend_from_slice(reason);
    }

    /// The refusal and its length in bytes. None if the metadata has no refusal.
    pub fn decode(metadata: &[u8]) -> Option<(Self, usize)> {
        let fixed = metadata.get(..FIXED_LEN_BYTES)?;
        let len = FIXED_LEN_BYTES + get_u32(fixed, 12) as usize;
        let reason = String::from_utf8_lossy(metadata.get(FIXED_LEN_BYTES..len)?).into_owned();
        Some((Refusal { refused_unix_ns: get_u64(fixed, 0), code: get_u32(fixed, 8), reason }, len))
    }
}
