//! An entry of the log: a frame, and the sender or source that learns of its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluice_flow::hop::Fetched;
use sluice_flow::source::Position;
use sluice_flow::{Frame, Payload, Refusal};
use sluice_log::{Charge, CursorId, Record, RecordFacts, StoredRecord, Undecodable};

use crate::ack::Ack;
use crate::hop::Mark;
use crate::receiving::ReceivingBudget;
use crate::shared_work::{SharedWork, SharedWorkMemory};
use crate::stored::{self, FrameMetadata};

/// Stands for the receiver of a frame that was read back: it is known by its name only.
const RECEIVER_BY_NAME: u16 = u16::MAX;

/// The receiver of a route's frames, and the steps that were run on them before the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub receiver: String,
    /// Fingerprints of the steps that were run before the log, in order. None of them runs again.
    pub prepared: Vec<u64>,
    /// The log that gave a frame its offset. None if it is not known.
    pub log: Option<u128>,
}

pub(crate) struct Entry {
    pub frame: Frame,
    pub origin: Arc<Origin>,
    pub ack: Option<Ack>,
    /// None: the frame was read from disk.
    pub shared: Option<SharedWork>,
    /// Requests may wait there for the disk to take frames like this one.
    pub receiving: Option<Arc<ReceivingBudget>>,
    /// Set where the source can read the frame again, or its ranges are known at once.
    pub source: Option<Source>,
    /// The ranges that a sending Sluice named.
    pub mark: Option<Arc<Mark>>,
    /// The name that its source gave it, by which another Sluice knows it.
    pub fetched: Option<Box<Fetched>>,
}

/// The position of a frame in its source, and the deliveries for which the checkpoint has to wait.
pub(crate) struct Source {
    position: Option<Position>,
    mark: Option<Arc<Mark>>,
    /// Deliveries that have neither resolved the frame nor left.
    unresolved: AtomicUsize,
    /// Some delivery has resolved it. If all have left instead, the source has to read it again.
    is_resolved: AtomicBool,
}

impl Source {
    /// `deliveries`: the number of deliveries that have to resolve the frame.
    pub(crate) fn new(
        position: Option<Position>,
        mark: Option<Arc<Mark>>,
        deliveries: usize,
    ) -> Self {
        let unresolved = AtomicUsize::new(deliveries);
        Source { position, mark, unresolved, is_resolved: AtomicBool::new(false) }
    }

    /// This process can no longer lose the frame.
    fn resolve(&self) {
        self.position.iter().for_each(Position::resolve);
        self.mark.iter().for_each(|mark| mark.keep());
    }

    fn leave(&self, deliveries: usize) {
        let before = self.unresolved.fetch_sub(deliveries, Ordering::SeqCst);
        if before == deliveries && self.is_resolved.load(Ordering::SeqCst) {
            self.resolve();
        }
    }
}

impl Entry {
    pub(crate) fn new(
        frame: Frame,
        origin: Arc<Origin>,
        ack: Option<Ack>,
        memory: Arc<SharedWorkMemory>,
    ) -> Self {
        let shared = Some(SharedWork::new(memory));
        let (receiving, source, mark, fetched) = Default::default();
        Entry { frame, origin, ack, shared, receiving, source, mark, fetched }
    }

    pub(crate) fn charge(&self) -> Charge {
        let ranges_bytes = self.mark.as_ref().map_or(0, |mark| mark.ranges().memory_bytes());
        let headers_bytes = self.frame.metadata.headers_bytes();
        let bytes = self.frame.payload.bytes.len() + headers_bytes + ranges_bytes;
        Charge { bytes: stored::charge_bytes(bytes), items: u64::from(self.frame.items) }
    }

    /// Index of the receiver in this run. None if it is known by its name only.
    pub(crate) fn receiver(&self) -> Option<u16> {
        Some(self.frame.receiver).filter(|receiver| *receiver != RECEIVER_BY_NAME)
    }

    /// `reader` has resolved the frame. The last one that the sender waits for answers it.
    pub(crate) fn resolve(&self, reader: CursorId, result: Result<(), Refusal>) {
        if result.is_ok() {
            self.resolve_source();
        }
        if let Some(ack) = &self.ack {
            ack.resolve(reader, result);
        }
    }

    /// `reader` has given the frame up, as its policy declares. `is_lost`: no delivery has taken
    /// it, and none has it any more. Then a sender that still waits gets a retryable refusal.
    pub(crate) fn given_up(&self, reader: CursorId, is_lost: bool) {
        self.resolve_source();
        if let Some(ack) = &self.ack {
            let lost = || Err(Refusal::unconfirmed("dropped before it was delivered or on disk"));
            ack.resolve(reader, if is_lost { lost() } else { Ok(()) });
        }
    }

    fn resolve_source(&self) {
        if let Some(source) = &self.source {
            source.is_resolved.store(true, Ordering::SeqCst);
            source.leave(1);
        }
    }

    /// A reload had removed these before the frame was appended: neither its sender nor a
    /// checkpoint waits for them.
    pub(crate) fn not_appended_for(&self, gone: &[CursorId]) {
        self.released(gone.len());
        if let Some(ack) = &self.ack {
            gone.iter().for_each(|reader| ack.resolve(*reader, Ok(())));
        }
    }

    /// A reload has removed this many of the deliveries that the frame was for. They hold up no
    /// checkpoint; but if no other delivery has resolved the frame, its source reads it again.
    fn released(&self, deliveries: usize) {
        if let Some(source) = &self.source {
            source.leave(deliveries);
        }
    }

    /// A reload has removed `reader` before it resolved the frame. `is_kept`: its backlog stays.
    pub(crate) fn abandoned(&self, reader: CursorId, is_kept: bool) {
        if !is_kept {
            self.released(1);
        }
        if let Some(ack) = &self.ack {
            ack.abandoned(reader);
        }
    }

    /// Its sender has no answer yet: the frame was not acknowledged.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.ack.as_ref().is_some_and(Ack::is_unanswered)
    }

    /// Its fate is its sender's business, who has no answer or a delivery's refusal.
    /// Otherwise it was acknowledged, or its sender does not know what became of it.
    pub(crate) fn is_with_sender(&self) -> bool {
        self.ack.as_ref().is_some_and(Ack::is_with_sender)
    }

    /// Its sender has gone without an answer, and sends it again if it still matters.
    pub(crate) fn is_deserted(&self) -> bool {
        self.source.is_none() && self.ack.as_ref().is_some_and(Ack::is_deserted)
    }
}

impl Record for Entry {
    fn facts(&self) -> RecordFacts {
        let received = self.frame.received_wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        RecordFacts {
            received_unix_ns: received.as_nanos() as u64,
            encoding: stored::encoding_code(self.frame.payload.encoding),
            flags: stored::flags(self.frame.signal),
            uncompressed_len_bytes: self.frame.payload.uncompressed_len_bytes as u32,
        }
    }

    fn encode_metadata(&self, output: &mut Vec<u8>) {
        let Origin { receiver, prepared, log } = &*self.origin;
        stored::encode(receiver, prepared, &self.frame.metadata, output);
        let mark = self.mark.as_ref().filter(|mark| mark.is_stored());
        let ranges = mark.map(|mark| mark.ranges());
        stored::encode_identity(*log, ranges, self.fetched.as_deref(), output);
    }

    fn payload(&self) -> &[u8] {
        &self.frame.payload.bytes
    }

    fn decode(record: StoredRecord) -> Result<Self, Undecodable> {
        use Undecodable::{Damaged, OfNewerRelease};
        let facts = record.facts;
        if stored::is_of_newer_release(&record.metadata) {
            return Err(OfNewerRelease);
        }
        let metadata = FrameMetadata::decode(&record.metadata).map_err(|_| Damaged)?;
        let payload = Payload {
            bytes: record.payload,
            encoding: stored::encoding_of(facts.encoding).ok_or(OfNewerRelease)?,
            uncompressed_len_bytes: facts.uncompressed_len_bytes as usize,
        };
        let received_wall = UNIX_EPOCH.checked_add(Duration::from_nanos(facts.received_unix_ns));
        let frame = Frame {
            signal: stored::signal_of(facts.flags).ok_or(OfNewerRelease)?,
            items: u32::try_from(record.charge.items).unwrap_or(u32::MAX),
            payload,
            receiver: RECEIVER_BY_NAME,
            received_wall: received_wall.unwrap_or_else(SystemTime::now),
            metadata: Arc::new(metadata.sender),
        };
        let FrameMetadata { receiver, prepared, log, fetched, .. } = metadata;
        let origin = Arc::new(Origin { receiver, prepared, log });
        let (ack, shared, receiving, source, mark) = Default::default();
        let fetched = fetched.map(Box::new);
        Ok(Entry { frame, origin, ack, shared, receiving, source, mark, fetched })
    }

    fn durable(&self) {
        if let Some(source) = &self.source {
            // From now on the log owns it: to read it again would double it.
            source.resolve();
        }
        if let Some(ack) = &self.ack {
            ack.durable();
        }
        if let Some(receiving) = &self.receiving {
            receiving.note_all_freed();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use bytes::Bytes;

    use super::*;

    fn frame() -> Frame {
        let metadata = sluice_flow::Metadata {
            peer: None,
            headers: vec![("tenant".to_owned(), b"a".to_vec())],
        };
        Frame {
            signal: sluice_otlp::Signal::Logs,
            items: 3,
            payload: Payload {
                bytes: Bytes::from_static(b"compressed"),
                encoding: sluice_otlp::Encoding::Zstd,
                uncompressed_len_bytes: 400,
            },
            receiver: 0,
            received_wall: UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            metadata: Arc::new(metadata),
        }
    }

    fn entry(frame: Frame) -> Entry {
        let origin =
            Arc::new(Origin { receiver: "otlp/in".to_owned(), prepared: vec![5, 6], log: Some(7) });
        Entry::new(frame, origin, None, Arc::new(SharedWorkMemory::new(0, Arc::default())))
    }

    #[test]
    fn a_frame_that_is_on_disk_lets_a_request_in_that_waits_for_memory() {
        let receiving = ReceivingBudget::new(0);
        let waited_for = Entry { receiving: Some(receiving.clone()), ..entry(frame()) };
        let mut waits = pin!(receiving.freed(sluice_otlp::Signal::Logs).notified());
        assert!(!waits.as_mut().enable());
        waited_for.durable();
        assert!(waits.as_mut().enable(), "it is told at once, and not when its patience ends");
        entry(frame()).durable();
    }

    /// Scenario: tiny requests with kilobytes of headers. Guarantee: budgets and the disk account
    /// for the headers.
    #[test]
    fn request_metadata_is_part_of_what_a_frame_costs() {
        let without = Frame { metadata: Arc::default(), ..frame() };
        let tenant = ("tenant".to_owned(), vec![b'a'; 12_000]);
        let with = Frame {
            metadata: Arc::new(sluice_flow::Metadata { peer: None, headers: vec![tenant] }),
            ..without.clone()
        };
        let (without, with) = (entry(without).charge().bytes, entry(with).charge().bytes);
        assert!(with >= without + 12_000, "{with} bytes with headers, {without} without");
    }

    #[test]
    fn an_entry_comes_back_from_the_disk_as_it_was() {
        let entry = entry(frame());
        let mut encoded = Vec::new();
        entry.encode_metadata(&mut encoded);
        let record = |flags| StoredRecord {
            offset: 9,
            facts: RecordFacts { flags, ..entry.facts() },
            charge: entry.charge(),
            metadata: Bytes::from(encoded.clone()),
            payload: Bytes::copy_from_slice(entry.payload()),
        };
        let read = Entry::decode(record(entry.facts().flags)).unwrap();
        assert_eq!(
            (read.frame.signal, read.frame.items, read.receiver()),
            (sluice_otlp::Signal::Logs, 3, None)
        );
        assert_eq!(
            (&read.origin, read.frame.received_wall),
            (&entry.origin, entry.frame.received_wall)
        );
        assert_eq!((&read.frame.metadata, read.charge()), (&entry.frame.metadata, entry.charge()));
        assert_eq!(read.frame.payload.encoding, sluice_otlp::Encoding::Zstd);
        assert_eq!(
            (read.frame.payload.uncompressed_len_bytes, read.payload()),
            (400, entry.payload())
        );
        // Frames that only a newer release knows are no damage: they are kept for it.
        let with_metadata = |metadata: &[u8]| {
            let stored = record(entry.facts().flags);
            Entry::decode(StoredRecord { metadata: Bytes::copy_from_slice(metadata), ..stored })
                .err()
        };
        assert_eq!(Entry::decode(record(0)).err(), Some(Undecodable::OfNewerRelease));
        assert_eq!(with_metadata(&[2, 0, 0]), Some(Undecodable::OfNewerRelease));
        assert_eq!(with_metadata(&encoded[..3]), Some(Undecodable::Damaged));
    }
}
