//! Requests to an API server, and their answers, piece by piece.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::access::Access;
use crate::failure::Failure;
use crate::session::{Session, shown};

/// For credentials to be read: a kubeconfig may name a program that gets them.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// From a request to the head of its answer.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// From the head to the end of an answer that is not watched.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Larger pages are asked for again as smaller ones.
const PAGE_LIMIT_BYTES: usize = 32 << 20;
/// Objects are smaller: the API server stores none above some MiB.
const LINE_LIMIT_BYTES: usize = 16 << 20;
/// Answers that are errors are read up to this.
const ERROR_LIMIT_BYTES: usize = 64 << 10;

/// A client of an API server. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    access: Arc<Access>,
    /// Made by the first request, and again after failures that a new one may cure.
    connection: Arc<Mutex<Connection>>,
    connect_timeout: Duration,
}

#[derive(Debug, Default)]
enum Connection {
    #[default]
    None,
    /// It goes on when a request has given up to wait, so that a program that hangs runs once.
    Connecting(JoinHandle<Result<Session, String>>),
    Connected(Session),
}

impl Client {
    /// Connects when it is used.
    pub fn new(access: Access) -> Client {
        let access = Arc::new(access);
        Client { access, connection: Arc::default(), connect_timeout: CONNECT_TIMEOUT }
    }

    /// The whole answer to a GET, of at most 32 MiB. `path`: with its query.
    ///
    /// # Errors
    /// There is no answer, another than 200, or a longer one.
    pub async fn page(&self, path: &str, accept: &str) -> Result<Bytes, Failure> {
        let body = self.get(path, accept).await?;
        let read = timeout(BODY_TIMEOUT, read_all(body, PAGE_LIMIT_BYTES));
        read.await.map_err(|_| no_answer(BODY_TIMEOUT))?
    }

    /// The lines of an answer that goes on. `limit`: the time to its end. `idle`: the time without
    /// a byte after which it has ended.
    pub(crate) async fn lines(
        &self,
        path: &str,
        accept: &str,
        limit: Duration,
        idle: Duration,
    ) -> Result<Lines, Failure> {
        let until = Instant::now() + limit;
        let body = self.get(path, accept).await?;
        Ok(Lines { body, until, idle, rest: BytesMut::new(), seen: 0 })
    }

    async fn get(&self, path: &str, accept: &str) -> Result<Body, Failure> {
        let session = self.session().await?;
        let request = Request::get(path)
            .header(header::ACCEPT, accept)
            .header(header::USER_AGENT, concat!("sluice/", env!("CARGO_PKG_VERSION")))
            .body(Body::empty())
            .map_err(|error| Failure::Other(error.to_string()))?;
        let answer = timeout(HEAD_TIMEOUT, session.client.send(request)).await;
        let answer = answer.map_err(|_| no_answer(HEAD_TIMEOUT)).and_then(|answer| {
            let failed = |error| Failure::Unavailable(format!("no connection: {}", shown(&error)));
            answer.map_err(failed)
        });
        let (head, body) = match answer {
            Ok(answer) => answer.into_parts(),
            Err(failure) => {
                self.forget().await;
                return Err(session.hide(failure).await);
            }
        };
        if head.status == StatusCode::OK {
            return Ok(body);
        }
        let read = timeout(HEAD_TIMEOUT, read_all(body, ERROR_LIMIT_BYTES)).await;
        let read = read.map_or(Bytes::new(), |read| read.unwrap_or_default());
        let failure = Failure::of_answer(head.status, &head.headers, &read);
        if failure.is_of_connection() {
            self.forget().await;
        }
        Err(session.hide(failure).await)
    }

    async fn session(&self) -> Result<Session, Failure> {
        let session = timeout(self.connect_timeout, self.connect()).await;
        session.map_err(|_| {
            let of_program = match &*self.access {
                Access::Kubeconfig { .. } => ": a program that the kubeconfig names may hang",
                _ => "",
            };
            let limit = self.connect_timeout;
            Failure::Unavailable(format!("no credentials are read within {limit:?}{of_program}"))
        })?
    }

    async fn connect(&self) -> Result<Session, Failure> {
        let mut connection = self.connection.lock().await;
        if let Connection::Connected(session) = &*connection {
            return Ok(session.clone());
        }
        if let Connection::None = &*connection {
            let (access, runtime) = (self.access.clone(), Handle::current());
            // Reads files, and a kubeconfig may name a program to be run.
            let connect = move || runtime.block_on(access.connect());
            *connection = Connection::Connecting(tokio::task::spawn_blocking(connect));
        }
        let Connection::Connecting(connecting) = &mut *connection else {
            return Err(Failure::Other("there is no connection".to_owned()));
        };
        let connected = connecting.await.unwrap_or_else(|error| Err(error.to_string()));
        *connection = Connection::None;
        let session = connected.map_err(Failure::Unavailable)?;
        *connection = Connection::Connected(session.clone());
        Ok(session)
    }

    /// The next request connects anew, with credentials that are read again.
    async fn forget(&self) {
        let mut connection = self.connection.lock().await;
        if let Connection::Connected(_) = &*connection {
            *connection = Connection::None;
        }
    }
}

/// The lines of an answer, as they come.
pub(crate) struct Lines {
    body: Body,
    until: Instant,
    idle: Duration,
    rest: BytesMut,
    /// Bytes of `rest` that are known to have no end of a line.
    seen: usize,
}

impl Lines {
    /// The next line; nothing at the end, when the time is over, or after a long silence.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let end = self.rest[self.seen..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end {
                let line = self.rest.split_to(self.seen + end + 1).freeze();
                self.seen = 0;
                if line.len() > 1 {
                    return Ok(Some(line));
                }
                continue;
            }
            self.seen = self.rest.len();
            if self.rest.len() > LINE_LIMIT_BYTES {
                return Err(Failure::TooLarge);
            }
            let until = self.until.min(Instant::now() + self.idle);
            let frame = match timeout_at(until, self.body.frame()).await {
                Err(_) | Ok(None) => return Ok(None),
                Ok(Some(frame)) => frame.map_err(|error| lost(&error))?,
            };
            if let Ok(data) = frame.into_data() {
                self.rest.extend_from_slice(&data);
            }
        }
    }
}

async fn read_all(mut body: Body, limit_bytes: usize) -> Result<Bytes, Failure> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|error| lost(&error))?.into_data() {
            if all.len() + data.len() > limit_bytes {
                return Err(Failure::TooLarge);
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(all.freeze())
}

fn lost(error: &kube::Error) -> Failure {
    Failure::Unavailable(format!("the connection is lost: {}", shown(error)))
}

fn no_answer(limit: Duration) -> Failure {
    Failure::Unavailable(format!("there is no answer within {limit:?}"))
}

#[cfg(all(test, unix))]
mod tests;
