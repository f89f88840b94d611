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
        RawRecord { facts: letter.facts, metadata: letter.metadata, payload: letter.payload }
    }

    /// Its charge against budgets, as the engine computed it.
    pub(super) fn charge(&self, items: u64) -> Charge {
        Charge { bytes: stored::charge_bytes(self.payload.len()), items }
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
