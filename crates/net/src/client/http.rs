//! An HTTP client for one origin: HTTP/1.1 with kept-alive connections, or HTTP/2 where the TLS
//! handshake says so.
//!
//! hyper and h2 speak the protocols; which connection a request takes is decided here.
//! `hyper_util::client::legacy` was no substitute: until one TLS handshake has chosen HTTP/2 each
//! of its requests makes a connection of its own, it does not bound connections, it does not leave
//! an address that the name no longer has, and its errors do not tell whether the peer has
//! processed the request. `hyper_util::client::pool` shares one connection as we do, but ties it to
//! no address and no GOAWAY, which is the part that has to be written anyway.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument as _;

use super::body::{ChunkedBuf, request};
use super::connect::{ConnectOptions, Connected, Connector};
use super::connection::{ANSWER_LIMIT_BYTES, Answer, Connection, Keepalive, Room, append};
use super::endpoint::Target;
use super::error::TransportError;
use super::pool::{Idle, Pool, Pooled};
use super::proxy::Proxy;

/// Limits of HTTP/1.1 answers: the number of headers, and the bytes of their buffer.
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
    /// Longer answers are not read.
    pub answer_limit_bytes: usize,
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
            answer_limit_bytes: ANSWER_LIMIT_BYTES,
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
    /// Locked while a TLS connection is opened that may become the shared one. Its value: why the
    /// last attempt failed.
    attempt: tokio::sync::Mutex<Option<TransportError>>,
    /// Attempts that have ended.
    attempts: AtomicU64,
    /// One for each connection that may be in use.
    permits: Semaphore,
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
        let connect = options.connect.clone();
        let connections = options.connections.unwrap_or(Semaphore::MAX_PERMITS);
        let inner = Inner {
            connector: Connector { target: first_hop, options: connect, alpn },
            clear_proxy,
            pool: Pool::new(options.idle_connections, options.idle_timeout),
            attempt: tokio::sync::Mutex::default(),
            attempts: AtomicU64::new(0),
            permits: Semaphore::new(connections.min(Semaphore::MAX_PERMITS)),
            shutdown: shutdown.clone(),
            options,
        };
        HttpClient { inner: Arc::new(inner), _alive: Arc::new(shutdown.drop_guard()) }
    }

    /// Posts a body: see [`HttpClient::get`].
    pub async fn post(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        body: &Arc<[Bytes]>,
    ) -> Result<Answer, TransportError> {
        let body = ChunkedBuf::new(None, body.clone());
        let mut headers = headers.clone();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.remaining()));
        let mut room = self.inner.options.answer_limit_bytes;
        self.send(request(Method::POST, uri, headers, body), &mut room).await
    }

    /// Puts nothing: see [`HttpClient::get`].
    pub async fn put(&self, uri: &Uri, headers: &HeaderMap) -> Result<Answer, TransportError> {
        let mut headers = headers.clone();
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        let body = ChunkedBuf::new(None, Arc::default());
        let mut room = self.inner.options.answer_limit_bytes;
        self.send(request(Method::PUT, uri, headers, body), &mut room).await
    }

    /// Gets the whole answer, whatever its status. Redirects are not followed. The caller bounds
    /// the time by dropping the future, which closes an HTTP/1.1 connection and resets an HTTP/2
    /// stream.
    pub async fn get(&self, uri: &Uri, headers: &HeaderMap) -> Result<Answer, TransportError> {
        let mut room = self.inner.options.answer_limit_bytes;
        self.get_into(uri, headers, &mut room).await
    }

    /// As [`HttpClient::get`], for an answer that has this room instead of `answer_limit_bytes`.
    pub async fn get_into(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        room: &mut dyn Room,
    ) -> Result<Answer, TransportError> {
        let body = ChunkedBuf::new(None, Arc::default());
        self.send(request(Method::GET, uri, headers.clone(), body), room).await
    }

    async fn send(
        &self,
        request: Request<ChunkedBuf>,
        room: &mut dyn Room,
    ) -> Result<Answer, TransportError> {
        self.inner.refresh_addresses();
        let mut fresh = false;
        loop {
            if self.inner.shutdown.is_cancelled() {
                return Err(TransportError::ShutDown);
            }
            let permit = self.inner.permits.acquire().await;
            let _permit = permit.map_err(|_| TransportError::ShutDown)?;
            let (line, reused) = self.inner.line(fresh).await?;
            let result = match line {
                Pooled::H1(idle) => self.inner.send_h1(idle, request.clone(), room).await,
                Pooled::H2(connection) => {
                    self.inner.send_h2(connection, request.clone(), room).await
                }
            };
            match result {
                // The peer's close of a kept connection is no sign of its health: once more on
                // another connection.
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

    /// The proxy that sees requests as they are, with what it gets to know.
    pub fn clear_proxy(&self) -> Option<&Proxy> {
        self.inner.clear_proxy.as_ref()
    }

    pub fn shut_down(&self) {
        self.inner.shutdown.cancel();
        self.inner.pool.clear();
    }
}

impl Inner {
    /// A connection to send on, and whether it was used before. `fresh`: not one that has been
    /// idle, which the peer may have closed unnoticed.
    async fn line(&self, fresh: bool) -> Result<(Pooled, bool), TransportError> {
        let attempts_before = self.attempts.load(Ordering::Acquire);
        if let Some(line) = self.pool.take(fresh, Instant::now()) {
            return Ok((line, true));
        }
        if self.may_share() {
            let mut last_failure = self.attempt.lock().await;
            if let Some(line) = self.pool.take(fresh, Instant::now()) {
                return Ok((line, true));
            }
            if self.may_share() {
                // An attempt that ended while this request waited was made for it, too.
                if self.attempts.load(Ordering::Acquire) != attempts_before
                    && let Some(error) = &*last_failure
                {
                    return Err(error.clone());
                }
                let result = self.connect().await;
                *last_failure = result.as_ref().err().cloned();
                self.attempts.fetch_add(1, Ordering::Release);
                return Ok((result?, false));
            }
        }
        Ok((self.connect().await?, false))
    }

    /// True if the next connection may turn out to speak HTTP/2, which all requests then share.
    fn may_share(&self) -> bool {
        self.connector.options.tls.is_some()
            && self.options.http2
            && !self.pool.speaks_h1.load(Ordering::Acquire)
    }

    async fn connect(&self) -> Result<Pooled, TransportError> {
        let addresses = self.connector.addresses().await?;
        self.pool.follow(&addresses, Instant::now());
        let Connected { io, address, alpn_h2 } = self.connector.connect_any(addresses).await?;
        self.pool.speaks_h1.store(!alpn_h2, Ordering::Release);
        if alpn_h2 {
            let (connection, driver) =
                Connection::establish(io, address, self.options.http2_keepalive).await?;
            self.spawn(driver);
            self.pool.share(connection.clone());
            return Ok(Pooled::H2(connection));
        }
        let (sender, connection) = http1::Builder::new()
            .max_headers(HEADERS_LIMIT)
            .max_buf_size(HEADERS_LIMIT_BYTES)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| self.failed(&error))?;
        // Its error reaches the request that it concerns; there is none when an idle connection is
        // closed.
        self.spawn(connection);
        Ok(Pooled::H1(Idle { sender, address, since: Instant::now() }))
    }

    /// Drives a connection until it ends or the client does, in the caller's span.
    fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) {
        let work = self.shutdown.clone().run_until_cancelled_owned(work);
        tokio::spawn(work.in_current_span());
    }

    fn refresh_addresses(self: &Arc<Self>) {
        if !self.connector.resolves()
            || !self.pool.due(Instant::now(), self.options.resolve_interval)
        {
            return;
        }
        let inner = Arc::clone(self);
        self.spawn(async move {
            // While the name cannot be looked up, the old addresses serve on.
            if let Ok(addresses) = inner.connector.addresses().await {
                inner.pool.follow(&addresses, Instant::now());
            }
        });
    }

    async fn send_h2(
        &self,
        connection: Connection,
        mut request: Request<ChunkedBuf>,
        room: &mut dyn Room,
    ) -> Result<Answer, TransportError> {
        if let Some(host) = request.headers_mut().remove(HOST)
            && let Some(uri) = with_authority(request.uri(), &host)
        {
            *request.uri_mut() = uri;
        }
        let result = connection.send(request, room).await;
        if result.as_ref().is_err_and(|error| !error.spares_connection())
            || !self.options.keep_alive
        {
            self.pool.unshare(&connection);
        }
        result
    }

    async fn send_h1(
        &self,
        mut idle: Idle,
        mut request: Request<ChunkedBuf>,
        room: &mut dyn Room,
    ) -> Result<Answer, TransportError> {
        let failed = |error: hyper::Error| self.failed(&error);
        self.to_h1(&mut request);
        let request = request.map(Full::new);
        idle.sender.ready().await.map_err(failed)?;
        let response = idle.sender.send_request(request).await.map_err(failed)?;
        let (head, mut incoming) = response.into_parts();
        if let Some(opened) = room.open(head.status, &head.headers) {
            opened.await?;
        }
        let mut body = Bytes::new();
        while let Some(frame) = incoming.frame().await {
            if let Ok(chunk) = frame.map_err(failed)?.into_data() {
                append(&mut body, chunk, room)?;
            }
        }
        // Ready again means: the answer has ended, and the peer keeps the connection.
        if self.options.keep_alive && idle.sender.ready().await.is_ok() {
            self.pool.put(idle, Instant::now());
        }
        Ok(Answer { status: head.status, headers: head.headers, body, trailers: None })
    }

    /// Makes the request as HTTP/1.1 has it: with a host, and the path alone unless a proxy wants
    /// the whole URI.
    fn to_h1(&self, request: &mut Request<ChunkedBuf>) {
        let uri = request.uri().clone();
        let headers = request.headers_mut();
        if !headers.contains_key(HOST)
            && let Some(host) =
                uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok())
        {
            headers.insert(HOST, host);
        }
        if !self.options.keep_alive {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        match &self.clear_proxy {
            Some(proxy) => {
                let authorization = proxy.authorization.as_ref();
                let authorization =
                    authorization.map(|value| HeaderValue::from_str(value.expose()));
                if let Some(Ok(mut authorization)) = authorization {
                    authorization.set_sensitive(true);
                    headers.insert(PROXY_AUTHORIZATION, authorization);
                }
            }
            None => {
                let path = uri.path_and_query().map_or("/", |path| path.as_str());
                *request.uri_mut() = Uri::try_from(path).unwrap_or_default();
            }
        }
    }

    fn failed(&self, error: &hyper::Error) -> TransportError {
        let io = std::iter::successors(error.source(), |&cause| cause.source())
            .find_map(|cause| cause.downcast_ref::<std::io::Error>());
        let reason = error.to_string();
        match io {
            Some(io) => TransportError::from_io(io, &self.connector.target),
            None if error.is_parse() => TransportError::Garbage { reason },
            None => TransportError::Lost { reason },
        }
    }
}

fn with_authority(uri: &Uri, authority: &HeaderValue) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    parts.authority = Some(http::uri::Authority::try_from(authority.as_bytes()).ok()?);
    Uri::from_parts(parts).ok()
}
