//! A gRPC-style channel: requests to one name over a bounded number of HTTP/2 connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::{HeaderMap, Method, Uri};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use super::body::{ChunkedBuf, request};
use super::connect::{ConnectOptions, Connector, PeerAddress};
use super::connection::{ANSWER_LIMIT_BYTES, Answer, Connection, Driver, Keepalive};
use super::endpoint::{Target, in_brackets, split_host_port};
use super::error::{Result, TransportError};
use super::slot::Slot;

/// The way in which requests are spread over connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balancer {
    /// All connections go to the first address that works.
    PickFirst,
    /// Connections to every address of the name, used in turn.
    RoundRobin,
}

#[derive(Clone)]
pub struct ChannelOptions {
    pub connect: ConnectOptions,
    /// `:authority`, if it is neither the name that TLS asks for nor the target. With TLS its host
    /// is that name, unless `connect` has another.
    pub authority: Option<String>,
    /// To the target (`PickFirst`) or to each of its addresses (`RoundRobin`). At least 1.
    pub connections: usize,
    pub balancer: Balancer,
    pub keepalive: Option<Keepalive>,
    /// A request waits for a connection as long as its caller lets it, instead of failing with the
    /// first attempt.
    pub wait_for_ready: bool,
    /// A name is looked up again after this time.
    pub resolve_interval: Duration,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        ChannelOptions {
            connect: ConnectOptions::default(),
            authority: None,
            connections: 1,
            balancer: Balancer::PickFirst,
            keepalive: None,
            wait_for_ready: false,
            resolve_interval: Duration::from_secs(30),
        }
    }
}

/// Cheap to clone. Connections end with the last clone, or with `shut_down`.
#[derive(Clone)]
pub struct Channel {
    inner: Arc<Inner>,
    /// Ends the tasks when the last clone is dropped: the tasks own `inner`, but not this.
    _alive: Arc<DropGuard>,
}

struct Inner {
    connector: Connector,
    options: ChannelOptions,
    slots: ArcSwap<Vec<Arc<Slot>>>,
    next: AtomicUsize,
    /// Moves whenever a slot's state changed.
    changed: watch::Sender<()>,
    /// While `round_robin` has no addresses: whether they are being looked up, and why that failed.
    lookup: Slot,
    resolved: Mutex<Resolved>,
    resolving: AtomicBool,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// When the name was last looked up.
#[derive(Default)]
struct Resolved {
    at: Option<Instant>,
    /// A connection ended or failed since: perhaps the name has moved.
    doubtful: bool,
}

/// A name is not looked up more often than this, whatever happens to its connections.
const RESOLVE_PAUSE: Duration = Duration::from_secs(1);
/// A request that waits for a connection checks at this interval whether a backoff has ended.
const BACKOFF_POLL: Duration = Duration::from_millis(50);

impl Channel {
    pub fn new(target: Target, options: ChannelOptions) -> Channel {
        let shutdown = CancellationToken::new();
        let slots = match options.balancer {
            Balancer::PickFirst => {
                (0..options.connections.max(1)).map(|_| Arc::new(Slot::new(None))).collect()
            }
            Balancer::RoundRobin => Vec::new(),
        };
        let mut connect = options.connect.clone();
        // As grpc-go does: who names another authority expects the certificate of that one.
        if let (Some(tls), Some(authority)) = (&mut connect.tls, &options.authority) {
            tls.server_name.get_or_insert_with(|| host_of(authority));
        }
        let inner = Inner {
            connector: Connector { target, options: connect, alpn: &[b"h2"] },
            options,
            slots: ArcSwap::from_pointee(slots),
            next: AtomicUsize::new(0),
            changed: watch::Sender::new(()),
            lookup: Slot::new(None),
            resolved: Mutex::default(),
            resolving: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            shutdown: shutdown.clone(),
        };
        Channel { inner: Arc::new(inner), _alive: Arc::new(shutdown.drop_guard()) }
    }

    /// The full URI of a path on this channel. Make it once, not once a request.
    pub fn uri(&self, path: &str) -> Result<Uri, http::Error> {
        let Connector { target, options, .. } = &self.inner.connector;
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let server_name = options.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
        let authority = match (&self.inner.options.authority, server_name) {
            (Some(authority), _) => authority.clone(),
            // The name of the certificate is the server's, whatever the way to it.
            (None, Some(name)) => in_brackets(name),
            (None, None) => target.authority(),
        };
        Uri::builder().scheme(scheme).authority(authority).path_and_query(path).build()
    }

    /// Posts a body and reads the whole answer. The caller bounds the time by dropping the future,
    /// which resets the stream. A request that the peer refused unprocessed is sent once more.
    pub async fn send(&self, uri: &Uri, headers: &HeaderMap, body: ChunkedBuf) -> Result<Answer> {
        let mut sent_before = false;
        loop {
            let (slot, connection) = self.inner.acquire().await?;
            let request = request(Method::POST, uri, headers.clone(), body.clone());
            let mut room = ANSWER_LIMIT_BYTES;
            let result = connection.send(request, &mut room).await;
            let Err(error) = result else { return result };
            if !error.spares_connection() {
                slot.retire(&connection.state, error.clone(), Instant::now());
            }
            if sent_before || !error.is_unprocessed() {
                return Err(error);
            }
            sent_before = true;
        }
    }

    /// Connections that are open or being opened, and other background work. For tests and reports.
    pub fn tasks(&self) -> usize {
        self.inner.tasks.len()
    }

    /// Closes all connections; later requests fail.
    pub fn shut_down(&self) {
        self.inner.shutdown.cancel();
        self.inner.slots.load().iter().for_each(|slot| slot.remove());
        self.inner.changed.send_replace(());
    }
}

/// The host of an authority, which may have a port.
fn host_of(authority: &str) -> String {
    let split = split_host_port(authority, authority);
    split.map_or_else(|_| authority.to_owned(), |(host, _)| host)
}

impl Inner {
    /// A ready connection. Starts an attempt to connect where none is under way, and waits for it.
    async fn acquire(self: &Arc<Self>) -> Result<(Arc<Slot>, Connection)> {
        let mut changed: Option<watch::Receiver<()>> = None;
        loop {
            if self.shutdown.is_cancelled() {
                return Err(TransportError::ShutDown);
            }
            self.refresh_addresses();
            let pause = match self.pick_slot() {
                Ok(Some(ready)) => return Ok(ready),
                Ok(None) => Duration::MAX,
                Err(error) if error.is_configuration() || !self.options.wait_for_ready => {
                    return Err(error);
                }
                Err(_) => BACKOFF_POLL,
            };
            let Some(receiver) = &mut changed else {
                // Subscribe, then look again: so no change in between is missed.
                changed = Some(self.changed.subscribe());
                continue;
            };
            tokio::select! {
                _ = receiver.changed() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Looks through the slots, beginning with the next in turn. A ready one wins; idle ones on the
    /// way are started. `None`: an attempt is under way. An error: all have failed.
    fn pick_slot(self: &Arc<Self>) -> Result<Option<(Arc<Slot>, Connection)>> {
        let slots = self.slots.load();
        let now = Instant::now();
        if slots.is_empty() {
            self.lookup.take(now, || self.start_resolving())?;
            return Ok(None);
        }
        let first = if slots.len() == 1 { 0 } else { self.next.fetch_add(1, Ordering::Relaxed) };
        let (mut underway, mut failed) = (false, None);
        for index in 0..slots.len() {
            let slot = &slots[(first.wrapping_add(index)) % slots.len()];
            match slot.take(now, || self.start(slot.clone())) {
                Ok(Some(connection)) => return Ok(Some((slot.clone(), connection))),
                Ok(None) => underway = true,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.filter(|_| !underway).map_or(Ok(None), Err)
    }

    /// Runs background work that ends with the channel, and counts it.
    fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let inner = self.clone();
        let work = async move {
            inner.shutdown.run_until_cancelled(work).await;
            inner.changed.send_replace(());
        };
        // Its log lines belong to the span of the caller.
        self.tasks.spawn(work.in_current_span());
    }

    /// Opens the slot's connection and drives it until it ends. In a task of its own, so that a
    /// caller that gives up does not undo the work.
    fn start(self: &Arc<Self>, slot: Arc<Slot>) {
        let inner = self.clone();
        self.spawn(async move {
            let target = &inner.connector.target;
            let (connection, driver) = match inner.open(&slot).await {
                Ok(opened) => opened,
                Err(error) => {
                    tracing::debug!(%target, %error, "connecting failed");
                    inner.doubt_addresses();
                    slot.connected(Err(error), Instant::now());
                    return;
                }
            };
            if !slot.connected(Ok(connection.clone()), Instant::now()) {
                return;
            }
            inner.changed.send_replace(());
            // Not kept here: h2 closes it once the slot drops it and its requests are done.
            let (state, address) = (connection.state.clone(), connection.address.clone());
            drop(connection);
            let reason = driver.await;
            tracing::debug!(%target, %address, %reason, "connection ended");
            inner.doubt_addresses();
            slot.retire(&state, TransportError::Lost { reason }, Instant::now());
        });
    }

    async fn open(&self, slot: &Slot) -> Result<(Connection, Driver)> {
        let addresses = match &slot.address {
            Some(address) => vec![address.clone()],
            None => {
                let addresses = self.connector.addresses().await?;
                self.use_addresses(&addresses);
                addresses
            }
        };
        let connected = self.connector.connect_any(addresses).await?;
        Connection::establish(connected.io, connected.address, self.options.keepalive).await
    }

    fn doubt_addresses(&self) {
        self.resolved.lock().doubtful = true;
    }

    /// Looks the name up again if it is time. `pick_first` does so at each attempt, too.
    fn refresh_addresses(self: &Arc<Self>) {
        if !self.connector.resolves() {
            return;
        }
        let resolved = self.resolved.lock();
        let interval = self.options.resolve_interval;
        let interval = if resolved.doubtful { interval.min(RESOLVE_PAUSE) } else { interval };
        if resolved.at.is_some_and(|at| at.elapsed() >= interval) {
            self.start_resolving();
        }
    }

    /// Looks the name up in the background, one at a time.
    fn start_resolving(self: &Arc<Self>) {
        if self.resolving.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = self.clone();
        self.spawn(async move {
            match inner.connector.addresses().await {
                Ok(addresses) => inner.use_addresses(&addresses),
                Err(error) => {
                    let target = &inner.connector.target;
                    tracing::debug!(%target, %error, "the name cannot be looked up");
                    *inner.resolved.lock() = Resolved { at: Some(Instant::now()), doubtful: false };
                    // Requests without an address must learn why; old addresses serve on.
                    inner.lookup.connected(Err(error), Instant::now());
                }
            }
            inner.resolving.store(false, Ordering::Release);
        });
    }

    fn use_addresses(&self, addresses: &[PeerAddress]) {
        *self.resolved.lock() = Resolved { at: Some(Instant::now()), doubtful: false };
        let old = self.slots.load_full();
        if self.options.balancer == Balancer::PickFirst {
            old.iter().for_each(|slot| slot.follow(addresses));
            return;
        }
        // As many slots for each address as configured: existing ones if there are any.
        let slots_of = |address: &PeerAddress| {
            let old = old.iter().filter(|slot| slot.address.as_ref() == Some(address)).cloned();
            let new = std::iter::repeat_with(|| Arc::new(Slot::new(Some(address.clone()))));
            old.chain(new).take(self.options.connections.max(1)).collect::<Vec<_>>()
        };
        let kept: Vec<_> = addresses.iter().flat_map(slots_of).collect();
        let is_kept = |slot: &Arc<Slot>| kept.iter().any(|kept| Arc::ptr_eq(kept, slot));
        old.iter().filter(|slot| !is_kept(slot)).for_each(|slot| slot.remove());
        self.slots.store(Arc::new(kept));
        self.lookup.reset();
    }
}
