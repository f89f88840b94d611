//! `sluice log show`: the frames of a log.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Result;
use comfy_table::{Cell, Table};
use serde_json::json;
use sluice_log::format::CursorState;

use super::arguments::ShowArguments;
use super::directory::{Directory, LogFolder};
use super::frames::{Frames, StoredFrame, report_damage, waits_for};
use super::{body, record, text};

/// A long list is printed as several tables, so that memory is bounded.
const ROWS_PER_TABLE: usize = 1000;
const TITLES: [&str; 7] = [">Offset", "Received", ">Items", ">Bytes", "Encoding", "Receiver", "Waits for"];

pub(super) fn run(arguments: &ShowArguments) -> Result<ExitCode> {
    let directory = Directory::open(&arguments.target.directory)?;
    let mut output = BufWriter::new(io::stdout().lock());
    let mut is_readable = true;
    match &arguments.delivery {
        Some(name) => {
            let delivery = directory.delivery(arguments.target.signal, name)?;
            if let Some(frames) = Frames::backlog(directory.disk.clone(), &delivery, arguments.from)? {
                is_readable = show(&directory, &delivery.log, frames, arguments, &mut output)?;
            }
        }
        None => {
            for log in directory.logs(arguments.target.signal)? {
                let frames = Frames::from(directory.disk.clone(), &log.path, arguments.from)?;
                is_readable &= show(&directory, &log, frames, arguments, &mut output)?;
            }
        }
    }
    output.flush()?;
    Ok(if is_readable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// False if a body could not be read.
fn show(
    directory: &Directory,
    log: &LogFolder,
    mut frames: Frames,
    arguments: &ShowArguments,
    output: &mut impl Write,
) -> Result<bool> {
    let cursors = directory.cursors(log)?;
    let is_table = !arguments.output.json && !arguments.output.body;
    let mut table = text::table(&TITLES);
    let mut is_readable = true;
    let mut shown = 0;
    let mut next = None;
    while let Some(frame) = frames.next()? {
        if shown == arguments.limit {
            next = Some(frame.header.offset);
            break;
        }
        shown += 1;
        if arguments.output.body {
            is_readable &= print_body(log, &frame, output)?;
        } else if arguments.output.json {
            serde_json::to_writer(&mut *output, &to_json(log, &frame, &cursors)).map_err(io::Error::from)?;
            output.write_all(b"\n")?;
        } else {
            add_row(&mut table, &frame, &cursors);
            if table.row_count() == ROWS_PER_TABLE {
                writeln!(
                    output,
                    "{log}\n{}\n",
                    std::mem::replace(&mut table, text::table(&TITLES)).trim_fmt(),
                    log = log.signal
                )?;
            }
        }
    }
    if is_table && table.row_count() > 0 {
        writeln!(output, "{}\n{}\n", log.signal, table.trim_fmt())?;
    } else if is_table && shown == 0 {
        writeln!(output, "{}: no frames\n", log.signal)?;
    }
    output.flush()?;
    if let Some(next) = next {
        eprintln!("sluice: there are more frames of {}: use --from {next}, or a higher --limit", log.signal);
    }
    report_damage(&log.path, frames.damage());
    Ok(is_readable)
}

fn print_body(log: &LogFolder, frame: &StoredFrame, output: &mut impl Write) -> Result<bool> {
    let mut line = Vec::new();
    match body::append_line(log.signal, frame.header.encoding, &frame.body.payload, &mut line) {
        Ok(()) => output.write_all(&line)?,
        Err(error) => {
            eprintln!("sluice: {}: frame {}: {error:#}", log.path.display(), frame.header.offset);
            return Ok(false);
        }
    }
    Ok(true)
}

fn add_row(table: &mut Table, frame: &StoredFrame, cursors: &[CursorState]) {
    let header = &frame.header;
    let waiting = names(frame, cursors, true).join(", ");
    table.add_row([
        Cell::new(header.offset),
        Cell::new(text::time(header.received_unix_ns)),
        Cell::new(text::count(u64::from(header.items))),
        Cell::new(text::count(u64::from(header.payload_len_bytes))),
        Cell::new(body::encoding_name(header.encoding)),
        text::cell(&record::receiver(&frame.body.metadata)),
        text::cell(if waiting.is_empty() { "-" } else { &waiting }),
    ]);
}

fn to_json(log: &LogFolder, frame: &StoredFrame, cursors: &[CursorState]) -> serde_json::Value {
    let header = &frame.header;
    json!({
        "signal": log.signal.as_str(),
        "offset": header.offset,
        "received": text::time(header.received_unix_ns),
        "items": header.items,
        "bytes": header.payload_len_bytes,
        "uncompressed_bytes": header.uncompressed_len_bytes,
        "charge_bytes": header.charge_bytes,
        "encoding": body::encoding_name(header.encoding),
        "receiver": record::receiver(&frame.body.metadata),
        "for": names(frame, cursors, false),
        "waits_for": names(frame, cursors, true),
    })
}

/// The deliveries of a frame. One that was dropped since then has no name any more, and no backlog.
fn names(frame: &StoredFrame, cursors: &[CursorState], only_waiting: bool) -> Vec<String> {
    let known = |id: u32| cursors.iter().find(|cursor| cursor.id == id);
    let offset = frame.header.offset;
    let name = |&id: &u32| match known(id) {
        Some(cursor) if only_waiting && !waits_for(cursor, &frame.readers, offset) => None,
        Some(cursor) => Some(cursor.name.clone()),
        None if only_waiting => None,
        None => Some(format!("(dropped, id {id})")),
    };
    frame.readers.iter().filter_map(name).collect()
}
