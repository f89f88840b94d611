//! A verifying backend: it counts every item, tells lost and doubled ones by their identity,
//! measures latency from the item's own time, and injects faults on demand.

mod faults;
pub mod influx;
mod judge;
pub mod page;
pub(crate) mod protocol;
mod scan;
mod serve;
mod store;
mod text;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

pub use faults::{Delay, FaultSwitch, Faults, Partial, Refuse};
pub use store::{Counts, Received, Store};

use crate::latency::Latency;

/// The thoroughness of a backend's checks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counting {
    /// Inflates requests and identifies every item.
    Verify,
    /// Counts items and bytes at the least cost, so that the pipeline's cost can be measured. Items
    /// of gzip members are estimated from the members' length field at `bytes_per_item`
    /// (uncompressed); those of zstd are not counted.
    Light { bytes_per_item: f64 },
}

/// The behaviour of a backend. The default verifies OTLP over gRPC and over HTTP/1 on a free port
/// of the loopback interface, with the message limit of real backends.
#[derive(Clone, Debug)]
pub struct BackendOptions {
    pub counting: Counting,
    /// Limit of a message, both as sent and as inflated. Real backends: 4 MiB.
    pub message_limit_bytes: usize,
    /// Faults at the start.
    pub faults: Faults,
    /// Number of the last requests that are kept for inspection.
    pub keep_requests: usize,
}

impl Default for BackendOptions {
    fn default() -> Self {
        BackendOptions {
            counting: Counting::Verify,
            message_limit_bytes: 4 << 20,
            faults: Faults::default(),
            keep_requests: 0,
        }
    }
}

struct Shared {
    options: BackendOptions,
    faults: FaultSwitch,
    store: Mutex<Store>,
}

/// Returns the number of distinct items that a backend has seen so far, without owning it.
pub type Arrivals = Box<dyn Fn() -> u64 + Send>;

/// A running backend. It stops when dropped.
pub struct Backend {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _accepting: AbortOnDropHandle<()>,
}

impl Backend {
    /// Binds and begins to serve. The address is fixed even where the backend starts dead.
    pub async fn start(options: BackendOptions) -> io::Result<Backend> {
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let addr = listener.local_addr()?;
        let faults = FaultSwitch(watch::Sender::new(Arc::new(options.faults.clone())));
        let shared = Arc::new(Shared { options, faults, store: Mutex::new(Store::new()) });
        let accepting = tokio::spawn(accept(Arc::clone(&shared), listener, addr));
        Ok(Backend { addr, shared, _accepting: AbortOnDropHandle::new(accepting) })
    }

    pub async fn healthy() -> io::Result<Backend> {
        Backend::start(BackendOptions::default()).await
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes its faults, for later requests and for those that are stalled.
    pub fn faults(&self) -> &FaultSwitch {
        &self.shared.faults
    }

    /// The record of what has arrived so far. The backend waits while this is held.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.shared.store.lock()
    }

    pub fn counts(&self) -> Counts {
        self.store().counts.clone()
    }

    /// Items taken so far, doubled ones included: `counts().items` without the copy.
    pub fn items(&self) -> u64 {
        self.store().counts.items
    }

    pub fn unique_items(&self) -> u64 {
        self.store().unique()
    }

    pub fn arrivals(&self) -> Arrivals {
        let shared = Arc::clone(&self.shared);
        Box::new(move || shared.store.lock().unique())
    }

    /// Time from an item's first sending to its arrival here.
    pub fn latency(&self) -> Latency {
        Latency::of(&self.store().latency_us)
    }

    /// The last requests taken, oldest first: as many as [`BackendOptions::keep_requests`] says.
    pub fn kept(&self) -> Vec<Received> {
        self.store().kept.iter().cloned().collect()
    }
}

fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    // A backend that was dead comes back on its port although old connections linger there.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(1024)
}

/// Time in which a backend that dies answers what it has taken, so that a doubled item is its
/// sender's doing.
const ANSWERS_WITHIN: Duration = Duration::from_millis(50);

/// Accepts connections while the backend is not dead. All connections end with this task.
async fn accept(shared: Arc<Shared>, listener: TcpListener, addr: SocketAddr) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    let mut changes = shared.faults.0.subscribe();
    loop {
        if changes.borrow_and_update().dead {
            if listener.take().is_some() {
                tokio::time::sleep(ANSWERS_WITHIN).await;
            }
            connections.abort_all();
        } else if listener.is_none() {
            listener = bind(addr).ok();
            if listener.is_none() {
                // Another process has taken the port meanwhile; it may come free again.
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        }
        let accepted = OptionFuture::from(listener.as_ref().map(TcpListener::accept));
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            Some(_) = connections.join_next() => {}
            Some(Ok((stream, _))) = accepted => {
                // Failure means a connection that is already gone.
                let _ = stream.set_nodelay(true);
                connections.spawn(serve::serve(Arc::clone(&shared), stream));
            }
        }
    }
}
