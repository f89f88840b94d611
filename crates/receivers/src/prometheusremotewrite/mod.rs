//! Prometheus' remote write, 1.0 and 2.0. A request takes the steps of `otlp`, and becomes OTLP
//! when it is inspected.

mod config;
mod handler;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sluice_config::Kind;
use sluice_flow::BoxFuture;
use sluice_net::server::{Listener, Listening, Protocols, Serving, serve};
use sluice_net::tls::ServerTls;
use sluice_otlp::Signal;
use sluice_telemetry::table::Table;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::listen::bind;
use crate::otlp::front::Front;
use crate::otlp::ingest::Ingest;
use crate::otlp::inspect::Inspector;
use crate::otlp::{About, Counters, HttpConfig, RefusedReason, Running, Transport, metrics};
use crate::receiver::{
    BindContext, BoundReceiver, ReceiverConfig, ReceiverContext, ReceiverError, ReceiverKind,
    StartedReceiver,
};
use crate::refused::{FAILED, REJECTED, Remedies};
use config::RemoteWriteConfig;
use handler::RemoteWriteHandler;

const PROTOCOL: &str = "http";

pub(crate) const KIND: ReceiverKind = ReceiverKind::new(
    Kind {
        signals: &[Signal::Metrics],
        ..Kind::new("prometheusremotewrite", "Receives metrics by Prometheus' remote write")
    }
    .aliases(&["prometheus_remote_write"]),
    |fields| Box::new(RemoteWriteConfig::read(fields)),
)
.metrics(|| METRICS.describe());

const METRICS: Table<Counters> =
    Table { title: "Receiver prometheusremotewrite", ..metrics::METRICS };

/// The reasons of this receiver.
pub(crate) const REMEDIES: &Remedies = {
    use RefusedReason::*;
    &[
        (
            Unauthenticated,
            "give the senders credentials that `auth.authenticator` of the receiver accepts",
        ),
        (Unrouted, "add the receiver to a pipeline of metrics, or do not send it here"),
        (
            Overloaded,
            "senders come back; if it lasts, mend the backend or raise the limit that is named",
        ),
        (TooLarge, "send smaller requests, or raise `max_request_body_size`"),
        (NeverFits, "send smaller requests, or raise the memory limit"),
        (Invalid, "mend the senders: what they send is no valid remote write"),
        REJECTED,
        FAILED,
        (UnsupportedEncoding, "let the senders use snappy, as remote write has it, or zstd"),
        (
            UnsupportedMediaType,
            "let the senders send `prometheus.WriteRequest` or \
             `io.prometheus.write.v2.Request`",
        ),
        (TooSlow, "the network or the senders are slow; if they have to be, raise `read_timeout`"),
        (BrokenOff, "the senders ended the request: their time limit may be too short"),
    ]
};

static ABOUT: About = About {
    cells: &[(Transport::Http, Signal::Metrics)],
    transports: &[Transport::Http],
    remedies: REMEDIES,
    unknown: "refuses requests that are no remote write: the path is /api/v1/write",
};

impl ReceiverConfig for RemoteWriteConfig {
    fn authenticators(&self) -> Vec<&str> {
        self.http.shared.authenticator.as_deref().into_iter().collect()
    }

    fn listening(&self) -> Vec<Listening<'_>> {
        let shared = &self.http.shared;
        vec![Listening {
            protocol: PROTOCOL,
            path: &["endpoint"],
            address: self.address(),
            tls: shared.tls.as_ref(),
            authenticator: shared.authenticator.as_deref(),
            request_limit: ("max_request_body_size", shared.limit_bytes),
        }]
    }

    fn bind<'a>(
        &'a self,
        context: BindContext<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, ReceiverError>> {
        Box::pin(async move {
            let (tls, protocols) = (self.http.shared.tls.as_ref(), Protocols::Http1AndHttp2);
            let (listener, tls) = bind(self.address(), tls, protocols, context).await?;
            let (receiver, config) = (context.id.into(), self.http.clone());
            Ok(Box::new(Bound { receiver, listener, tls, config }) as Box<dyn BoundReceiver>)
        })
    }
}

struct Bound {
    /// The receiver's id.
    receiver: Arc<str>,
    listener: Listener,
    tls: Option<ServerTls>,
    config: HttpConfig,
}

impl BoundReceiver for Bound {
    fn serve(self: Box<Self>, mut context: ReceiverContext) -> Box<dyn StartedReceiver> {
        let Bound { receiver, listener, tls, config } = *self;
        let before = context.take_counters::<Counters>();
        // Those of an `otlp` receiver of the same name count other things.
        let before = before.filter(|counters| counters.is_of(&ABOUT));
        let counters = before.unwrap_or_else(|| Arc::new(Counters::of_kind(&ABOUT)));
        let shutdown = CancellationToken::new();
        let name = config.shared.authenticator.as_ref();
        let serving = Serving {
            options: config.shared.server.clone(),
            tls,
            counters: Arc::clone(counters.connections(Transport::Http)),
            resources: context.resources.clone(),
            shutdown: shutdown.clone(),
        };
        let ingest = Ingest {
            receiver,
            ingress: context.ingress,
            authenticator: name.and_then(|name| context.authenticators.get(name).cloned()),
            counters: Arc::clone(&counters),
            config: config.shared.clone(),
            scheduler: context.resources.scheduler,
            inspector: Inspector::new(),
        };
        let address = listener.local_address();
        let addresses = address.map(|address| (PROTOCOL, address.to_string()));
        let (addresses, listeners) = (addresses.into_iter().collect(), vec![listener.clone()]);
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, serving, RemoteWriteHandler(Front::new(ingest, config))));
        Box::new(Running { addresses, counters, listeners, tasks, shutdown })
    }
}
