//! `sluice log dead-letters`: data that backends rejected for good.

use std::process::ExitCode;

use anyhow::Result;
use comfy_table::Cell;
use serde_json::json;
use sluice_log::StoredRecord;
use sluice_log::format::Refusal;

use super::arguments::ListArguments;
use super::body;
use super::directory::{Directory, StoredDelivery};
use super::frames::{readable, report_damage};
use super::listing::{Entry, Kind, Listing};
use crate::text;

const TITLES: [&str; 6] = [">Number", "Refused", ">Items", ">Bytes", "Receiver", "Reason"];

pub(super) fn run(arguments: &ListArguments) -> Result<ExitCode> {
    let directory = Directory::open(&arguments.target.directory)?;
    let signal = arguments.target.signal;
    let deliveries = match &arguments.delivery {
        Some(name) => vec![directory.delivery(signal, name)?],
        None => directory.deliveries(signal)?,
    };
    let mut listing = Listing::new(arguments.output, arguments.limit);
    let mut printed = 0;
    for delivery in &deliveries {
        let Some(mut letters) = delivery.letters(arguments.from)? else { continue };
        let (signal, name) = (delivery.log.signal, &delivery.name);
        let more = format!("{name}: there are more letters");
        let (heading, name) = (name.as_str(), format!("{name}: dead letter"));
        let kind = Kind { signal, heading, titles: &TITLES, name, more };
        let next = || readable(|| letters.next_letter());
        printed += listing.list(&kind, next, |letter| describe(delivery, letter))?;
        report_damage(&letters.damaged());
    }
    if printed == 0 {
        listing.note("no dead letters")?;
    }
    listing.finish()
}

fn describe<'l>(
    delivery: &StoredDelivery,
    (stored, refusal): &'l (StoredRecord, Refusal),
) -> Entry<'l> {
    let refused = text::time(refusal.refused_unix_ns);
    let receiver = body::receiver(stored);
    Entry {
        stored,
        cells: vec![
            Cell::new(stored.offset),
            Cell::new(&refused),
            Cell::new(text::count(stored.charge.items)),
            Cell::new(text::count(stored.payload.len() as u64)),
            text::cell(&receiver),
            text::cell(&refusal.reason),
        ],
        json: json!({
            "signal": delivery.log.signal.as_str(),
            "delivery": delivery.name,
            "number": stored.offset,
            "refused": refused,
            "received": text::time(stored.facts.received_unix_ns),
            "code": refusal.code,
            "reason": refusal.reason,
            "items": stored.charge.items,
            "bytes": stored.payload.len(),
            "uncompressed_bytes": stored.facts.uncompressed_len_bytes,
            "encoding": body::encoding_name(stored.facts.encoding),
            "receiver": receiver,
        }),
    }
}
