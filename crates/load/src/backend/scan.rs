//! Finds the identity and the time of every item in an encoded export request, in whatever order
//! its fields come. Only fields that lead to identities are looked into and validated.

use anyhow::{Error, Result};
use sluice_otlp::wire::{FIXED64, Fields, LEN};
use sluice_otlp::{Signal, Value};

use super::text;
use crate::identity::{Identity, REQUEST_ATTRIBUTE, Stamp};

/// One item as a backend knows it. `None` for items of unknown origin, and for torn ones.
pub(super) type Item = Option<Stamp>;

/// Appends the items of an encoded request to `items`, in order. Field numbers are those of
/// opentelemetry-proto; the three signals share those above the items.
pub(super) fn scan(signal: Signal, message: &[u8], items: &mut Vec<Item>) -> Result<()> {
    for resource_items in contents(message, 1) {
        let resource_items = resource_items?;
        let stamp = find_stamp(last(resource_items, 1)?, 1)?;
        for scope_items in contents(resource_items, 2) {
            for entry in contents(scope_items?, 2) {
                let entry = entry?;
                let item = match signal {
                    Signal::Traces => with_span_id(stamp, last(entry, 2)?),
                    Signal::Logs => {
                        with_span_id(stamp, last(entry, 10)?).or_else(|| text::identify(entry))
                    }
                    Signal::Metrics => {
                        scan_metric(entry, stamp, items)?;
                        continue;
                    }
                };
                items.push(item);
            }
        }
    }
    Ok(())
}

/// The content of each field of this number, up to the first field that cannot be read.
fn contents(message: &[u8], number: u32) -> impl Iterator<Item = Result<&[u8]>> {
    let mut fields = Fields::of(message);
    std::iter::from_fn(move || {
        let field = fields.next_message(number).transpose()?;
        Some(field.map(|field| &message[field.content()]).map_err(Error::from))
    })
}

/// The content of the last field of this number; empty without one.
fn last(message: &[u8], number: u32) -> Result<&[u8]> {
    contents(message, number).try_fold(&[][..], |_, content| content)
}

/// The stamp among the attributes, which are the fields of this number.
fn find_stamp(message: &[u8], attributes: u32) -> Result<Option<Stamp>> {
    let mut stamp = None;
    for attribute in contents(message, attributes) {
        let attribute = attribute?;
        if last(attribute, 1)? == REQUEST_ATTRIBUTE.as_bytes()
            && let Value::String(text) = Value::read(last(attribute, 2)?)
        {
            stamp = Stamp::parse(text);
        }
    }
    Ok(stamp)
}

/// The item with this identity in its own fields, in a request of this stamp.
fn of_request(stamp: Stamp, raw: u64) -> Stamp {
    Stamp { identity: Identity(raw).resolve(stamp.identity), ..stamp }
}

fn with_span_id(stamp: Option<Stamp>, span_id: &[u8]) -> Item {
    Some(of_request(stamp?, u64::from_be_bytes(span_id.try_into().ok()?)))
}

fn scan_metric(metric: &[u8], stamp: Option<Stamp>, items: &mut Vec<Item>) -> Result<()> {
    let mut fields = Fields::of(metric);
    while let Some(field) = fields.next_field()? {
        let (number @ (5 | 7 | 9..=11), LEN) = (field.number, field.wire_type) else { continue };
        for point in contents(&metric[field.content()], 1) {
            let point = point?;
            items.push(match number {
                // Gauges and sums.
                5 | 7 => read_point(point, stamp)?,
                // Histograms of both kinds and summaries. Generators make no such points.
                _ => None,
            });
        }
    }
    Ok(())
}

fn read_point(point: &[u8], stamp: Option<Stamp>) -> Result<Item> {
    let (mut sent_unix_ns, mut as_double, mut as_int) = (0, None, None);
    let mut fields = Fields::of(point);
    while let Some(field) = fields.next_field()? {
        let content = point[field.content()].try_into();
        let (FIXED64, Ok(bytes)) = (field.wire_type, content) else { continue };
        match field.number {
            3 => sent_unix_ns = u64::from_le_bytes(bytes),
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
    Ok(match (stamp, as_int) {
        (Some(stamp), Some(identity)) => Some(of_request(stamp, identity)),
        // A sample of a scraped target, with the time that the pipeline has given it.
        _ => as_double
            .and_then(Identity::from_sample)
            .map(|identity| Stamp { identity, sent_unix_ns }),
    })
}

#[cfg(test)]
mod tests;
