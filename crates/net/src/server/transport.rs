//! The byte stream of a connection, whatever is below it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::activity::Activity;
use super::scheduler::{ReadScheduler, ScheduledReads};

/// A socket as it was accepted.
pub(super) type Socket = Either<TcpStream, UnixStream>;

/// A connection reads this many bytes at once, and then accepts the requests in them: headers may
/// take a hundred times as much once they are decoded, and are charged only then.
const READ_AT_ONCE_BYTES: usize = 256 << 10;
/// Decoding a byte of headers costs as much time as reading this many other bytes.
const READS_OF_HEADER_BYTE: usize = 64;

/// A socket that is read from when the scheduler lets it, and closed if its peer stops reading.
pub(super) struct ScheduledSocket {
    socket: Socket,
    reads: ScheduledReads,
    activity: Arc<Activity>,
    read_at_once_bytes: usize,
    /// Bytes that its peer may still send. The connection ends if it sends more.
    pub(super) left_bytes: u64,
    /// A write without progress for this long ends the connection.
    write_timeout: Duration,
    /// Runs while a write waits for the peer to read.
    write_stall: Option<Pin<Box<Sleep>>>,
}

impl ScheduledSocket {
    pub(super) fn new(
        socket: Socket,
        scheduler: &Arc<ReadScheduler>,
        activity: &Arc<Activity>,
        write_timeout: Duration,
    ) -> Self {
        ScheduledSocket {
            socket,
            reads: ScheduledReads::new(scheduler, Arc::clone(&activity.entry)),
            activity: Arc::clone(activity),
            read_at_once_bytes: 0,
            left_bytes: u64::MAX,
            write_timeout,
            write_stall: None,
        }
    }

    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        let Either::Left(tcp) = &self.socket else { return None };
        let address = tcp.local_addr().ok()?;
        Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }

    fn poll_write_with(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut Socket>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let poll = write(Pin::new(&mut self.socket), context);
        self.activity.set_write_blocked(poll.is_pending());
        if poll.is_ready() {
            self.write_stall = None;
            return poll;
        }
        let timeout = self.write_timeout;
        let stall = self.write_stall.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(stall.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the peer does not read its answers",
        )))
    }
}

/// With or without TLS.
pub(super) type Transport = Either<ScheduledSocket, Box<TlsStream<ScheduledSocket>>>;

fn poll_read_ready(socket: &Socket, context: &mut Context<'_>) -> Poll<io::Result<()>> {
    match socket {
        Either::Left(tcp) => tcp.poll_read_ready(context),
        Either::Right(unix) => unix.poll_read_ready(context),
    }
}

impl AsyncRead for ScheduledSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Also if nothing more comes: bytes that were read before have been decoded.
        let Some(header_bytes) = this.activity.take_header_bytes() else {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        };
        this.read_at_once_bytes += READS_OF_HEADER_BYTE * header_bytes;
        if !this.reads.may_read() {
            // A connection with nothing to read does not queue.
            ready!(poll_read_ready(&this.socket, context))?;
            ready!(this.reads.poll_may_read(context));
        }
        if this.read_at_once_bytes >= READ_AT_ONCE_BYTES {
            this.read_at_once_bytes = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let poll = Pin::new(&mut this.socket).poll_read(context, buffer);
        let read_bytes = buffer.filled().len() - before;
        this.reads.note_read(read_bytes);
        this.read_at_once_bytes =
            if poll.is_ready() { this.read_at_once_bytes + read_bytes } else { 0 };
        match this.left_bytes.checked_sub(read_bytes as u64) {
            Some(left_bytes) => this.left_bytes = left_bytes,
            None => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
        }
        poll
    }
}

impl AsyncWrite for ScheduledSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_with(context, |socket, context| socket.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut()
            .poll_write_with(context, |socket, context| socket.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}
