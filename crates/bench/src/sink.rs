//! A server that takes every request over HTTP/1.1 and looks at nothing but its length: where
//! subjects write that do not speak OTLP.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use tokio::io::{self, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Ends when it is dropped.
pub(crate) struct Sink {
    pub(crate) addr: SocketAddr,
    bytes: Arc<AtomicU64>,
    _server: JoinSet<()>,
}

impl Sink {
    pub(crate) async fn start() -> Result<Sink> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (addr, bytes) = (listener.local_addr()?, Arc::new(AtomicU64::new(0)));
        let taken = Arc::clone(&bytes);
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let taken = Arc::clone(&taken);
                // A connection that breaks off shows in what is missing.
                connections.spawn(async move { drop(serve(stream, &taken).await) });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Sink { addr, bytes, _server: server })
    }

    /// Bytes of bodies, packed as they came.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

async fn serve(stream: TcpStream, taken: &AtomicU64) -> Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let Some(length) = content_length(&mut stream).await? else { return Ok(()) };
        let read = io::copy(&mut (&mut stream).take(length), &mut io::sink()).await?;
        if read < length {
            return Ok(());
        }
        taken.fetch_add(length, Ordering::Relaxed);
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?;
    }
}

/// Reads the head of a request. `None`: the peer has closed the connection.
async fn content_length(stream: &mut BufReader<TcpStream>) -> Result<Option<u64>> {
    let (mut line, mut length) = (String::new(), 0);
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            match line.trim_end() {
                "" => return Ok(Some(length)),
                _request_line => continue,
            }
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().context("a content-length")?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_of_one_connection_are_taken_and_counted() -> Result<()> {
        let sink = Sink::start().await?;
        let mut stream = TcpStream::connect(sink.addr).await?;
        for body in ["abc", "", "defgh"] {
            let length = body.len();
            let request =
                format!("POST http://a/ HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = [0; 27];
            stream.read_exact(&mut answer).await?;
            assert!(answer.starts_with(b"HTTP/1.1 204") && answer.ends_with(b"\r\n\r\n"));
        }
        assert_eq!(sink.bytes(), 8);
        Ok(())
    }
}
