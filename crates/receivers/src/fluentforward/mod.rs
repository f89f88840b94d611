//! The forward protocol of Fluentd and Fluent Bit: see [`connection`] for the life of a message.

mod batch;
mod config;
mod connection;
mod counters;
mod metadata;
mod reading;
mod records;
pub(crate) mod refused;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sluice_config::Kind;
use sluice_flow::BoxFuture;
use sluice_net::server::{Listener, Listening, Protocols, Serving, serve_streams};
use sluice_net::tls::ServerTls;
use sluice_otlp::Signal;
use tokio_util::sync::CancellationToken;

use crate::large_work::LargeWork;
use crate::listen::{Running, bind};
use crate::receiver::{
    BindContext, BoundReceiver, ReceiverConfig, ReceiverContext, ReceiverError, ReceiverKind,
    StartedReceiver,
};
use config::FluentForwardConfig;
use counters::Counters;

const PROTOCOL: &str = "forward";

pub(crate) const KIND: ReceiverKind = ReceiverKind::new(
    Kind {
        signals: &[Signal::Logs],
        ..Kind::new("fluentforward", "Receives logs of Fluent Bit, Fluentd and Docker")
    }
    .aliases(&["fluent_forward"]),
    |fields| Box::new(FluentForwardConfig::read(fields)),
)
.metrics(|| counters::METRICS.describe());

impl ReceiverConfig for FluentForwardConfig {
    fn listening(&self) -> Vec<Listening<'_>> {
        vec![Listening {
            protocol: PROTOCOL,
            path: &["endpoint"],
            address: &self.address,
            tls: self.tls.as_ref(),
            authenticator: self.security.as_ref().map(|_| "shared key"),
            request_limit: ("max_message_size", self.limit_bytes),
        }]
    }

    fn bind<'a>(
        &'a self,
        context: BindContext<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, ReceiverError>> {
        Box::pin(async move {
            let (listener, tls) =
                bind(&self.address, self.tls.as_ref(), Protocols::Other, context).await?;
            let (receiver, config) = (context.id.into(), self.clone());
            Ok(Box::new(Bound { receiver, listener, tls, config }) as Box<dyn BoundReceiver>)
        })
    }
}

struct Bound {
    /// The receiver's id.
    receiver: Arc<str>,
    listener: Listener,
    tls: Option<ServerTls>,
    config: FluentForwardConfig,
}

impl BoundReceiver for Bound {
    fn serve(self: Box<Self>, mut context: ReceiverContext) -> Box<dyn StartedReceiver> {
        let Bound { receiver, listener, tls, config } = *self;
        let counters = context.take_counters::<Counters>().unwrap_or_default();
        let shutdown = CancellationToken::new();
        let serving = Serving {
            options: config.server.clone(),
            tls,
            counters: Arc::clone(&counters.connections),
            resources: context.resources,
            shutdown: shutdown.clone(),
        };
        let handler = connection::Handler {
            receiver,
            ingress: context.ingress,
            counters: Arc::clone(&counters),
            config,
            large_work: LargeWork::new(),
        };
        let task = tokio::spawn(serve_streams(listener.clone(), serving, handler));
        Box::new(Running { protocol: PROTOCOL, listener, counters, task, shutdown })
    }
}
