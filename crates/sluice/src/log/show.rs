//! `sluice log show`: the frames of a log.

use std::process::ExitCode;

use anyhow::Result;
use comfy_table::Cell;
use serde_json::json;
use sluice_log::format::CursorState;
use sluice_otlp::Signal;

use super::arguments::ListArguments;
use super::body;
use super::directory::{Directory, LogFolder};
use super::frames::{Frames, StoredFrame, report_damage};
use super::listing::{Entry, Kind, Listing};
use crate::text;

const TITLES: [&str; 7] =
    [">Offset", "Received", ">Items", ">Bytes", "Encoding", "Receiver", "Waits for"];

pub(super) fn run(arguments: &ListArguments) -> Result<ExitCode> {
    let directory = Directory::open(&arguments.target.directory)?;
    let (signal, from) = (arguments.target.signal, arguments.from);
    let mut listing = Listing::new(arguments.output, arguments.limit);
    match &arguments.delivery {
        Some(name) => {
            let delivery = directory.delivery(signal, name)?;
            show(&delivery.log, Frames::backlog(&delivery, from)?, &mut listing)?;
        }
        None => {
            for log in directory.logs(signal)? {
                show(&log, Frames::from(&log.path, from)?, &mut listing)?;
            }
        }
    }
    listing.finish()
}

fn show(log: &LogFolder, mut frames: Frames, listing: &mut Listing) -> Result<()> {
    let cursors: Vec<_> = log.cursor_files()?.into_iter().filter_map(|(_, it)| it).collect();
    let signal = log.signal;
    let (heading, name) = (signal.as_str(), format!("{}: frame", log.path.display()));
    let more = format!("there are more frames of {signal}");
    let kind = Kind { signal, heading, titles: &TITLES, name, more };
    if listing.list(&kind, || frames.next(), |frame| describe(signal, frame, &cursors))? == 0 {
        listing.note(&format!("{signal}: no frames\n"))?;
    }
    report_damage(&frames.chain.damaged());
    Ok(())
}

fn describe<'f>(signal: Signal, frame: &'f StoredFrame, cursors: &[CursorState]) -> Entry<'f> {
    let stored = &frame.stored;
    let time = text::time(stored.facts.received_unix_ns);
    let encoding = body::encoding_name(stored.facts.encoding);
    let (receiver, bytes) = (body::receiver(stored), stored.payload.len());
    let waiting = names(frame, cursors, true);
    let shown = if waiting.is_empty() { "-".to_owned() } else { waiting.join(", ") };
    Entry {
        stored,
        cells: vec![
            Cell::new(stored.offset),
            Cell::new(&time),
            Cell::new(text::count(stored.charge.items)),
            Cell::new(text::count(bytes as u64)),
            Cell::new(&encoding),
            text::cell(&receiver),
            text::cell(&shown),
        ],
        json: json!({
            "signal": signal.as_str(),
            "offset": stored.offset,
            "received": time,
            "items": stored.charge.items,
            "bytes": bytes,
            "uncompressed_bytes": stored.facts.uncompressed_len_bytes,
            "charge_bytes": stored.charge.bytes,
            "encoding": encoding,
            "receiver": receiver,
            "for": names(frame, cursors, false),
            "waits_for": waiting,
        }),
    }
}

/// The deliveries of a frame. A delivery that was dropped since has no name and no backlog.
fn names(frame: &StoredFrame, cursors: &[CursorState], only_waiting: bool) -> Vec<String> {
    let known = |id: u32| cursors.iter().find(|cursor| cursor.id == id);
    let offset = frame.stored.offset;
    let name = |&id: &u32| match known(id) {
        Some(cursor) if only_waiting && !cursor.waits_for(&frame.readers, offset) => None,
        Some(cursor) => Some(cursor.name.clone()),
        None if only_waiting => None,
        None => Some(format!("(dropped, id {id})")),
    };
    frame.readers.iter().filter_map(name).collect()
}
