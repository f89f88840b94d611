//! Steps 3 and 4: asking for memory for a body, and reading it.

use bytes::Bytes;
use sluice_flow::fitted;
use sluice_flow::source::{ArrivedBody, IngressRoute, Permit};
use sluice_net::compress::Packing;
use sluice_net::grpc::MessageReader;
use sluice_net::grpc::frame::FrameError;
use sluice_otlp::Encoding;

use super::admitted::Admitted;
use super::ingest::Ingest;
use super::refusal::Refused;
use super::waiting::{Body, Waits};

/// Memory that is admitted at first for a body that does not tell its length.
const STEP_BYTES: usize = 64 << 10;

impl Ingest {
    /// Reads the one message of a unary call. Memory is asked for as soon as its prefix has come.
    /// `packing` is that of messages that are compressed; one may be sent as it is.
    pub(super) async fn read_message(
        &self,
        route: &dyn IngressRoute,
        body: &mut Body,
        packing: Packing,
    ) -> Result<(Bytes, Packing, Permit), Refused> {
        const PLAIN: Packing = Packing::Known(Encoding::Identity);
        let mut reader = MessageReader::new(self.config.limit_bytes);
        let prefix = loop {
            let Some(mut chunk) = body.next(None).await?.flatten() else {
                reader.finish()?;
                return Err(FrameError::Missing.into());
            };
            if let Some(prefix) = reader.feed_prefix(&mut chunk)? {
                body.last = Some(chunk);
                break prefix;
            }
        };
        let mut admitted = self.admit(route, prefix.len_bytes, body).await?;
        while let Some(chunk) = admitted.next().await? {
            reader.feed(chunk)?;
        }
        let message = reader.finish()?;
        if message.compressed && packing == PLAIN {
            return Err(Refused::invalid(
                "the message is marked as compressed, but grpc-encoding is identity",
            ));
        }
        let packing = if message.compressed { packing } else { PLAIN };
        Ok((message.bytes, packing, admitted.permit))
    }

    /// Reads a whole HTTP body, whose length may or may not be known.
    pub(super) async fn read_body(
        &self,
        route: &dyn IngressRoute,
        body: &mut Body,
    ) -> Result<(Bytes, Permit), Refused> {
        let announced =
            body.announced_len_bytes.map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if announced.is_some_and(|length| length > self.config.limit_bytes) {
            return Err(Refused::too_large(self.config.limit_bytes));
        }
        let mut admitted = self.admit(route, announced.unwrap_or(STEP_BYTES), body).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = admitted.next().await? {
            let length = bytes.len() + chunk.len();
            if length > self.config.limit_bytes {
                return Err(Refused::too_large(self.config.limit_bytes));
            }
            admitted.reach(length, route)?;
            // All that is admitted, and no more: a buffer that grows by itself uses twice as much.
            bytes.reserve_exact(admitted.permit.bytes() - bytes.len());
            bytes.extend_from_slice(&chunk);
        }
        Ok((fitted(bytes), admitted.permit))
    }

    async fn admit<'a>(
        &'a self,
        route: &dyn IngressRoute,
        len_bytes: usize,
        body: &'a mut Body,
    ) -> Result<Admitted<'a>, Refused> {
        let (pool, arrived) = (|| self.ingress.waiting(true), ArrivedBody::default());
        let wait = route.admit(len_bytes, &arrived);
        let waited = body.read_while(wait, pool, Waits::ForAdmission(&arrived)).await?;
        let permit = waited.unwrap_or_else(|| route.admit_at_once(len_bytes))?;
        Ok(Admitted::new(body, permit, &self.scheduler))
    }
}
