//! Requests to an API server, and their answers, piece by piece.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use crate::access::{Access, shown};
use crate::failure::Failure;

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
    connected: Arc<Mutex<Option<Connected>>>,
}

struct Connected(kube::Client);

impl std::fmt::Debug for Connected {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Connected")
    }
}

impl Client {
    /// Connects when it is used.
    pub fn new(access: Access) -> Client {
        Client { access: Arc::new(access), connected: Arc::default() }
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

    /// The lines of an answer that goes on. `limit`: the time to its end.
    pub(crate) async fn lines(
        &self,
        path: &str,
        accept: &str,
        limit: Duration,
    ) -> Result<Lines, Failure> {
        let until = Instant::now() + limit;
        Ok(Lines { body: self.get(path, accept).await?, until, rest: BytesMut::new(), seen: 0 })
    }

    async fn get(&self, path: &str, accept: &str) -> Result<Body, Failure> {
        let client = self.client().await.map_err(Failure::Other)?;
        let request = Request::get(path)
            .header(header::ACCEPT, accept)
            .header(header::USER_AGENT, concat!("sluice/", env!("CARGO_PKG_VERSION")))
            .body(Body::empty())
            .map_err(|error| Failure::Other(error.to_string()))?;
        let answer = timeout(HEAD_TIMEOUT, client.send(request)).await;
        let answer = answer.map_err(|_| no_answer(HEAD_TIMEOUT)).and_then(|answer| {
            answer.map_err(|error| Failure::Other(format!("no connection: {}", shown(&error))))
        });
        let (head, body) = match answer {
            Ok(answer) => answer.into_parts(),
            Err(failure) => {
                self.forget().await;
                return Err(failure);
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
        Err(failure)
    }

    async fn client(&self) -> Result<kube::Client, String> {
        let mut connected = self.connected.lock().await;
        if let Some(Connected(client)) = &*connected {
            return Ok(client.clone());
        }
        let (access, runtime) = (self.access.clone(), Handle::current());
        // Reads files, and a kubeconfig may name a program to be run.
        let connect = move || runtime.block_on(access.connect());
        let client = tokio::task::spawn_blocking(connect).await.map_err(|it| it.to_string())??;
        *connected = Some(Connected(client.clone()));
        Ok(client)
    }

    /// The next request connects anew, with credentials that are read again.
    async fn forget(&self) {
        *self.connected.lock().await = None;
    }
}

/// The lines of an answer, as they come.
pub(crate) struct Lines {
    body: Body,
    until: Instant,
    rest: BytesMut,
    /// Bytes of `rest` that are known to have no end of a line.
    seen: usize,
}

impl Lines {
    /// The next line; nothing at the end, or when the time is over.
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
            let frame = match timeout_at(self.until, self.body.frame()).await {
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
    Failure::Other(format!("the connection is lost: {}", shown(error)))
}

fn no_answer(limit: Duration) -> Failure {
    Failure::Other(format!("there is no answer within {limit:?}"))
}
