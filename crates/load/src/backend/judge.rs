//! Decides what a backend answers to a request that it has read: by its faults first, then by the
//! request itself.

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use sluice_net::grpc::{Code, Status};
use sluice_otlp::json::from_json;
use sluice_otlp::{Encoding, Signal};

use super::faults::{Faults, strikes};
use super::scan::{self, Malformed};
use super::store::Received;
use super::{Counting, Shared, text};

/// A request that was read to its end.
pub(crate) struct Incoming {
    pub(crate) signal: Signal,
    pub(crate) encoding: Encoding,
    pub(crate) form: Form,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

/// The form of an inflated body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Protobuf,
    Json,
    /// Log lines in something that is not OTLP: JSON as Fluent Bit's `http` output posts it, or one
    /// object a line.
    Lines,
}

pub(crate) enum Body {
    Whole(Bytes),
    /// Longer than the message limit; it was not kept.
    TooLarge {
        bytes: usize,
    },
    /// Not one whole message.
    Malformed,
}

pub(crate) enum Reply {
    Taken { rejected: Option<(u64, String)> },
    Refused { status: Status, is_too_large: bool },
    Reset,
}

impl Reply {
    fn refused(code: Code, message: impl Into<String>) -> Self {
        Reply::Refused { status: Status::new(code, message), is_too_large: false }
    }
}

/// Decides and counts. While the backend is stalled this does not return.
pub(crate) async fn judge(shared: &Shared, incoming: Incoming) -> Reply {
    shared.store.lock().counts.requests += 1;
    let faults = wait_while_stalled(shared).await;
    if let Some(delay) = &faults.delay
        && strikes(delay.share)
    {
        tokio::time::sleep(delay.by).await;
    }
    let reply = fault_reply(&faults).unwrap_or_else(|| take(shared, incoming, &faults));
    let counts = &mut shared.store.lock().counts;
    match &reply {
        Reply::Taken { .. } => {}
        Reply::Refused { status, .. } => *counts.refused.entry(status.code).or_default() += 1,
        Reply::Reset => counts.resets += 1,
    }
    reply
}

async fn wait_while_stalled(shared: &Shared) -> Arc<Faults> {
    if strikes(shared.faults.current().stall_share) {
        let mut changes = shared.faults.changes();
        // The switch is here: no error.
        let _ = changes.wait_for(|faults| faults.stall_share == 0.0).await;
    }
    shared.faults.current()
}

fn fault_reply(faults: &Faults) -> Option<Reply> {
    if strikes(faults.reset_share) {
        return Some(Reply::Reset);
    }
    let refuse = faults.refuse.as_ref().filter(|refuse| strikes(refuse.share))?;
    let status = Status::new(refuse.code, "refused by an injected fault");
    let status = Status { retry_delay: refuse.retry_delay, ..status };
    Some(Reply::Refused { status, is_too_large: false })
}

fn take(shared: &Shared, incoming: Incoming, faults: &Faults) -> Reply {
    let sent = match &incoming.body {
        Body::Whole(body) => body.clone(),
        Body::TooLarge { bytes } => return too_large(shared, *bytes),
        Body::Malformed => return malformed(shared),
    };
    match shared.options.counting {
        Counting::Verify => take_verified(shared, incoming, &sent, faults),
        Counting::Light { bytes_per_item } => {
            take_counted(shared, &incoming, &sent, bytes_per_item, faults)
        }
    }
}

fn too_large(shared: &Shared, bytes: usize) -> Reply {
    // The words of grpc-go, whose message real backends send.
    let limit = shared.options.message_limit_bytes;
    let message = format!("grpc: received message larger than max ({bytes} vs. {limit})");
    let status = Status::new(Code::ResourceExhausted, message);
    Reply::Refused { status, is_too_large: true }
}

fn malformed(shared: &Shared) -> Reply {
    shared.store.lock().counts.malformed += 1;
    Reply::refused(Code::InvalidArgument, "the request is not a valid OTLP export request")
}

fn take_counted(
    shared: &Shared,
    incoming: &Incoming,
    sent: &[u8],
    bytes_per_item: f64,
    faults: &Faults,
) -> Reply {
    let items = match incoming.encoding {
        Encoding::Identity => sluice_otlp::count(incoming.signal, sent).ok().map(u64::from),
        Encoding::Gzip => estimate_items(sent, bytes_per_item),
        // These cannot be counted without inflating them.
        Encoding::Zstd | Encoding::Snappy => Some(0),
    };
    let Some(items) = items else { return malformed(shared) };
    if !faults.discard {
        shared.store.lock().take(incoming.signal, items, sent.len() as u64);
    }
    Reply::Taken { rejected: None }
}

/// The items of a gzip member that is not inflated: its length field (RFC 1952, ISIZE) over an
/// item's length. The error is about one in a thousand, the share of the resource and of headers in
/// a request.
fn estimate_items(gzip: &[u8], bytes_per_item: f64) -> Option<u64> {
    let inflated_bytes = u32::from_le_bytes(*gzip.last_chunk()?);
    Some((f64::from(inflated_bytes) / bytes_per_item).round() as u64)
}

fn take_verified(shared: &Shared, incoming: Incoming, sent: &Bytes, faults: &Faults) -> Reply {
    let limit_bytes = shared.options.message_limit_bytes;
    let body = match inflate(incoming.encoding, sent, limit_bytes) {
        Ok(body) => body,
        Err(Inflating::TooLarge) => return too_large(shared, limit_bytes + 1),
        Err(Inflating::Malformed) => return malformed(shared),
    };
    let mut items = Vec::new();
    let scanned = match incoming.form {
        Form::Protobuf => scan::scan(incoming.signal, &body, &mut items),
        Form::Json => match from_json(incoming.signal, &body, limit_bytes) {
            Ok(message) => scan::scan(incoming.signal, &message, &mut items),
            Err(_) => Err(Malformed),
        },
        Form::Lines => text::scan(&body, &mut items),
    };
    if scanned.is_err() {
        return malformed(shared);
    }
    if let Some(poison) = &faults.poison
        && memchr::memmem::find(&body, &poison.marker).is_some()
    {
        let message = "the request contains an item that this backend refuses";
        return Reply::refused(poison.code, message);
    }
    if faults.discard {
        return Reply::Taken { rejected: None };
    }
    let partial = faults.partial.as_ref().filter(|partial| strikes(partial.share));
    let rejected = partial
        .map(|partial| (partial.rejected_items.min(items.len() as u64), partial.message.clone()));
    items.truncate(items.len() - rejected.as_ref().map_or(0, |(count, _)| *count as usize));
    let mut store = shared.store.lock();
    store.take(incoming.signal, items.len() as u64, sent.len() as u64);
    store.verify(&items);
    if shared.options.keep_requests > 0 {
        let Incoming { signal, encoding, form, headers, .. } = incoming;
        store.keep(Received { signal, headers, encoding, body, is_json: form != Form::Protobuf });
    }
    Reply::Taken { rejected }
}

enum Inflating {
    TooLarge,
    Malformed,
}

fn inflate(encoding: Encoding, body: &Bytes, limit_bytes: usize) -> Result<Bytes, Inflating> {
    let limit = limit_bytes as u64 + 1;
    let mut out = Vec::new();
    let read = match encoding {
        Encoding::Identity => return Ok(body.clone()),
        Encoding::Gzip => {
            flate2::bufread::MultiGzDecoder::new(&body[..]).take(limit).read_to_end(&mut out)
        }
        Encoding::Zstd => zstd::stream::read::Decoder::with_buffer(&body[..])
            .and_then(|decoder| decoder.take(limit).read_to_end(&mut out)),
        Encoding::Snappy => return Err(Inflating::Malformed),
    };
    match read {
        Err(_) => Err(Inflating::Malformed),
        Ok(_) if out.len() > limit_bytes => Err(Inflating::TooLarge),
        Ok(_) => Ok(out.into()),
    }
}
