//! The byte stream of a connection, whatever is below it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use super::scheduler::Turn;

/// A socket as it was accepted.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket that is read from when its turn has come.
pub(super) struct TurnTaking {
    pub socket: Socket,
    pub turn: Turn,
}

/// One type, so that the protocol code exists once.
pub(super) enum Stream {
    Plain(TurnTaking),
    Tls(Box<TlsStream<TurnTaking>>),
}

/// A stream that tells how much was read from it.
pub(super) struct Transport {
    pub stream: Stream,
    pub read_bytes: Arc<AtomicU64>,
}

macro_rules! each {
    ($value:expr, $inner:ident => $call:expr) => {
        match $value {
            Self::Tcp($inner) => $call,
            Self::Unix($inner) => $call,
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), inner => Pin::new(inner).poll_read(context, buffer))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), inner => Pin::new(inner).poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), inner => Pin::new(inner).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), inner => Pin::new(inner).poll_shutdown(context))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), inner => Pin::new(inner).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        each!(self, inner => inner.is_write_vectored())
    }
}

impl Socket {
    fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => inner.poll_read_ready(context))
    }
}

impl AsyncRead for TurnTaking {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.turn.goes_on() {
            // Who has nothing to be read does not line up.
            ready!(this.socket.poll_read_ready(context))?;
            ready!(this.turn.poll(context));
        }
        let before = buffer.filled().len();
        let poll = Pin::new(&mut this.socket).poll_read(context, buffer);
        this.turn.note_read(buffer.filled().len() - before);
        poll
    }
}

impl AsyncWrite for TurnTaking {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(context, bytes)
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
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

macro_rules! either {
    ($value:expr, $inner:ident => $call:expr) => {
        match $value {
            Stream::Plain($inner) => $call,
            Stream::Tls($inner) => $call,
        }
    };
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let poll = either!(&mut this.stream, inner => Pin::new(inner).poll_read(context, buffer));
        let read = buffer.filled().len() - before;
        if read > 0 {
            this.read_bytes.fetch_add(read as u64, Ordering::Relaxed);
        }
        poll
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(&mut self.get_mut().stream, inner => Pin::new(inner).poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut self.get_mut().stream, inner => Pin::new(inner).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut self.get_mut().stream, inner => Pin::new(inner).poll_shutdown(context))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(&mut self.get_mut().stream, inner => Pin::new(inner).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        either!(&self.stream, inner => inner.is_write_vectored())
    }
}
