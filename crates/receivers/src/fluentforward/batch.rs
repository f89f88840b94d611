//! The messages that arrived together, and the OTLP requests that are made of them.

use std::ops::Range;

use bytes::Bytes;
use sluice_flow::source::{Permit, is_large_work};
use sluice_net::forward::message::{Message, write_ack};

use super::records::Records;
use super::refused::Refused;

/// Small messages become as much together, or less.
const EXPECTED_BYTES: usize = 64 << 10;
/// A message's tag, as far as it is told in a refusal.
const TAG_SHOWN: usize = 64;

/// The messages that arrived together.
pub(super) struct Batch {
    pub bytes: Bytes,
    /// The ends of the messages in `bytes`.
    ends: Vec<usize>,
    /// Each message asks for an acknowledgement: its sender keeps it until then.
    pub is_kept_by_sender: bool,
    has_compressed: bool,
}

/// The OTLP request of some messages that lie one after the other, and maybe one more message,
/// which is refused.
pub(super) struct Piece {
    pub payload: Bytes,
    pub items: u32,
    /// The acknowledgements of all chunks.
    pub acks: Vec<u8>,
    pub chunks: u64,
    /// Strings that were not UTF-8.
    pub repaired_strings: u64,
    /// Messages in the request, and their bytes as they were sent.
    pub messages: usize,
    pub len_bytes: usize,
    pub refused: Option<RefusedMessage>,
}

/// A message that is refused for good, and none beside it.
pub(super) struct RefusedMessage {
    pub why: Refused,
    /// Its sender keeps it, and sends it again to another connection.
    pub is_kept: bool,
}

impl Piece {
    /// Messages of the batch that it deals with.
    pub(super) fn len(&self) -> usize {
        self.messages + usize::from(self.refused.is_some())
    }
}

impl Batch {
    pub(super) fn new(bytes: Bytes, ends: Vec<usize>) -> Batch {
        let mut batch = Batch { bytes, ends, is_kept_by_sender: true, has_compressed: false };
        let (mut is_kept, mut has_compressed) = (true, false);
        for message in (0..batch.len()).filter_map(|index| batch.message(index).ok().flatten()) {
            is_kept &= message.chunk.is_some();
            has_compressed |= message.compressed.is_some();
        }
        (batch.is_kept_by_sender, batch.has_compressed) = (is_kept, has_compressed);
        batch
    }

    /// The number of messages.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether converting takes so long that it must not be done on a thread that serves
    /// connections. Compressed events may become a thousand times as many.
    pub(super) fn is_large(&self, inline_bytes: usize) -> bool {
        self.has_compressed || self.bytes.len() > inline_bytes
    }

    fn range(&self, index: usize) -> Range<usize> {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[index]
    }

    /// `None`: it is a heartbeat.
    fn message(&self, index: usize) -> Result<Option<Message<'_>>, Refused> {
        Ok(Message::read(&self.bytes[self.range(index)])?)
    }

    /// The first piece of these messages: it ends where submitting it would take long, where memory
    /// or the limit do not allow for more, or with a message that is refused. CPU work only.
    ///
    /// The permit covers the batch; it grows by what is made of it before that is allocated, and
    /// covers the batch and the piece in the end.
    ///
    /// # Errors
    /// The first message is refused for the moment.
    pub(super) fn convert(
        &self,
        messages: Range<usize>,
        permit: &mut Permit,
        limit_bytes: usize,
    ) -> Result<Piece, Refused> {
        let base_bytes = permit.bytes();
        let first = self.range(messages.start);
        let all_bytes = self.range(messages.end - 1).end - first.start;
        let mut records = Records::new(permit, limit_bytes)?;
        records.expect(first.len().max(all_bytes.min(EXPECTED_BYTES)));
        let (mut acks, mut chunks, mut len_bytes, mut refused) = (Vec::new(), 0, 0, None);
        let start = messages.start;
        let mut end = start;
        for index in messages {
            match self.add(index, &mut records) {
                Ok(chunk) => {
                    chunk.iter().for_each(|chunk| write_ack(&mut acks, chunk));
                    chunks += u64::from(chunk.is_some());
                    len_bytes += self.range(index).len();
                    end = index + 1;
                    if is_large_work(records.bytes(), records.items as usize) {
                        break;
                    }
                }
                // It may have room without those before it.
                Err((why, _)) if !records.is_empty() && why.is_for_want_of_room() => break,
                Err((why, _)) if why.delay.is_some() => return Err(why),
                Err((why, is_kept)) => {
                    refused = Some(RefusedMessage { why, is_kept });
                    break;
                }
            }
        }
        let (items, repaired_strings) = (records.items, records.repaired_strings);
        let payload = records.finish()?;
        let all_bytes = base_bytes + payload.len() + acks.len();
        permit.shrink_to(all_bytes);
        permit.grow_to(all_bytes)?;
        let messages = end - start;
        Ok(Piece { payload, items, acks, chunks, repaired_strings, messages, len_bytes, refused })
    }

    /// The message's chunk; or why it is refused, and whether its sender keeps it.
    fn add(
        &self,
        index: usize,
        records: &mut Records<'_>,
    ) -> Result<Option<&[u8]>, (Refused, bool)> {
        // One that cannot be read tells nothing of its sender, who has to begin anew.
        let Some(message) = self.message(index).map_err(|why| (why, true))? else {
            return Ok(None);
        };
        records.add(&message).map_err(|why| {
            let tag = &message.tag[..message.tag.len().min(TAG_SHOWN)];
            let tag = String::from_utf8_lossy(tag);
            let text = format!("a message with the tag {tag:?}: {}", why.message);
            (Refused { message: text, ..why }, message.chunk.is_some())
        })?;
        Ok(message.chunk)
    }
}
