//! Bodies of requests that wait, to be admitted or for a check of their credentials.
//!
//! Arriving bytes are read into a buffer that is charged as it grows. Left unread, each frame would
//! keep the whole buffer that it came in, with all that the peer puts between its frames; and the
//! frames would fill the window that all requests of a connection share.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use sluice_flow::BoxFuture;
use sluice_flow::source::{ArrivedBody, MemoryPool, Permit};
use sluice_net::server::{BodyError, BodyReader};
use tokio::time::Instant;

/// The reason for which a request waits.
#[derive(Clone, Copy)]
pub(super) enum Waits<'a> {
    /// To be admitted. Gets the memory of the body once all of it has arrived.
    ForAdmission(&'a ArrivedBody),
    /// For a check of its credentials. It gives way if others need the memory that its connection
    /// holds.
    ForCheck,
}

pub(super) struct Body {
    reader: BodyReader,
    /// The length that the peer announced, if it did.
    pub(super) announced_len_bytes: Option<u64>,
    /// Bytes that were read and are not used yet, in this order.
    held: Vec<u8>,
    pub(super) last: Option<Bytes>,
    charged: Option<Permit>,
    has_ended: bool,
}

impl Body {
    pub(super) fn new(reader: BodyReader) -> Self {
        let announced_len_bytes = reader.announced_len_bytes();
        let (held, last, charged) = (Vec::new(), None, None);
        Body { reader, announced_len_bytes, held, last, charged, has_ended: false }
    }

    /// The next piece: see [`BodyReader::next`].
    pub(super) async fn next(
        &mut self,
        before: Option<Instant>,
    ) -> Result<Option<Option<Bytes>>, BodyError> {
        match self.read_before() {
            Some(piece) => Ok(Some(piece)),
            None => self.reader.next(before).await,
        }
    }

    /// The bytes that were read while the request waited, then its end.
    fn read_before(&mut self) -> Option<Option<Bytes>> {
        if !self.held.is_empty() {
            return Some(Some(std::mem::take(&mut self.held).into()));
        }
        if let Some(piece) = self.last.take() {
            return Some(Some(piece));
        }
        self.charged = None;
        self.has_ended.then_some(None)
    }

    /// Waits, and reads arriving bytes into memory of this pool. `None`: there is not enough, or it
    /// has to give way.
    pub(super) async fn read_while<T>(
        &mut self,
        mut wait: BoxFuture<'_, T>,
        pool: impl FnOnce() -> Arc<dyn MemoryPool>,
        waits: Waits<'_>,
    ) -> Result<Option<T>, BodyError> {
        // Most requests wait for nothing: they pay for no larger future.
        if let Some(result) = wait.as_mut().now_or_never() {
            return Ok(Some(result));
        }
        self.reader.set_waiting(true);
        let result = Box::pin(self.read_until(wait, pool(), waits)).await;
        self.reader.set_waiting(false);
        result
    }

    async fn read_until<T>(
        &mut self,
        mut wait: BoxFuture<'_, T>,
        pool: Arc<dyn MemoryPool>,
        waits: Waits<'_>,
    ) -> Result<Option<T>, BodyError> {
        let mut memory_is_short = pin!(self.reader.until_memory_is_short());
        if self.charged.is_none() {
            self.charged = Permit::take(pool, 0).ok();
        }
        let mut has_room = self.last.take().is_none_or(|piece| self.hold(piece));
        while has_room {
            if let (Waits::ForAdmission(arrived), true) = (waits, self.has_ended) {
                self.charged.take().into_iter().for_each(|permit| arrived.set(permit));
            }
            let is_read = !self.has_ended && !self.reader.comes_when_asked();
            tokio::select! {
                biased;
                result = &mut wait => return Ok(Some(result)),
                () = &mut memory_is_short, if matches!(waits, Waits::ForCheck) => return Ok(None),
                piece = self.reader.next(None), if is_read => match piece?.flatten() {
                    Some(piece) => has_room = self.hold(piece),
                    None => self.has_ended = true,
                },
            }
        }
        Ok(None)
    }

    /// False: there is no memory for the piece. Then it is the next piece all the same.
    fn hold(&mut self, piece: Bytes) -> bool {
        let (len, capacity) = (self.held.len() + piece.len(), self.held.capacity());
        if len > capacity {
            // Twice as much, or what is needed if there is no more.
            let wanted = [len.max(2 * capacity), len];
            let grow = |charged: &mut Permit| {
                wanted.into_iter().find(|wanted| charged.grow_to(*wanted).is_ok())
            };
            let Some(capacity) = self.charged.as_mut().and_then(grow) else {
                self.last = Some(piece);
                return false;
            };
            self.held.reserve_exact(capacity - self.held.len());
        }
        self.held.extend_from_slice(&piece);
        true
    }
}
