//! A frame or a dead letter as stored bytes, passed on unchanged.

use bytes::Bytes;
use sluice_engine::stored::{self, FrameMetadata};
use sluice_log::dead_letters::DeadLetter;
use sluice_log::format::Refusal;
use sluice_log::{Charge, Record, RecordFacts, StoredRecord};

/// What is stored of a request. The log appends, keeps and drops it without interpreting it.
pub(super) struct Stored {
    /// The offset of a frame, or the number of a letter.
    pub number: u64,
    pub items: u64,
    pub facts: RecordFacts,
    pub metadata: Bytes,
    pub payload: Bytes,
}

impl Stored {
    pub(super) fn of_letter(letter: DeadLetter) -> (Self, Refusal) {
        let DeadLetter { number, refusal, facts, items, metadata, payload } = letter;
        (Stored { number, items, facts, metadata, payload }, refusal)
    }

    /// Its charge against budgets, as the engine computed it.
    pub(super) fn charge(&self) -> Charge {
        Charge { bytes: stored::charge_bytes(self.payload.len()), items: self.items }
    }

    /// The receiver's name, to be shown.
    pub(super) fn receiver(&self) -> String {
        FrameMetadata::decode(&self.metadata)
            .map_or_else(|error| format!("({error})"), |metadata| metadata.receiver)
    }
}

impl Record for Stored {
    fn facts(&self) -> RecordFacts {
        self.facts
    }

    fn encode_metadata(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(&self.metadata);
    }

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn decode(stored: StoredRecord) -> Option<Self> {
        let StoredRecord { offset: number, facts, charge, metadata, payload } = stored;
        Some(Stored { number, items: charge.items, facts, metadata, payload })
    }

    /// No sender waits: closing the log says whether everything was written.
    fn durable(&self) {}
}
