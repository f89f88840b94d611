//! The facts that a log on disk needs of its entries.

use bytes::Bytes;

use crate::types::{Charge, Offset};

/// Facts of an entry that stand in its frame's header.
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

/// An entry, or a dead letter, as it was read back. Its [`Record`] methods return it unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// For a dead letter: its number.
    pub offset: Offset,
    pub facts: RecordFacts,
    pub charge: Charge,
    pub metadata: Bytes,
    pub payload: Bytes,
}

/// Why nothing can be made of the bytes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecodable {
    Damaged,
    /// A newer release wrote it, and reads it.
    OfNewerRelease,
}

/// An entry that can be kept on disk.
pub trait Record: Send + Sync + Sized + 'static {
    fn facts(&self) -> RecordFacts;

    /// Appends everything that [`Record::decode`] needs beside facts and payload.
    fn encode_metadata(&self, output: &mut Vec<u8>);

    fn payload(&self) -> &[u8];

    /// The bytes are whole: their checksum holds.
    fn decode(stored: StoredRecord) -> Result<Self, Undecodable>;

    /// The entry is durable on disk. The writer thread calls this once, without a lock, after the
    /// sync. Not called for entries that were read back; may be called for resolved ones.
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

    fn decode(stored: StoredRecord) -> Result<Self, Undecodable> {
        Ok(stored)
    }

    /// No thread waits: closing the log says whether everything was written.
    fn durable(&self) {}
}
