//! `sluice log dead-letters`: data that backends rejected for good.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use comfy_table::{Cell, Table};
use serde_json::json;
use sluice_log::dead_letters::{DeadLetter, DeadLetterReader};

use super::arguments::DeadLettersArguments;
use super::directory::{Directory, StoredDelivery};
use super::frames::{next_letter, report_damage};
use super::{body, record, text};

const ROWS_PER_TABLE: usize = 1000;
const TITLES: [&str; 6] = [">Number", "Refused", ">Items", ">Bytes", "Receiver", "Reason"];

pub(super) fn run(arguments: &DeadLettersArguments) -> Result<ExitCode> {
    let directory = Directory::open(&arguments.target.directory)?;
    let mut deliveries = Vec::new();
    match &arguments.delivery {
        Some(name) => deliveries.push(directory.delivery(arguments.target.signal, name)?),
        None => {
            for log in directory.logs(arguments.target.signal)? {
                deliveries.extend(directory.deliveries(&log)?);
            }
        }
    }
    let mut output = BufWriter::new(io::stdout().lock());
    let mut is_readable = true;
    let mut shown = 0;
    for delivery in &deliveries {
        if let Some(path) = &delivery.dead_letters {
            let listed = list(&directory, delivery, path, arguments, &mut output)?;
            shown += listed.letters;
            is_readable &= listed.is_readable;
        }
    }
    if shown == 0 && !arguments.output.json && !arguments.output.body {
        writeln!(output, "no dead letters")?;
    }
    output.flush()?;
    Ok(if is_readable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Listed {
    letters: u64,
    /// False if a body could not be read.
    is_readable: bool,
}

fn list(
    directory: &Directory,
    delivery: &StoredDelivery,
    path: &Path,
    arguments: &DeadLettersArguments,
    output: &mut impl Write,
) -> Result<Listed> {
    let mut letters = DeadLetterReader::open(directory.disk.clone(), path, arguments.from)?;
    let title = |table: &Table| format!("{}\n{}\n", delivery.name, table.trim_fmt());
    let mut table = text::table(&TITLES);
    let mut listed = Listed { letters: 0, is_readable: true };
    let mut next = None;
    while let Some(letter) = next_letter(&mut letters)? {
        if listed.letters == arguments.limit {
            next = Some(letter.number);
            break;
        }
        listed.letters += 1;
        if arguments.output.body {
            listed.is_readable &= print_body(delivery, &letter, output)?;
        } else if arguments.output.json {
            serde_json::to_writer(&mut *output, &to_json(delivery, &letter)).map_err(io::Error::from)?;
            output.write_all(b"\n")?;
        } else {
            add_row(&mut table, &letter);
            if table.row_count() == ROWS_PER_TABLE {
                writeln!(output, "{}", title(&table))?;
                table = text::table(&TITLES);
            }
        }
    }
    if table.row_count() > 0 {
        writeln!(output, "{}", title(&table))?;
    }
    output.flush()?;
    if let Some(next) = next {
        eprintln!("sluice: {}: there are more letters: use --from {next}, or a higher --limit", delivery.name);
    }
    report_damage(path, letters.damage());
    Ok(listed)
}

fn print_body(delivery: &StoredDelivery, letter: &DeadLetter, output: &mut impl Write) -> Result<bool> {
    let mut line = Vec::new();
    match body::append_line(delivery.log.signal, letter.encoding, &letter.payload, &mut line) {
        Ok(()) => output.write_all(&line)?,
        Err(error) => {
            eprintln!("sluice: {}: dead letter {}: {error:#}", delivery.name, letter.number);
            return Ok(false);
        }
    }
    Ok(true)
}

fn add_row(table: &mut Table, letter: &DeadLetter) {
    table.add_row([
        Cell::new(letter.number),
        Cell::new(text::time(letter.refusal.refused_unix_ns)),
        Cell::new(text::count(u64::from(letter.items))),
        Cell::new(text::count(letter.payload.len() as u64)),
        text::cell(&record::receiver(&letter.metadata)),
        text::cell(&letter.refusal.reason),
    ]);
}

fn to_json(delivery: &StoredDelivery, letter: &DeadLetter) -> serde_json::Value {
    json!({
        "signal": delivery.log.signal.as_str(),
        "delivery": delivery.name,
        "number": letter.number,
        "refused": text::time(letter.refusal.refused_unix_ns),
        "received": text::time(letter.received_unix_ns),
        "code": letter.refusal.code,
        "reason": letter.refusal.reason,
        "items": letter.items,
        "bytes": letter.payload.len(),
        "uncompressed_bytes": letter.uncompressed_len_bytes,
        "encoding": body::encoding_name(letter.encoding),
        "receiver": record::receiver(&letter.metadata),
    })
}
