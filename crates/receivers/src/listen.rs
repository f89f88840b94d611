//! Receivers that listen at one address: how it is bound, and how they end.

use std::sync::Arc;

use sluice_flow::BoxFuture;
use sluice_net::server::{Address, BindError, Listener, Protocols};
use sluice_net::tls::{ServerTls, TlsOptions, server_tls};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::receiver::{BindContext, ReceiverCounters, ReceiverError, StartedReceiver, Streams};

/// The listener of a receiver that has one address, and its TLS.
pub(crate) async fn bind(
    address: &Address,
    tls: Option<&TlsOptions>,
    protocols: Protocols,
    context: BindContext<'_>,
) -> Result<(Listener, Option<ServerTls>), ReceiverError> {
    let what = format!("receiver {}", context.id);
    let tls = tls.map(|tls| server_tls(&what, tls.clone(), protocols.alpn())).transpose();
    let tls = tls.map_err(|error| ReceiverError::failed(format!("tls: {error}")))?;
    let bound = Listener::bind_or_take_over(address, context.held).await;
    let listener = bound.map_err(|error| ReceiverError {
        waits_for_held: matches!(error, BindError::Held { .. }),
        ..ReceiverError::failed(error)
    })?;
    Ok((listener, tls))
}

/// A receiver that listens.
pub(crate) struct Running<C> {
    pub(crate) protocol: &'static str,
    pub(crate) listener: Listener,
    pub(crate) counters: Arc<C>,
    pub(crate) task: JoinHandle<()>,
    pub(crate) shutdown: CancellationToken,
}

impl<C: ReceiverCounters> StartedReceiver for Running<C> {
    fn addresses(&self) -> Vec<(&'static str, String)> {
        let address = self.listener.local_address();
        address.map(|address| (self.protocol, address.to_string())).into_iter().collect()
    }

    fn listeners(&self) -> Vec<Listener> {
        vec![self.listener.clone()]
    }

    fn counters(&self) -> Arc<dyn ReceiverCounters> {
        Arc::clone(&self.counters) as _
    }

    fn shutdown(self: Box<Self>) -> BoxFuture<'static, Streams> {
        Box::pin(async move {
            // The port closes as soon as it takes nothing more.
            let Running { listener, task, shutdown, .. } = *self;
            drop(listener);
            shutdown.cancel();
            // Until all that has come is served, or cut off.
            let _ = task.await;
            Streams::default()
        })
    }
}
