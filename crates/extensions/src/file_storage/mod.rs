//! `file_storage`: the directory in which telemetry is held for exporters whose
//! `sending_queue.storage` names it. It is another way to write `buffer.directory`: the engine has
//! one log in one directory.

mod config;

use sluice_config::{ComponentKind, Kind};

use crate::Extension;

pub use config::Config;

pub(crate) const KIND: ComponentKind<Box<dyn Extension>> = ComponentKind::new(
    Kind::new(
        "file_storage",
        "Directory in which telemetry is held, for exporters whose `sending_queue.storage` names it; \
         as `buffer.directory`.",
    ),
    |fields| Box::new(Config::read(fields)),
);

impl Extension for Config {
    fn file_storage(&self) -> Option<&Config> {
        Some(self)
    }
}
