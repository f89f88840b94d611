//! Fetches page after page, at the pace that the door sets.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, StatusCode};
use sluice_flow::source::{ArrivedBody, Ingress, Positions, Refusal, Request};
use sluice_net::auth::client::ClientAuth;
use sluice_net::client::HttpClient;
use sluice_otlp::Signal;
use sluice_receivers::Streams;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Bound, Counters};
use crate::records::encode;

/// A larger page is not fetched.
pub(super) const PAGE_LIMIT_BYTES: usize = 256 << 10;
/// A page, its lines one by one, and their encoding.
const PAGE_MEMORY_BYTES: usize = 8 * PAGE_LIMIT_BYTES;
const POLL_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before the next poll if there was no page.
const PAUSE: Duration = Duration::from_millis(10);

pub(super) struct Poller {
    client: HttpClient,
    url: String,
    checkpoint: PathBuf,
    auth: Option<Arc<dyn ClientAuth>>,
    ingress: Arc<dyn Ingress>,
    user_agent: &'static str,
    counters: Arc<Counters>,
    positions: Positions,
    /// Number of the next page.
    next: u64,
}

impl Poller {
    pub(super) fn new(
        bound: Bound,
        auth: Option<Arc<dyn ClientAuth>>,
        ingress: Arc<dyn Ingress>,
        user_agent: &'static str,
        counters: Arc<Counters>,
        mut streams: Streams,
    ) -> Poller {
        let Bound { config, client, checkpoint } = bound;
        let next = std::fs::read_to_string(&checkpoint).ok().and_then(|next| next.parse().ok());
        let positions = streams
            .positions
            .remove(&config.url)
            .unwrap_or_else(|| Positions::starting_at(next.unwrap_or(0)));
        Poller {
            client,
            url: config.url,
            checkpoint,
            auth,
            ingress,
            user_agent,
            counters,
            next: positions.end(),
            positions,
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) -> Streams {
        let stopped = || stop.cancelled();
        loop {
            let pause = tokio::select! {
                () = stopped() => Duration::ZERO,
                polled = self.poll() => match polled {
                    Ok(true) => Duration::ZERO,
                    Err(Refusal::Retry { delay, .. }) => delay,
                    _ => PAUSE,
                },
            };
            let lowest = self.positions.lowest_unresolved();
            std::fs::write(&self.checkpoint, lowest.to_string()).expect("is written");
            tokio::select! {
                () = stopped() => return Streams::from_iter([(self.url, self.positions)]),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Fetches the next page and submits it. False if there is none.
    async fn poll(&mut self) -> Result<bool, Refusal> {
        if self.positions.is_interrupted() {
            self.next = self.positions.rewind();
        }
        let Some(route) = self.ingress.route(Signal::Logs) else { return Ok(false) };
        let mut permit = route.admit(PAGE_MEMORY_BYTES, &ArrivedBody::default()).await?;
        let Some(page) = self.fetch().await else { return Ok(false) };
        let (payload, items) = encode(&page);
        permit.grow_to(payload.bytes.len())?;
        let position = Some(self.positions.begin(self.next..self.next + 1));
        self.next += 1;
        self.counters.pages.fetch_add(1, Ordering::Relaxed);
        drop(page);
        let mut receipt =
            route.submit(Request { position, ..Request::new(payload, items) }, permit)?;
        receipt.paced().await;
        Ok(true)
    }

    async fn fetch(&self) -> Option<Bytes> {
        let mut headers =
            HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(self.user_agent))]);
        if let Some(auth) = &self.auth {
            auth.authenticate(&mut headers, &[]).await.ok()?;
        }
        let uri = format!("{}/{}", self.url, self.next).parse().expect("a URI");
        let answer = timeout(POLL_TIMEOUT, self.client.get(&uri, &headers)).await.ok()?.ok()?;
        if let (StatusCode::UNAUTHORIZED, Some(auth)) = (answer.status, &self.auth) {
            auth.refused().await;
        }
        (answer.status == StatusCode::OK).then_some(answer.body)
    }
}
