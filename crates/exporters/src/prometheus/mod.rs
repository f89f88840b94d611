//! A page of the last values, which a Prometheus scrapes.

mod config;
mod negotiate;
#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod real_tests;
mod serve;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use sluice_config::{ComponentKind, Kind};
use sluice_flow::source::is_large_work;
use sluice_flow::{BoxFuture, Exporter, Outcome, Packed};
use sluice_net::compress::joined;
use sluice_net::server::{
    Listening, ServerResources, Serving, SharedPage, VERSIONS_MAX, serve as serve_http,
};
use sluice_net::tls::server_tls;
use sluice_otlp::Signal;
use sluice_prometheus::exposed::{Added, ExposedLimits, PAGES};
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::exporter::{BuildContext, BuildError, ExporterConfig};
use crate::pages::Collected;
use crate::sending::Sending;
use config::{PLACES, PrometheusConfig};
use serve::Scrapes;

pub(crate) const KIND: ComponentKind<Box<dyn ExporterConfig>> = ComponentKind::new(
    Kind {
        signals: &[Signal::Metrics],
        ..Kind::new("prometheus", "Serves metrics to a Prometheus that scrapes")
    },
    |fields| Box::new(PrometheusConfig::read(fields)),
);

/// Series that have expired are looked for after a pause: the shortest and the longest.
const LOOK_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The room of the limit, and one that is being made.
const _: () = assert!(PAGES == VERSIONS_MAX + 1);

impl ExporterConfig for PrometheusConfig {
    fn sending(&self) -> &Sending {
        &self.sending
    }

    fn open_files(&self, _: usize) -> usize {
        1 + PLACES
    }

    fn listening(&self) -> Option<Listening<'_>> {
        Some(Listening {
            protocol: "http",
            path: &["endpoint"],
            address: &self.address,
            tls: self.tls.as_ref(),
            authenticator: self.authenticator.as_deref(),
            request_limit: ("max_request_body_size", 0),
        })
    }

    fn keeps_memory(&self) -> bool {
        true
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
        let listener = context.listener.clone().ok_or("has no listener")?;
        let what = format!("exporter {}", context.name);
        let alpn = self.server.protocols.alpn();
        let tls = self.tls.clone().map(|tls| server_tls(&what, tls, alpn)).transpose();
        let tls = tls.map_err(|error| format!("tls: {error}"))?;
        let authenticator = match &self.authenticator {
            Some(name) => {
                let found = context.servers.get(name).cloned();
                Some(found.ok_or_else(|| format!("there is no authenticator `{name}`"))?)
            }
            None => None,
        };
        let limits = ExposedLimits {
            expiration: self.expiration,
            series: self.max_series,
            bytes: context.memory_bytes,
        };
        let collected = context.pages.of(context.name, &self.settings, limits);
        let shutdown = CancellationToken::new();
        let serving = Serving {
            options: self.server.clone(),
            tls,
            counters: Arc::default(),
            // Whatever happens at the receivers' ports, a scrape is answered.
            resources: ServerResources::unlimited(),
            shutdown: shutdown.clone(),
        };
        let (config, page) = (self.clone(), SharedPage::default());
        let scrapes = Scrapes { config, authenticator, collected: collected.clone(), page };
        tokio::spawn(serve_http(listener, serving, scrapes));
        tokio::spawn(look_for_expired(collected.clone(), self.expiration, shutdown.clone()));
        Ok(Arc::new(Prometheus { collected, _shutdown: shutdown.drop_guard() }))
    }
}

/// Also while no Prometheus scrapes, series that have expired take no memory.
async fn look_for_expired(
    collected: Arc<Collected>,
    expiration: Duration,
    shutdown: CancellationToken,
) {
    let pause = expiration.clamp(LOOK_PAUSES.0, LOOK_PAUSES.1);
    while shutdown.run_until_cancelled(sleep(pause)).await.is_some() {
        let collected = collected.clone();
        let look = move || collected.exposed.lock().expire(collected.now());
        let _ = tokio::task::spawn_blocking(look).await;
    }
}

struct Prometheus {
    collected: Arc<Collected>,
    /// The page is served until this is dropped.
    _shutdown: DropGuard,
}

impl Exporter for Prometheus {
    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        let (collected, body) = (self.collected.clone(), joined(&request.chunks));
        let is_large = is_large_work(body.len(), request.items as usize);
        Box::pin(async move {
            let now = collected.now();
            let at_once = if is_large { None } else { collected.exposed.try_lock() };
            let added = at_once.map(|mut exposed| exposed.add(&body, now));
            let added = match added {
                Some(added) => Ok(added),
                // Much work, or a page is being made: no thread of the runtime is held up.
                None => {
                    let add = move || collected.exposed.lock().add(&body, now);
                    tokio::task::spawn_blocking(add).await
                }
            };
            match added {
                Ok(Ok(Added { refused: 0, .. })) => Outcome::Delivered,
                Ok(Ok(Added { refused, reason, .. })) => {
                    Outcome::PartlyRejected { items: refused, reason }
                }
                Ok(Err(malformed)) => Outcome::Rejected { reason: malformed.to_string() },
                Err(ended) => Outcome::RetryAfter { delay: None, reason: ended.to_string() },
            }
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(30)
    }
}
