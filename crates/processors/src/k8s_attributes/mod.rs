//! `k8s_attributes`: attributes of the pod that telemetry comes from, on its resource.
//!
//! 1. `config`: the options. `rules`: what is extracted of an object.
//! 2. `association`: how a pod is recognised. `pod`, `related`: what is kept of objects.
//! 3. `cluster`: the watches, and what they know. `enrich`: what a resource gets.

mod association;
mod cluster;
mod config;
mod enrich;
mod pod;
mod related;
mod rules;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sluice_config::{ComponentKind, Kind};
use sluice_flow::{BoxFuture, Metadata};
use sluice_otlp::{Signal, edit_resources_within};

use crate::fingerprint::Fingerprint;
use crate::processor::{Built, Edited, Processor, ProcessorConfig, RunningState};
use cluster::Cluster;
use config::Options;

pub(crate) const KIND: ComponentKind<ProcessorConfig> = ComponentKind::new(
    Kind::new("k8s_attributes", "Adds attributes of the pod that telemetry comes from")
        .aliases(&["k8sattributes"]),
    |fields| {
        let options = Options::read(fields);
        let shared = Arc::new(Shared { options, cluster: OnceLock::new() });
        ProcessorConfig::Edits(Box::new(move |_| {
            let processor = Box::new(K8sAttributes(shared.clone()));
            Ok(Built { processor, warnings: Vec::new() })
        }))
    },
);

/// One for all pipelines: it has the watches, and what they know.
struct Shared {
    options: Options,
    /// Set when it is started; never with `passthrough`.
    cluster: OnceLock<Arc<Cluster>>,
}

struct K8sAttributes(Arc<Shared>);

impl Processor for K8sAttributes {
    fn process(
        &self,
        _: Signal,
        request: &Bytes,
        metadata: &Metadata,
        limit_bytes: usize,
    ) -> Edited {
        let peer = association::address_of(metadata);
        let known = self.0.cluster.get().map(|cluster| cluster.known());
        let mut enricher = enrich::Enricher::new(&self.0.options, known, peer);
        edit_resources_within(request, limit_bytes, |attributes| enricher.enrich(attributes))
    }

    fn reads_address(&self) -> bool {
        self.0.options.reads_address()
    }

    fn keeps_points(&self) -> bool {
        true
    }

    fn fingerprint(&self) -> u64 {
        let mut fingerprint = Fingerprint::new("k8s_attributes");
        self.0.options.fingerprint(&mut fingerprint);
        fingerprint.finish()
    }

    /// Pods come and go.
    fn is_repeatable(&self) -> bool {
        self.0.options.passthrough
    }

    fn start(&self) -> BoxFuture<'static, Result<(), String>> {
        let options = &self.0.options;
        if options.passthrough {
            return Box::pin(std::future::ready(Ok(())));
        }
        let cluster = self.0.cluster.get_or_init(|| Cluster::start(options)).clone();
        let wait = options.wait_for_metadata;
        Box::pin(async move {
            match wait {
                Some(limit) => cluster.listed(limit).await,
                None => Ok(()),
            }
        })
    }

    fn running(&self) -> Option<RunningState> {
        let cluster = self.0.cluster.get()?.clone();
        Some(cluster)
    }

    fn take_over(&self, running: RunningState, is_unchanged: bool) {
        if is_unchanged && let Ok(cluster) = running.downcast::<Cluster>() {
            // One that is started already stays.
            let _ = self.0.cluster.set(cluster);
        }
    }
}

#[cfg(test)]
mod tests;
