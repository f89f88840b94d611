//! `sluice log drop`: deletes the backlog of a delivery, or its dead letters.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use sluice_config::size;
use sluice_log::disk::RealDisk;
use sluice_log::format::CursorState;
use sluice_log::inspect::lost_cursors;
use sluice_log::{Holding, Log, OpenOptions, StoredRecord};

use super::arguments::DropArguments;
use super::directory::{Directory, StoredDelivery};
use crate::output::{self, complain};
use crate::text;

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
        let (name, held) = (&delivery.name, describe(&delivery, held));
        complain!(
            "sluice: nothing was changed. The {what} of {name}: {held}. With --yes it is deleted \
             for good"
        );
        return Ok(ExitCode::FAILURE);
    }
    let mut dropped = held;
    if !arguments.dead_letters {
        dropped = drop_backlog(&delivery)?;
    } else if delivery.dead_letters.is_some() {
        delivery.drop_letters()?;
    }
    let dropped = describe(&delivery, dropped);
    output::print(&format!("dropped the {what} of {}: {dropped}\n", delivery.name))
}

fn describe(delivery: &StoredDelivery, holding: Holding) -> String {
    if delivery.cursor.is_none() {
        return "everything on disk that no other delivery needs".to_owned();
    }
    let Holding { frames, items, bytes } = holding;
    let (frames, items) = (text::counted(frames, "frame"), text::counted(items, "item"));
    format!("{frames}, {items}, {}", size::rounded(bytes))
}

fn held(directory: &Directory, delivery: &StoredDelivery, dead_letters: bool) -> Result<Holding> {
    let logs = directory.overview()?;
    let log = || logs.iter().find(|log| log.directory == delivery.log.path);
    let letters = || log()?.dead_letters.iter().find(|letters| letters.delivery == delivery.name);
    let is_its = |state: &CursorState| state.name == delivery.name;
    let cursor = || log()?.cursors.iter().find(|cursor| cursor.state.as_ref().is_ok_and(is_its));
    let held = match dead_letters {
        true => letters().map(|letters| letters.held),
        false => cursor().map(|cursor| cursor.held),
    };
    Ok(held.unwrap_or_default())
}

/// The log releases the delivery's frames, and removes segments that no other delivery needs.
fn drop_backlog(delivery: &StoredDelivery) -> Result<Holding> {
    let signal = delivery.log.signal.as_str();
    let options = OpenOptions::new(Arc::new(RealDisk), &delivery.log.path, signal);
    let (log, _) = Log::<StoredRecord>::open(options)?;
    let dropped = log.forget(&delivery.name).unwrap_or_default();
    log.close(CLOSE_TIMEOUT);
    let path = delivery.cursor_path();
    let is_lost = || -> Result<bool> {
        let lost = lost_cursors(&RealDisk, &delivery.log.path)?;
        Ok(delivery.cursor.is_none() && lost.contains(&delivery.name))
    };
    if path.symlink_metadata().is_ok() || is_lost()? {
        let trouble = log.trouble().map_or("it still exists".to_owned(), |trouble| trouble.reason);
        let path = path.display();
        bail!("{path}: cannot remove the delivery's cursor: {trouble}; repeat the command");
    }
    Ok(dropped)
}
