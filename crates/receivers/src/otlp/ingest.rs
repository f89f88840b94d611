//! What both transports do with a request, from its credentials to its acceptance.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use sluice_flow::intake::Permit;
use sluice_flow::{Intake, Metadata, Payload};
use sluice_net::auth::server::Authenticator;
use sluice_net::compress;
use sluice_net::headers;
use sluice_net::server::{BodyTimeouts, ServerResources};
use sluice_otlp::{Encoding, Signal};

use super::config::SharedConfig;
use super::counters::OtlpCounters;
use super::refusal::{Refused, RefusedReason};

/// Inspecting larger bodies takes milliseconds: that is done beside the threads that serve connections.
const INLINE_BYTES: usize = 1 << 20;

/// How the bytes of a request are to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Protobuf,
    Json,
}

/// How the bytes of a request are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Known(Encoding),
    /// HTTP's `deflate` and `zlib`: taken, never passed on.
    Zlib,
    /// The same for HTTP's `lz4`.
    Lz4,
}

pub(super) struct Ingest {
    pub intake: Arc<dyn Intake>,
    authenticator: Option<Arc<Authenticator>>,
    pub counters: Arc<OtlpCounters>,
    /// Of a request as sent, and again after decompression.
    pub limit_bytes: usize,
    pub body_timeouts: BodyTimeouts,
    pub include_metadata: bool,
    pub resources: ServerResources,
}

/// What the request says of its content. `None` where it says nothing, or several things that differ.
pub(super) fn media_type(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers::sole(headers, &CONTENT_TYPE).ok()??;
    value.as_bytes().split(|byte| *byte == b';').next().map(<[u8]>::trim_ascii)
}

/// A request that is known to be valid.
struct Inspected {
    items: u32,
    payload: Payload,
}

impl Ingest {
    pub(super) fn new(
        intake: Arc<dyn Intake>,
        authenticator: Option<Arc<Authenticator>>,
        counters: &Arc<OtlpCounters>,
        config: &SharedConfig,
        resources: &ServerResources,
    ) -> Self {
        Ingest {
            intake,
            authenticator,
            counters: Arc::clone(counters),
            limit_bytes: config.limit_bytes,
            body_timeouts: config.body_timeouts,
            include_metadata: config.include_metadata,
            resources: resources.clone(),
        }
    }

    /// Steps 1 and 2: may this sender send this signal here?
    pub(super) async fn let_in(&self, signal: Signal, headers: &HeaderMap) -> Result<(), Refused> {
        if let Some(authenticator) = &self.authenticator {
            authenticator
                .authenticate(headers)
                .await
                .map_err(|error| Refused::new(RefusedReason::Unauthenticated, error.to_string()))?;
        }
        if !self.intake.takes(signal) {
            let message = format!("no pipeline takes {signal} from this receiver");
            return Err(Refused::new(RefusedReason::Unrouted, message));
        }
        Ok(())
    }

    /// What a client without credentials is told to show.
    pub(super) fn challenge(&self) -> Option<&http::HeaderValue> {
        self.authenticator.as_deref().map(Authenticator::challenge)
    }

    /// Steps 5 and 6: inspects the body and hands it in. Returns the items accepted; with an error, the items refused
    /// as far as they were counted.
    pub(super) async fn hand_in(
        &self,
        signal: Signal,
        format: Format,
        packing: Packing,
        body: Bytes,
        metadata: Arc<Metadata>,
        mut permit: Box<dyn Permit>,
    ) -> Result<u32, (Refused, u32)> {
        let mut admitted = body.len();
        if let Packing::Known(encoding) = packing
            && let Some(claimed) = compress::claimed_len_bytes(encoding, &body).filter(|claimed| *claimed > admitted)
            && !self.intake.keeps_compressed(signal, encoding, claimed)
        {
            // Asked for before it is used, where the size can be foreseen.
            let foreseen = claimed.min(self.limit_bytes).max(admitted);
            permit.grow(foreseen - admitted).map_err(|refusal| (refusal.into(), 0))?;
            admitted = foreseen;
        }
        let inspected = self.inspect(signal, format, packing, body).await;
        let Inspected { items, payload } = inspected.map_err(|refused| (refused, 0))?;
        if items == 0 {
            return Ok(0);
        }
        if payload.bytes.len() > admitted {
            permit.grow(payload.bytes.len() - admitted).map_err(|refusal| (refusal.into(), items))?;
        }
        match self.intake.accept(signal, items, payload, metadata, permit).await {
            Ok(()) => Ok(items),
            Err(refusal) => Err((refusal.into(), items)),
        }
    }

    async fn inspect(
        &self,
        signal: Signal,
        format: Format,
        packing: Packing,
        body: Bytes,
    ) -> Result<Inspected, Refused> {
        let expected = match packing {
            Packing::Known(encoding) => compress::claimed_len_bytes(encoding, &body).unwrap_or(0).max(body.len()),
            Packing::Zlib | Packing::Lz4 => body.len(),
        };
        let limit_bytes = self.limit_bytes;
        if expected <= INLINE_BYTES {
            return inspect(&*self.intake, signal, format, packing, body, limit_bytes);
        }
        let intake = Arc::clone(&self.intake);
        tokio::task::spawn_blocking(move || inspect(&*intake, signal, format, packing, body, limit_bytes))
            .await
            .unwrap_or_else(|_| Err(Refused::new(RefusedReason::Overloaded, "the request could not be inspected")))
    }
}

/// Inflates, validates and counts. CPU work only.
fn inspect(
    intake: &dyn Intake,
    signal: Signal,
    format: Format,
    packing: Packing,
    body: Bytes,
    limit_bytes: usize,
) -> Result<Inspected, Refused> {
    match (format, packing) {
        (Format::Protobuf, Packing::Known(Encoding::Identity)) => whole(signal, body),
        (Format::Protobuf, Packing::Known(encoding)) => {
            let claimed = compress::claimed_len_bytes(encoding, &body);
            if claimed.is_some_and(|claimed| intake.keeps_compressed(signal, encoding, claimed)) {
                inspect_compressed(signal, encoding, body, limit_bytes)
            } else {
                whole(signal, compress::decompress(encoding, &body, limit_bytes)?)
            }
        }
        (Format::Protobuf, Packing::Zlib) => whole(signal, compress::decompress_zlib(&body, limit_bytes)?),
        (Format::Protobuf, Packing::Lz4) => whole(signal, compress::decompress_lz4(&body, limit_bytes)?),
        (Format::Json, packing) => {
            let json = match packing {
                Packing::Known(Encoding::Identity) => body,
                Packing::Known(encoding) => compress::decompress(encoding, &body, limit_bytes)?,
                Packing::Zlib => compress::decompress_zlib(&body, limit_bytes)?,
                Packing::Lz4 => compress::decompress_lz4(&body, limit_bytes)?,
            };
            let protobuf = sluice_otlp::json::from_json(signal, &json, limit_bytes)
                .map_err(|error| Refused::invalid(error.to_string()))?;
            whole(signal, Bytes::from(protobuf))
        }
    }
}

/// A payload that travels on in its compressed form: it is only looked at, in memory that is used again.
fn inspect_compressed(
    signal: Signal,
    encoding: Encoding,
    body: Bytes,
    limit_bytes: usize,
) -> Result<Inspected, Refused> {
    let (items, uncompressed_len_bytes, unpacked) =
        compress::with_decompressed(encoding, &body, limit_bytes, |plain| {
            let items = count(signal, plain.bytes)?;
            let kept = (!plain.is_passable).then(|| Bytes::copy_from_slice(plain.bytes));
            Ok::<_, Refused>((items, plain.bytes.len(), kept))
        })??;
    let payload = match unpacked {
        None => Payload { bytes: body, encoding, uncompressed_len_bytes },
        Some(plain) => Payload::identity(plain),
    };
    Ok(Inspected { items, payload })
}

fn whole(signal: Signal, plain: Bytes) -> Result<Inspected, Refused> {
    Ok(Inspected { items: count(signal, &plain)?, payload: Payload::identity(plain) })
}

fn count(signal: Signal, plain: &[u8]) -> Result<u32, Refused> {
    let summary = sluice_otlp::scan(signal, plain)
        .map_err(|malformed| Refused::invalid(format!("not a valid OTLP request of {signal}: {malformed}")))?;
    Ok(summary.items)
}
