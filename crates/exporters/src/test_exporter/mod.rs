//! Exists only in tests: it shows that a new exporter is its folder and one line in the list.

mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sluice_config::{ComponentKind, Fields, Kind};
use sluice_flow::{BoxFuture, Exporter, Outcome, Packed};

use crate::exporter::{BuildContext, BuildError, ExporterConfig};
use crate::sending::Sending;

pub(crate) const KIND: ComponentKind<Box<dyn ExporterConfig>> = ComponentKind::new(
    Kind::new("test_exporter", "Counts items up to a limit").aliases(&["counter"]),
    |fields| Box::new(Config::read(fields)),
);

#[derive(Debug)]
struct Config {
    limit_items: u32,
    sending: Sending,
}

impl Config {
    fn read(fields: &mut Fields<'_>) -> Config {
        let doc = "Items that it takes; further ones are rejected.";
        let limit_items = fields.integer("limit", 10, 1..=1000, doc);
        Config { limit_items, sending: Sending::read(fields) }
    }
}

impl ExporterConfig for Config {
    fn sending(&self) -> &Sending {
        &self.sending
    }

    fn build(&self, _: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
        Ok(Arc::new(Counter { limit_items: self.limit_items, taken_items: AtomicU32::new(0) }))
    }
}

struct Counter {
    limit_items: u32,
    taken_items: AtomicU32,
}

impl Exporter for Counter {
    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        let before = self.taken_items.fetch_add(request.items, Ordering::Relaxed);
        let is_within = before + request.items <= self.limit_items;
        let refused = || Outcome::Rejected { reason: "the limit is reached".to_owned() };
        Box::pin(std::future::ready(if is_within { Outcome::Delivered } else { refused() }))
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }
}
