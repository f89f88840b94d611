//! Which components this build has.

use sluice_config::{Catalog, Class, Kind};

/// All kinds of all classes: an explicit list, no registration at link time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Components;

const CONNECTORS: &[Kind] =
    &[Kind::new("forward", "Passes what comes out of one pipeline on into others of the same signal.")];

impl Catalog for Components {
    fn kinds(&self, class: Class) -> &[Kind] {
        match class {
            Class::Receiver => sluice_receivers::kinds(),
            Class::Processor => sluice_processors::PROCESSORS.kinds(),
            Class::Exporter => sluice_exporters::EXPORTERS.kinds(),
            Class::Extension => sluice_extensions::EXTENSIONS.kinds(),
            Class::Connector => CONNECTORS,
        }
    }
}
