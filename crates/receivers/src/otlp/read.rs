//! Steps 3 and 4: asking for memory for a body, and reading it.

use bytes::Bytes;
use sluice_flow::source::{IngressRoute, Permit};
use sluice_net::grpc::MessageReader;
use sluice_net::grpc::frame::{FrameError, Message};

use super::admitted::Admitted;
use super::ingest::Ingest;
use super::refusal::Refused;
use super::waiting::Body;

/// What is admitted at first of a body that does not tell its length.
const STEP_BYTES: usize = 64 << 10;

impl Ingest {
    /// Reads the one message of a unary call. Memory is asked for as soon as its prefix is there.
    pub(super) async fn read_message(
        &self,
        route: &dyn IngressRoute,
        mut body: Body,
    ) -> Result<(Message, Permit), Refused> {
        let mut reader = MessageReader::new(self.limit_bytes);
        let mut admitted: Option<Admitted> = None;
        loop {
            let piece = match &mut admitted {
                None => body.next().await?,
                Some(admitted) => admitted.next(&mut body, reader.received_bytes()).await?,
            };
            let Some(mut chunk) = piece else { break };
            if admitted.is_some() {
                reader.feed(chunk)?;
            } else if let Some(prefix) = reader.feed_prefix(&mut chunk)? {
                body.put_back(chunk);
                admitted = Some(self.admit(route, prefix.len_bytes, &mut body).await?);
            }
        }
        let message = reader.finish()?;
        let admitted = admitted.ok_or(FrameError::Missing)?;
        Ok((message, admitted.into_permit()))
    }

    /// Reads a whole HTTP body, whose length may or may not be known.
    pub(super) async fn read_body(
        &self,
        route: &dyn IngressRoute,
        mut body: Body,
    ) -> Result<(Bytes, Permit), Refused> {
        let announced =
            body.announced_len_bytes().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if announced.is_some_and(|length| length > self.limit_bytes) {
            return Err(Refused::too_large(self.limit_bytes));
        }
        let at_first = announced.unwrap_or(STEP_BYTES);
        let mut admitted = self.admit(route, at_first, &mut body).await?;
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

    async fn admit(
        &self,
        route: &dyn IngressRoute,
        len_bytes: usize,
        body: &mut Body,
    ) -> Result<Admitted, Refused> {
        let pool = || self.ingress.waiting(true);
        let waited = body.read_while(route.admit(len_bytes), pool).await?;
        let permit = waited.unwrap_or_else(|| route.admit_at_once(len_bytes))?;
        Ok(Admitted::new(permit, &self.resources))
    }
}
