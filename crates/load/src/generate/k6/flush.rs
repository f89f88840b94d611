//! Writes what was generated: to a file, or as a request, of which k6 has four under way at most.

use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::{Output, Written};

/// `K6_INFLUXDB_CONCURRENT_WRITES`
const CONCURRENT_WRITES: u32 = 4;
/// Characters of an answer that a report shows.
const REASON_CHARS: usize = 200;

/// The requests as k6 sends them, with no parameters but those of its options.
const CREATE: &str = "/query?db=&params=%7B%7D&q=CREATE+DATABASE+k6";
const WRITE: &str = "/write?consistency=&db=k6&precision=ns&rp=";

type HttpClient = Client<HttpConnector, Full<Bytes>>;

pub(super) struct Flusher {
    to: To,
    written: Arc<Mutex<Written>>,
}

enum To {
    File(Arc<Mutex<File>>, String),
    Influx { client: Box<HttpClient>, base: String, writes: Arc<Semaphore> },
}

impl Flusher {
    /// Creates the file, or the database. As for k6, a server that does not know the statement is
    /// no reason to end.
    pub(super) async fn open(output: &Output, written: Arc<Mutex<Written>>) -> Result<Flusher> {
        let to = match output {
            Output::File(_, path) => {
                let name = path.display().to_string();
                let file = File::create(path).with_context(|| name.clone())?;
                To::File(Arc::new(Mutex::new(file)), name)
            }
            Output::Influx(server) => {
                let mut connector = HttpConnector::new();
                connector.set_nodelay(true);
                let client = Box::new(Client::builder(TokioExecutor::new()).build(connector));
                let base = format!("http://{server}");
                let _ = post(&client, format!("{base}{CREATE}"), Bytes::new()).await;
                To::Influx { client, base, writes: semaphore() }
            }
        };
        Ok(Flusher { to, written })
    }

    /// Writes a file's next bytes, or begins a request. Fails if a file cannot be written.
    pub(super) async fn flush(&mut self, body: Vec<u8>, requests: u64) -> Result<()> {
        let written = Arc::clone(&self.written);
        match &self.to {
            To::File(file, name) => {
                let (file, began, bytes) = (Arc::clone(file), Instant::now(), body.len());
                let outcome = spawn_blocking(move || file.lock().write_all(&body)).await?;
                written.lock().note(began, bytes, requests, None);
                outcome.with_context(|| name.clone())
            }
            To::Influx { client, base, writes } => {
                let permit = Arc::clone(writes).acquire_owned().await?;
                let (client, uri) = (client.clone(), format!("{base}{WRITE}"));
                tokio::spawn(async move {
                    let (began, bytes) = (Instant::now(), body.len());
                    let outcome = post(&client, uri, body.into()).await;
                    written.lock().note(began, bytes, requests, outcome.err());
                    drop(permit);
                });
                Ok(())
            }
        }
    }

    /// Waits for the answers that are missing.
    pub(super) async fn finish(self) {
        if let To::Influx { writes, .. } = self.to {
            // The semaphore is never closed.
            let _ = writes.acquire_many(CONCURRENT_WRITES).await;
        }
    }
}

fn semaphore() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CONCURRENT_WRITES as usize))
}

impl Written {
    fn note(&mut self, began: Instant, bytes: usize, requests: u64, error: Option<anyhow::Error>) {
        let took = began.elapsed();
        self.flushes += 1;
        self.flush_time += took;
        self.flush_max = self.flush_max.max(took);
        self.bytes += bytes as u64;
        if let Some(error) = error {
            self.flushes_failed += 1;
            self.requests_dropped += requests;
            self.failure.get_or_insert_with(|| format!("{error:#}"));
        }
    }
}

/// Fails with the answer if that is not a success.
async fn post(client: &HttpClient, uri: String, body: Bytes) -> Result<()> {
    let request = Request::post(uri).header("user-agent", "k6").body(Full::new(body))?;
    let (head, body) = client.request(request).await?.into_parts();
    let answer = body.collect().await?.to_bytes();
    if head.status.is_success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&answer);
    let text: String = text.trim().chars().take(REASON_CHARS).collect();
    Err(anyhow!("{} {text}", head.status))
}
