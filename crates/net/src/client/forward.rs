//! A client of the forward protocol: each request has a connection for itself until its chunks are
//! acknowledged.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use super::connect::{BoxIo, ConnectOptions, Connector};
use super::endpoint::Target;
use super::error::{Result, TransportError};
use crate::forward::handshake::{Client, SharedSecret, User, salt};
use crate::forward::message::{Message, MessageError, read_ack};
use crate::forward::msgpack::Scanner;

/// Unused connections that are kept.
const IDLE_MAX: usize = 16;
/// Answers are a few bytes.
const ANSWER_MAX_BYTES: usize = 16 << 10;

#[derive(Clone)]
pub struct ForwardOptions {
    pub connect: ConnectOptions,
    /// The handshake with which the server begins, if a key is set.
    pub secret: Option<SharedSecret>,
    pub user: Option<User>,
    /// An unused connection is kept for this long. Zero: not at all.
    pub idle_timeout: Duration,
}

/// Sends messages to one target.
pub struct ForwardClient {
    connector: Connector,
    options: ForwardOptions,
    idle: Mutex<Idle>,
}

/// The progress of a request.
#[derive(Debug, Default)]
pub struct Progress {
    /// Chunks that were acknowledged: they are not sent again.
    pub acknowledged: Mutex<HashSet<Vec<u8>>>,
    /// All others were written to the last connection.
    pub is_written: AtomicBool,
}

#[derive(Default)]
struct Idle {
    /// The most recently used is last, and used first.
    connections: Vec<(Connection, Instant)>,
    is_shut_down: bool,
}

struct Connection {
    io: BoxIo,
    address: String,
    /// Read and not used yet.
    answers: Vec<u8>,
}

impl ForwardClient {
    pub fn new(target: Target, options: ForwardOptions) -> ForwardClient {
        let connector = Connector { target, options: options.connect.clone(), alpn: &[] };
        ForwardClient { connector, options, idle: Mutex::default() }
    }

    /// Sends messages and waits until each with a chunk id is acknowledged. Others count as sent
    /// once the connection has taken them. `progress`: that of earlier attempts at them, which this
    /// one goes on with, also if it is dropped.
    ///
    /// # Errors
    /// [`TransportError`]: some or all of the messages may have arrived.
    pub async fn send(&self, messages: &[Bytes], progress: &Progress) -> Result<()> {
        if let Some(mut kept) = self.take_idle() {
            // The peer may have closed it by now: then a new one does.
            if kept.exchange(messages, progress).await.is_ok() {
                self.keep(kept);
                return Ok(());
            }
        }
        progress.is_written.store(false, Ordering::Relaxed);
        let mut connection = self.connect().await?;
        connection.exchange(messages, progress).await?;
        self.keep(connection);
        Ok(())
    }

    /// Closes unused connections, and others as soon as they are.
    pub fn shut_down(&self) {
        *self.idle.lock() = Idle { is_shut_down: true, ..Idle::default() };
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        let timeout = self.options.idle_timeout;
        idle.connections.retain(|(_, since)| since.elapsed() < timeout);
        while let Some((mut connection, _)) = idle.connections.pop() {
            if connection.is_silent() {
                return Some(connection);
            }
        }
        None
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        let has_room = idle.connections.len() < IDLE_MAX && !idle.is_shut_down;
        if has_room && !self.options.idle_timeout.is_zero() {
            idle.connections.push((connection, Instant::now()));
        }
    }

    async fn connect(&self) -> Result<Connection> {
        if self.idle.lock().is_shut_down {
            return Err(TransportError::ShutDown);
        }
        let addresses = self.connector.addresses().await?;
        let connected = self.connector.connect_any(addresses).await?;
        let address = connected.address.to_string();
        let mut connection = Connection { io: connected.io, address, answers: Vec::new() };
        if let Some(secret) = &self.options.secret {
            let handshake = connection.shake_hands(secret, self.options.user.as_ref());
            let limit = self.options.connect.connect_timeout;
            let in_time = tokio::time::timeout(limit, handshake).await;
            in_time.unwrap_or_else(|_| {
                let reason = "the peer begins no handshake: it may have no shared key".to_owned();
                Err(TransportError::Unauthenticated { reason })
            })?;
        }
        Ok(connection)
    }
}

impl Connection {
    /// Nothing was read that was not asked for: a closed connection is not silent.
    fn is_silent(&mut self) -> bool {
        self.answers.is_empty() && self.io.read(&mut [0]).now_or_never().is_none()
    }

    async fn shake_hands(&mut self, secret: &SharedSecret, user: Option<&User>) -> Result<()> {
        let refused = |reason: String| TransportError::Unauthenticated { reason };
        let not_read = |error: MessageError| refused(error.to_string());
        let salt = salt().map_err(|error| refused(error.to_string()))?;
        let hello = self.answer().await?;
        let (client, ping) = Client::greet(secret, user, &hello, salt).map_err(not_read)?;
        self.write(&ping).await?;
        let pong = self.answer().await?;
        client.verdict(&pong).map_err(not_read)?.map_err(refused)
    }

    /// Acknowledgements are read while messages are written: a peer that has no room left for those
    /// that are on their way reads no further message.
    async fn exchange(&mut self, messages: &[Bytes], progress: &Progress) -> Result<()> {
        let garbage = |error: MessageError| TransportError::Garbage { reason: error.to_string() };
        let mut chunks: HashSet<&[u8]> = HashSet::new();
        let mut left = Vec::with_capacity(messages.len());
        for message in messages {
            let chunk = Message::read(message).map_err(garbage)?.and_then(|it| it.chunk);
            let has_arrived = |chunk: &[u8]| progress.acknowledged.lock().contains(chunk);
            if !chunk.is_some_and(has_arrived) {
                chunks.extend(chunk);
                left.push(message);
            }
        }
        let (answers, address) = (&mut self.answers, &*self.address);
        let (mut reading, mut writing) = tokio::io::split(&mut self.io);
        let acknowledged = async {
            while !chunks.is_empty() {
                let answer = next_answer(&mut reading, answers, address).await?;
                let chunk = read_ack(&answer).map_err(garbage)?;
                if !chunks.remove(chunk) {
                    let reason = "an acknowledgement of a chunk that was not sent".to_owned();
                    return Err(TransportError::Garbage { reason });
                }
                progress.acknowledged.lock().insert(chunk.to_vec());
            }
            Ok(())
        };
        let written = async {
            for message in left {
                writing.write_all(message).await?;
            }
            writing.flush().await?;
            progress.is_written.store(true, Ordering::Relaxed);
            Ok(())
        };
        let written =
            async { written.await.map_err(|error| TransportError::from_io(&error, address)) };
        tokio::try_join!(acknowledged, written).map(|_| ())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let write = async {
            self.io.write_all(bytes).await?;
            self.io.flush().await
        };
        write.await.map_err(|error| TransportError::from_io(&error, &self.address))
    }

    async fn answer(&mut self) -> Result<Vec<u8>> {
        next_answer(&mut self.io, &mut self.answers, &self.address).await
    }
}

/// The next value that the peer sends. `answers`: bytes that were read and not used yet.
async fn next_answer(
    io: &mut (impl AsyncRead + Unpin),
    answers: &mut Vec<u8>,
    address: &str,
) -> Result<Vec<u8>> {
    let mut scanner = Scanner::default();
    loop {
        let end = scanner.scan(answers);
        let end = end.map_err(|error| TransportError::Garbage { reason: error.to_string() })?;
        if let Some(end) = end {
            let rest = answers.split_off(end);
            return Ok(std::mem::replace(answers, rest));
        }
        if scanner.least_bytes() > ANSWER_MAX_BYTES {
            return Err(TransportError::AnswerTooLarge { limit_bytes: ANSWER_MAX_BYTES });
        }
        let read = io.read_buf(answers).await;
        let read = read.map_err(|error| TransportError::from_io(&error, address))?;
        if read == 0 {
            let reason = "it ended before the answer: the peer may have refused".to_owned();
            return Err(TransportError::Lost { reason });
        }
    }
}
