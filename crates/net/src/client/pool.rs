//! An HTTP client's unused connections, and the HTTP/2 connection that all requests share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;

use super::body::ChunkedBuf;
use super::connect::PeerAddress;
use super::connection::Connection;

/// An HTTP/1.1 connection between two requests.
pub(crate) struct Idle {
    pub(crate) sender: SendRequest<Full<ChunkedBuf>>,
    pub(crate) address: PeerAddress,
    pub(crate) since: Instant,
}

pub(crate) enum Pooled {
    H1(Idle),
    H2(Connection),
}

pub(crate) struct Pool {
    limit: usize,
    /// Zero: no limit.
    idle_timeout: Duration,
    /// The peer's choice in the last TLS handshake.
    pub(crate) speaks_h1: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The most recently used is last, and used first, so that older ones can time out.
    idle: Vec<Idle>,
    shared: Option<Connection>,
    /// The addresses of the name when it was last looked up.
    addresses: Vec<PeerAddress>,
    resolved: Option<Instant>,
}

impl Pool {
    pub(crate) fn new(limit: usize, idle_timeout: Duration) -> Pool {
        Pool { limit, idle_timeout, speaks_h1: AtomicBool::new(false), inner: Mutex::default() }
    }

    /// A connection that seems open: the shared one or, unless only that is wanted, an idle one.
    pub(crate) fn take(&self, only_shared: bool, now: Instant) -> Option<Pooled> {
        let mut inner = self.inner.lock();
        inner.shared.take_if(|shared| shared.state.is_closed());
        if let Some(connection) = &inner.shared {
            return Some(Pooled::H2(connection.clone()));
        }
        if only_shared {
            return None;
        }
        self.drop_old(&mut inner, now);
        std::iter::from_fn(|| inner.idle.pop())
            .find(|idle| !idle.sender.is_closed())
            .map(Pooled::H1)
    }

    pub(crate) fn put(&self, idle: Idle, now: Instant) {
        let mut inner = self.inner.lock();
        self.drop_old(&mut inner, now);
        let known = inner.addresses.is_empty() || inner.addresses.contains(&idle.address);
        if known && inner.idle.len() < self.limit {
            inner.idle.push(Idle { since: now, ..idle });
        }
    }

    fn drop_old(&self, inner: &mut Inner, now: Instant) {
        if !self.idle_timeout.is_zero() {
            inner.idle.retain(|idle| {
                now.duration_since(idle.since) < self.idle_timeout && !idle.sender.is_closed()
            });
        }
    }

    pub(crate) fn share(&self, connection: Connection) {
        self.inner.lock().shared = Some(connection);
    }

    pub(crate) fn unshare(&self, connection: &Connection) {
        let shared = &mut self.inner.lock().shared;
        shared.take_if(|shared| Arc::ptr_eq(&shared.state, &connection.state));
    }

    /// The name stands for these addresses now: connections to other ones are not used again.
    pub(crate) fn follow(&self, addresses: &[PeerAddress], now: Instant) {
        let mut inner = self.inner.lock();
        inner.idle.retain(|idle| addresses.contains(&idle.address));
        inner.shared.take_if(|shared| !addresses.contains(&shared.address));
        inner.addresses = addresses.to_vec();
        inner.resolved = Some(now);
    }

    /// True once an interval: the caller then looks the name up.
    pub(crate) fn due(&self, now: Instant, interval: Duration) -> bool {
        let resolved = &mut self.inner.lock().resolved;
        let due = resolved.is_some_and(|at| now.duration_since(at) >= interval);
        if due {
            *resolved = Some(now);
        }
        due
    }

    pub(crate) fn clear(&self) {
        *self.inner.lock() = Inner::default();
    }
}
