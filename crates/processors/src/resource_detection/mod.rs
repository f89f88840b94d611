//! `resource_detection`: attributes of the process's surroundings, on every resource.
//!
//! 1. `detector`: the contract of detectors. `surroundings`: what they look at. `detectors`: one
//!    file each.
//! 2. `config`: the options. `detection`: when detectors run, and what becomes of failures.
//!
//! What is detected becomes actions of the processor `resource`, and costs as much as they do.

mod config;
mod detection;
mod detector;
mod detectors;
mod surroundings;

use std::sync::Arc;

use bytes::Bytes;
use sluice_config::{ComponentKind, Kind};
use sluice_flow::{BoxFuture, Metadata};
use sluice_otlp::{Signal, edit_resources_and_schemas};
use tokio::sync::OnceCell;

use crate::fingerprint::Fingerprint;
use crate::processor::{Built, Edited, Processor, ProcessorConfig, RunningState};
use config::Options;
use detection::Detection;
use surroundings::Surroundings;

pub(crate) const KIND: ComponentKind<ProcessorConfig> = ComponentKind::new(
    Kind::new("resource_detection", "Adds attributes of the environment that Sluice runs in")
        .aliases(&["resourcedetection"]),
    |fields| {
        let options = Arc::new(Options::read(fields));
        let shared = Arc::new(Shared::new(options, Surroundings::real()));
        ProcessorConfig::Edits(Box::new(move |_| {
            let processor = Box::new(ResourceDetection(shared.clone()));
            Ok(Built { processor, warnings: Vec::new() })
        }))
    },
);

/// One for all pipelines.
struct Shared {
    options: Arc<Options>,
    around: Surroundings,
    /// Set when it is started: a configuration may be validated in another place.
    detection: OnceCell<Arc<Detection>>,
}

struct ResourceDetection(Arc<Shared>);

impl Shared {
    fn new(options: Arc<Options>, around: Surroundings) -> Shared {
        Shared { options, around, detection: OnceCell::new() }
    }
}

impl Processor for ResourceDetection {
    fn process(
        &self,
        _: Signal,
        request: &Bytes,
        metadata: &Metadata,
        limit_bytes: usize,
    ) -> Edited {
        let Some(detection) = self.0.detection.get() else { return Ok(Ok(None)) };
        let current = detection.current();
        let edit = current.actions.prepare(metadata);
        edit_resources_and_schemas(request, current.schema_url, limit_bytes, edit)
    }

    /// With the environment as far as it is known before the start: it decides on attributes too.
    fn keeps_points(&self) -> bool {
        true
    }

    fn fingerprint(&self) -> u64 {
        let mut fingerprint = Fingerprint::new("resource_detection");
        fingerprint.add(format!("{:?}", self.0.options));
        for name in detectors::VARIABLES {
            fingerprint.optional(self.0.around.variable(name));
        }
        fingerprint.finish()
    }

    /// Refreshes may find other attributes.
    fn is_repeatable(&self) -> bool {
        self.0.options.refresh_interval.is_zero()
    }

    fn start(&self) -> BoxFuture<'static, Result<(), String>> {
        let shared = self.0.clone();
        Box::pin(async move {
            let start = || Detection::start(shared.options.clone(), shared.around.clone());
            shared.detection.get_or_try_init(start).await.map(|_| ())
        })
    }

    fn running(&self) -> Option<RunningState> {
        let detection = self.0.detection.get()?.clone();
        Some(detection)
    }

    fn take_over(&self, running: RunningState, is_unchanged: bool) {
        if is_unchanged && let Ok(detection) = running.downcast::<Detection>() {
            // One that is started already stays.
            let _ = self.0.detection.set(detection);
        }
    }
}

#[cfg(test)]
mod tests;
