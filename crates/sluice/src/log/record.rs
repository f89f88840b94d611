//! A frame as stored bytes, passed on unchanged.

use bytes::Bytes;
use sluice_engine::stored::{self, FrameMetadata};
use sluice_log::dead_letters::DeadLetter;
use sluice_log::{Charge, DecodeError, Record, RecordFacts, StoredRecord};

/// The data that the log needs to append, keep and drop frames without interpreting them.
pub(super) struct RawRecord {
    facts: RecordFacts,
    metadata: Bytes,
    payload: Bytes,
}

impl RawRecord {
    pub(super) fn of_letter(letter: DeadLetter) -> Self {
        let facts = RecordFacts {
            received_unix_ns: letter.received_unix_ns,
            encoding: letter.encoding,
            flags: letter.flags,
            uncompressed_len_bytes: letter.uncompressed_len_bytes,
        };
        RawRecord { facts, metadata: letter.metadata, payload: letter.payload }
    }

    /// Its charge against budgets, as the engine computed it.
    pub(super) fn charge(&self, items: u32) -> Charge {
        Charge { bytes: stored::charge_bytes(self.payload.len()), items: u64::from(items) }
    }
}

impl Record for RawRecord {
    fn facts(&self) -> RecordFacts {
        self.facts
    }

    fn encode_metadata(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(&self.metadata);
    }

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn decode(stored: StoredRecord) -> Result<Self, DecodeError> {
        Ok(RawRecord { facts: stored.facts, metadata: stored.metadata, payload: stored.payload })
    }

    /// No sender waits: closing the log says whether everything was written.
    fn durable(&self) {}
}

/// The receiver's name, to be shown.
pub(super) fn receiver(metadata: &[u8]) -> String {
    match FrameMetadata::decode(metadata) {
        Ok(metadata) => metadata.receiver,
        Err(error) => format!("({error})"),
    }
}
