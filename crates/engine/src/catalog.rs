//! The components of this build.

use sluice_config::{Catalog, Class, Kind};
use sluice_receivers::{RECEIVERS, ReceiverKinds};

/// All kinds of all classes: an explicit list, no registration at link time.
#[derive(Clone, Copy)]
pub struct Components<'a> {
    pub receivers: &'a ReceiverKinds,
}

impl Default for Components<'_> {
    fn default() -> Self {
        Components { receivers: &RECEIVERS }
    }
}

const FORWARD: Kind =
    Kind::new("forward", "Passes the output of a pipeline to other pipelines of the same signal.");

impl Catalog for Components<'_> {
    fn kinds(&self, class: Class) -> Vec<Kind> {
        match class {
            Class::Receiver => self.receivers.kinds(),
            Class::Processor => sluice_processors::PROCESSORS.kinds(),
            Class::Exporter => sluice_exporters::EXPORTERS.kinds(),
            Class::Extension => sluice_extensions::EXTENSIONS.kinds(),
            Class::Connector => vec![FORWARD],
        }
    }
}
