//! Finding and writing what runs left behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::record::{RECORD_FILE, RecordError, RunRecord};
use super::{to_csv, to_html, to_markdown};

/// How far below a given folder records are looked for: deeper than any layout of results, and safe
/// from loops of links.
const DEPTH: usize = 8;

/// Reads the records at these places, each a `run.json` or a folder with any number of them in it
/// or below, and puts them in the order in which they were started. A place named twice is read
/// once; one without a record is an error.
pub fn load(places: &[PathBuf]) -> Result<Vec<RunRecord>, RecordError> {
    let mut files = BTreeSet::new();
    for place in places {
        let mut found = Vec::new();
        match fs::metadata(place).map_err(RecordError::file(place))?.is_file() {
            true => found.push(place.clone()),
            false => find(place, DEPTH, &mut found)?,
        }
        if found.is_empty() {
            return Err(RecordError::Empty { path: place.clone() });
        }
        for file in found {
            files.insert(fs::canonicalize(&file).map_err(RecordError::file(&file))?);
        }
    }
    let mut records =
        files.iter().map(|file| RunRecord::read(file)).collect::<Result<Vec<_>, _>>()?;
    records.sort_by_key(|record| record.started_unix_ms);
    Ok(records)
}

fn find(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), RecordError> {
    for entry in fs::read_dir(folder).map_err(RecordError::file(folder))? {
        let path = entry.map_err(RecordError::file(folder))?.path();
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

/// Writes `report.md`, `report.csv` and `report.html` of these runs into a folder, which is made if
/// it is not there.
pub fn write_reports(records: &[RunRecord], folder: &Path) -> Result<Vec<PathBuf>, RecordError> {
    fs::create_dir_all(folder).map_err(RecordError::file(folder))?;
    let reports = [
        ("report.md", to_markdown(records)),
        ("report.csv", to_csv(records)),
        ("report.html", to_html(records)),
    ];
    let mut written = Vec::new();
    for (name, text) in reports {
        let path = folder.join(name);
        fs::write(&path, text).map_err(RecordError::file(&path))?;
        written.push(path);
    }
    Ok(written)
}

/// Writes one run's record and its reports.
pub fn write_all(record: &RunRecord, folder: &Path) -> Result<Vec<PathBuf>, RecordError> {
    let mut written = write_reports(std::slice::from_ref(record), folder)?;
    written.insert(0, record.write(folder)?);
    Ok(written)
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
        assert_eq!(write_all(&first, &older).unwrap().len(), 4);
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
        let error = load(&[folder.path().to_owned()]).unwrap_err();
        assert!(matches!(error, RecordError::Empty { .. }), "{error}");
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
        assert!(matches!(RunRecord::read(&path), Err(RecordError::Format { found: 2, .. })));
        fs::write(&path, text.replacen("\"format\": 1", "\"format\": 1, \"later\": {}", 1))
            .unwrap();
        assert_eq!(RunRecord::read(&path).unwrap(), fixtures::single());
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert!(matches!(RunRecord::read(&path), Err(RecordError::Malformed { .. })));
    }
}
