//! `filelog`: reads log files, as the Collector's `file_log` does. `crate::files` reads them;
//! `lines` makes log records of their lines, of which operators make others.

mod config;
mod lines;
mod metrics;

use std::sync::Arc;

use sluice_config::Kind;
use sluice_flow::BoxFuture;

use crate::files::{self, FileSource};
use crate::receiver::{
    BindContext, BoundReceiver, Checkpoints, ReceiverConfig, ReceiverError, ReceiverKind,
};

pub use self::config::FilelogConfig;
pub use crate::files::Counters;

use self::lines::Lines;

pub(crate) const KIND: ReceiverKind = ReceiverKind::new(
    Kind::new("filelog", "Reads log files that grow and rotate").aliases(&["file_log"]),
    |fields| Box::new(FilelogConfig::read(fields)),
)
.metrics(|| metrics::METRICS.describe());

impl ReceiverConfig for FilelogConfig {
    fn has_senders(&self) -> bool {
        false
    }

    fn checkpoints(&self) -> Checkpoints<'_> {
        match &self.storage {
            Some(storage) => Checkpoints::In(storage),
            None => Checkpoints::WithTelemetry,
        }
    }

    fn bind<'a>(
        &'a self,
        context: BindContext<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, ReceiverError>> {
        files::bind(context, self.clone())
    }
}

impl FileSource for FilelogConfig {
    type Counters = Counters;
    const NAME: &'static str = "filelog";

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
