//! OTLP as one kind of receiver among others.

use std::any::Any;
use std::sync::Arc;

use sluice_config::Kind;
use sluice_flow::BoxFuture;
use sluice_net::server::{Listener, WeakListener};
use tokio_util::sync::CancellationToken;

use super::{Authenticators, Bound, Counters, METRICS, OtlpConfig, Running, SharedConfig, bind};
use crate::{
    BoundReceiver, ReceiverConfig, ReceiverContext, ReceiverCounters, ReceiverKind, StartError,
    StartedReceiver,
};

pub const KIND: ReceiverKind = ReceiverKind::new(
    Kind::new("otlp", "Receives OTLP over gRPC and HTTP, in protobuf and JSON"),
    |fields| Box::new(OtlpConfig::read(fields)),
)
.metrics(|| METRICS.describe());

impl ReceiverConfig for OtlpConfig {
    fn authenticators(&self) -> Vec<&str> {
        let grpc = self.grpc.iter().map(|grpc| &grpc.shared);
        let http = self.http.iter().map(|http| &http.shared);
        grpc.chain(http).filter_map(|shared| shared.authenticator.as_deref()).collect()
    }

    fn bind<'a>(
        &'a self,
        held: &'a [Listener],
    ) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, StartError>> {
        Box::pin(async move {
            match bind(self.clone(), held).await {
                Ok(bound) => Ok(Box::new(bound) as Box<dyn BoundReceiver>),
                Err(error) if error.waits_for_held() => Err(StartError::held(error)),
                Err(error) => Err(StartError::failed(error)),
            }
        })
    }
}

impl BoundReceiver for Bound {
    fn serve(self: Box<Self>, context: ReceiverContext) -> Box<dyn StartedReceiver> {
        let find = |shared: &SharedConfig| {
            context.authenticators.get(shared.authenticator.as_deref()?).cloned()
        };
        let authenticators = Authenticators {
            grpc: self.grpc.as_ref().and_then(|port| find(&port.config.shared)),
            http: self.http.as_ref().and_then(|port| find(&port.config.shared)),
        };
        let before = context
            .counters
            .and_then(|counters| (counters as Arc<dyn Any + Send + Sync>).downcast().ok());
        let counters =
            before.map(|counters: Arc<Counters>| (*counters).clone()).unwrap_or_default();
        let (ingress, resources) = (context.ingress, context.resources);
        let shutdown = CancellationToken::new();
        Box::new((*self).serve(ingress, authenticators, counters, resources, shutdown))
    }
}

impl StartedReceiver for Running {
    fn addresses(&self) -> Vec<(&'static str, String)> {
        let grpc = self.grpc_address.map(|address| ("grpc", address.to_string()));
        let http = self.http_address.map(|address| ("http", address.to_string()));
        grpc.into_iter().chain(http).collect()
    }

    fn listeners(&self) -> Vec<Listener> {
        self.listeners.iter().filter_map(WeakListener::upgrade).collect()
    }

    fn counters(&self) -> Arc<dyn ReceiverCounters> {
        Arc::new(self.counters.clone())
    }

    fn shutdown(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.shutdown.cancel();
            self.closed().await;
        })
    }
}
