//! A load: what is sent, how fast, for how long, over which connections.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Request};
use sluice_otlp::{Encoding, Signal};
use thiserror::Error;

use super::retry::Retry;
use super::template::Shape;

/// How requests are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC over HTTP/2 without TLS.
    Grpc,
    /// Protobuf over HTTP/1.1 without TLS. Each stream has a connection of its own.
    Http,
}

/// When the next request is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As soon as a stream has its answer.
    Closed,
    /// On a fixed schedule, whatever the answers are.
    Open { items_per_s: f64 },
}

/// A load. [`Load::new`] gives the Kyma telemetry load test's items over 4 connections of 8
/// streams; change what differs.
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
    /// Of one attempt.
    pub timeout: Duration,
    /// How long answers and retries are waited for after `duration`.
    pub grace: Duration,
    /// Added to every request.
    pub headers: HeaderMap,
    /// Every item whose sequence number is a multiple of this carries the poison mark.
    pub poison_every: Option<u64>,
}

/// Why a load cannot be run as it is described.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LoadError {
    #[error("a load needs an end: set `duration` or `items`")]
    Endless,
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    #[error("snappy is not an encoding of OTLP requests: use identity, gzip or zstd")]
    Encoding,
    #[error(
        "poisoned items need encoding `identity`: compressed requests vary in their resource only"
    )]
    CompressedPoison,
    #[error("the rate must be above zero")]
    Rate,
    #[error("the load stopped before its end: {0}")]
    Broken(String),
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

    pub fn items(mut self, items: u64) -> Self {
        self.items = Some(items);
        self
    }

    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = Some(duration);
        self
    }

    /// Open loop at this rate.
    pub fn rate(mut self, items_per_s: f64) -> Self {
        self.pace = Pace::Open { items_per_s };
        self
    }

    pub fn encoding(mut self, encoding: Encoding) -> Self {
        self.encoding = encoding;
        self
    }

    pub fn http(mut self) -> Self {
        self.protocol = Protocol::Http;
        self
    }

    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    pub fn items_per_request(mut self, items: u32) -> Self {
        self.shape.items_per_request = items;
        self
    }

    pub fn body_bytes(mut self, bytes: usize) -> Self {
        self.shape.body_bytes = bytes;
        self
    }

    /// Connections, and requests in flight at once on each.
    pub fn concurrency(mut self, connections: usize, streams: usize) -> Self {
        (self.connections, self.streams) = (connections, streams);
        self
    }

    pub fn poison_every(mut self, items: u64) -> Self {
        self.poison_every = Some(items);
        self
    }

    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    pub(super) fn check(&self) -> Result<(), LoadError> {
        let numbers = [
            (self.connections, "connections"),
            (self.streams, "streams"),
            (self.shape.items_per_request as usize, "items a request"),
            (self.shape.attributes as usize, "attributes (one holds the mark)"),
            (self.poison_every.unwrap_or(1) as usize, "poison_every"),
        ];
        if let Some((_, name)) = numbers.into_iter().find(|(number, _)| *number == 0) {
            return Err(LoadError::Zero(name));
        }
        match self {
            Load { duration: None, items: None, .. } => Err(LoadError::Endless),
            Load { encoding: Encoding::Snappy, .. } => Err(LoadError::Encoding),
            Load { poison_every: Some(_), encoding, .. } if *encoding != Encoding::Identity => {
                Err(LoadError::CompressedPoison)
            }
            Load { pace: Pace::Open { items_per_s }, .. }
                if items_per_s.is_nan() || *items_per_s <= 0.0 =>
            {
                Err(LoadError::Rate)
            }
            _ => Ok(()),
        }
    }

    /// The head of a request, the same for all.
    pub(super) fn request(&self) -> Request<()> {
        let (path, content_type, encoding_header) = match self.protocol {
            Protocol::Grpc => (self.shape.signal.grpc_path(), "application/grpc", "grpc-encoding"),
            Protocol::Http => {
                (self.shape.signal.http_path(), "application/x-protobuf", "content-encoding")
            }
        };
        let mut request = Request::post(format!("http://{}{path}", self.target))
            .header("content-type", content_type)
            .header("user-agent", "sluice-load-test")
            .body(())
            .expect("an address and constants");
        let headers = request.headers_mut();
        if self.protocol == Protocol::Grpc {
            headers.insert("te", HeaderValue::from_static("trailers"));
        }
        if self.encoding != Encoding::Identity {
            headers.insert(encoding_header, HeaderValue::from_static(self.encoding.as_str()));
        }
        headers.extend(self.headers.clone());
        request
    }
}
