//! A place for one connection of a channel: idle, connecting, ready, or waiting to connect again.

use std::time::Instant;

use parking_lot::Mutex;

use super::backoff;
use super::connect::Address;
use super::connection::{Connection, ConnectionId};
use super::error::TransportError;

/// What a request finds when it looks for a connection.
pub(crate) enum Look {
    Ready(Connection),
    /// The caller has to connect: no attempt is under way.
    Start,
    Connecting,
    Waiting {
        error: TransportError,
    },
}

enum State {
    Idle,
    Connecting,
    Ready(Connection),
    /// `after`: the connection whose end is the reason.
    Waiting {
        until: Instant,
        error: TransportError,
        after: Option<ConnectionId>,
    },
    Removed,
}

struct Inner {
    state: State,
    /// Attempts in a row that brought no answer.
    failures: u32,
}

pub(crate) struct Slot {
    /// The address it is bound to (`round_robin`), or none: then the first of the name's addresses
    /// that works.
    pub(crate) address: Option<Address>,
    inner: Mutex<Inner>,
}

impl Slot {
    pub(crate) fn new(address: Option<Address>) -> Slot {
        Slot { address, inner: Mutex::new(Inner { state: State::Idle, failures: 0 }) }
    }

    /// `Start` is said once: it makes the slot connecting.
    pub(crate) fn look(&self, now: Instant) -> Look {
        let mut inner = self.inner.lock();
        match &inner.state {
            State::Ready(connection) if !connection.is_closed() => {
                return Look::Ready(connection.clone());
            }
            State::Ready(connection) => {
                let id = connection.id();
                let reason = format!("{} closed the connection", connection.address);
                inner.lost(id, TransportError::Lost { reason }, now);
            }
            State::Waiting { until, .. } if *until <= now => inner.state = State::Idle,
            // Its last answer was read only after its end was noticed.
            State::Waiting { after: Some(id), .. } if id.was_useful() => {
                *inner = Inner { state: State::Idle, failures: 0 };
            }
            _ => {}
        }
        match &inner.state {
            State::Idle => {
                inner.state = State::Connecting;
                Look::Start
            }
            State::Connecting => Look::Connecting,
            State::Waiting { error, .. } => Look::Waiting { error: error.clone() },
            State::Ready(_) => unreachable!("a closed connection was just removed"),
            State::Removed => Look::Waiting { error: TransportError::ShutDown },
        }
    }

    /// Takes the outcome of an attempt. False if the slot was removed meanwhile: then the
    /// connection is not wanted.
    pub(crate) fn connected(
        &self,
        result: Result<Connection, TransportError>,
        now: Instant,
    ) -> bool {
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
    pub(crate) fn retire(&self, connection: &ConnectionId, error: TransportError, now: Instant) {
        let mut inner = self.inner.lock();
        if matches!(&inner.state, State::Ready(current) if current.id() == *connection) {
            inner.lost(connection.clone(), error, now);
        }
    }

    /// The name no longer has the connection's address: new requests go elsewhere.
    pub(crate) fn follow(&self, addresses: &[Address]) {
        let mut inner = self.inner.lock();
        if let State::Ready(connection) = &inner.state
            && !addresses.contains(&connection.address)
        {
            inner.state = State::Idle;
        }
    }

    /// Forgets failures: what was waited for is there.
    pub(crate) fn reset(&self) {
        let mut inner = self.inner.lock();
        *inner = Inner { state: State::Idle, failures: 0 };
    }

    pub(crate) fn remove(&self) {
        self.inner.lock().state = State::Removed;
    }

    pub(crate) fn in_flight(&self) -> Option<usize> {
        match &self.inner.lock().state {
            State::Ready(connection) => Some(connection.in_flight()),
            _ => None,
        }
    }
}

impl Inner {
    /// A connection that brought answers may be replaced at once. One that brought none counts as a
    /// failed attempt, so that a peer that accepts and closes, or says GOAWAY at once, is not
    /// hammered.
    fn lost(&mut self, id: ConnectionId, error: TransportError, now: Instant) {
        if id.was_useful() {
            self.failures = 0;
            self.state = State::Idle;
        } else {
            self.failed(error, Some(id), now);
        }
    }

    fn failed(&mut self, error: TransportError, after: Option<ConnectionId>, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.state = State::Waiting { until: now + backoff::pause(self.failures), error, after };
    }
}
