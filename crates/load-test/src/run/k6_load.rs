//! The load of the target `k6`: in words, and whether there is room for it.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use super::definition::K6Form;
use super::plan::Plan;
use crate::generate::k6::{Form, Output, SAMPLES_PER_REQUEST, Samples};

/// Bytes of a sample in k6's longest form, JSON.
const SAMPLE_BYTES: f64 = 330.0;

impl Plan {
    /// The source of k6's samples, for the report.
    pub(super) fn k6_in_words(&self) -> String {
        match self.k6.k6 {
            Some(_) => "made by k6 itself".to_owned(),
            None => {
                format!("{SAMPLES_PER_REQUEST} samples each, generated as k6 1.8.1 writes them")
            }
        }
    }

    /// Checks that there is room for k6's file, which grows until the end of the turn.
    pub(super) fn check_k6(&self) -> Result<()> {
        let rate = self.rate_per_s().unwrap_or_default();
        if self.k6.k6.is_none() {
            let output = Output::File(Form::Csv, PathBuf::new());
            Samples { output, requests_per_s: rate }.check()?;
        }
        if self.subjects.iter().all(|one| one.k6_form() == K6Form::Lines) {
            return Ok(());
        }
        let samples = rate * SAMPLES_PER_REQUEST as f64 * self.duration.as_secs_f64();
        let (needed, folder) = (samples * SAMPLE_BYTES, std::env::temp_dir());
        let disk = rustix::fs::statvfs(&folder).with_context(|| folder.display().to_string())?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize) as f64;
        let mib = |bytes: f64| (bytes / f64::from(1 << 20)).ceil();
        ensure!(
            free >= needed,
            "k6's file needs up to {} MiB in {}, where {} MiB are free: set TMPDIR to another \
             disk, or a lower rate (-r) or shorter load (-d)",
            mib(needed),
            folder.display(),
            mib(free)
        );
        Ok(())
    }
}
