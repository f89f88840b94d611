//! A target: answers each request as a test says.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// An answer to a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// All bytes of the answer; the connection is kept.
    Whole(Vec<u8>),
    /// These bytes, and then the last one for ever.
    Endless(Vec<u8>),
    /// These bytes, and then nothing.
    Stalled(Vec<u8>),
}

/// It ends when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// All requests.
    pub(crate) heads: Arc<Mutex<Vec<String>>>,
    pub(crate) connections: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn answer(status: &str, headers: &str, body: &[u8]) -> Reply {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n");
    Reply::Whole([head.as_bytes(), body].concat())
}

pub(crate) fn page(body: &str) -> Reply {
    answer("200 OK", "content-type: text/plain; version=0.0.4\r\n", body.as_bytes())
}

pub(crate) fn packed(encoding: &str, body: &[u8]) -> Reply {
    let headers = format!("content-type: text/plain\r\ncontent-encoding: {encoding}\r\n");
    answer("200 OK", &headers, body)
}

/// A head without a length: the body ends with the connection, or never.
pub(crate) fn open_head() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n".to_vec()
}

impl Server {
    pub(crate) async fn start(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Server {
        Server::serve(None, reply).await
    }

    /// Over TLS. Returns the authority, too, that clients have to trust.
    pub(crate) async fn start_tls(
        reply: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> (Server, String) {
        let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("generates");
        let der = PrivateKeyDer::try_from(key.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![key.cert.der().clone()], der)
            .expect("a certificate");
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        (Server::serve(Some(acceptor), reply).await, key.cert.pem())
    }

    async fn serve(
        tls: Option<TlsAcceptor>,
        reply: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("an address");
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let connections = Arc::<Mutex<usize>>::default();
        let (reply, seen, count) = (Arc::new(reply), heads.clone(), Arc::clone(&connections));
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                *count.lock() += 1;
                let (tls, reply, seen) = (tls.clone(), reply.clone(), seen.clone());
                open.spawn(async move {
                    match tls {
                        Some(tls) => connection(tls.accept(stream).await.ok()?, reply, seen).await,
                        None => connection(stream, reply, seen).await,
                    }
                });
            }
        });
        Server { address, heads, connections, task }
    }

    pub(crate) async fn with_page(body: &'static str) -> Server {
        Server::start(move |_| page(body)).await
    }

    pub(crate) fn head(&self) -> String {
        self.heads.lock().last().cloned().unwrap_or_default()
    }
}

async fn connection(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    reply: Arc<impl Fn(&str) -> Reply + Send + Sync + 'static>,
    heads: Arc<Mutex<Vec<String>>>,
) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
        let Some(end) = bytes.windows(4).position(|end| end == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if bytes.len() < end + 4 + length.map_or(0, |length| length.parse().expect("a length")) {
            continue;
        }
        let head = String::from_utf8_lossy(&std::mem::take(&mut bytes)).into_owned();
        heads.lock().push(head.clone());
        match reply(&head) {
            Reply::Whole(answer) => {
                stream.write_all(&answer).await.ok()?;
                stream.flush().await.ok()?;
            }
            Reply::Endless(answer) => {
                stream.write_all(&answer).await.ok()?;
                let more = [*answer.last()?; 16 << 10];
                loop {
                    stream.write_all(&more).await.ok()?;
                }
            }
            Reply::Stalled(answer) => {
                stream.write_all(&answer).await.ok()?;
                std::future::pending::<()>().await;
            }
        }
    }
}
