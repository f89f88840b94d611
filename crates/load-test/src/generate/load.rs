//! A load: what is sent, how fast, for how long, over which connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use sluice_otlp::{Encoding, Signal};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::report::{LoadReport, Progress};
use super::retry::Retry;
use super::template::{Shape, Template};
use super::worker::Shared;

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

/// A load. [`Load::new`] gives the Kyma telemetry load test's items over 4 connections of 8 streams; change what differs.
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
    /// After `duration` answers (and retries) are waited for so long.
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
    #[error("poisoned items need encoding `identity`: compressed requests vary in their resource only")]
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

    /// Sends it all and says what it came to.
    pub async fn run(self) -> Result<LoadReport, LoadError> {
        self.start()?.finish().await
    }

    /// Begins to send in the background.
    pub fn start(self) -> Result<RunningLoad, LoadError> {
        self.check()?;
        let template = Template::new(&self.shape, self.encoding);
        let request = self.request();
        let shared = Shared::new(self, template, request);
        let progress = Arc::clone(&shared.progress);
        let stop = shared.stopper();
        Ok(RunningLoad { progress, stop, task: tokio::spawn(shared.run()) })
    }

    fn check(&self) -> Result<(), LoadError> {
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
            Load { pace: Pace::Open { items_per_s }, .. } if items_per_s.is_nan() || *items_per_s <= 0.0 => {
                Err(LoadError::Rate)
            }
            _ => Ok(()),
        }
    }

    /// The request's head, the same for all.
    fn request(&self) -> Request<()> {
        let (path, content_type, encoding_header) = match self.protocol {
            Protocol::Grpc => (self.shape.signal.grpc_path(), "application/grpc", "grpc-encoding"),
            Protocol::Http => (self.shape.signal.http_path(), "application/x-protobuf", "content-encoding"),
        };
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static(path));
        if self.protocol == Protocol::Grpc {
            *request.version_mut() = Version::HTTP_2;
            parts.scheme = Some(http::uri::Scheme::HTTP);
            parts.authority = self.target.to_string().parse().ok();
        }
        *request.uri_mut() = Uri::from_parts(parts).expect("an address and a constant path");
        let headers = request.headers_mut();
        headers.insert("content-type", HeaderValue::from_static(content_type));
        match self.protocol {
            Protocol::Grpc => headers.insert("te", HeaderValue::from_static("trailers")),
            Protocol::Http => {
                headers.insert("host", self.target.to_string().parse().expect("an address is a header value"))
            }
        };
        if self.encoding != Encoding::Identity {
            headers.insert(encoding_header, HeaderValue::from_static(self.encoding.as_str()));
        }
        headers.insert("user-agent", HeaderValue::from_static("sluice-load-test"));
        headers.extend(self.headers.clone());
        request
    }
}

/// A load on its way.
pub struct RunningLoad {
    progress: Arc<Progress>,
    stop: watch::Sender<Option<Instant>>,
    task: JoinHandle<LoadReport>,
}

impl RunningLoad {
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Ends it early; what is in flight is still waited for, as long as `grace`.
    pub fn stop(&self) {
        self.stop.send_if_modified(|stopped| {
            let is_first = stopped.is_none();
            stopped.get_or_insert_with(Instant::now);
            is_first
        });
    }

    /// Waits for the end.
    pub async fn finish(mut self) -> Result<LoadReport, LoadError> {
        self.join().await
    }

    /// Waits for the end. To be called once.
    pub(crate) async fn join(&mut self) -> Result<LoadReport, LoadError> {
        (&mut self.task).await.map_err(|error| LoadError::Broken(error.to_string()))
    }
}
