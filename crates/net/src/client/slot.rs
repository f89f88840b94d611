//! A place for one connection of a channel: idle, connecting, ready, or waiting to connect again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::connect::PeerAddress;
use super::connection::{Connection, ConnectionState};
use super::error::{Result, TransportError};

/// Pauses before connecting again: gRPC's connection backoff with shorter times, because the
/// deliveries above wait, too, and a backend that is back should be used soon.
const FIRST: Duration = Duration::from_millis(100);
const FACTOR: f64 = 1.6;
const JITTER: f64 = 0.2;
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Default)]
enum State {
    #[default]
    Idle,
    Connecting,
    Ready(Connection),
    /// `after`: the connection whose end is the reason.
    Waiting {
        until: Instant,
        error: TransportError,
        after: Option<Arc<ConnectionState>>,
    },
    Removed,
}

#[derive(Default)]
struct Inner {
    state: State,
    /// Attempts in a row that brought no answer.
    failures: u32,
}

pub(crate) struct Slot {
    /// Its address (`round_robin`). None: the first of the name's addresses that works.
    pub(crate) address: Option<PeerAddress>,
    inner: Mutex<Inner>,
}

impl Slot {
    pub(crate) fn new(address: Option<PeerAddress>) -> Slot {
        Slot { address, inner: Mutex::default() }
    }

    /// The connection, if it is ready. `None`: an attempt to connect is under way, which `start`
    /// begins if there was none. An error: the last attempt failed, and the next one has to wait.
    pub(crate) fn take(&self, now: Instant, start: impl FnOnce()) -> Result<Option<Connection>> {
        let mut inner = self.inner.lock();
        match &inner.state {
            State::Ready(connection) if !connection.state.is_closed() => {
                return Ok(Some(connection.clone()));
            }
            State::Ready(connection) => {
                let state = connection.state.clone();
                let reason = format!("{} closed the connection", connection.address);
                inner.lost(state, TransportError::Lost { reason }, now);
            }
            State::Waiting { until, .. } if *until <= now => inner.state = State::Idle,
            // The connection's last answer was read only after its end was noticed.
            State::Waiting { after: Some(ended), .. } if ended.was_useful() => {
                *inner = Inner::default();
            }
            _ => {}
        }
        match &inner.state {
            State::Idle => {
                inner.state = State::Connecting;
                drop(inner);
                start();
                Ok(None)
            }
            State::Connecting => Ok(None),
            State::Waiting { error, .. } => Err(error.clone()),
            State::Ready(_) => unreachable!("a closed connection was just removed"),
            State::Removed => Err(TransportError::ShutDown),
        }
    }

    /// Takes the outcome of an attempt. False if the slot was removed meanwhile: then the
    /// connection is not wanted.
    pub(crate) fn connected(&self, result: Result<Connection>, now: Instant) -> bool {
        let mut inner = self.inner.lock();
        if matches!(inner.state, State::Removed) {
            return false;
        }
        match result {
            Ok(connection) => inner.state = State::Ready(connection),
            Err(error) => inner.failed(error, None, now),
        }
        true
    }

    /// The connection ended or turned out unusable. It is retired, if it is still the slot's:
    /// requests under way on it finish, new ones get another.
    pub(crate) fn retire(&self, ended: &Arc<ConnectionState>, error: TransportError, now: Instant) {
        let mut inner = self.inner.lock();
        if matches!(&inner.state, State::Ready(current) if Arc::ptr_eq(&current.state, ended)) {
            inner.lost(ended.clone(), error, now);
        }
    }

    /// The name no longer has the connection's address: new requests go elsewhere.
    pub(crate) fn follow(&self, addresses: &[PeerAddress]) {
        let mut inner = self.inner.lock();
        if let State::Ready(connection) = &inner.state
            && !addresses.contains(&connection.address)
        {
            inner.state = State::Idle;
        }
    }

    /// Forgets failures: the addresses that requests waited for are there.
    pub(crate) fn reset(&self) {
        *self.inner.lock() = Inner::default();
    }

    pub(crate) fn remove(&self) {
        self.inner.lock().state = State::Removed;
    }
}

impl Inner {
    /// A connection that brought answers may be replaced at once. One that brought none counts as a
    /// failed attempt, so that a peer that accepts and closes, or says GOAWAY at once, is not
    /// hammered.
    fn lost(&mut self, ended: Arc<ConnectionState>, error: TransportError, now: Instant) {
        if ended.was_useful() {
            *self = Inner::default();
        } else {
            self.failed(error, Some(ended), now);
        }
    }

    fn failed(&mut self, error: TransportError, after: Option<Arc<ConnectionState>>, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.state = State::Waiting { until: now + pause(self.failures), error, after };
    }
}

/// The pause after `failures` failed attempts in a row (1 or more).
fn pause(failures: u32) -> Duration {
    let exponent = failures.saturating_sub(1).min(20);
    let seconds = (FIRST.as_secs_f64() * FACTOR.powi(exponent as i32)).min(LIMIT.as_secs_f64());
    Duration::from_secs_f64(seconds * (1.0 + JITTER * (2.0 * fastrand::f64() - 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: one failure, many failures. Guarantee: the pause grows and stays within its limit
    /// and jitter.
    #[test]
    fn pauses_grow_to_a_limit() {
        for _ in 0..1000 {
            let first = pause(1);
            assert!(first >= FIRST.mul_f64(1.0 - JITTER) && first <= FIRST.mul_f64(1.0 + JITTER));
            let last = pause(u32::MAX);
            assert!(last >= LIMIT.mul_f64(1.0 - JITTER) && last <= LIMIT.mul_f64(1.0 + JITTER));
        }
        assert!(pause(4) > pause(1));
    }
}
