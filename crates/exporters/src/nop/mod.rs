//! Takes everything and does nothing: to measure the steps before it.

use std::sync::Arc;
use std::time::Duration;

use sluice_config::{ComponentKind, Kind};
use sluice_flow::{BoxFuture, Exporter, Outcome, Packed};

use crate::exporter::{BuildContext, BuildError, ExporterConfig};

pub(crate) const KIND: ComponentKind<Box<dyn ExporterConfig>> =
    ComponentKind::new(Kind::new("nop", "Takes everything and does nothing"), |_| Box::new(Nop));

struct Nop;

impl ExporterConfig for Nop {
    fn build(&self, _: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
        Ok(Arc::new(Nop))
    }
}

impl Exporter for Nop {
    fn send<'a>(&'a self, _: &'a Packed) -> BoxFuture<'a, Outcome> {
        Box::pin(std::future::ready(Outcome::Delivered))
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }
}
