//! Finds the identity and the time of every item in an encoded export request, in whatever order
//! its fields come.
//!
//! Only the fields that lead to identities are looked into, which makes this about as cheap as
//! counting. Messages below an item's own fields are not validated.

use sluice_net::grpc::answer::{Fields, Value};
use sluice_otlp::{Signal, Value as AnyValue};
use thiserror::Error;

use super::text;
use crate::identity::{Identity, REQUEST_ATTRIBUTE};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not an export request")]
pub(crate) struct Malformed;

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
        let text =
            std::str::from_utf8(value).ok().filter(|text| text.len() == 32 && text.is_ascii())?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        Some(RequestStamp {
            first: Identity(number(&text[..16])?),
            sent_unix_ns: number(&text[16..])?,
        })
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

/// Appends the items of an encoded request to `items`, in order. Field numbers are those of
/// opentelemetry-proto; the three signals share those above the items.
pub(crate) fn scan(signal: Signal, message: &[u8], items: &mut Vec<Item>) -> Result<(), Malformed> {
    each(message, 1, |resource_items| {
        let mut stamp = None;
        each(resource_items, 1, |resource| {
            stamp = find_stamp(resource, 1)?;
            Ok(())
        })?;
        each(resource_items, 2, |scope_items| {
            each(scope_items, 2, |entry| {
                match signal {
                    Signal::Traces => {
                        items.push(stamped(stamp, bytes(entry, 2)?).unwrap_or(Item::UNKNOWN));
                    }
                    Signal::Logs => {
                        let item = stamped(stamp, bytes(entry, 10)?);
                        let item = item.or_else(|| text::identify(entry));
                        items.push(item.unwrap_or(Item::UNKNOWN));
                    }
                    Signal::Metrics => scan_metric(entry, stamp, items)?,
                }
                Ok(())
            })
        })
    })
}

/// Visits the content of each field of this number.
fn each<'a>(
    message: &'a [u8],
    number: u64,
    mut visit: impl FnMut(&'a [u8]) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut fields = Fields::new(message);
    while let Some((found, value)) = fields.next().ok_or(Malformed)? {
        if let Value::Bytes(content) = value
            && found == number
        {
            visit(content)?;
        }
    }
    Ok(())
}

/// The content of the last field of this number; empty without one.
fn bytes(message: &[u8], number: u64) -> Result<&[u8], Malformed> {
    let mut last = &[][..];
    each(message, number, |content| {
        last = content;
        Ok(())
    })?;
    Ok(last)
}

/// The stamp among the attributes, which are the fields of this number.
fn find_stamp(message: &[u8], attributes: u64) -> Result<Option<RequestStamp>, Malformed> {
    let mut stamp = None;
    each(message, attributes, |attribute| {
        if bytes(attribute, 1)? == REQUEST_ATTRIBUTE.as_bytes()
            && let AnyValue::String(text) = AnyValue::read(bytes(attribute, 2)?)
        {
            stamp = RequestStamp::parse(text);
        }
        Ok(())
    })?;
    Ok(stamp)
}

/// The item with this span id.
fn stamped(stamp: Option<RequestStamp>, span_id: &[u8]) -> Option<Item> {
    Some(stamp?.item(u64::from_be_bytes(span_id.try_into().ok()?)))
}

fn scan_metric(
    metric: &[u8],
    stamp: Option<RequestStamp>,
    items: &mut Vec<Item>,
) -> Result<(), Malformed> {
    let mut fields = Fields::new(metric);
    while let Some((number, value)) = fields.next().ok_or(Malformed)? {
        let Value::Bytes(data) = value else { continue };
        match number {
            // Gauges and sums.
            5 | 7 => each(data, 1, |point| {
                items.push(read_point(point, stamp)?);
                Ok(())
            })?,
            // Histograms of both kinds and summaries. Generators make no such points.
            9..=11 => each(data, 1, |_| {
                items.push(Item::UNKNOWN);
                Ok(())
            })?,
            _ => {}
        }
    }
    Ok(())
}

fn read_point(point: &[u8], stamp: Option<RequestStamp>) -> Result<Item, Malformed> {
    let (mut time_unix_ns, mut as_double, mut as_int) = (0, None, None);
    let mut fields = Fields::new(point);
    while let Some((number, value)) = fields.next().ok_or(Malformed)? {
        let Value::Fixed(bytes) = value else { continue };
        let Ok(bytes) = bytes.try_into() else { continue };
        match number {
            3 => time_unix_ns = u64::from_le_bytes(bytes),
            4 => as_double = Some(f64::from_le_bytes(bytes)),
            6 => as_int = Some(u64::from_le_bytes(bytes)),
            _ => {}
        }
    }
    let stamp = match stamp {
        // Engines without resources hand their attributes on with each point.
        None => find_stamp(point, 7)?,
        known => known,
    };
    let identified = match (stamp, as_int) {
        (Some(stamp), Some(identity)) => Some(stamp.item(identity)),
        _ => as_double.and_then(|value| Item::of_sample(value, time_unix_ns)),
    };
    Ok(identified.unwrap_or(Item::UNKNOWN))
}

#[cfg(test)]
mod tests;
