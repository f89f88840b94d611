//! A real InfluxDB 1.x that ends and starts as a test wants, and requests to servers like it.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sluice_load_test::subject::free_addr;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::component::component;
use crate::gateway::{eventually, get};

const UP_WITHIN: Duration = Duration::from_secs(60);

/// An answer: its status, headers with names in lower case, and body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Answer> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&bytes[..end]);
        let (first, headers) = head.split_once("\r\n")?;
        let headers = headers.lines().filter_map(|line| line.split_once(": "));
        let headers: Vec<_> =
            headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        let mut body = bytes[end + 4..].to_vec();
        if headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked") {
            body = dechunked(&body)?;
        }
        let status = first.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, headers, body })
    }

    pub(crate) fn header(&self, wanted: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str())
    }

    /// The body, as JSON if it is.
    pub(crate) fn content(&self) -> serde_json::Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text).unwrap_or_else(|_| text.into_owned().into())
    }
}

fn dechunked(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let end = bytes.windows(2).position(|window| window == b"\r\n")?;
        let len = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).ok()?, 16).ok()?;
        out.extend_from_slice(bytes.get(end + 2..end + 2 + len)?);
        if len == 0 {
            return Some(out);
        }
        bytes = bytes.get(end + 2 + len + 2..)?;
    }
}

/// Sends a request with these headers, and reads the answer. Head and body leave as one: a server
/// that answers before it has a body's bytes may close the connection, and they reset it.
pub(crate) async fn send(server: SocketAddr, line: &str, headers: &str, body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(server).await.expect("connects");
    let head = format!(
        "{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    let request = [head.as_bytes(), body].concat();
    stream.write_all(&request).await.expect("writes");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("reads");
    Answer::parse(&answer).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&answer)))
}

/// A real InfluxDB 1.x. What it stored outlives its process.
pub(crate) struct InfluxDb {
    pub(crate) address: SocketAddr,
    binary: PathBuf,
    child: Child,
    folder: TempDir,
}

impl InfluxDb {
    /// None, and said so, if there is no binary.
    pub(crate) async fn start() -> Option<InfluxDb> {
        let binary = component("SLUICE_TEST_INFLUXDB")?;
        let folder = TempDir::new().expect("a folder");
        let [address, backup] = [(); 2].map(|()| free_addr().expect("a port"));
        let path = folder.path().display();
        let config = format!(
            "reporting-disabled = true\nbind-address = '{backup}'\n[meta]\ndir = '{path}/meta'\n\
             [data]\ndir = '{path}/data'\nwal-dir = '{path}/wal'\n[http]\n\
             bind-address = '{address}'\nlog-enabled = false\n[monitor]\nstore-enabled = false\n\
             [continuous_queries]\nenabled = false\n"
        );
        std::fs::write(folder.path().join("influxdb.conf"), config).expect("is written");
        let child = spawn(&binary, &folder);
        let server = InfluxDb { address, binary, child, folder };
        server.listens().await;
        Some(server)
    }

    async fn listens(&self) {
        let is_up = async || matches!(get(self.address, "/ping").await, Some((204, _)));
        assert!(eventually(UP_WITHIN, is_up).await, "InfluxDB listens");
    }

    /// Ends it in order.
    pub(crate) fn stop(&mut self) {
        let process = Pid::from_child(&self.child);
        kill_process(process, Signal::TERM).expect("InfluxDB runs");
        let _ = self.child.wait();
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) async fn start_again(&mut self) {
        self.child = spawn(&self.binary, &self.folder);
        self.listens().await;
    }

    /// Runs statements, and returns the results.
    pub(crate) async fn query(&self, database: &str, query: &str) -> Value {
        let encode =
            |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02x}")).collect() };
        let (database, query) = (encode(database), encode(query));
        let line = format!("POST /query?epoch=ns&db={database}&q={query}");
        let answer = send(self.address, &line, "", b"").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let mut content = answer.content();
        content["results"].take()
    }

    /// The one value of a query that finds one; null if it finds nothing.
    pub(crate) async fn value(&self, database: &str, query: &str) -> Value {
        let found = self.query(database, query).await;
        found.pointer("/0/series/0/values/0/1").cloned().unwrap_or_default()
    }

    pub(crate) async fn number(&self, database: &str, query: &str) -> f64 {
        self.value(database, query).await.as_f64().unwrap_or(0.0)
    }

    /// Writes lines to it directly.
    pub(crate) async fn write(&self, database: &str, lines: &str) {
        let line = format!("POST /write?db={database}");
        let answer = send(self.address, &line, "", lines.as_bytes()).await;
        assert_eq!(answer.status, 204, "{answer:?}");
    }
}

fn spawn(binary: &Path, folder: &TempDir) -> Child {
    Command::new(binary)
        .arg("-config")
        .arg(folder.path().join("influxdb.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("InfluxDB runs")
}

impl Drop for InfluxDb {
    fn drop(&mut self) {
        self.kill();
    }
}
