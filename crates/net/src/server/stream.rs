//! Connections of protocols other than HTTP: a handler reads and writes their bytes.
//!
//! They have the same bounds as those of HTTP: their number, memory and TLS handshake, the turn in
//! which they are read from, and peers that do not read. The handler bounds its protocol's messages
//! in size and time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until};
use tokio_util::either::Either;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::Serving;
use super::activity::{Activity, Counted, InFlight};
use super::budget::STREAM_BYTES;
use super::connection::{Context, Speak};
use super::counters::ServerCounters;
use super::scheduler::Arriving;
use super::transport::Transport;

/// Serves connections.
pub trait StreamHandler: Send + Sync + 'static {
    /// Serves one connection, which is closed when this returns. It should return soon after
    /// [`Stream::closing`]; it is dropped if it does not, between two of its waits.
    /// `peer`: its address, `None` over a Unix socket.
    fn serve(&self, stream: Stream, peer: Option<SocketAddr>) -> impl Future<Output = ()> + Send;
}

/// A connection, behind TLS if there is any.
pub struct Stream {
    transport: Transport,
    activity: Arc<Activity>,
    closing: CancellationToken,
}

impl Stream {
    /// Appends up to `most` bytes that have come to the buffer, within its capacity. Zero: the peer
    /// sends no more.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn read(&mut self, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        (&mut self.transport).take(most as u64).read_buf(buffer).await
    }

    /// # Errors
    /// The connection is broken, or its peer does not read.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.transport.write_all(bytes).await?;
        self.transport.flush().await
    }

    /// Ends the connection in order, as far as its peer takes part.
    pub async fn shut_down(&mut self) {
        let _ = self.transport.shutdown().await;
    }

    /// Ready once the connection is asked to go: at shutdown, or to make room for another.
    pub fn closing(&self) -> WaitForCancellationFutureOwned {
        self.closing.clone().cancelled_owned()
    }

    pub fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// The address that the peer has connected to. `None` over a Unix socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match &self.transport {
            Either::Left(socket) => socket.local_address(),
            Either::Right(tls) => tls.get_ref().0.local_address(),
        }
    }

    /// A request begins: the first byte of a message has come.
    pub fn begin(&self) -> StreamRequest {
        let activity = Arc::clone(&self.activity);
        let (in_flight, arriving) = activity.begin(STREAM_BYTES);
        let arriving = Some(arriving);
        StreamRequest { activity, in_flight, arriving, waits: None, stalled: None }
    }
}

/// A request of a connection until it is dropped. While there is one the connection has its turn,
/// and does not count as idle.
pub struct StreamRequest {
    activity: Arc<Activity>,
    in_flight: InFlight,
    arriving: Option<Arriving>,
    waits: Option<Counted>,
    stalled: Option<Counted>,
}

impl StreamRequest {
    /// More of it has come.
    pub fn note_came(&mut self, bytes: usize) {
        if let Some(arriving) = &mut self.arriving {
            arriving.note_came(bytes);
        }
    }

    /// All of it has come.
    pub fn note_arrived(&mut self) {
        self.arriving = None;
    }

    /// Whether its peer is too slow from now on. False: it has to go, because others need the
    /// memory of connections.
    pub fn set_stalled(&mut self, is_stalled: bool) -> bool {
        if !is_stalled {
            self.stalled = None;
        } else if self.stalled.is_none() {
            self.stalled = self.activity.note_stalled();
            return self.stalled.is_some();
        }
        !is_stalled || !self.activity.is_memory_short()
    }

    /// Whether it waits from now on, to be admitted: that is no progress of its connection.
    pub fn set_waiting(&mut self, waits: bool) {
        if waits != self.waits.is_some() {
            self.waits = waits.then(|| self.activity.note_waits());
        }
    }

    /// It is done.
    pub fn end(mut self, is_accepted: bool) {
        (self.arriving, self.waits, self.stalled) = (None, None, None);
        self.in_flight.answered(is_accepted);
    }
}

pub(super) struct Plain<H>(pub(super) H);

impl<H: StreamHandler> Speak for Plain<H> {
    async fn speak(
        transport: Transport,
        activity: Arc<Activity>,
        peer: Option<SocketAddr>,
        context: &Arc<Context<Self>>,
    ) {
        let Serving { options, counters, shutdown, .. } = &context.serving;
        let closing = shutdown.child_token();
        let stream =
            Stream { transport, activity: Arc::clone(&activity), closing: closing.clone() };
        let until_cut_off = async {
            tokio::select! {
                () = context.cut_off.cancelled() => {}
                () = activity.evicted.notified() => {
                    ServerCounters::count(&counters.evicted);
                    closing.cancel();
                    sleep_until(Instant::now() + options.evicted_after).await;
                }
            }
        };
        tokio::select! {
            biased;
            () = context.handler.0.serve(stream, peer) => {}
            () = until_cut_off => ServerCounters::count(&counters.cut_off),
        }
    }
}
