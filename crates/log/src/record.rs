//! What a log on disk must know of its entries.

use bytes::Bytes;

use crate::types::{Charge, Offset};

/// The few facts of an entry that stand in its frame's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordFacts {
    /// Wall clock on receipt, for people.
    pub received_unix_ns: u64,
    /// How the payload is compressed, in codes of the log's user.
    pub encoding: u8,
    /// Free for the log's user, except for the highest bit, which has to be 0.
    pub flags: u8,
    pub uncompressed_len_bytes: u32,
}

/// An entry, or a dead letter, as it was read back. As a record it is passed on unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Of a dead letter: its number.
    pub offset: Offset,
    pub facts: RecordFacts,
    pub charge: Charge,
    pub metadata: Bytes,
    pub payload: Bytes,
}

/// An entry that can be kept on disk.
pub trait Record: Send + Sync + Sized + 'static {
    fn facts(&self) -> RecordFacts;

    /// Appends everything that [`Record::decode`] needs beside facts and payload.
    fn encode_metadata(&self, output: &mut Vec<u8>);

    fn payload(&self) -> &[u8];

    /// None if the bytes are whole but not understood: the entry counts as damaged.
    fn decode(stored: StoredRecord) -> Option<Self>;

    /// The entry is on disk for good. Called once by the writer thread, without a lock, after the
    /// sync; not for entries that were read back. One that is resolved meanwhile may get it too.
    fn durable(&self);
}

impl Record for StoredRecord {
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
        Some(stored)
    }

    /// No thread waits: closing the log says whether everything was written.
    fn durable(&self) {}
}
