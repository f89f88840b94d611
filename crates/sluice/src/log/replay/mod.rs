//! `sluice log replay`: dead letters back to their delivery, or telemetry to a file.

mod to_delivery;
mod to_file;

use std::process::ExitCode;

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use sluice_log::dead_letters::DeadLetterReader;

use super::arguments::ReplayArguments;
use super::directory::{Directory, StoredDelivery};

pub(super) fn run(arguments: &ReplayArguments) -> Result<ExitCode> {
    let directory = Directory::open(&arguments.target.directory)?;
    // Kept to the end, so that no process starts writing in between.
    let changes = arguments.to_file.is_none() || arguments.remove;
    let _lock = if changes { Some(directory.lock()?) } else { None };
    let delivery = directory.delivery(arguments.target.signal, &arguments.delivery)?;
    match &arguments.to_file {
        Some(file) => to_file::run(&directory, &delivery, file, arguments),
        None => to_delivery::run(&directory, &delivery, arguments.limit),
    }
}

/// Opens the delivery's dead letters for reading.
fn letters(directory: &Directory, delivery: &StoredDelivery) -> Result<DeadLetterReader> {
    let Some(path) = &delivery.dead_letters else {
        bail!("{}: there are no dead letters", delivery.name)
    };
    Ok(DeadLetterReader::open(directory.disk.clone(), path, 0)?)
}

/// Progress on the standard error, if that is a terminal. The total is not known in advance.
fn progress() -> ProgressBar {
    let style =
        ProgressStyle::with_template("{elapsed:>4} {spinner} {human_pos} frames, {per_sec}");
    ProgressBar::new_spinner()
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}
