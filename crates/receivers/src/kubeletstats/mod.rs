//! `kubeletstats`: asks a kubelet for the metrics of its node, pods, containers and volumes, as the
//! Collector's receiver does.
//!
//! The life of a scrape:
//!
//! 1. `task` waits for its time (`crate::scraping`) and asks the kubelet (`client`). When it
//!    answers, the engine is asked for memory.
//! 2. `convert` makes a request of the answers. `cluster` knows from the API server what the
//!    kubelet does not: the capacity of the node, and volumes behind claims.
//! 3. `task` submits the request, and waits while deliveries are behind. A scrape that the engine
//!    refuses is lost and counted: the next one has newer values.

mod client;
mod cluster;
mod config;
mod convert;
mod counters;
mod failure;
mod task;

use std::sync::Arc;

use sluice_config::Kind;
use sluice_flow::BoxFuture;
use sluice_kubernetes::Client;
use sluice_otlp::Signal;
use tokio_util::sync::CancellationToken;

use self::client::{Direct, Kubelet, Proxied};
use self::cluster::Cluster;
use self::config::{Endpoint, Source};
use self::counters::Counters;
use self::task::Task;
use crate::large_work::LargeWork;
use crate::receiver::{
    BindContext, BoundReceiver, ReceiverConfig, ReceiverContext, ReceiverError, ReceiverKind,
    StartedReceiver,
};
use crate::scraping::{Running, now_ns};

pub use config::KubeletStatsConfig;

pub(crate) const KIND: ReceiverKind = ReceiverKind::new(
    Kind {
        signals: &[Signal::Metrics],
        ..Kind::new("kubeletstats", "Metrics of a node and its pods, from its kubelet.")
    }
    .aliases(&["kubelet_stats"]),
    |fields| Box::new(KubeletStatsConfig::read(fields)),
)
.metrics(|| counters::METRICS.describe());

/// Of requests to the kubelet.
const USER_AGENT: &str = concat!("sluice/", env!("CARGO_PKG_VERSION"));

impl ReceiverConfig for KubeletStatsConfig {
    fn has_senders(&self) -> bool {
        false
    }

    /// It reads nothing again, so that its successor may begin before it has ended.
    fn fetches(&self) -> bool {
        false
    }

    fn bind<'a>(
        &'a self,
        context: BindContext<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, ReceiverError>> {
        let (id, config) = (context.id.into(), self.clone());
        Box::pin(async move {
            let source = config.source.clone();
            let kubelet = tokio::task::spawn_blocking(move || kubelet(source)).await;
            let kubelet = kubelet.map_err(ReceiverError::failed)?.map_err(ReceiverError::failed)?;
            Ok(Box::new(Bound { id, config, kubelet }) as Box<dyn BoundReceiver>)
        })
    }
}

/// Reads certificates.
fn kubelet(source: Source) -> Result<Kubelet, String> {
    Ok(match source {
        Source::Proxied { access, node } => {
            Kubelet::Proxied(Proxied::new(Client::new(access), &node))
        }
        Source::Direct { endpoint, http } => {
            let url = match endpoint {
                Endpoint::Url(url) => url,
                Endpoint::Host { scheme, port } => {
                    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
                    let name = name.map_err(|error| format!("the host has no name: {error}"))?;
                    format!("{scheme}://{}:{port}", name.trim())
                }
            };
            Kubelet::Direct(Box::new(Direct::new(*http, &url, USER_AGENT)?))
        }
    })
}

struct Bound {
    id: Arc<str>,
    config: KubeletStatsConfig,
    kubelet: Kubelet,
}

impl BoundReceiver for Bound {
    fn serve(self: Box<Self>, mut context: ReceiverContext) -> Box<dyn StartedReceiver> {
        let Bound { id, config, kubelet } = *self;
        let counters = context.take_counters::<Counters>().unwrap_or_default();
        let node = config.node.as_deref();
        let cluster = config.cluster.map(|access| Cluster::new(Client::new(access), node));
        let task = Task {
            receiver: id,
            ingress: context.ingress,
            counters: counters.clone(),
            large_work: LargeWork::new(),
            settings: config.settings,
            kubelet,
            cluster,
            interval: config.interval,
            initial_delay: config.initial_delay,
            timeout: config.timeout,
            started_ns: now_ns(),
            answer_bytes: [0; 2],
            told: None,
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(task.run(stop.clone()));
        Box::new(Running { counters, stop, task })
    }
}
