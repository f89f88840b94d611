//! An HTTP client for one origin: HTTP/1.1 with kept-alive connections, or HTTP/2 where the TLS
//! handshake says so.
//!
//! hyper and h2 speak the protocols; which connection a request takes is decided here.
//! `hyper_util::client::legacy` was no substitute: until one TLS handshake has chosen HTTP/2 each
//! of its requests makes a connection of its own, it does not bound connections, it does not leave
//! an address that the name no longer has, and its errors do not tell whether the peer has
//! processed the request. `hyper_util::client::pool` shares one connection as we do, but ties it to
//! no address and no GOAWAY, which is the part that has to be written anyway.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::body::ChunkedBuf;
use super::connect::{Address, ConnectOptions, Connector};
use super::connection::{ANSWER_LIMIT_BYTES, Answer, Connection, Keepalive};
use super::endpoint::Target;
use super::error::TransportError;
use super::pool::{Idle, Line, Pool};
use super::proxy::Proxy;

/// HTTP/1.1 answers: so many headers, in a buffer of so many bytes.
const HEADERS_LIMIT: usize = 128;
const HEADERS_LIMIT_BYTES: usize = 64 * 1024;

#[derive(Clone)]
pub struct HttpOptions {
    pub connect: ConnectOptions,
    /// Connections in all; requests beyond wait. `None`: as many as there are requests.
    pub connections: Option<usize>,
    /// Unused connections that are kept.
    pub idle_connections: usize,
    /// An unused connection is closed after this time. Zero: never.
    pub idle_timeout: Duration,
    /// Without it, each request has its own connection.
    pub keep_alive: bool,
    /// Offer HTTP/2 in the TLS handshake.
    pub http2: bool,
    pub http2_keepalive: Option<Keepalive>,
    /// The name is looked up again after this time; connections to addresses that it no longer has
    /// are not used again.
    pub resolve_interval: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        HttpOptions {
            connect: ConnectOptions::default(),
            connections: None,
            idle_connections: 100,
            idle_timeout: Duration::from_secs(90),
            keep_alive: true,
            http2: true,
            http2_keepalive: None,
            resolve_interval: Duration::from_secs(30),
        }
    }
}

/// Cheap to clone. Connections end with the last clone, or with `shut_down`.
#[derive(Clone)]
pub struct HttpClient {
    inner: Arc<Inner>,
    _alive: Arc<DropGuard>,
}

struct Inner {
    connector: Connector,
    options: HttpOptions,
    /// Set where requests go through a proxy in the clear, which wants the whole URI in the request
    /// line.
    clear_proxy: Option<Proxy>,
    pool: Pool,
    /// Held while a TLS connection is opened that may become the shared one, with why the last
    /// attempt failed.
    attempt: tokio::sync::Mutex<Option<TransportError>>,
    /// Attempts that have ended.
    attempts: AtomicU64,
    permits: Option<Semaphore>,
    tasks: Arc<AtomicUsize>,
    shutdown: CancellationToken,
}

impl HttpClient {
    /// A client for `target`, over TLS if `options.connect.tls` is set.
    pub fn new(target: Target, mut options: HttpOptions) -> HttpClient {
        let clear_proxy =
            if options.connect.tls.is_none() { options.connect.proxy.take() } else { None };
        let first_hop = clear_proxy.as_ref().map_or(target, |proxy| proxy.target.clone());
        let alpn: &[&[u8]] = if options.http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
        let shutdown = CancellationToken::new();
        let inner = Inner {
            connector: Connector::new(first_hop, options.connect.clone(), alpn),
            clear_proxy,
            pool: Pool::new(options.idle_connections, options.idle_timeout),
            attempt: tokio::sync::Mutex::default(),
            attempts: AtomicU64::new(0),
            permits: options.connections.map(Semaphore::new),
            tasks: Arc::new(AtomicUsize::new(0)),
            shutdown: shutdown.clone(),
            options,
        };
        HttpClient { inner: Arc::new(inner), _alive: Arc::new(shutdown.drop_guard()) }
    }

    /// Posts a body and reads the whole answer, whatever its status. Redirects are not followed.
    /// The caller bounds the time by dropping the future, which closes an HTTP/1.1 connection and
    /// resets an HTTP/2 stream.
    pub async fn post(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        body: &Arc<[Bytes]>,
    ) -> Result<Answer, TransportError> {
        self.inner.refresh_addresses();
        let mut fresh = false;
        loop {
            if self.inner.shutdown.is_cancelled() {
                return Err(TransportError::ShutDown);
            }
            let _permit = self.inner.permit().await?;
            let (line, reused) = self.inner.line(fresh).await?;
            let result = match line {
                Line::H1(idle) => self.inner.post_h1(idle, uri, headers, body).await,
                Line::H2(connection) => self.inner.post_h2(connection, uri, headers, body).await,
            };
            match result {
                // A kept connection that the peer closed meanwhile says nothing of the peer: once
                // more on another one.
                Err(
                    TransportError::Lost { .. }
                    | TransportError::GoingAway { .. }
                    | TransportError::Refused { .. },
                ) if reused && !fresh => {
                    fresh = true;
                }
                result => return result,
            }
        }
    }

    /// Open connections and other background work. For tests and reports.
    pub fn tasks(&self) -> usize {
        self.inner.tasks.load(Ordering::Acquire)
    }

    pub fn shut_down(&self) {
        self.inner.shutdown.cancel();
        self.inner.pool.clear();
    }
}

impl Inner {
    async fn permit(&self) -> Result<Option<SemaphorePermit<'_>>, TransportError> {
        match &self.permits {
            None => Ok(None),
            Some(permits) => {
                permits.acquire().await.map(Some).map_err(|_| TransportError::ShutDown)
            }
        }
    }

    /// A connection to send on, and whether it was used before. `fresh`: not one that has been
    /// idle, which the peer may have closed unnoticed.
    async fn line(&self, fresh: bool) -> Result<(Line, bool), TransportError> {
        let attempts_before = self.attempts.load(Ordering::Acquire);
        if let Some(line) = self.pool.take(fresh, Instant::now()) {
            return Ok((line, true));
        }
        if !self.may_share() {
            return Ok((self.connect().await?, false));
        }
        let mut last_failure = self.attempt.lock().await;
        if let Some(line) = self.pool.take(fresh, Instant::now()) {
            return Ok((line, true));
        }
        if !self.may_share() {
            drop(last_failure);
            return Ok((self.connect().await?, false));
        }
        // An attempt that ended while this request waited was made for it, too.
        if self.attempts.load(Ordering::Acquire) != attempts_before
            && let Some(error) = &*last_failure
        {
            return Err(error.clone());
        }
        let result = self.connect().await;
        *last_failure = result.as_ref().err().cloned();
        self.attempts.fetch_add(1, Ordering::Release);
        Ok((result?, false))
    }

    /// True if the next connection may turn out to speak HTTP/2, which all requests then share.
    fn may_share(&self) -> bool {
        self.connector.uses_tls() && self.options.http2 && !self.pool.speaks_h1()
    }

    async fn connect(&self) -> Result<Line, TransportError> {
        let addresses = self.connector.addresses().await?;
        self.pool.follow(&addresses, Instant::now());
        let (connected, address) = self.connector.connect_any(addresses).await?;
        if !connected.alpn_h2 {
            self.pool.learn_h1();
            return self.handshake_h1(connected.io, address).await;
        }
        let (connection, driver) =
            Connection::establish(connected.io, address, self.options.http2_keepalive).await?;
        self.spawn(async move {
            driver.run().await;
        });
        self.pool.share(connection.clone());
        Ok(Line::H2(connection))
    }

    async fn handshake_h1(
        &self,
        io: super::connect::BoxIo,
        address: Address,
    ) -> Result<Line, TransportError> {
        let (sender, connection) = http1::Builder::new()
            .max_headers(HEADERS_LIMIT)
            .max_buf_size(HEADERS_LIMIT_BYTES)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| self.failed(&error))?;
        self.spawn(async move {
            // Its error reaches the request that it concerns; there is none when an idle connection
            // is closed.
            let _ = connection.await;
        });
        Ok(Line::H1(Idle { sender, address, since: Instant::now() }))
    }

    /// Drives a connection until it ends or the client does.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let (tasks, shutdown) = (self.tasks.clone(), self.shutdown.clone());
        tasks.fetch_add(1, Ordering::AcqRel);
        tokio::spawn(async move {
            tokio::select! {
                () = work => {}
                () = shutdown.cancelled() => {}
            }
            tasks.fetch_sub(1, Ordering::AcqRel);
        });
    }

    fn refresh_addresses(self: &Arc<Self>) {
        if !self.connector.resolves()
            || !self.pool.due(Instant::now(), self.options.resolve_interval)
        {
            return;
        }
        let inner = Arc::downgrade(self);
        self.spawn(async move {
            let Some(inner) = inner.upgrade() else { return };
            // While the name cannot be looked up, the old addresses serve on.
            if let Ok(addresses) = inner.connector.addresses().await {
                inner.pool.follow(&addresses, Instant::now());
            }
        });
    }

    async fn post_h2(
        &self,
        connection: Connection,
        uri: &Uri,
        headers: &HeaderMap,
        body: &Arc<[Bytes]>,
    ) -> Result<Answer, TransportError> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.clone();
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = headers.clone();
        let host = request.headers_mut().remove(HOST);
        if let Some(uri) = host.and_then(|host| with_authority(uri, &host)) {
            *request.uri_mut() = uri;
        }
        let length: usize = body.iter().map(Bytes::len).sum();
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        let result = connection.send(request, ChunkedBuf::new(body.clone())).await;
        if result.as_ref().is_err_and(|error| !error.spares_connection())
            || !self.options.keep_alive
        {
            self.pool.unshare(&connection);
        }
        result
    }

    async fn post_h1(
        &self,
        mut idle: Idle,
        uri: &Uri,
        headers: &HeaderMap,
        body: &Arc<[Bytes]>,
    ) -> Result<Answer, TransportError> {
        let request = self.request_h1(uri, headers, body);
        idle.sender.ready().await.map_err(|error| self.failed(&error))?;
        let response =
            idle.sender.send_request(request).await.map_err(|error| self.failed(&error))?;
        let (head, mut stream) = response.into_parts();
        let body = self.read_h1(&mut stream).await?;
        // Ready again means: the answer has ended, and the peer keeps the connection.
        if self.options.keep_alive && idle.sender.ready().await.is_ok() {
            self.pool.put(idle, Instant::now());
        }
        Ok(Answer { status: head.status, headers: head.headers, body, trailers: None })
    }

    fn request_h1(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        body: &Arc<[Bytes]>,
    ) -> Request<Full<ChunkedBuf>> {
        let mut request = Request::new(Full::new(ChunkedBuf::new(body.clone())));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers.clone();
        let length: usize = body.iter().map(Bytes::len).sum();
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        if !request.headers().contains_key(HOST)
            && let Some(host) =
                uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok())
        {
            request.headers_mut().insert(HOST, host);
        }
        if !self.options.keep_alive {
            request
                .headers_mut()
                .insert(http::header::CONNECTION, HeaderValue::from_static("close"));
        }
        match &self.clear_proxy {
            Some(proxy) => {
                *request.uri_mut() = uri.clone();
                if let Some(authorization) = proxy.authorization() {
                    request.headers_mut().insert(http::header::PROXY_AUTHORIZATION, authorization);
                }
            }
            None => {
                let path = uri.path_and_query().map_or("/", |path| path.as_str());
                *request.uri_mut() = Uri::try_from(path).unwrap_or_default();
            }
        }
        request
    }

    async fn read_h1(&self, stream: &mut Incoming) -> Result<Bytes, TransportError> {
        let mut body = BytesMut::new();
        while let Some(frame) = stream.frame().await {
            let frame = frame.map_err(|error| self.failed(&error))?;
            let Ok(data) = frame.into_data() else { continue };
            if body.len() + data.len() > ANSWER_LIMIT_BYTES {
                return Err(TransportError::AnswerTooLarge { limit_bytes: ANSWER_LIMIT_BYTES });
            }
            body.extend_from_slice(&data);
        }
        Ok(body.freeze())
    }

    fn failed(&self, error: &hyper::Error) -> TransportError {
        let address = self.connector.target().to_string();
        let mut cause: Option<&(dyn std::error::Error + 'static)> =
            std::error::Error::source(error);
        while let Some(source) = cause {
            if let Some(io) = source.downcast_ref::<std::io::Error>() {
                return TransportError::from_io(io, &address);
            }
            cause = source.source();
        }
        if error.is_parse() {
            return TransportError::Garbage { reason: error.to_string() };
        }
        TransportError::Lost { reason: error.to_string() }
    }
}

fn with_authority(uri: &Uri, authority: &HeaderValue) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    parts.authority = Some(http::uri::Authority::try_from(authority.as_bytes()).ok()?);
    Uri::from_parts(parts).ok()
}
