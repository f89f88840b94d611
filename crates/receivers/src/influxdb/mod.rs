//! InfluxDB's HTTP APIs for writing, 1.x, 2.x and 3, and what clients ask before they write.
//!
//! `handler` knows the paths; `request` reads the parameters, `credentials` finds user and token;
//! `write` takes a body of any length while it arrives; `answers` has InfluxDB's words.

mod answers;
mod body;
mod chunk;
mod config;
mod counters;
mod credentials;
mod dropped;
mod handler;
mod query;
pub(crate) mod refused;
mod request;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use sluice_config::Kind;
use sluice_flow::BoxFuture;
use sluice_net::server::{Listener, Listening, Protocols, Serving, serve};
use sluice_net::tls::ServerTls;
use sluice_otlp::Signal;
use tokio_util::sync::CancellationToken;

use crate::large_work::LargeWork;
use crate::listen::{Running, bind};
use crate::receiver::{
    BindContext, BoundReceiver, ReceiverConfig, ReceiverContext, ReceiverError, ReceiverKind,
    StartedReceiver,
};
use config::InfluxConfig;
use counters::Counters;
use handler::InfluxHandler;
use write::Writer;

const PROTOCOL: &str = "http";

pub(crate) const KIND: ReceiverKind = ReceiverKind::new(
    Kind {
        signals: &[Signal::Metrics],
        ..Kind::new("influxdb", "Receives metrics by InfluxDB's line protocol over HTTP")
    },
    |fields| Box::new(InfluxConfig::read(fields)),
)
.metrics(|| counters::METRICS.describe());

impl ReceiverConfig for InfluxConfig {
    fn authenticators(&self) -> Vec<&str> {
        self.shared.authenticator.as_deref().into_iter().collect()
    }

    fn listening(&self) -> Vec<Listening<'_>> {
        vec![Listening {
            protocol: PROTOCOL,
            path: &["endpoint"],
            address: self.address(),
            tls: self.shared.tls.as_ref(),
            authenticator: self.shared.authenticator.as_deref(),
            request_limit: ("max_line_bytes", self.limits.line_bytes),
        }]
    }

    fn bind<'a>(
        &'a self,
        context: BindContext<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, ReceiverError>> {
        Box::pin(async move {
            let tls = self.shared.tls.as_ref();
            let (listener, tls) = bind(self.address(), tls, Protocols::Http1, context).await?;
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
    config: InfluxConfig,
}

impl BoundReceiver for Bound {
    fn serve(self: Box<Self>, mut context: ReceiverContext) -> Box<dyn StartedReceiver> {
        let Bound { receiver, listener, tls, config } = *self;
        let counters = context.take_counters::<Counters>().unwrap_or_default();
        let shutdown = CancellationToken::new();
        let serving = Serving {
            options: config.shared.server.clone(),
            tls,
            counters: Arc::clone(&counters.connections),
            resources: context.resources,
            shutdown: shutdown.clone(),
        };
        let name = config.shared.authenticator.as_ref();
        let authenticator = name.and_then(|name| context.authenticators.get(name).cloned());
        let writer = Writer {
            receiver,
            ingress: context.ingress,
            counters: Arc::clone(&counters),
            config,
            without_base: AtomicUsize::new(0),
            large_work: LargeWork::new(),
        };
        let handler = InfluxHandler::new(writer, authenticator);
        let task = tokio::spawn(serve(listener.clone(), serving, handler));
        Box::new(Running { protocol: PROTOCOL, listener, counters, task, shutdown })
    }
}
