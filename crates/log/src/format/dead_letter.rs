//! The refusal of a dead letter, which stands before the frame's original metadata: time, status
//! and reason.

use bytes::{Buf as _, BufMut as _};

use super::cut_text;

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
        output.put_u64_le(self.refused_unix_ns);
        output.put_u32_le(self.code);
        output.put_u32_le(reason.len() as u32);
        output.put_slice(reason);
    }

    /// The refusal and its length in bytes. None if the metadata has no refusal.
    pub fn decode(metadata: &[u8]) -> Option<(Self, usize)> {
        let fixed = metadata.get(..FIXED_LEN_BYTES)?;
        let len = FIXED_LEN_BYTES + (&fixed[12..]).get_u32_le() as usize;
        let reason = String::from_utf8_lossy(metadata.get(FIXED_LEN_BYTES..len)?).into_owned();
        let (refused_unix_ns, code) = ((&fixed[..]).get_u64_le(), (&fixed[8..]).get_u32_le());
        Some((Refusal { refused_unix_ns, code, reason }, len))
    }
}
