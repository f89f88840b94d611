//! A load: its items, rate, duration and connections.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use http::{HeaderMap, Request};
use sluice_otlp::{Encoding, Signal};

use super::template::Shape;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC over HTTP/2 without TLS.
    Grpc,
    /// Protobuf over HTTP/1.1 without TLS. Each stream has a connection of its own.
    Http,
}

/// The time at which the next request is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As soon as a stream has its answer.
    Closed,
    /// On a fixed schedule, whatever the answers are.
    Open { items_per_s: f64 },
}

/// A load. [`Load::new`] has the Kyma load test's items, and 4 connections of 8 streams.
#[derive(Clone, Debug)]
pub struct Load {
    pub target: SocketAddr,
    pub protocol: Protocol,
    pub shape: Shape,
    pub encoding: Encoding,
    pub connections: usize,
    /// Requests in flight at once on each connection.
    pub streams: usize,
    pub pace: Pace,
    /// Ends after this time.
    pub duration: Option<Duration>,
    /// Ends after as many items (rounded up to whole requests).
    pub items: Option<u64>,
    pub retry: Retry,
    /// Timeout of one attempt.
    pub timeout: Duration,
    /// Time for answers and retries after `duration`.
    pub grace: Duration,
    /// Added to every request.
    pub headers: HeaderMap,
    /// Every item whose sequence number is a multiple of this carries the poison mark.
    pub poison_every: Option<u64>,
}

impl Load {
    pub fn new(signal: Signal, target: SocketAddr) -> Self {
        Load {
            target,
            protocol: Protocol::Grpc,
            shape: Shape::of(signal),
            encoding: Encoding::Identity,
            connections: 4,
            streams: 8,
            pace: Pace::Closed,
            duration: None,
            items: None,
            retry: Retry::Never,
            timeout: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            headers: HeaderMap::new(),
            poison_every: None,
        }
    }

    pub fn items(self, items: u64) -> Self {
        Load { items: Some(items), ..self }
    }

    pub fn duration(self, duration: Duration) -> Self {
        Load { duration: Some(duration), ..self }
    }

    /// Open loop at this rate.
    pub fn rate(self, items_per_s: f64) -> Self {
        Load { pace: Pace::Open { items_per_s }, ..self }
    }

    pub fn retry(self, retry: Retry) -> Self {
        Load { retry, ..self }
    }

    pub fn items_per_request(mut self, items: u32) -> Self {
        self.shape.items_per_request = items;
        self
    }

    /// Connections, and requests in flight at once on each.
    pub fn concurrency(self, connections: usize, streams: usize) -> Self {
        Load { connections, streams, ..self }
    }

    pub(super) fn check(&self) -> Result<()> {
        let numbers = [
            (self.connections, "connections"),
            (self.streams, "streams"),
            (self.shape.items_per_request as usize, "items a request"),
            (self.shape.attributes as usize, "attributes (one holds the mark)"),
            (self.poison_every.unwrap_or(1) as usize, "poison_every"),
        ];
        for (number, name) in numbers {
            ensure!(number > 0, "{name} must be at least 1");
        }
        let has_end = self.duration.is_some() || self.items.is_some();
        ensure!(has_end, "a load needs an end: set `duration` or `items`");
        ensure!(
            self.encoding != Encoding::Snappy,
            "snappy is not an encoding of OTLP requests: use identity, gzip or zstd"
        );
        ensure!(
            self.encoding == Encoding::Identity || self.poison_every.is_none(),
            "poisoned items need encoding `identity`: compressed requests vary in their resource \
             only"
        );
        let has_rate = self.items_per_s().is_none_or(|rate| rate > 0.0);
        ensure!(has_rate, "the rate must be above zero");
        Ok(())
    }

    /// Rate of an open loop.
    pub(super) fn items_per_s(&self) -> Option<f64> {
        match self.pace {
            Pace::Closed => None,
            Pace::Open { items_per_s } => Some(items_per_s),
        }
    }

    /// The head of a request, the same for all.
    pub(super) fn request(&self) -> Request<()> {
        let signal = self.shape.signal;
        let (path, content_type, encoding_header) = match self.protocol {
            Protocol::Grpc => (signal.grpc_path(), "application/grpc", "grpc-encoding"),
            Protocol::Http => (signal.http_path(), "application/x-protobuf", "content-encoding"),
        };
        let mut request = Request::post(format!("http://{}{path}", self.target))
            .header("content-type", content_type)
            .header("user-agent", "sluice-load-test");
        if self.protocol == Protocol::Grpc {
            request = request.header("te", "trailers");
        }
        if self.encoding != Encoding::Identity {
            request = request.header(encoding_header, self.encoding.as_str());
        }
        let mut request = request.body(()).expect("an address and constants");
        request.headers_mut().extend(self.headers.clone());
        request
    }
}

/// The reaction of a sender to a retryable answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Retry {
    /// Counts it as refused and goes on with the next request.
    Never,
    /// As SDKs do: waits for as long as the server asked, or exponentially longer with jitter, and
    /// occupies its stream meanwhile. After `give_up_after` the request counts as refused.
    Backoff { initial: Duration, max: Duration, give_up_after: Duration },
}

impl Retry {
    /// The OpenTelemetry SDKs' usual policy.
    pub const SDK: Retry = Retry::Backoff {
        initial: Duration::from_secs(1),
        max: Duration::from_secs(5),
        give_up_after: Duration::from_secs(60),
    };

    /// Delay before retry number `attempt` (from 1); `None`: give up. `waited` is the time since
    /// the first attempt, `asked` the delay that the server asked for.
    pub(super) fn delay(
        &self,
        attempt: u32,
        waited: Duration,
        asked: Option<Duration>,
    ) -> Option<Duration> {
        let Retry::Backoff { initial, max, give_up_after } = *self else { return None };
        let backoff = initial.mul_f64(1.5_f64.powi(attempt.min(64) as i32 - 1)).min(max);
        // Half fixed, half random: senders that were refused together do not come back together.
        let delay = asked.unwrap_or_else(|| backoff.mul_f64(0.5 + fastrand::f64() / 2.0));
        (waited + delay <= give_up_after).then_some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_delay_is_honoured_and_patience_ends() {
        let retry = Retry::SDK;
        let asked = Some(Duration::from_secs(7));
        assert_eq!(retry.delay(1, Duration::ZERO, asked), asked);
        assert_eq!(retry.delay(1, Duration::from_secs(54), asked), None);
        assert_eq!(Retry::Never.delay(1, Duration::ZERO, asked), None);
        for attempt in 1..20 {
            let delay = retry.delay(attempt, Duration::ZERO, None).unwrap();
            assert!(
                delay >= Duration::from_millis(500) && delay <= Duration::from_secs(5),
                "{delay:?}"
            );
        }
    }
}
