//! The messages of a connection as they come, and the time that they take.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use sluice_flow::source::{IngressRoute, Permit};
use sluice_net::forward::msgpack::Scanner;
use sluice_net::server::{BodyTimeouts, StreamRequest};
use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::refused::{Reason, Refused, too_large};

/// Read at a time, and without being admitted. A connection's price covers it.
pub(super) const ROOM_BYTES: usize = 16 << 10;
/// A batch has at most this many messages.
const MESSAGES_MAX: usize = 4096;
/// Interval of looks at a message's progress, the bytes of it in which a sender is not too slow,
/// and the part of an admitted message: all of it in ten seconds.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
const PROGRESS_LEAST_BYTES: usize = 1 << 10;
const PROGRESS_PART: usize = 20;

/// The messages at the beginning of the buffer.
#[derive(Default)]
pub(super) struct Found {
    pub ends: Vec<usize>,
    /// Of the message that is not whole.
    scanner: Scanner,
}

impl Found {
    pub(super) fn end(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn scan(&mut self, buffer: &[u8]) -> Result<(), Refused> {
        while self.ends.len() < MESSAGES_MAX && self.end() < buffer.len() {
            match self.scanner.scan(&buffer[self.end()..]) {
                Ok(Some(len)) => {
                    self.ends.push(self.end() + len);
                    self.scanner = Scanner::default();
                }
                Ok(None) => break,
                // Those before it are served first.
                Err(_) if !self.ends.is_empty() => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Connection<'_> {
    /// Reads until one message is whole. With a permit if it is longer than [`ROOM_BYTES`].
    pub(super) async fn read_message(
        &mut self,
        route: &mut Arc<dyn IngressRoute>,
        request: &mut StreamRequest,
    ) -> Result<(Found, Option<Permit>), Refused> {
        let limit_bytes = self.handler.config.limit_bytes;
        let (mut found, mut permit) = (Found::default(), None);
        let mut pace = Pace::new();
        loop {
            found.scan(&self.buffer)?;
            if !found.ends.is_empty() {
                return Ok((found, permit));
            }
            let needed = found.scanner.least_bytes();
            if needed > limit_bytes {
                return Err(too_large(limit_bytes));
            }
            match &mut permit {
                None if needed <= ROOM_BYTES && self.buffer.len() < ROOM_BYTES => {}
                None => {
                    permit = Some(self.admit(route, request, needed, false).await?);
                    pace = Pace::new();
                }
                Some(permit) if needed > permit.bytes() => {
                    let twice = needed.max(2 * permit.bytes()).min(limit_bytes);
                    permit.grow_to(twice).or_else(|_| permit.grow_to(needed))?;
                }
                Some(_) => {}
            }
            let missing = needed.saturating_sub(self.buffer.len()).max(1);
            let most = match permit {
                // At its end a connection reads no part of another message.
                _ if self.stream.is_closing() => missing,
                None => ROOM_BYTES - self.buffer.len(),
                Some(_) => missing.max(ROOM_BYTES),
            };
            self.buffer.reserve_exact(most);
            let came = self.read_in_time(most, &mut pace, permit.as_ref(), request).await?;
            request.note_came(came);
        }
    }

    /// At least one byte. A sender that is too slow is given up.
    async fn read_in_time(
        &mut self,
        most: usize,
        pace: &mut Pace,
        permit: Option<&Permit>,
        request: &mut StreamRequest,
    ) -> Result<usize, Refused> {
        loop {
            let until = pace.look_at.min(pace.gap_end).min(pace.deadline);
            match timeout_at(until, self.stream.read(&mut self.buffer, most)).await {
                Ok(Ok(came @ 1..)) => {
                    pace.came(came);
                    return Ok(came);
                }
                Ok(_) => {
                    return Err(Refused::new(Reason::BrokenOff, "the connection ended"));
                }
                Err(_) => pace.look(permit, request)?,
            }
        }
    }
}

/// The time that a message takes.
struct Pace {
    gap_end: Instant,
    deadline: Instant,
    look_at: Instant,
    /// Bytes that came since the last look, and since it last made progress.
    came_bytes: usize,
    since_progress_bytes: usize,
}

impl Pace {
    fn new() -> Self {
        let (now, timeouts) = (Instant::now(), BodyTimeouts::default());
        Pace {
            gap_end: now + timeouts.gap,
            deadline: now + timeouts.total,
            look_at: now + LOOK_INTERVAL,
            came_bytes: 0,
            since_progress_bytes: 0,
        }
    }

    fn came(&mut self, bytes: usize) {
        self.came_bytes += bytes;
        self.since_progress_bytes += bytes;
        self.gap_end = Instant::now() + BodyTimeouts::default().gap;
    }

    /// Nothing came for some time. A message that makes no progress has to go if others need its
    /// memory: to announce a length costs a sender nothing.
    fn look(
        &mut self,
        permit: Option<&Permit>,
        request: &mut StreamRequest,
    ) -> Result<(), Refused> {
        let now = Instant::now();
        if now >= self.gap_end || now >= self.deadline {
            return Err(Refused::new(Reason::TooSlow, "the rest of a message came too slowly"));
        }
        if now < self.look_at {
            return Ok(());
        }
        self.look_at = now + LOOK_INTERVAL;
        if let Some(permit) = permit {
            if self.since_progress_bytes > permit.bytes() / PROGRESS_PART {
                self.since_progress_bytes = 0;
            } else if let Some(refusal) = permit.asked_back() {
                return Err(refusal.into());
            }
        }
        let is_stalled = take(&mut self.came_bytes) < PROGRESS_LEAST_BYTES;
        if !request.set_stalled(is_stalled) {
            return Err(Refused::new(Reason::TooSlow, "the memory for connections is spent"));
        }
        Ok(())
    }
}
