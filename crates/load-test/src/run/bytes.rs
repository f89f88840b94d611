//! What flows in bytes: what Fluent Bit and the tables of its load test count in place of items.

use std::fs;
use std::path::Path;

use super::definition::{Metrics, Selector};
use super::figures::Figures;
use crate::backend::Backend;
use crate::report::Kpis;
use crate::subject::Subject;

/// One look at the bytes; `None`: the subject does not say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ByteLook {
    received: Option<f64>,
    exported: Option<f64>,
    buffer: Option<f64>,
    /// Of requests that the backends took.
    arrived: u64,
    /// Below the subject's folder, without its configuration and output.
    on_disk: u64,
}

impl ByteLook {
    /// `value` reads the subject's own metrics.
    pub(super) fn take(
        names: &Metrics,
        value: impl Fn(&Option<Selector>) -> Option<f64>,
        subject: &Subject,
        backends: &[Backend],
    ) -> ByteLook {
        ByteLook {
            received: value(&names.received_bytes),
            exported: value(&names.exported_bytes),
            buffer: value(&names.buffer_bytes),
            arrived: backends.iter().map(Backend::bytes).sum(),
            on_disk: size_below(subject.folder()),
        }
    }
}

/// Of all files in the folders below; those of the folder itself are the bench's.
fn size_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().is_dir()).map(|entry| size_of_all(&entry.path())).sum()
}

fn size_of_all(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_of_all(&entry.path()),
        Ok(metadata) => metadata.len(),
        // It was there a moment ago.
        Err(_) => 0,
    });
    sizes.sum()
}

impl Figures<'_> {
    /// The figures in bytes, of a subject that tails files; nothing of others. By the subject's own
    /// counters, else by the lines that it took, by what the backends took, and by what it keeps on
    /// disk.
    pub(super) fn byte_kpis(&self) -> Kpis {
        let looks: Vec<&ByteLook> =
            self.sampler.looks.iter().filter_map(|look| look.bytes.as_ref()).collect();
        let [first, .., last] = looks[..] else { return Kpis::default() };
        let load_s = self.load_s();
        let increase = |value: fn(&ByteLook) -> Option<f64>| {
            value(last)?;
            Some(increase(looks.iter().filter_map(|look| value(look))) / load_s)
        };
        let bytes_per_line = self.report.bytes_sent as f64 / self.report.accepted.max(1) as f64;
        let received = increase(|look| look.received)
            .unwrap_or_else(|| self.sampler.taken() / load_s * bytes_per_line);
        let exported = increase(|look| look.exported)
            .unwrap_or_else(|| last.arrived.saturating_sub(first.arrived) as f64 / load_s);
        Kpis {
            received_bytes_per_s: Some(received),
            exported_bytes_per_s: Some(exported),
            buffer_bytes: Some(last.buffer.unwrap_or(last.on_disk as f64)),
            ..Kpis::default()
        }
    }
}

/// How much a counter has grown that begins again at 0 when its process does.
fn increase(values: impl Iterator<Item = f64>) -> f64 {
    let (mut total, mut before) = (0.0, None);
    for value in values {
        total += match before {
            None => 0.0,
            Some(before) if value >= before => value - before,
            Some(_) => value,
        };
        before = Some(value);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_begins_again_has_not_shrunk() {
        assert_eq!(increase([100.0, 150.0, 20.0, 30.0].into_iter()), 80.0);
        assert_eq!(increase([5.0].into_iter()), 0.0);
    }

    #[test]
    fn what_a_subject_keeps_on_disk_is_what_is_in_folders_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("output.log"), [0; 1000]).unwrap();
        fs::create_dir_all(folder.path().join("buffer/tail.0")).unwrap();
        fs::write(folder.path().join("buffer/a"), [0; 7]).unwrap();
        fs::write(folder.path().join("buffer/tail.0/b"), [0; 5]).unwrap();
        assert_eq!(size_below(folder.path()), 12);
    }
}
