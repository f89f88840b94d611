//! The series that exporters which are scraped have collected.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_prometheus::Settings;
use sluice_prometheus::exposed::{Exposed, ExposedLimits};
use tokio::time::Instant;

/// The pages of a process, by exporter. One that a reload changes goes on with the series of the
/// one before, unless names and labels are made by other settings.
#[derive(Default)]
pub struct Pages(Mutex<HashMap<String, Weak<Collected>>>);

pub(crate) struct Collected {
    begun: Instant,
    pub(crate) exposed: Mutex<Exposed>,
}

impl Pages {
    pub(crate) fn of(
        &self,
        exporter: &str,
        settings: &Settings,
        limits: ExposedLimits,
    ) -> Arc<Collected> {
        let mut all = self.0.lock();
        all.retain(|_, known| known.strong_count() > 0);
        if let Some(known) = all.get(exporter).and_then(Weak::upgrade) {
            let mut exposed = known.exposed.lock();
            if exposed.is_of(settings) {
                exposed.set_limits(limits);
                drop(exposed);
                return known;
            }
        }
        let exposed = Mutex::new(Exposed::new(settings.clone(), limits));
        let new = Arc::new(Collected { begun: Instant::now(), exposed });
        all.insert(exporter.to_owned(), Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
impl Pages {
    /// The number of an exporter's series.
    pub(crate) fn series(&self, exporter: &str) -> Option<usize> {
        let known = self.0.lock().get(exporter).and_then(Weak::upgrade)?;
        Some(known.exposed.lock().series())
    }
}

impl Collected {
    /// The time that its series know.
    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}
