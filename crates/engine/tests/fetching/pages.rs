//! A server of numbered pages over HTTPS, for clients that show a token.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

pub(crate) const LINES_A_PAGE: usize = 128;
const LINE_BYTES: usize = 1000;

pub(crate) struct Pages {
    pub(crate) address: SocketAddr,
    /// The authority that clients have to trust.
    pub(crate) authority: String,
    shared: Arc<Shared>,
}

struct Shared {
    pages: u64,
    token: String,
    served: AtomicU64,
    refused: AtomicU64,
}

impl Pages {
    /// Serves pages with numbers below `pages` to clients with the token, until the runtime ends.
    pub(crate) async fn serve(pages: u64, token: &str) -> Pages {
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
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (served, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Arc::new(Shared { pages, token: token.to_owned(), served, refused });
        let serving = shared.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, shared) = (acceptor.clone(), serving.clone());
                tokio::spawn(
                    async move { shared.connection(acceptor.accept(socket).await?).await },
                );
            }
        });
        Pages { address, authority: key.cert.pem(), shared }
    }

    pub(crate) fn served(&self) -> u64 {
        self.shared.served.load(Ordering::Relaxed)
    }

    /// Requests without the token.
    pub(crate) fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

impl Shared {
    async fn connection(
        &self,
        socket: tokio_rustls::server::TlsStream<tokio::net::TcpStream>,
    ) -> io::Result<()> {
        let mut socket = BufReader::new(socket);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if socket.read_line(&mut head).await? == 0 {
                    return Ok(());
                }
            }
            let (status, body) = self.answer(&head);
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
            socket.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await?;
            socket.flush().await?;
        }
    }

    fn answer(&self, head: &str) -> (&'static str, String) {
        let page = head.strip_prefix("GET /pages/").and_then(|rest| rest.split_once(' '));
        let page: u64 = page.and_then(|(page, _)| page.parse().ok()).expect("asks for a page");
        assert!(head.contains("\r\nuser-agent: sluice/"), "{head}");
        assert!(!head.contains("content-length"), "{head}");
        if !head.contains(&format!("\r\nauthorization: Bearer {}\r\n", self.token)) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return ("401 Unauthorized", String::new());
        }
        if page >= self.pages {
            return ("404 Not Found", String::new());
        }
        self.served.fetch_add(1, Ordering::Relaxed);
        let line = |line: usize| format!("{:x<LINE_BYTES$}\n", format!("page {page} line {line} "));
        ("200 OK", (0..LINES_A_PAGE).map(line).collect())
    }
}
