//! `sluice log drop`: deletes the backlog of a delivery, or its dead letters.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sluice_log::dead_letters::DeadLetters;
use sluice_log::inspect::overview;
use sluice_log::{Holding, Log, OpenOptions};

use super::arguments::DropArguments;
use super::directory::{Cursor, Directory, StoredDelivery};
use super::record::RawRecord;
use super::text;

/// Time limit for removing files.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn run(arguments: &DropArguments) -> Result<ExitCode> {
    let directory = Directory::open(&arguments.target.directory)?;
    // Kept to the end, so that no process starts writing in between.
    let _lock = if arguments.yes { Some(directory.lock()?) } else { None };
    let delivery = directory.delivery(arguments.target.signal, &arguments.delivery)?;
    let held = held(&directory, &delivery, arguments.dead_letters)?;
    let what = if arguments.dead_letters { "dead letters" } else { "backlog" };
    if !arguments.yes {
        eprintln!(
            "sluice: nothing was changed. The {what} of {}: {}. With --yes it is deleted for good",
            delivery.name,
            describe(&delivery, held)
        );
        return Ok(ExitCode::FAILURE);
    }
    let dropped = match &delivery.dead_letters {
        Some(_) if arguments.dead_letters => drop_dead_letters(&directory, &delivery, held)?,
        None if arguments.dead_letters => Holding::default(),
        _ => drop_backlog(&directory, &delivery)?,
    };
    println!("dropped the {what} of {}: {}", delivery.name, describe(&delivery, dropped));
    Ok(ExitCode::SUCCESS)
}

fn describe(delivery: &StoredDelivery, holding: Holding) -> String {
    if matches!(delivery.cursor, Cursor::Lost) {
        return "everything on disk that no other delivery needs".to_owned();
    }
    format!(
        "{}, {}, {}",
        text::counted(holding.frames, "frame"),
        text::counted(holding.items, "item"),
        text::bytes(holding.bytes)
    )
}

fn held(directory: &Directory, delivery: &StoredDelivery, dead_letters: bool) -> Result<Holding> {
    let logs = overview(&directory.disk, &directory.path).context("cannot read the directory")?;
    let Some(log) = logs.iter().find(|log| log.directory == delivery.log.path) else { return Ok(Holding::default()) };
    let of_letters = log.dead_letters.iter().find(|letters| letters.delivery == delivery.name);
    let of_cursor =
        log.cursors.iter().find(|cursor| cursor.state.as_ref().is_ok_and(|state| state.name == delivery.name));
    Ok(if dead_letters {
        of_letters.map(|letters| letters.held).unwrap_or_default()
    } else {
        of_cursor.map(|cursor| cursor.held).unwrap_or_default()
    })
}

fn drop_dead_letters(directory: &Directory, delivery: &StoredDelivery, held: Holding) -> Result<Holding> {
    let mut letters = DeadLetters::open(directory.disk.clone(), &delivery.log.path, &delivery.name, u64::MAX)?;
    let (_, next) = letters.range();
    letters.remove_below(next)?;
    Ok(held)
}

/// The log itself releases the delivery's frames, and removes the segments that no other delivery
/// needs.
fn drop_backlog(directory: &Directory, delivery: &StoredDelivery) -> Result<Holding> {
    let log = open_log(directory, delivery)?;
    let dropped = log.forget(&delivery.name).unwrap_or_default();
    log.close(CLOSE_TIMEOUT);
    let path = delivery.cursor_path();
    if is_there(&path) {
        let trouble = log.trouble().map_or("it still exists".to_owned(), |trouble| trouble.reason);
        bail!("{}: cannot remove the delivery's cursor: {trouble}; repeat the command", path.display());
    }
    Ok(dropped)
}

fn open_log(directory: &Directory, delivery: &StoredDelivery) -> Result<Log<RawRecord>> {
    let signal = delivery.log.signal.as_str();
    let options = OpenOptions::new(Arc::clone(&directory.disk), &delivery.log.path, signal);
    Ok(Log::open(options)?.0)
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
