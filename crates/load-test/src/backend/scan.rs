//! Finds the identity and the time of every item in an encoded export request, in whatever order its fields come.
//!
//! The messages here have only the fields that lead to identities. Prost skips all others, which makes this about as cheap as
//! counting. Messages below an item's own fields are not validated.

use bytes::Bytes;
use prost::Message;
use sluice_otlp::{Signal, Value};
use thiserror::Error;

use super::text;
use crate::identity::{Identity, REQUEST_ATTRIBUTE};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not an export request")]
pub(crate) struct Malformed;

impl From<prost::DecodeError> for Malformed {
    fn from(_: prost::DecodeError) -> Malformed {
        Malformed
    }
}

/// One item as a backend knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// `None` for items of unknown origin, and for torn ones.
    pub(crate) identity: Option<Identity>,
    /// When it was sent, nanoseconds since the epoch. Zero where unknown.
    pub(crate) sent_unix_ns: u64,
}

impl Item {
    pub(crate) const UNKNOWN: Item = Item { identity: None, sent_unix_ns: 0 };

    /// A sample of a scraped target, with the time that the pipeline has given it.
    pub(crate) fn of_sample(value: f64, time_unix_ns: u64) -> Option<Item> {
        Some(Item { identity: Some(Identity::from_sample(value)?), sent_unix_ns: time_unix_ns })
    }
}

/// The value of [`REQUEST_ATTRIBUTE`].
#[derive(Clone, Copy)]
pub(crate) struct RequestStamp {
    first: Identity,
    sent_unix_ns: u64,
}

impl RequestStamp {
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok().filter(|text| text.len() == 32 && text.is_ascii())?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        Some(RequestStamp { first: Identity(number(&text[..16])?), sent_unix_ns: number(&text[16..])? })
    }

    /// The item of a stamp that stands for one item alone.
    pub(crate) fn whole_item(self) -> Item {
        Item { identity: Some(self.first), sent_unix_ns: self.sent_unix_ns }
    }

    /// The item with this identity, as found in its own fields.
    pub(crate) fn item(self, raw: u64) -> Item {
        Item { identity: Some(Identity(raw).resolve(self.first)), sent_unix_ns: self.sent_unix_ns }
    }
}

/// `Export…ServiceRequest`.
#[derive(Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ResourceItems>,
}

/// `ResourceSpans`, `ResourceMetrics` or `ResourceLogs`.
#[derive(Message)]
struct ResourceItems {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeItems>,
}

#[derive(Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

/// `ScopeSpans`, `ScopeMetrics` or `ScopeLogs`; its spans, metrics or records are left encoded.
#[derive(Message)]
struct ScopeItems {
    #[prost(bytes = "bytes", repeated, tag = "2")]
    entries: Vec<Bytes>,
}

#[derive(Message)]
struct Span {
    #[prost(bytes = "bytes", tag = "2")]
    span_id: Bytes,
}

#[derive(Message)]
struct LogRecord {
    #[prost(bytes = "bytes", tag = "10")]
    span_id: Bytes,
}

#[derive(Message)]
struct Metric {
    #[prost(message, optional, tag = "5")]
    gauge: Option<Points>,
    #[prost(message, optional, tag = "7")]
    sum: Option<Points>,
    #[prost(message, optional, tag = "9")]
    histogram: Option<Points>,
    #[prost(message, optional, tag = "10")]
    exponential_histogram: Option<Points>,
    #[prost(message, optional, tag = "11")]
    summary: Option<Points>,
}

#[derive(Message)]
struct Points {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    points: Vec<Bytes>,
}

#[derive(Message)]
struct NumberPoint {
    #[prost(fixed64, tag = "3")]
    time_unix_ns: u64,
    #[prost(double, optional, tag = "4")]
    as_double: Option<f64>,
    #[prost(fixed64, optional, tag = "6")]
    as_int: Option<u64>,
}

#[derive(Message)]
struct NumberPointAttributes {
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
}

#[derive(Message)]
struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    /// An encoded `AnyValue`.
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// Appends the items of an encoded request to `items`, in order.
pub(crate) fn scan(signal: Signal, message: &Bytes, items: &mut Vec<Item>) -> Result<(), Malformed> {
    for resource in Request::decode(message.clone())?.resources {
        let stamp = resource.resource.and_then(|resource| find_stamp(&resource.attributes));
        for entry in resource.scopes.into_iter().flat_map(|scope| scope.entries) {
            match signal {
                Signal::Traces => items.push(stamped(stamp, &Span::decode(entry)?.span_id).unwrap_or(Item::UNKNOWN)),
                Signal::Logs => items.push(read_record(entry, stamp)?),
                Signal::Metrics => scan_metric(entry, stamp, items)?,
            }
        }
    }
    Ok(())
}

fn find_stamp(attributes: &[KeyValue]) -> Option<RequestStamp> {
    let attribute = attributes.iter().find(|attribute| attribute.key == REQUEST_ATTRIBUTE.as_bytes())?;
    match Value::read(&attribute.value) {
        Value::String(text) => RequestStamp::parse(text),
        _ => None,
    }
}

/// The item with this span id.
fn stamped(stamp: Option<RequestStamp>, span_id: &[u8]) -> Option<Item> {
    Some(stamp?.item(u64::from_be_bytes(span_id.try_into().ok()?)))
}

fn read_record(record: Bytes, stamp: Option<RequestStamp>) -> Result<Item, Malformed> {
    let span_id = LogRecord::decode(record.clone())?.span_id;
    Ok(stamped(stamp, &span_id).or_else(|| text::identify(&record)).unwrap_or(Item::UNKNOWN))
}

fn scan_metric(metric: Bytes, stamp: Option<RequestStamp>, items: &mut Vec<Item>) -> Result<(), Malformed> {
    let Metric { gauge, sum, histogram, exponential_histogram, summary } = Metric::decode(metric)?;
    for point in [gauge, sum].into_iter().flatten().flat_map(|data| data.points) {
        items.push(read_point(point, stamp)?);
    }
    // Generators make no such points.
    let others = [histogram, exponential_histogram, summary].into_iter().flatten();
    items.extend(others.flat_map(|data| data.points).map(|_| Item::UNKNOWN));
    Ok(())
}

fn read_point(point: Bytes, stamp: Option<RequestStamp>) -> Result<Item, Malformed> {
    let stamp = match stamp {
        // Engines without resources hand their attributes on with each point.
        None => find_stamp(&NumberPointAttributes::decode(point.clone())?.attributes),
        known => known,
    };
    let NumberPoint { time_unix_ns, as_double, as_int } = NumberPoint::decode(point)?;
    Ok(match (stamp, as_int) {
        (Some(stamp), Some(identity)) => stamp.item(identity),
        _ => as_double.and_then(|value| Item::of_sample(value, time_unix_ns)).unwrap_or(Item::UNKNOWN),
    })
}
