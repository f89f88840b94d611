//! `scrape_config_files`: jobs in files of their own, read together with the configuration.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use sluice_config::source::{Source, Span};
use sluice_config::{Diagnostic, Diagnostics, Fields, yaml};
use sluice_net::reload::read_bounded;
use sluice_tail::Found;

use super::sources::glob;
use super::{Global, ScrapeConfig, read_jobs};

/// Files of one pattern.
const FILES_LIMIT: usize = 1_000;
/// Options of jobs are nested less deep.
const NESTING_LIMIT: usize = 32;

/// The jobs of all files, and a number that differs when a file's contents do.
pub(super) fn read(fields: &mut Fields<'_>, global: &Global) -> (Vec<ScrapeConfig>, u64) {
    let doc = "Files with further jobs below `scrape_configs`; the last part of a path may have \
               one `*`. They are read when the configuration is read.";
    let (mut jobs, mut hasher) = (Vec::new(), DefaultHasher::new());
    for pattern in fields.texts("scrape_config_files", doc) {
        let found = paths(&pattern).and_then(|paths| {
            let mut read = |path: &PathBuf| read_file(path, global, fields, &mut hasher);
            paths.iter().map(&mut read).collect::<Result<Vec<_>, _>>()
        });
        match found {
            Ok(found) if found.is_empty() => {
                fields.warn_at("scrape_config_files", &format!("has `{pattern}`: no file there"));
            }
            Ok(found) => jobs.extend(found.into_iter().flatten()),
            Err(reason) => fields.error_at("scrape_config_files", &reason),
        }
    }
    (jobs, hasher.finish())
}

/// The files that a pattern means, in the order of their names.
fn paths(pattern: &str) -> Result<BTreeSet<PathBuf>, String> {
    let glob = glob(pattern).map_err(|reason| format!("has `{pattern}`, which {reason}"))?;
    let (mut paths, mut failure) = (BTreeSet::new(), None);
    let mut visit = |found: Found<'_>| {
        if let Found::File(path) = found {
            paths.insert(path.to_owned());
        }
    };
    glob.walk(&mut visit, &mut |path, error| {
        failure.get_or_insert_with(|| format!("cannot read {}: {error}", path.display()));
    });
    match failure {
        Some(reason) => Err(reason),
        None if paths.len() > FILES_LIMIT => {
            Err(format!("has `{pattern}`, which means more than {FILES_LIMIT} files"))
        }
        None => Ok(paths),
    }
}

/// Its mistakes are told at the place of the option, with their own file and line.
fn read_file(
    path: &Path,
    global: &Global,
    fields: &mut Fields<'_>,
    hasher: &mut DefaultHasher,
) -> Result<Vec<ScrapeConfig>, String> {
    let shown = path.display().to_string();
    let bytes = read_bounded(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    bytes.hash(hasher);
    let text = String::from_utf8(bytes).map_err(|_| format!("{shown} is not UTF-8 text"))?;
    let mut diagnostics = Diagnostics::default();
    let file = diagnostics.sources.add(Source::new(&shown, &text));
    let root = yaml::parse(&text, file, NESTING_LIMIT)
        .map_err(|error| format!("{shown}: {}", error.message))?;
    let span = Span { file, start: 0, end: 0, line: 1, column: 1 };
    let jobs =
        Fields::read("file", &root, span, &mut diagnostics, |fields| read_jobs(fields, global));
    let at = fields.span_of("scrape_config_files");
    for found in diagnostics.items() {
        let message = diagnostics.line(found);
        fields.push(Diagnostic { severity: found.severity, ..Diagnostic::error(at, message) });
    }
    Ok(jobs)
}
