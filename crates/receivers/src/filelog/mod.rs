//! `filelog`: reads log files, as the Collector's `file_log` does. `crate::files` reads them;
//! `lines` makes log records of their lines, of which operators make others.

mod config;
mod lines;
mod metrics;

use std::sync::Arc;

use sluice_config::Kind;

use crate::files::{self, FileSource};
use crate::receiver::ReceiverKind;

pub use self::config::FilelogConfig;
pub use crate::files::Counters;

use self::lines::Lines;

pub(crate) const KIND: ReceiverKind = ReceiverKind::new(
    Kind::new("filelog", "Reads log files that grow and rotate").aliases(&["file_log"]),
    |fields| Box::new(FilelogConfig::read(fields)),
)
.metrics(|| metrics::METRICS.describe());

impl FileSource for FilelogConfig {
    type Counters = Counters;
    const NAME: &'static str = "filelog";

    fn storage(&self) -> Option<&str> {
        self.storage.as_deref()
    }

    fn files(&self) -> files::Settings {
        files::Settings {
            options: self.options.clone(),
            attributes: self.files.clone(),
            header: self.header.clone(),
            rate: self.rate,
        }
    }

    fn records(&self, _: &Arc<Counters>) -> Box<dyn files::Records> {
        Box::new(Lines::new(self))
    }

    fn counters_of_files(counters: &Arc<Counters>) -> Arc<Counters> {
        Arc::clone(counters)
    }
}
