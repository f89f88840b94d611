//! A gateway with a directory: its configuration, its place, and lives of it that end in crashes.

#![allow(dead_code, reason = "each test file uses a part of this")]

pub(crate) mod faulty_mount;
pub(crate) mod lives;
pub(crate) mod place;

use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_load_test::{Backend, Faults, LoadReport};

use crate::gateway::{eventually, exporter, faulty_backend};

/// A configuration of one pipeline a backend, `traces/NAME`, that holds its telemetry in this
/// directory. `buffer` are further lines of that section.
pub(crate) fn config(
    directory: &Path,
    ack: &str,
    backends: &[(&str, &Backend)],
    buffer: &str,
) -> String {
    let exporters: String =
        backends.iter().map(|(name, backend)| exporter(name, backend)).collect();
    let pipelines = backends.iter().map(|(name, _)| {
        format!("    traces/{name}:\n      receivers: [otlp]\n      exporters: [otlp/{name}]\n")
    });
    let pipelines: String = pipelines.collect();
    format!(
        "exporters:\n{exporters}buffer:\n  directory: {}\n  ack: {ack}\n{buffer}service:\n  pipelines:\n{pipelines}",
        directory.display(),
    )
}

/// Segment files in the directory.
pub(crate) fn segments(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory.join("traces")).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
    paths.sort();
    paths
}

pub(crate) fn len_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// The number of items of all reports that are acknowledged and not (yet) at this backend.
pub(crate) fn missing(reports: &[LoadReport], backend: &Backend) -> u64 {
    reports.iter().map(|report| report.missing_at(backend)).sum()
}

/// Waits until everything that was acknowledged is at this backend.
pub(crate) async fn assert_all_arrives(reports: &[LoadReport], backend: &Backend, limit: Duration) {
    let arrived = eventually(limit, async || missing(reports, backend) == 0).await;
    let acknowledged: u64 = reports.iter().map(|report| report.accepted).sum();
    assert!(
        arrived,
        "{} of {acknowledged} acknowledged items are missing after {limit:?}",
        missing(reports, backend)
    );
}

/// A backend that is dead for now.
pub(crate) async fn dead_backend() -> Backend {
    faulty_backend(Faults::dead()).await
}
