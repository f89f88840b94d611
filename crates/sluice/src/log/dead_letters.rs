//! `sluice log dead-letters`: data that backends rejected for good.

use std::process::ExitCode;

use anyhow::Result;
use comfy_table::Cell;
use serde_json::json;
use sluice_log::dead_letters::{DeadLetter, DeadLetterReader};

use super::arguments::ListArguments;
use super::directory::{Directory, StoredDelivery};
use super::frames::{next_letter, report_damage};
use super::listing::{Entry, Kind, Listing};
use super::{body, record, text};
use crate::output::complain;

const TITLES: [&str; 6] = [">Number", "Refused", ">Items", ">Bytes", "Receiver", "Reason"];

pub(super) fn run(arguments: &ListArguments) -> Result<ExitCode> {
    let directory = Directory::open(&arguments.target.directory)?;
    let signal = arguments.target.signal;
    let mut deliveries = Vec::new();
    match &arguments.delivery {
        Some(name) => deliveries.push(directory.delivery(signal, name)?),
        None => {
            for log in directory.logs(signal)? {
                deliveries.extend(directory.deliveries(&log)?);
            }
        }
    }
    let mut listing = Listing::new(arguments.output, arguments.limit);
    let mut printed = 0;
    for delivery in &deliveries {
        let Some(path) = &delivery.dead_letters else { continue };
        let mut letters = DeadLetterReader::open(directory.disk.clone(), path, arguments.from)?;
        let kind = Kind {
            signal: delivery.log.signal,
            heading: &delivery.name,
            titles: &TITLES,
            name: format!("{}: dead letter", delivery.name),
        };
        let next = || next_letter(&mut letters);
        let listed = listing.list(&kind, next, |letter| describe(delivery, letter))?;
        printed += listed.printed;
        if let Some(next) = listed.next {
            complain!(
                "sluice: {}: there are more letters: use --from {next}, or a higher --limit",
                delivery.name
            );
        }
        report_damage(path, letters.damage());
    }
    if printed == 0 {
        listing.note("no dead letters")?;
    }
    listing.finish()
}

fn describe<'l>(delivery: &StoredDelivery, letter: &'l DeadLetter) -> Entry<'l> {
    let refused = text::time(letter.refusal.refused_unix_ns);
    let receiver = record::receiver(&letter.metadata);
    Entry {
        number: letter.number,
        encoding: letter.facts.encoding,
        payload: &letter.payload,
        cells: vec![
            Cell::new(letter.number),
            Cell::new(&refused),
            Cell::new(text::count(letter.items)),
            Cell::new(text::count(letter.payload.len() as u64)),
            text::cell(&receiver),
            text::cell(&letter.refusal.reason),
        ],
        json: json!({
            "signal": delivery.log.signal.as_str(),
            "delivery": delivery.name,
            "number": letter.number,
            "refused": refused,
            "received": text::time(letter.facts.received_unix_ns),
            "code": letter.refusal.code,
            "reason": letter.refusal.reason,
            "items": letter.items,
            "bytes": letter.payload.len(),
            "uncompressed_bytes": letter.facts.uncompressed_len_bytes,
            "encoding": body::encoding_name(letter.facts.encoding),
            "receiver": receiver,
        }),
    }
}
