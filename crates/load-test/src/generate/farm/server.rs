//! The HTTP/1.1 side of a target. It works on the socket because it must know what a general server hides: whether the scraper
//! has read an answer to its end. To learn that around hyper's server takes more code than this.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::accept::Format;
use super::scrape::Scrape;
use super::{Phase, Shared};

const HEAD_LIMIT_BYTES: usize = 16 << 10;
/// Open at once at one target.
const CONNECTIONS_LIMIT: usize = 64;
/// A scraper that reads no more is let go after this.
const WRITE_WITHIN: Duration = Duration::from_secs(60);

/// Answers the scrapes of one target.
pub(super) async fn serve(shared: Arc<Shared>, target: usize, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            Ok((stream, _)) = listener.accept(), if connections.len() < CONNECTIONS_LIMIT => {
                // Failure means a connection that is already gone.
                let _ = stream.set_nodelay(true);
                let connection = Connection { shared: Arc::clone(&shared), target, stream, read: Vec::new(), last: None };
                connections.spawn(connection.run());
            }
        }
    }
}

struct Connection {
    shared: Arc<Shared>,
    target: usize,
    stream: TcpStream,
    /// Read and not yet understood.
    read: Vec<u8>,
    /// The scrape that was answered last: whether its end has been read shows when the scraper asks again or leaves.
    last: Option<Scrape>,
}

/// The parts of a request that decide the answer.
#[derive(Debug, PartialEq)]
struct Head {
    is_get: bool,
    path: String,
    format: Format,
    closes: bool,
}

impl Connection {
    async fn run(mut self) {
        // An error is the scraper's leaving.
        while let Ok(Some(head)) = self.next_request().await {
            let closes = head.as_ref().is_none_or(|head| head.closes);
            let answered = match head {
                None => self.refuse("400 Bad Request").await,
                Some(head) if !head.is_get => self.refuse("405 Method Not Allowed\r\nAllow: GET").await,
                Some(head) if head.path != "/metrics" => self.refuse("404 Not Found").await,
                Some(head) => self.scrape(&head).await,
            };
            if answered.is_err() {
                return;
            }
            if closes && self.stream.shutdown().await.is_err() {
                return;
            }
        }
    }

    /// `None`: the scraper has left, having read everything. `Some(None)`: what it sends is no request of a scraper.
    async fn next_request(&mut self) -> io::Result<Option<Option<Head>>> {
        loop {
            if let Some(end) = memchr::memmem::find(&self.read, b"\r\n\r\n") {
                let head = Head::parse(&self.read[..end]);
                self.read.drain(..end + 4);
                return Ok(Some(head));
            }
            if self.read.len() > HEAD_LIMIT_BYTES {
                return Ok(Some(None));
            }
            let count = self.stream.read_buf(&mut self.read).await;
            let last = self.last.take();
            match count {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                // A socket that is closed with something unread in it is reset.
                Err(error) => {
                    if let Some(scrape) = last {
                        self.shared.cut_off(&scrape, true);
                    }
                    return Err(error);
                }
            }
        }
    }

    async fn scrape(&mut self, head: &Head) -> io::Result<()> {
        self.shared.first_scrape.send_if_modified(|has_come| !std::mem::replace(has_come, true));
        let mut phase = self.shared.phase.subscribe();
        // Ends with the farm at the latest.
        let Ok(phase) = phase.wait_for(|phase| *phase != Phase::Waiting).await.map(|phase| *phase) else {
            return Ok(());
        };
        if phase == Phase::Stopped {
            return self.refuse("503 Service Unavailable").await;
        }
        let Some(scrape) = self.shared.begin_scrape(self.target) else {
            return self.refuse("503 Service Unavailable").await;
        };
        let shared = Arc::clone(&self.shared);
        let mut page = shared.pages.take(head.format);
        page.stamp(scrape.first(shared.generator), shared.pages.cycle(shared.began.elapsed()));
        let written = timeout(WRITE_WITHIN, self.answer("200 OK", head.format.content_type(), page.bytes())).await;
        let length = page.bytes().len();
        shared.pages.put_back(head.format, page);
        match written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(()) => {
                shared.complete(&scrape, length);
                self.last = Some(scrape);
                Ok(())
            }
            Err(error) => {
                shared.cut_off(&scrape, false);
                Err(error)
            }
        }
    }

    async fn refuse(&mut self, status: &str) -> io::Result<()> {
        self.answer(status, "text/plain; charset=utf-8", b"").await
    }

    async fn answer(&mut self, status: &str, content_type: &str, body: &[u8]) -> io::Result<()> {
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n");
        self.stream.write_all(head.as_bytes()).await?;
        self.stream.write_all(body).await
    }
}

impl Head {
    /// `None`: not HTTP/1, or with a body, which no scraper sends.
    fn parse(bytes: &[u8]) -> Option<Head> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        let mut head = Head {
            is_get: method == "GET",
            path: target.split('?').next()?.to_owned(),
            format: Format::Text,
            closes: version == "HTTP/1.0",
        };
        if !matches!(version, "HTTP/1.0" | "HTTP/1.1") || words.next().is_some() {
            return None;
        }
        for line in lines {
            let (name, value) = line.split_once(':')?;
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "accept" => head.format = Format::of(value),
                "connection" => head.closes |= value.eq_ignore_ascii_case("close"),
                "content-length" if value != "0" => return None,
                "transfer-encoding" => return None,
                _ => {}
            }
        }
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrapers_head_is_understood_and_anything_else_is_not() {
        let head =
            Head::parse(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nACCEPT: application/openmetrics-text").unwrap();
        assert_eq!(
            head,
            Head { is_get: true, path: "/metrics".to_owned(), format: Format::OpenMetrics, closes: false }
        );
        assert!(Head::parse(b"GET / HTTP/1.1\r\nConnection: Close").unwrap().closes);
        assert!(Head::parse(b"GET / HTTP/1.0").unwrap().closes);
        assert!(!Head::parse(b"HEAD / HTTP/1.1").unwrap().is_get);
        let strange: [&[u8]; 5] =
            [b"", b"GET /", b"GET / HTTP/2.0", b"POST / HTTP/1.1\r\nContent-Length: 3", b"GET / HTTP/1.1\r\nno colon"];
        for bytes in strange {
            assert_eq!(Head::parse(bytes), None, "{}", String::from_utf8_lossy(bytes));
        }
    }
}
