//! Log records as Fluent Bit has them, for the exporters that speak with its kind: a time, and a
//! map.
//!
//! A body that is a map becomes the fields of the record, any other one the field `log`. Attributes
//! are fields of their own. Resource attributes of Kubernetes get the names and the place that
//! Fluent Bit's filter `kubernetes` gives them, the others are in `resource`.

mod layout;
mod notation;
mod record;

use bytes::Bytes;
use sluice_flow::PackError;
use sluice_net::compress;
use sluice_otlp::Malformed;
use sluice_otlp::wire::Fields as WireFields;

use crate::client_options::ClientOptions;
pub(crate) use layout::Layout;
pub(crate) use notation::{Json, MessagePack, Notation};
pub(crate) use record::Record;

/// The request limit bounds the protobuf form of a batch, whose records share their resource.
const WRITTEN_PER_REQUEST_LIMIT: usize = 4;
/// Memory for a field in a list of fields, and for its name among those that are unique, at most.
const FIELD_BYTES: usize = 192;
/// The same in sizes of the field: in a request it has two bytes at least, or five with a name of
/// its own.
const LIST_FACTOR: usize = 40;
/// A value becomes at most this many times as long: control characters do in JSON.
const VALUE_FACTOR: usize = 6;
/// A record becomes at most this many bytes beside its values, those of its resource and the text
/// that an exporter adds: the names of its fields, its time, the message around it.
const RECORD_BYTES: usize = 1 << 10;
/// Buffers that grow are at most this many times as large as their content.
const GROWTH_FACTOR: usize = 2;

/// Why a request cannot be written.
pub(crate) enum Stop {
    TooLarge {
        limit_bytes: usize,
    },
    /// Fields of a record, or attributes of its resource.
    TooMany {
        most: usize,
    },
    Malformed(Malformed),
}

impl From<Malformed> for Stop {
    fn from(error: Malformed) -> Self {
        Stop::Malformed(error)
    }
}

impl From<Stop> for PackError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::TooLarge { limit_bytes } => {
                PackError::TooLarge(format!("more than {limit_bytes} bytes in this format"))
            }
            Stop::TooMany { most } => PackError::TooLarge(format!("more than {most} fields")),
            Stop::Malformed(error) => PackError::Failed(error.to_string()),
        }
    }
}

/// The limit on a request as it is written, before compression, in bytes.
pub(crate) fn limit_bytes(client: &ClientOptions) -> usize {
    client.max_request_bytes.saturating_mul(WRITTEN_PER_REQUEST_LIMIT)
}

/// Memory for writing a request of this length: see [`sluice_flow::Exporter::packing_bytes`]. A
/// resource stands once in a request but in each written record: the number of these bounds what is
/// written of a small request, the limit that of others. `own_bytes`: the text that an exporter
/// adds to a record.
pub(crate) fn packing_bytes(
    client: &ClientOptions,
    request_bytes: usize,
    items: usize,
    own_bytes: usize,
) -> usize {
    let limit_bytes = limit_bytes(client);
    let at_most = |factor| request_bytes.saturating_mul(factor).min(limit_bytes);
    let record_bytes = request_bytes.saturating_add(own_bytes).saturating_mul(VALUE_FACTOR);
    let all_bytes = record_bytes.saturating_add(RECORD_BYTES).saturating_mul(items);
    // It goes beyond the limit by one value.
    let beyond_bytes = request_bytes.saturating_mul(VALUE_FACTOR);
    let written_bytes = limit_bytes.min(all_bytes).saturating_add(beyond_bytes);
    let buffers_bytes = at_most(VALUE_FACTOR).saturating_add(written_bytes);
    request_bytes
        .saturating_add(at_most(LIST_FACTOR))
        .saturating_add(buffers_bytes.saturating_mul(GROWTH_FACTOR))
}

/// Whether there may be a list of so many fields.
fn check_fields(fields: usize, limit_bytes: usize) -> Result<(), Stop> {
    if fields.saturating_mul(FIELD_BYTES) <= limit_bytes {
        return Ok(());
    }
    Err(Stop::TooMany { most: limit_bytes / FIELD_BYTES })
}

/// Calls `visit` with each record of a request of logs.
///
/// # Errors
/// [`Stop`] if it is none, or the fields of a resource exceed the limit; or that of `visit`.
pub(crate) fn each_record<N: Notation>(
    chunks: &[Bytes],
    layout: &Layout,
    limit_bytes: usize,
    mut visit: impl FnMut(Record<'_, '_>) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let request = compress::joined(chunks);
    let mut resources = WireFields::of(&request);
    while let Some(resource) = resources.next_message(1)? {
        let resource = &request[resource.content()];
        let common = layout.resource_fields::<N>(resource, limit_bytes)?;
        let mut list = record::List::default();
        let mut scopes = WireFields::of(resource);
        while let Some(scope) = scopes.next_message(2)? {
            let scope = &resource[scope.content()];
            let mut records = WireFields::of(scope);
            while let Some(record) = records.next_message(2)? {
                let record = &scope[record.content()];
                visit(list.read(record, &common, limit_bytes)?)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
