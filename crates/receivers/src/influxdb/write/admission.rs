//! Memory of a write: for its next request, and while it waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use sluice_flow::Refusal;
use sluice_flow::source::{ArrivedBody, Permit};
use tokio::time::{Instant, sleep};

use super::{BASE_CUT_BYTES, CHUNK_MOST_BYTES, FACTOR, WHOLE_MOST_BYTES, Writer, Writing};
use crate::influxdb::body::Body;
use crate::influxdb::chunk::TOO_LARGE;
use crate::influxdb::counters::add;
use crate::influxdb::refused::{Reason, Refused};

/// A body that finds no memory even to wait asks again after this time.
const WAIT: Duration = Duration::from_millis(200);

/// A write that has no memory even to wait, counted until it has some or is given up.
struct WithoutBase<'a>(&'a AtomicUsize);

impl WithoutBase<'_> {
    fn new(count: &AtomicUsize) -> WithoutBase<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        WithoutBase(count)
    }
}

impl Drop for WithoutBase<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Writer {
    /// Memory for what may have to wait, of a body. Waits until there is some.
    pub(super) async fn base(&self, bytes: usize, body: &mut Body) -> Result<Permit, Refused> {
        if let Ok(permit) = Permit::take(self.ingress.waiting(true), bytes) {
            return Ok(permit);
        }
        add(&self.counters.waits, 1);
        let _waits = WithoutBase::new(&self.without_base);
        let since = Instant::now();
        loop {
            self.pause(WAIT).await?;
            if let Ok(permit) = Permit::take(self.ingress.waiting(true), bytes) {
                body.note_unread(since);
                return Ok(permit);
            }
        }
    }

    /// Waits also across a reload, which ends the receiver but not the ingress.
    pub(super) async fn pause(&self, delay: Duration) -> Result<(), Refused> {
        tokio::select! {
            () = sleep(delay) => Ok(()),
            () = self.ingress.closed() => Err(Refusal::overloaded("shutting down").into()),
        }
    }
}

impl Writing<'_> {
    /// Memory for a piece of this length, and for a line that makes the request grow so much.
    fn least_bytes(&self, piece: usize, growth: usize) -> usize {
        let request = FACTOR * (self.chunk.builder.held_bytes() + growth);
        self.fixed_bytes + self.reader.most_held_bytes(piece) + request
    }

    /// Sees to it that there is a request with so much memory: this one, or the next.
    /// A line for which there can never be memory becomes a fault of its own.
    pub(super) async fn ensure(&mut self, piece: usize, mut growth: usize) -> Result<(), Refused> {
        let least = self.least_bytes(piece, growth);
        let grown = match &mut self.permit {
            None => Err(None),
            Some(permit) if permit.bytes() >= least => Ok(()),
            Some(permit) => {
                let most = if self.is_whole { WHOLE_MOST_BYTES } else { CHUNK_MOST_BYTES };
                let more = least.max((2 * permit.bytes()).min(most));
                let grown = permit.grow_to(more).or_else(|_| permit.grow_to(least));
                let route = self.writer.route()?;
                grown.and_then(|()| route.judge_again(permit)).map_err(Some)
            }
        };
        if let Err(refusal) = grown {
            if let Some(refusal) = refusal {
                self.must_be_cut(|| refusal.into())?;
            }
            self.submit_chunk().await?;
            while self.permit.is_none() {
                self.chunk.begin();
                let least = self.least_bytes(piece, growth);
                match self.admitted(least, least.max(self.ask_bytes), piece).await {
                    Ok(admitted) => (self.permit, self.cut) = (Some(admitted), None),
                    Err(refused) if refused.reason != Reason::NeverFits => return Err(refused),
                    // A line is judged by itself, not by those before it.
                    Err(_) if self.chunk.forget() => {}
                    Err(_) if self.refuse_line(&mut growth) => {}
                    Err(refused) => return Err(refused),
                }
            }
        }
        let held = self.fixed_bytes + self.reader.most_held_bytes(piece);
        let memory = self.permit.as_ref().map_or(0, Permit::bytes);
        self.chunk.spent_at = memory.saturating_sub(held) / FACTOR;
        Ok(())
    }

    /// Refuses the line that is read, which wants so much growth, if there can never be memory for
    /// it. False: it is not the line.
    fn refuse_line(&mut self, growth: &mut usize) -> bool {
        let is_wanted = std::mem::take(growth) > 0;
        if self.reader.refuse_cut(TOO_LARGE) {
            self.cut = None;
            return true;
        }
        self.chunk.refuses_next = is_wanted;
        is_wanted
    }

    /// Waits for memory for a request, without an end.
    pub(super) async fn admitted(
        &mut self,
        least: usize,
        wanted: usize,
        piece: usize,
    ) -> Result<Permit, Refused> {
        let (arrived, mut wanted, mut since) = (ArrivedBody::default(), wanted, None);
        let admitted = loop {
            let route = self.writer.route()?;
            let mut wait = route.admit(wanted, &arrived);
            let admitted = match wait.as_mut().now_or_never() {
                Some(admitted) => admitted,
                None => {
                    since.get_or_insert_with(|| self.begin_to_wait(piece));
                    wait.await
                }
            };
            match admitted {
                Ok(permit) => break Ok(permit),
                Err(Refusal::TooLarge { .. }) if wanted > least => wanted = least.max(wanted / 2),
                Err(refusal) => {
                    let refused = Refused::from(refusal);
                    let Some(delay) = refused.delay else { break Err(refused) };
                    since.get_or_insert_with(|| self.begin_to_wait(piece));
                    self.writer.pause(delay).await?;
                }
            }
        };
        if let Some(since) = since {
            self.base.shrink_to(self.base_bytes);
            self.body.set_waiting(false);
            self.body.note_unread(since);
        }
        admitted
    }

    /// Holds as little as can be, in the memory for requests that wait.
    fn begin_to_wait(&mut self, piece: usize) -> Instant {
        add(&self.writer.counters.waits, 1);
        self.chunk.builder.forget();
        self.chunk.begin();
        let cut = self.reader.held_bytes().saturating_sub(BASE_CUT_BYTES);
        if self.base.grow_to(self.base_bytes + cut + piece).is_ok() {
            self.cut = None;
        }
        self.body.set_waiting(true);
        Instant::now()
    }
}
