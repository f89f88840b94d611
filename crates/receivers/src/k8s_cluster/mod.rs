//! `k8s_cluster`: metrics of a cluster's objects, as its API server has them.
//!
//! 1. `config`: the options. `tables`: the metrics and attributes that there are. `counters`: the
//!    receiver's own metrics.
//! 2. `watches`: which kinds of objects are watched, and what is known of them. A kind that the API
//!    server does not give us does not hold up the others.
//! 3. `task`: once all kinds are listed, an interval after the other, objects become requests.
//! 4. `record`: from an object to its resources and points. `recorder`: from those to OTLP. Both
//!    are pure.

mod config;
mod counters;
mod record;
mod recorder;
mod tables;
mod task;
#[cfg(test)]
mod tests;
mod watches;

use std::sync::Arc;

use sluice_config::Kind;
use sluice_flow::BoxFuture;
use sluice_kubernetes::Client;
use sluice_otlp::Signal;
use tokio_util::sync::CancellationToken;

use self::config::Options;
use self::counters::Counters;
use self::task::Task;
use self::watches::Watches;
use crate::large_work::LargeWork;
use crate::receiver::{
    BindContext, BoundReceiver, ReceiverConfig, ReceiverContext, ReceiverError, ReceiverKind,
    StartedReceiver,
};
use crate::scraping::{Running, now_ns};

pub(crate) const KIND: ReceiverKind = ReceiverKind::new(
    Kind {
        signals: &[Signal::Metrics],
        ..Kind::new("k8s_cluster", "Metrics of a Kubernetes cluster's objects")
    },
    |fields| Box::new(Options::read(fields)),
)
.metrics(|| counters::METRICS.describe());

impl ReceiverConfig for Options {
    fn has_senders(&self) -> bool {
        false
    }

    /// It reads nothing again.
    fn fetches(&self) -> bool {
        false
    }

    fn bind<'a>(
        &'a self,
        context: BindContext<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, ReceiverError>> {
        let (receiver, options) = (context.id.into(), self.clone());
        Box::pin(async move { Ok(Box::new(Bound { receiver, options }) as Box<dyn BoundReceiver>) })
    }
}

struct Bound {
    /// The receiver's id.
    receiver: Arc<str>,
    options: Options,
}

impl BoundReceiver for Bound {
    fn serve(self: Box<Self>, mut context: ReceiverContext) -> Box<dyn StartedReceiver> {
        let Bound { receiver, options } = *self;
        let counters = context.take_counters::<Counters>().unwrap_or_default();
        let watches = Arc::new(Watches::new(&options));
        counters.begin(&watches);
        let following = watches.start(&Client::new(options.access.clone()));
        let task = Task {
            receiver,
            ingress: context.ingress,
            options,
            watches,
            counters: counters.clone(),
            large_work: LargeWork::new(),
            start_ns: now_ns(),
        };
        let stop = CancellationToken::new();
        let run = task.run(stop.clone());
        let task = tokio::spawn(async move {
            run.await;
            drop(following);
        });
        Box::new(Running { counters, stop, task })
    }
}
