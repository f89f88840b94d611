//! Finds, reads and writes the records and reports of runs.

use std::collections::BTreeSet;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum as _;

use super::record::{RECORD_FILE, RunRecord, Target, write};
use super::{to_csv, to_html, to_markdown};

/// Levels of folders that are searched for records. The limit ends loops of links.
const DEPTH: usize = 8;

/// Reads the records at these places, each a `run.json` or a folder with some in it or below, once
/// each and in the order in which they were started. A place without a record is an error.
pub fn load(places: &[PathBuf]) -> Result<Vec<RunRecord>> {
    let mut files = BTreeSet::new();
    for place in places {
        let (name, mut found) = (place.display(), Vec::new());
        match fs::metadata(place).with_context(|| name.to_string())?.is_file() {
            true => found.push(place.clone()),
            false => find(place, DEPTH, &mut found)?,
        }
        ensure!(
            !found.is_empty(),
            "{name}: no {RECORD_FILE} is there or in a folder below; give a folder that `sluice \
             load-test` wrote"
        );
        for file in found {
            files.insert(fs::canonicalize(&file).with_context(|| file.display().to_string())?);
        }
    }
    let mut records = files.iter().map(|file| RunRecord::read(file)).collect::<Result<Vec<_>>>()?;
    records.sort_by_key(|record| record.started_unix_ms);
    Ok(records)
}

fn find(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    let name = || folder.display().to_string();
    for entry in fs::read_dir(folder).with_context(name)? {
        let path = entry.with_context(name)?.path();
        if path.is_dir() {
            if depth > 0 {
                find(&path, depth - 1, files)?;
            }
        } else if path.file_name().is_some_and(|name| name == RECORD_FILE) {
            files.push(path);
        }
    }
    Ok(())
}

const MARKDOWN_FILE: &str = "report.md";
const CSV_FILE: &str = "report.csv";
const HTML_FILE: &str = "report.html";

/// Writes `report.md`, `report.csv` and `report.html` into a folder, and makes it if need be.
pub fn write_reports(records: &[RunRecord], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    write(folder, MARKDOWN_FILE, &to_markdown(records))?;
    write(folder, CSV_FILE, &to_csv(records))?;
    write(folder, HTML_FILE, &to_html(records))
}

/// The reports in a folder.
pub fn reports_in(folder: &Path) -> Vec<PathBuf> {
    let paths = [MARKDOWN_FILE, CSV_FILE, HTML_FILE].map(|name| folder.join(name));
    paths.into_iter().filter(|path| path.exists()).collect()
}

/// All files of a run in its folder: records, those of single targets included, and reports.
pub fn run_files_in(folder: &Path) -> Vec<PathBuf> {
    let targets = Target::value_variants().iter().map(|target| folder.join(target.to_string()));
    let records = iter::once(folder.to_owned()).chain(targets);
    let records = records.map(|folder| folder.join(RECORD_FILE)).filter(|path| path.exists());
    records.chain(reports_in(folder)).collect()
}

/// An error if there is an earlier file.
pub fn refuse_to_replace(earlier: &[PathBuf]) -> Result<()> {
    let [first, ..] = earlier else { return Ok(()) };
    bail!(
        "{} is of an earlier run: name another folder with --output, or replace what is there with \
         --overwrite",
        first.display()
    )
}

pub fn write_all(record: &RunRecord, folder: &Path) -> Result<()> {
    write_reports(std::slice::from_ref(record), folder)?;
    record.write(folder)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    #[test]
    fn records_are_found_below_folders_read_once_and_put_in_the_order_of_their_starts() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = [fixtures::single(), fixtures::multi()];
        let [older, newer] = [folder.path().join("b/older"), folder.path().join("a/newer")];
        write_all(&first, &older).unwrap();
        for name in [RECORD_FILE, "report.md", "report.csv", "report.html"] {
            assert!(older.join(name).is_file(), "{name}");
        }
        write_all(&second, &newer).unwrap();
        let twice = [folder.path().to_owned(), newer.join(RECORD_FILE), older];
        assert_eq!(
            load(&twice).unwrap(),
            [first, second],
            "what is written is what is read, in full"
        );
    }

    #[test]
    fn a_place_without_a_record_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("nothing");
        assert!(load(&[missing]).unwrap_err().to_string().contains("nothing"));
        let error = load(&[folder.path().to_owned()]).unwrap_err().to_string();
        assert!(error.contains("no run.json is there"), "{error}");
    }

    #[test]
    fn the_format_on_disk_stays_what_it_is() {
        fixtures::golden(RECORD_FILE, &fixtures::multi().to_json());
    }

    #[test]
    fn a_newer_format_is_refused_and_an_unknown_field_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RECORD_FILE);
        let text = fixtures::single().to_json();
        fs::write(&path, text.replacen("\"format\": 1", "\"format\": 2", 1)).unwrap();
        let newer = RunRecord::read(&path).unwrap_err().to_string();
        assert!(newer.contains("has format 2, this version reads format 1"), "{newer}");
        fs::write(&path, text.replacen("\"format\": 1", "\"format\": 1, \"later\": {}", 1))
            .unwrap();
        assert_eq!(RunRecord::read(&path).unwrap(), fixtures::single());
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        let cut = RunRecord::read(&path).unwrap_err().to_string();
        assert!(cut.contains("not a record of a load test"), "{cut}");
    }
}
