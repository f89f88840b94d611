//! Decides what a backend answers: by its faults first, then by the request that it has read.

use std::io::{self, Read};

use anyhow::Error;
use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use http::HeaderMap;
use parking_lot::MutexGuard;
use sluice_net::grpc::{Code, Status};
use sluice_otlp::Encoding;
use sluice_otlp::json::from_json;

use super::faults::{Faults, strikes};
use super::protocol::{Form, Format, PartialSuccess};
use super::scan;
use super::store::{Received, Store};
use super::{Counting, Shared, text};
use crate::identity::POISON_MARK;

/// Taken, except for the items that are named as rejected; or refused.
pub(super) type Verdict = Result<Option<PartialSuccess>, Refusal>;

pub(super) enum Refusal {
    Status(Status),
    /// HTTP has a status of its own for it, gRPC has not.
    TooLarge(Status),
    Reset,
    /// The backend has died, and its connections are about to be cut.
    Died,
}

/// Decides about a request that was read to its end, and counts it. While the backend is stalled
/// this does not return. Of a body that is too large there is only the length.
pub(super) async fn judge(
    shared: &Shared,
    mut format: Format,
    headers: HeaderMap,
    body: Result<Bytes, usize>,
) -> Verdict {
    shared.store.lock().counts.requests += 1;
    if strikes(shared.faults.current().stall_share) {
        // `shared` holds the sender: no error.
        let _ = shared.faults.0.subscribe().wait_for(|faults| faults.stall_share == 0.0).await;
    }
    let faults = shared.faults.current();
    if let Some(delay) = faults.delay.as_ref().filter(|delay| strikes(delay.share)) {
        tokio::time::sleep(delay.by).await;
    }
    let verdict = inject(&faults).and_then(|()| {
        let body = body.map_err(|bytes| too_large(shared, bytes))?;
        let sent = format.unframe(body).ok_or_else(|| malformed(shared))?;
        let Counting::Light { bytes_per_item } = shared.options.counting else {
            return verify(shared, format, headers, &sent, &faults);
        };
        let items = count(&format, &sent, bytes_per_item).ok_or_else(|| malformed(shared))?;
        if !faults.discard {
            record(shared)?.take(format.signal, items, sent.len() as u64);
        }
        Ok(None)
    });
    if let Err(refusal) = &verdict {
        let counts = &mut shared.store.lock().counts;
        match refusal {
            Refusal::Status(status) | Refusal::TooLarge(status) => {
                *counts.refused.entry(status.code).or_default() += 1;
            }
            Refusal::Reset => counts.resets += 1,
            Refusal::Died => {}
        }
    }
    verdict
}

/// The record of what arrives, while the backend lives. What a dead one took it could not answer.
fn record(shared: &Shared) -> Result<MutexGuard<'_, Store>, Refusal> {
    let store = shared.store.lock();
    if shared.faults.current().dead { Err(Refusal::Died) } else { Ok(store) }
}

fn inject(faults: &Faults) -> Result<(), Refusal> {
    if strikes(faults.reset_share) {
        return Err(Refusal::Reset);
    }
    let Some(refuse) = faults.refuse.as_ref().filter(|refuse| strikes(refuse.share)) else {
        return Ok(());
    };
    let status = Status::new(refuse.code, "refused by an injected fault");
    Err(Refusal::Status(Status { retry_delay: refuse.retry_delay, ..status }))
}

fn too_large(shared: &Shared, bytes: usize) -> Refusal {
    // The words of grpc-go, whose message real backends send.
    let limit = shared.options.message_limit_bytes;
    let message = format!("grpc: received message larger than max ({bytes} vs. {limit})");
    Refusal::TooLarge(Status::new(Code::ResourceExhausted, message))
}

fn malformed(shared: &Shared) -> Refusal {
    shared.store.lock().counts.malformed += 1;
    let message = "the request is not a valid OTLP export request";
    Refusal::Status(Status::new(Code::InvalidArgument, message))
}

/// Counts the items of a request without inflating it. `None`: malformed.
fn count(format: &Format, sent: &[u8], bytes_per_item: f64) -> Option<u64> {
    match format.encoding {
        Encoding::Identity => sluice_otlp::count(format.signal, sent).ok().map(u64::from),
        // A member's length field (RFC 1952, ISIZE) over an item's length. The error is about one
        // in a thousand, the share of the resource and of headers in a request.
        Encoding::Gzip => {
            let inflated_bytes = u32::from_le_bytes(*sent.last_chunk()?);
            Some((f64::from(inflated_bytes) / bytes_per_item).round() as u64)
        }
        // These cannot be counted without inflating them.
        Encoding::Zstd | Encoding::Snappy => Some(0),
    }
}

fn verify(
    shared: &Shared,
    Format { signal, encoding, form }: Format,
    headers: HeaderMap,
    sent: &Bytes,
    faults: &Faults,
) -> Verdict {
    let limit_bytes = shared.options.message_limit_bytes;
    let body = inflate(encoding, sent, limit_bytes).map_err(|_| malformed(shared))?;
    if body.len() > limit_bytes {
        return Err(too_large(shared, body.len()));
    }
    let mut items = Vec::new();
    let scanned = match form {
        Form::Grpc | Form::Protobuf => scan::scan(signal, &body, &mut items),
        Form::Json => from_json(signal, &body, limit_bytes)
            .map_err(Error::from)
            .and_then(|message| scan::scan(signal, &message, &mut items)),
        Form::Lines => text::scan(&body, &mut items),
    };
    scanned.map_err(|_| malformed(shared))?;
    if faults.poison && memchr::memmem::find(&body, POISON_MARK.as_bytes()).is_some() {
        let message = "the request contains an item that this backend refuses";
        return Err(Refusal::Status(Status::new(Code::InvalidArgument, message)));
    }
    if faults.discard {
        return Ok(None);
    }
    let partial = faults.partial.as_ref().filter(|partial| strikes(partial.share));
    let rejected = partial.map_or(0, |partial| partial.rejected_items.min(items.len() as u64));
    items.truncate(items.len() - rejected as usize);
    let mut store = record(shared)?;
    store.take(signal, items.len() as u64, sent.len() as u64);
    store.verify(&items);
    let is_json = matches!(form, Form::Json | Form::Lines);
    store.keep(Received { signal, headers, encoding, body, is_json }, shared.options.keep_requests);
    Ok(partial.map(|partial| PartialSuccess {
        rejected_items: rejected.cast_signed(),
        error_message: partial.message.clone(),
    }))
}

/// Uses decoders other than the pipeline's own. Stops one byte beyond the limit.
fn inflate(encoding: Encoding, body: &Bytes, limit_bytes: usize) -> io::Result<Bytes> {
    let decoder: Box<dyn Read + '_> = match encoding {
        Encoding::Identity => return Ok(body.clone()),
        Encoding::Gzip => Box::new(MultiGzDecoder::new(&body[..])),
        Encoding::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(&body[..])?),
        Encoding::Snappy => return Err(io::ErrorKind::Unsupported.into()),
    };
    let mut out = Vec::new();
    decoder.take(limit_bytes as u64 + 1).read_to_end(&mut out)?;
    Ok(out.into())
}
