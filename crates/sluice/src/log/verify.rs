//! `sluice log verify`: verifies every checksum.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use sluice_config::size;
use sluice_log::disk::RealDisk;
use sluice_log::inspect::{Finding, Verification, verify};

use super::directory::Directory;
use crate::output;
use crate::text;

pub(super) fn run(directory: &Path) -> Result<ExitCode> {
    let directory = Directory::open(directory)?;
    directory.logs(None)?;
    let template = "{elapsed:>4} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let bar = text::progress(ProgressBar::new(0), template);
    let verification = verify(&RealDisk, &directory.path, &mut |done_bytes, total_bytes| {
        bar.set_length(total_bytes);
        bar.set_position(done_bytes);
    });
    bar.finish_and_clear();
    let verification = verification.context("cannot verify the directory")?;
    output::print(&report(&verification))?;
    let is_damaged = verification.findings.iter().any(Finding::is_loss);
    Ok(if is_damaged { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn report(verification: &Verification) -> String {
    let mut report = String::new();
    for finding in &verification.findings {
        let kind = if finding.is_loss() { "damaged" } else { "note" };
        let _ = writeln!(report, "{kind}: {}", describe(finding));
    }
    let damaged = verification.findings.iter().filter(|finding| finding.is_loss()).count();
    let summary = match damaged {
        0 => "no damage".to_owned(),
        _ => format!("{} damaged", text::counted(damaged as u64, "file")),
    };
    let _ = writeln!(
        report,
        "checked {} ({}) with {} ({}) and {}: {summary}",
        text::counted(verification.segments, "segment"),
        size::rounded(verification.bytes),
        text::counted(verification.frames, "whole frame"),
        text::counted(verification.items, "item"),
        text::counted(verification.cursors, "cursor file"),
    );
    report
}

fn describe(finding: &Finding) -> String {
    match finding {
        Finding::DamagedSegment { path, position, damage, is_sealed } => {
            let what = format!(
                "{}: from position {position} on: {} damaged, {} unreadable, {}",
                path.display(),
                text::counted(damage.frames, "frame"),
                text::counted(damage.regions, "place"),
                size::rounded(damage.bytes)
            );
            let rest = match *is_sealed || damage.frames > 0 {
                true => "the frames around it can be read",
                false => {
                    "the segment was being written: this may be the rest of a write that was never \
                     acknowledged"
                }
            };
            format!("{what}; {rest}")
        }
        Finding::MissingFrames { path, frames } => {
            let frames = text::counted(*frames, "frame");
            format!("{}: {frames} fewer than its footer counts", path.display())
        }
        Finding::DamagedCursor { path, slots: 1 } => format!(
            "{}: one of its two slots; the other one is used (an interrupted write leaves this)",
            path.display()
        ),
        Finding::DamagedCursor { path, .. } => format!(
            "{}: both slots: the position of its delivery is lost. The next start renames the file \
             and keeps everything on disk for this delivery; `sluice log ls` shows how to continue",
            path.display()
        ),
        Finding::LostCursor { log_directory, name } => format!(
            "{}: the cursor file of a delivery is lost: everything on disk is kept for it as \
             {name}; `sluice log ls` shows how to continue",
            log_directory.display()
        ),
        Finding::MissingBacklog { log_directory, reader, frames } => format!(
            "{}: {} that {reader} waits for: no file has them; segments were removed, emptied or \
             cut",
            log_directory.display(),
            text::counted(*frames, "frame")
        ),
        Finding::EmptiedSegment { path } => {
            format!("{}: is empty, and frames were in it", path.display())
        }
        Finding::LostState { path } => format!(
            "{}: is gone: it is not known which dead letters were removed, and all that are there \
             count as left",
            path.display()
        ),
        Finding::SetAside { path } => format!(
            "{}: was set aside, because a delivery could not read something in it; `sluice log \
             repair` says what can be done",
            path.display()
        ),
        Finding::LettersSetAside { path } => format!(
            "{}: was set aside, because something in it could not be read when its dead letters \
             were removed; `sluice log drop --dead-letters` deletes it, with all others",
            path.display()
        ),
        Finding::Unreadable(error) => error.to_string(),
    }
}
