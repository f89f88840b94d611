//! Step 4: reading a body that has been admitted.

use bytes::Bytes;
use futures_util::FutureExt;
use sluice_flow::source::{Connection, IngressRoute, Permit};
use sluice_flow::{BoxFuture, Refusal};
use sluice_net::grpc::MessageReader;
use sluice_net::grpc::frame::{FrameError, Message};
use sluice_net::server::{BodyReader, RequestBody, SharedWindow};

use super::admitted::Admitted;
use super::ingest::Ingest;
use super::refusal::Refused;

/// What is admitted at first of a body that does not tell its length.
const STEP_BYTES: usize = 64 << 10;

/// The connection's flow-control window, as far as the admission of a request is concerned.
struct Window {
    of_connection: SharedWindow,
    body: Body,
}

/// A body while its request waits to be admitted.
#[derive(PartialEq, Eq)]
enum Body {
    /// It is left unread. HTTP sees to it that the peer sends no more than it announced.
    Announced,
    /// It is left unread, and the peer may send what the window has room for.
    Unknown,
    /// It is read: nothing else keeps the peer to what it announced.
    Read,
}

impl Connection for Window {
    fn try_wait(&self, bytes: usize) -> Option<Box<dyn Send>> {
        let unread_bytes = if self.body == Body::Read { 0 } else { self.held_bytes(bytes) };
        Some(Box::new(self.of_connection.try_wait(unread_bytes)?))
    }

    fn held_bytes(&self, bytes: usize) -> usize {
        let len_bytes = if self.body == Body::Unknown { usize::MAX } else { bytes };
        self.of_connection.unread_bytes(len_bytes)
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
            if admitted.is_some() {
                reader.feed(chunk)?;
            } else if let Some(prefix) = reader.feed_prefix(&mut chunk)? {
                let permit =
                    admit_message(route, prefix.len_bytes, chunk, &mut reader, &mut body).await?;
                admitted = Some(Admitted::new(permit, &self.resources));
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
        body: RequestBody,
    ) -> Result<(Bytes, Permit), Refused> {
        let mut body = BodyReader::new(body, self.body_timeouts);
        let announced =
            body.announced_len_bytes().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if announced.is_some_and(|length| length > self.limit_bytes) {
            return Err(Refused::too_large(self.limit_bytes));
        }
        let at_first = announced.unwrap_or(STEP_BYTES);
        let at_rest = if announced.is_some() { Body::Announced } else { Body::Unknown };
        let window = Window { of_connection: body.window().clone(), body: at_rest };
        let permit = route.admit(at_first, &window).await?;
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

/// Asks for memory for a message, of which `chunk` has come and is taken. While it waits it is read
/// if the peer could send more than the message, and that is refused.
async fn admit_message(
    route: &dyn IngressRoute,
    len_bytes: usize,
    chunk: Bytes,
    reader: &mut MessageReader,
    body: &mut BodyReader,
) -> Result<Permit, Refused> {
    let of_connection = body.window().clone();
    let is_short = len_bytes < of_connection.unread_bytes(usize::MAX);
    let at_rest = if is_short { Body::Read } else { Body::Announced };
    let window = Window { of_connection, body: at_rest };
    let mut admission = route.admit(len_bytes, &window);
    let permit = match admission.as_mut().now_or_never() {
        Some(permit) => permit?,
        None if is_short => return Box::pin(read_until(admission, chunk, reader, body)).await,
        None => admission.await?,
    };
    reader.feed(chunk)?;
    Ok(permit)
}

/// Reads a message until its request is admitted.
async fn read_until(
    mut admission: BoxFuture<'_, Result<Permit, Refusal>>,
    chunk: Bytes,
    reader: &mut MessageReader,
    body: &mut BodyReader,
) -> Result<Permit, Refused> {
    reader.feed(chunk)?;
    let mut has_ended = false;
    loop {
        tokio::select! {
            biased;
            permit = &mut admission => return Ok(permit?),
            piece = body.next(), if !has_ended => match piece? {
                Some(chunk) => reader.feed(chunk)?,
                None => has_ended = true,
            },
        }
    }
}
