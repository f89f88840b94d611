//! Finds the identity and the time of every item in an encoded export request, in whatever order its fields come.

use sluice_otlp::Signal;

use super::text;
use crate::identity::{Identity, REQUEST_ATTRIBUTE};
use crate::wire::{Fields, Malformed, Value};

/// What a backend learns of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// `None` for items that no generator of ours made, and for torn ones.
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

    /// The item that the stamp alone is of.
    pub(crate) fn whole_item(self) -> Item {
        Item { identity: Some(self.first), sent_unix_ns: self.sent_unix_ns }
    }

    /// The item with this identity, as found in its own fields.
    pub(crate) fn item(self, raw: u64) -> Item {
        Item { identity: Some(Identity(raw).resolve(self.first)), sent_unix_ns: self.sent_unix_ns }
    }
}

/// Appends the items of an encoded request to `items`, in order.
pub(crate) fn scan(signal: Signal, message: &[u8], items: &mut Vec<Item>) -> Result<(), Malformed> {
    for resource in messages(message, 1) {
        scan_resource(signal, resource?, items)?;
    }
    Ok(())
}

/// The length-delimited values of one field.
fn messages(message: &[u8], number: u32) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    Fields::of(message).filter_map(move |field| match field {
        Ok((found, Value::Bytes(bytes))) if found == number => Some(Ok(bytes)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    })
}

fn scan_resource(signal: Signal, resource_items: &[u8], items: &mut Vec<Item>) -> Result<(), Malformed> {
    let mut stamp = None;
    for resource in messages(resource_items, 1) {
        stamp = find_stamp(resource?, 1)?.or(stamp);
    }
    for scope in messages(resource_items, 2) {
        for entry in messages(scope?, 2) {
            if signal == Signal::Metrics {
                scan_metric(entry?, stamp, items)?;
            } else {
                items.push(read_item(signal, entry?, stamp)?);
            }
        }
    }
    Ok(())
}

fn scan_metric(metric: &[u8], stamp: Option<RequestStamp>, items: &mut Vec<Item>) -> Result<(), Malformed> {
    for field in Fields::of(metric) {
        if let (kind @ (5 | 7 | 9 | 10 | 11), Value::Bytes(data)) = field? {
            for point in messages(data, 1) {
                let point = point?;
                // Engines that know no resources hand their attributes on with each point; our points are gauges' and sums'.
                let stamp = match stamp {
                    None if matches!(kind, 5 | 7) => find_stamp(point, 7)?,
                    known => known,
                };
                items.push(read_item(Signal::Metrics, point, stamp)?);
            }
        }
    }
    Ok(())
}

/// In the attributes that are this field of a message.
fn find_stamp(message: &[u8], attributes: u32) -> Result<Option<RequestStamp>, Malformed> {
    for attribute in messages(message, attributes) {
        let stamp = stamp_in(attribute?)?;
        if stamp.is_some() {
            return Ok(stamp);
        }
    }
    Ok(None)
}

fn stamp_in(attribute: &[u8]) -> Result<Option<RequestStamp>, Malformed> {
    let (mut key, mut value) = (&[][..], &[][..]);
    for field in Fields::of(attribute) {
        match field? {
            (1, Value::Bytes(bytes)) => key = bytes,
            (2, Value::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    if key != REQUEST_ATTRIBUTE.as_bytes() {
        return Ok(None);
    }
    let text = messages(value, 1).next().transpose()?;
    Ok(text.and_then(RequestStamp::parse))
}

/// Reads the identity of one span, point or record. All fields are walked, so that malformed items are found.
fn read_item(signal: Signal, item: &[u8], stamp: Option<RequestStamp>) -> Result<Item, Malformed> {
    let (mut raw, mut time_unix_ns, mut value) = (None, 0, None);
    for field in Fields::of(item) {
        match (signal, field?) {
            (Signal::Traces, (2, Value::Bytes(id))) | (Signal::Logs, (10, Value::Bytes(id))) => {
                raw = id.try_into().ok().map(u64::from_be_bytes);
            }
            (Signal::Metrics, (3, Value::Fixed64(time))) => time_unix_ns = time,
            (Signal::Metrics, (4, Value::Fixed64(bits))) => value = Some(f64::from_bits(bits)),
            (Signal::Metrics, (6, Value::Fixed64(value))) => raw = Some(value),
            _ => {}
        }
    }
    let known = match (stamp, raw) {
        (Some(stamp), Some(raw)) => Some(stamp.item(raw)),
        _ if signal == Signal::Metrics => value.and_then(|value| Item::of_sample(value, time_unix_ns)),
        _ if signal == Signal::Logs => text::identify(item),
        _ => None,
    };
    Ok(known.unwrap_or(Item::UNKNOWN))
}
