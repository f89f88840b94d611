//! Step 4: reading a body that has been admitted.

use bytes::Bytes;
use sluice_flow::source::{Connection, IngressRoute, Permit};
use sluice_net::grpc::MessageReader;
use sluice_net::grpc::frame::{FrameError, Message};
use sluice_net::server::{BodyReader, RequestBody, SharedWindow};

use super::admitted::Admitted;
use super::ingest::Ingest;
use super::refusal::Refused;

/// What is admitted at first of a body that does not tell its length.
const STEP_BYTES: usize = 64 << 10;

/// The connection's flow-control window, as far as admission is concerned.
struct Window<'a>(&'a SharedWindow);

impl Connection for Window<'_> {
    fn try_wait(&self, bytes: usize) -> Option<Box<dyn Send>> {
        Some(Box::new(self.0.try_wait(bytes)?))
    }

    fn unread_bytes(&self, bytes: usize) -> usize {
        self.0.unread_bytes(bytes)
    }
}

impl Ingest {
    /// Reads the one message of a unary call. Memory is asked for as soon as its prefix is there.
    pub(super) async fn read_message(
        &self,
        route: &dyn IngressRoute,
        body: RequestBody,
    ) -> Result<(Message, Permit), Refused> {
        let mut body = BodyReader::new(body, self.body_timeouts);
        let mut reader = MessageReader::new(self.limit_bytes);
        let mut admitted: Option<Admitted> = None;
        loop {
            let piece = match &mut admitted {
                None => body.next().await?,
                Some(admitted) => admitted.next(&mut body, reader.received_bytes()).await?,
            };
            let Some(mut chunk) = piece else { break };
            if admitted.is_none() {
                let Some(prefix) = reader.feed_prefix(&mut chunk)? else { continue };
                let permit = route.admit(prefix.len_bytes, &Window(body.window())).await?;
                admitted = Some(Admitted::new(permit, &self.resources));
            }
            reader.feed(chunk)?;
        }
        let message = reader.finish()?;
        let admitted = admitted.ok_or(FrameError::Missing)?;
        Ok((message, admitted.into_permit()))
    }

    /// Reads a whole HTTP body, whose length may or may not be known.
    pub(super) async fn read_body(
        &self,
        route: &dyn IngressRoute,
        body: RequestBody,
    ) -> Result<(Bytes, Permit), Refused> {
        let mut body = BodyReader::new(body, self.body_timeouts);
        let announced =
            body.announced_len_bytes().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if announced.is_some_and(|length| length > self.limit_bytes) {
            return Err(Refused::too_large(self.limit_bytes));
        }
        let at_first = announced.unwrap_or(STEP_BYTES);
        let permit = route.admit(at_first, &Window(body.window())).await?;
        let mut admitted = Admitted::new(permit, &self.resources);
        let mut bytes = Vec::new();
        while let Some(chunk) = admitted.next(&mut body, bytes.len()).await? {
            let length = bytes.len() + chunk.len();
            if length > self.limit_bytes {
                return Err(Refused::too_large(self.limit_bytes));
            }
            admitted.reach(length)?;
            // All that is admitted, and no more: a buffer that grows by itself holds twice as much.
            bytes.reserve_exact(admitted.bytes() - bytes.len());
            bytes.extend_from_slice(&chunk);
        }
        bytes.shrink_to_fit();
        Ok((Bytes::from(bytes), admitted.into_permit()))
    }
}
