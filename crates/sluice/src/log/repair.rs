//! `sluice log repair`: puts files back that were set aside, or gives them up.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use sluice_config::size;
use sluice_engine::stored::{FrameMetadata, encoding_of};
use sluice_log::disk::RealDisk;
use sluice_log::repair::{Examined, Remedy, apply, examine};
use sluice_log::{Holding, StoredRecord};

use super::arguments::RepairArguments;
use super::directory::Directory;
use crate::text;

pub(super) fn run(arguments: &RepairArguments) -> Result<ExitCode> {
    let directory = Directory::open(&arguments.target.directory)?;
    // Kept to the end. A process that runs may be reading what is to be changed.
    let _lock = if arguments.yes { Some(directory.lock()?) } else { None };
    let mut output = io::stdout().lock();
    let (mut has_files, mut waits_for_yes) = (false, false);
    for log in directory.logs(arguments.target.signal)? {
        let examined = examine(&RealDisk, &log.path, &is_known);
        for file in examined.with_context(|| format!("cannot examine {}", log.path.display()))? {
            let is_wanted = match file.remedy {
                Remedy::PutBack(_) => true,
                Remedy::GiveUp | Remedy::SetAside { .. } => arguments.give_up,
                Remedy::Blocked { .. }
                | Remedy::KeepForLostCursor
                | Remedy::KeepForNewerRelease(_)
                | Remedy::KeepUnread(_) => false,
            };
            if is_wanted && arguments.yes {
                apply(&RealDisk, &file)?;
            }
            has_files = true;
            waits_for_yes |= is_wanted && !arguments.yes;
            // At once: a later file may end the command.
            writeln!(output, "{}", describe(&file, is_wanted, is_wanted && arguments.yes))?;
        }
    }
    if !has_files {
        writeln!(output, "no file was set aside or renamed, and the disk refuses none")?;
    }
    if waits_for_yes {
        writeln!(output, "nothing was changed; with --yes it is done")?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether this release can deliver a record.
fn is_known(stored: &StoredRecord) -> bool {
    FrameMetadata::decode(&stored.metadata).is_ok() && encoding_of(stored.facts.encoding).is_some()
}

fn describe(file: &Examined, is_wanted: bool, is_done: bool) -> String {
    let path = file.path.display();
    let does = |done: &str, planned: &str| if is_done { done } else { planned }.to_owned();
    match &file.remedy {
        Remedy::PutBack(to) => format!(
            "{}: {path}{}: {} in it can be read that deliveries wait for{}",
            does("put back", "put back, with --yes"),
            another_name(file, to),
            waiting(file.waiting),
            damage(file),
        ),
        Remedy::Blocked { by } => format!(
            "kept: {path}{}: {} in it can be read that deliveries wait for, but {} exists; move \
             one of them",
            another_name(file, by),
            waiting(file.waiting),
            by.display(),
        ),
        Remedy::GiveUp if is_wanted => format!(
            "{}: {path} ({}): nothing in it that deliveries wait for can be read",
            does("deleted", "delete, with --yes"),
            size::rounded(file.len_bytes),
        ),
        Remedy::GiveUp => format!(
            "kept: {path} ({}): nothing in it that deliveries wait for can be read; restore the \
             file, or delete it with --give-up",
            size::rounded(file.len_bytes),
        ),
        Remedy::KeepForLostCursor => format!(
            "kept: {path}: a delivery whose cursor is lost may wait for what is in it; `sluice log \
             ls` and `verify` say more",
        ),
        Remedy::KeepForNewerRelease(newer) => format!(
            "kept: {path}: deliveries wait for {} in it that only a newer release can read",
            waiting(*newer),
        ),
        Remedy::KeepUnread(refused) => {
            format!("kept: {path}: {refused}; if the disk will never read it, delete it by hand")
        }
        Remedy::SetAside { refused, .. } if is_wanted => format!(
            "{}: {path}: {refused}; deliveries go on without it",
            does("set aside", "set aside, with --yes"),
        ),
        Remedy::SetAside { refused, .. } => format!(
            "kept: {path}: {refused}; deliveries wait for it. If the disk will never read it, \
             --give-up sets it aside"
        ),
    }
}

/// Its own name, if it had that of another segment.
fn another_name(file: &Examined, own: &Path) -> String {
    let is_its_name = file.path.display().to_string().starts_with(&own.display().to_string());
    if is_its_name {
        return String::new();
    }
    let own = own.file_name().unwrap_or_default().display();
    format!(" (renamed or copied: it is {own})")
}

fn waiting(waiting: Holding) -> String {
    let items = text::counted(waiting.items, "item");
    format!("{} ({items})", text::counted(waiting.frames, "frame"))
}

fn damage(file: &Examined) -> String {
    let damage = file.damage;
    if damage.is_none() {
        return String::new();
    }
    let places = text::counted(damage.frames + damage.regions, "place");
    format!("; {places} in it cannot, and the file will be set aside again")
}
