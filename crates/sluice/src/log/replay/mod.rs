//! `sluice log replay`: dead letters back to their delivery, or telemetry to a file.

mod to_delivery;
mod to_file;

use std::process::ExitCode;

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use sluice_log::dead_letters::DeadLetterScan;

use super::arguments::ReplayArguments;
use super::directory::{Directory, StoredDelivery};
use crate::text;

pub(super) fn run(arguments: &ReplayArguments) -> Result<ExitCode> {
    let directory = Directory::open(&arguments.target.directory)?;
    // Kept to the end, so that no process starts writing in between.
    let changes = arguments.to_file.is_none() || arguments.remove;
    let _lock = if changes { Some(directory.lock()?) } else { None };
    let delivery = directory.delivery(arguments.target.signal, &arguments.delivery)?;
    match &arguments.to_file {
        Some(file) => to_file::run(&delivery, file, arguments),
        None => to_delivery::run(&delivery, arguments.limit),
    }
}

fn letters(delivery: &StoredDelivery) -> Result<DeadLetterScan> {
    delivery.letters(0)?.with_context(|| format!("{}: there are no dead letters", delivery.name))
}

/// The total is not known in advance.
fn progress() -> ProgressBar {
    let template = "{elapsed:>4} {spinner} {human_pos} frames, {per_sec}";
    text::progress(ProgressBar::new_spinner(), template)
}
