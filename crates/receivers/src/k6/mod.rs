//! `k6`: reads what k6 writes to files, as JSON (`--out json`) and as CSV (`--out csv`).
//! `crate::files` reads the files. A line becomes a sample (`json`, `csv`), and a sample a line of
//! line protocol as k6's own output for InfluxDB writes it (`samples`): so that data is the same
//! whichever way it came.

mod config;
mod csv;
mod json;
mod metrics;
mod samples;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sluice_config::Kind;

use self::config::K6Config;
use self::metrics::K6Counters;
use self::samples::Samples;
use crate::files::{self, Counters, FileSource};
use crate::receiver::ReceiverKind;

pub(crate) const KIND: ReceiverKind = ReceiverKind::new(
    Kind::new("k6", "Reads the samples that k6 writes to files, as JSON or as CSV"),
    |fields| Box::new(K6Config::read(fields)),
)
.metrics(|| metrics::METRICS.describe());

impl FileSource for K6Config {
    type Counters = K6Counters;
    const NAME: &'static str = "k6";

    fn storage(&self) -> Option<&str> {
        self.storage.as_deref()
    }

    fn files(&self) -> files::Settings {
        files::Settings {
            options: self.options.clone(),
            attributes: samples::wanted(),
            header: csv::header(),
            rate: 1,
        }
    }

    fn records(&self, counters: &Arc<K6Counters>) -> Box<dyn files::Records> {
        Box::new(Samples::new(self, Arc::clone(counters)))
    }

    fn counters_of_files(counters: &Arc<K6Counters>) -> Arc<Counters> {
        Arc::clone(&counters.files)
    }
}
