//! OTLP as one kind of receiver among others.

use std::any::Any;
use std::sync::Arc;

use sluice_config::{ComponentKind, Kind};
use sluice_flow::BoxFuture;
use sluice_net::server::Listener;
use tokio_util::sync::CancellationToken;

use super::{Authenticators, Bound, Counters, OtlpConfig, Running, bind};
use crate::{BoundReceiver, ReceiverConfig, ReceiverContext, ReceiverCounters, StartError, StartedReceiver};

pub const KIND: ComponentKind<Box<dyn ReceiverConfig>> =
    ComponentKind::new(Kind::new("otlp", "Receives OTLP over gRPC and HTTP, in protobuf and JSON"), |fields| {
        Box::new(OtlpConfig::read(fields))
    });

impl OtlpConfig {
    fn authenticators(&self) -> [Option<&str>; 2] {
        let grpc = self.grpc.as_ref().and_then(|grpc| grpc.shared.authenticator.as_deref());
        let http = self.http.as_ref().and_then(|http| http.shared.authenticator.as_deref());
        [grpc, http]
    }
}

impl ReceiverConfig for OtlpConfig {
    fn authenticators(&self) -> Vec<&str> {
        self.authenticators().into_iter().flatten().collect()
    }

    fn bind<'a>(&'a self, held: &'a [Listener]) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, StartError>> {
        Box::pin(async move {
            match bind(self.clone(), held).await {
                Ok(bound) => {
                    let [grpc, http] = self.authenticators().map(|name| name.map(str::to_owned));
                    Ok(Box::new(BoundOtlp { grpc, http, bound }) as Box<dyn BoundReceiver>)
                }
                Err(error) if error.waits_for_held() => Err(StartError::held(error)),
                Err(error) => Err(StartError::failed(error)),
            }
        })
    }
}

struct BoundOtlp {
    /// Names of the authenticators.
    grpc: Option<String>,
    http: Option<String>,
    bound: Bound,
}

impl BoundReceiver for BoundOtlp {
    fn serve(self: Box<Self>, context: ReceiverContext) -> Box<dyn StartedReceiver> {
        let find = |name: Option<String>| name.and_then(|name| context.authenticators.get(&name)).cloned();
        let authenticators = Authenticators { grpc: find(self.grpc), http: find(self.http) };
        let before = context.counters.and_then(|counters| (counters as Arc<dyn Any + Send + Sync>).downcast().ok());
        let counters = before.map(|counters: Arc<Counters>| (*counters).clone()).unwrap_or_default();
        let stop = CancellationToken::new();
        let running = self.bound.serve(context.ingress, authenticators, counters, context.resources, stop.clone());
        Box::new(StartedOtlp { running, stop })
    }
}

struct StartedOtlp {
    running: Running,
    stop: CancellationToken,
}

impl StartedReceiver for StartedOtlp {
    fn addresses(&self) -> Vec<(&'static str, String)> {
        let grpc = self.running.grpc_address.map(|address| ("grpc", address.to_string()));
        let http = self.running.http_address.map(|address| ("http", address.to_string()));
        grpc.into_iter().chain(http).collect()
    }

    fn listeners(&self) -> Vec<Listener> {
        self.running.listeners()
    }

    fn counters(&self) -> Arc<dyn ReceiverCounters> {
        Arc::new(self.running.counters.clone())
    }

    fn shutdown(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.stop.cancel();
            self.running.closed().await;
        })
    }
}
