//! The output: tables, files, the exit code.

use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use sluice_load_test::report::{self, RunRecord, SubjectRecord};
use sluice_load_test::run::Threshold;

use super::interruption::INTERRUPTED;
use crate::output::complain;
use crate::text;

#[derive(Debug, Args)]
pub(super) struct OutputArguments {
    /// Exit with 1 if this condition holds, for instance 'lost>0'; may be given several times
    #[arg(long, value_name = "CONDITION")]
    pub(super) fail_if: Vec<Threshold>,
    /// Show no progress during the run
    #[arg(short = 'q', long)]
    pub(super) quiet: bool,
    /// Write the record of the run to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the record and all reports into this folder; with -t all, the record of each
    /// target into a subfolder
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Replace the record and the reports of an earlier run in the folder of --output
    #[arg(long, requires = "output")]
    overwrite: bool,
}

impl OutputArguments {
    /// Before anything is measured: makes the folder, and checks that those of the files exist.
    pub(super) fn prepare(&self) -> Result<()> {
        for path in [&self.json, &self.csv].into_iter().flatten() {
            // The folder of a bare file name is empty.
            let folder = Path::new(".").join(path.parent().unwrap_or(Path::new("")));
            if !folder.is_dir() || path.is_dir() {
                bail!("cannot write {}: name a file in a folder that is there", path.display());
            }
            if path.exists() {
                complain!("{} is there already, and will be replaced", path.display());
            }
        }
        self.output.as_deref().map_or(Ok(()), create_folder)
    }

    /// A record is of one target, and an earlier one is replaced only on demand.
    pub(super) fn check(&self, targets: usize) -> Result<()> {
        if targets > 1 && self.json.is_some() {
            bail!(
                "--json writes the record of one target: with -t all use --output DIR, which holds \
                 one a target"
            );
        }
        match &self.output {
            Some(folder) if !self.overwrite => {
                report::refuse_to_replace(&report::run_files_in(folder))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn put_out(&self, records: &[RunRecord]) -> Result<()> {
        print(records)?;
        // On a terminal the report has just shown these lines.
        if !std::io::stdout().is_terminal() {
            let told = records.iter().flat_map(report::about);
            let bad = told.filter(|(kind, _)| matches!(kind, Some("warning" | "failed")));
            bad.for_each(|(_, line)| complain!("{line}"));
        }
        self.write(records)
    }

    fn write(&self, records: &[RunRecord]) -> Result<()> {
        let save = |path: &PathBuf, text: String| {
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        if let (Some(path), [record]) = (&self.json, records) {
            save(path, record.to_json())?;
        }
        if let Some(path) = &self.csv {
            save(path, report::to_csv(records))?;
        }
        let Some(folder) = &self.output else { return Ok(()) };
        // A record of a run of other targets would be taken for one of this run.
        for path in report::run_files_in(folder) {
            fs::remove_file(&path).with_context(|| format!("cannot replace {}", path.display()))?;
        }
        if let [record] = records {
            return report::write_all(record, folder);
        }
        for record in records {
            let folder = folder.join(record.scenario.target.to_string());
            create_folder(&folder)?;
            record.write(&folder)?;
        }
        report::write_reports(records, folder)
    }
}

/// Markdown; on a terminal, with tables and lines that are no wider.
fn print(records: &[RunRecord]) -> Result<ExitCode> {
    crate::output::print(&match text::terminal_width() {
        Some(width) => text::wrapped(&report::to_text(records, width), width),
        None => report::to_markdown(records),
    })
}

/// `sluice load-test report`: one table of several runs.
pub(super) fn merge(
    places: &[PathBuf],
    output: Option<&Path>,
    overwrite: bool,
) -> Result<ExitCode> {
    if let Some(folder) = output.filter(|_| !overwrite) {
        report::refuse_to_replace(&report::reports_in(folder))?;
    }
    let records = report::load(places)?;
    let code = print(&records)?;
    if let Some(folder) = output {
        report::write_reports(&records, folder)?;
    }
    Ok(code)
}

fn create_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

pub(super) fn verdict(records: &[RunRecord]) -> ExitCode {
    let has_failed = |record: &RunRecord| {
        // A subject that cannot do a target has not failed in it.
        let is_missing = |one: &SubjectRecord| one.turns.is_empty() && one.cannot.is_none();
        record.verdicts.iter().any(|verdict| verdict.failed)
            || record.subjects.iter().any(is_missing)
    };
    if records.iter().any(|record| record.interrupted) {
        return ExitCode::from(INTERRUPTED);
    }
    if records.iter().any(has_failed) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
