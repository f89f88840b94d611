//! `prometheus`: scrapes targets, as the Collector's receiver and Prometheus do.
//!
//! `sluice_discovery` finds targets, `sluice_scrape` makes requests of pages. The life of a scrape:
//!
//! 1. `targets` has a task for each target. `scraping` says when it scrapes: at the target's own
//!    point of each interval.
//! 2. `fetch` asks the target (`client`, `oauth2`). When it answers, `scraping` asks the engine
//!    for memory; a target that is slow holds none.
//! 3. `page` inflates and reads the page, within the memory for series (`budget`).
//! 4. `task` submits the request, and waits while deliveries are behind. What the engine refuses is
//!    lost and counted: the next scrape has newer values.

mod budget;
mod client;
mod config;
mod counters;
mod failure;
mod fetch;
mod oauth2;
mod page;
mod settings;
mod targets;
mod task;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sluice_config::Kind;
use sluice_discovery::{Discovery, Labels};
use sluice_flow::BoxFuture;
use sluice_otlp::Signal;
use tokio_util::sync::CancellationToken;

use self::counters::Counters;
use self::targets::Targets;
use self::task::Common;
use crate::large_work::LargeWork;
use crate::receiver::{
    BindContext, BoundReceiver, ReceiverConfig, ReceiverContext, ReceiverError, ReceiverKind,
    StartedReceiver,
};
use crate::scraping::Running;

pub use config::PrometheusConfig;

pub(crate) const KIND: ReceiverKind = ReceiverKind::new(
    Kind { signals: &[Signal::Metrics], ..Kind::new("prometheus", "Scrapes Prometheus' targets") },
    |fields| Box::new(PrometheusConfig::read(fields)),
)
.metrics(|| counters::METRICS.describe());

/// From one change of targets to the next.
const DISCOVERY_PAUSE: Duration = Duration::from_secs(1);

impl ReceiverConfig for PrometheusConfig {
    fn has_senders(&self) -> bool {
        false
    }

    /// It reads nothing again: its successor begins when it has handed over what it knows, and at
    /// the end there is still a way for the ends of series.
    fn fetches(&self) -> bool {
        false
    }

    fn files_fingerprint(&self) -> u64 {
        self.configs.files_fingerprint
    }

    fn keeps_memory(&self) -> bool {
        true
    }

    fn bind<'a>(
        &'a self,
        context: BindContext<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, ReceiverError>> {
        let (id, memory_bytes, config) = (context.id.into(), context.memory_bytes, self.clone());
        Box::pin(async move {
            Ok(Box::new(Bound { id, memory_bytes, config }) as Box<dyn BoundReceiver>)
        })
    }
}

struct Bound {
    id: Arc<str>,
    memory_bytes: usize,
    config: PrometheusConfig,
}

impl BoundReceiver for Bound {
    fn serve(self: Box<Self>, mut context: ReceiverContext) -> Box<dyn StartedReceiver> {
        let Bound { id, memory_bytes, config } = *self;
        let counters = context.take_counters::<Counters>().unwrap_or_default();
        counters.budget.set_limit(memory_bytes);
        let external_labels = config.configs.global.external_labels.clone();
        let common = Common {
            receiver: id,
            ingress: context.ingress,
            budget: counters.budget.clone(),
            counters: counters.clone(),
            large_work: LargeWork::new(),
            user_agent: context.user_agent,
            seed: seed(&external_labels),
            external_labels,
            trim_suffixes: config.trim_suffixes,
            initial_offset: config.initial_offset,
            scrape_on_shutdown: config.scrape_on_shutdown,
            is_last: AtomicBool::new(false),
        };
        let discovery = Discovery::start(config.configs, config.allocator, DISCOVERY_PAUSE);
        let (targets, stop) = (Targets::new(Arc::new(common), discovery), CancellationToken::new());
        let task = tokio::spawn(targets.run(counters.begin(), stop.clone()));
        Box::new(Running { counters, stop, task })
    }
}

/// Differs between hosts, and between processes with other external labels.
fn seed(external_labels: &Labels) -> u64 {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    (host, external_labels).hash(&mut hasher);
    hasher.finish()
}
