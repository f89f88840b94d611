//! Tools for tests of receivers: authorities and their certificates, clients over gRPC and over
//! plain HTTP.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

/// A request of this many spans, none of which is like another.
pub(crate) fn spans(count: u8) -> ExportTraceServiceRequest {
    let span = |index: u8| Span {
        trace_id: vec![7; 16],
        span_id: vec![index + 1; 8],
        name: format!("span {index}"),
        ..Span::default()
    };
    let scope_spans =
        vec![ScopeSpans { spans: (0..count).map(span).collect(), ..ScopeSpans::default() }];
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }],
    }
}

pub(crate) fn encoded(count: u8) -> Vec<u8> {
    prost::Message::encode_to_vec(&spans(count))
}

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
pub(crate) struct Papers {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Authority(
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"))
                .expect("an authority"),
        )
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for localhost.
    pub(crate) fn issue(&self) -> Papers {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate").pem();
        Papers { certificate, key: key.serialize_pem() }
    }
}

impl Papers {
    /// Writes `tls.crt` and `tls.key`, as in a Kubernetes secret.
    pub(crate) fn write(&self, folder: &Path) {
        std::fs::write(folder.join("tls.crt"), &self.certificate).expect("a file");
        std::fs::write(folder.join("tls.key"), &self.key).expect("a file");
    }
}

/// A gRPC client that trusts one authority. It connects at its first export, and again whenever it
/// has to.
pub(crate) fn grpc(
    address: SocketAddr,
    trusted: &Authority,
    own: Option<&Papers>,
) -> TraceServiceClient<Channel> {
    let mut tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(trusted.pem()))
        .domain_name("localhost");
    if let Some(own) = own {
        tls = tls.identity(Identity::from_pem(&own.certificate, &own.key));
    }
    let endpoint =
        Channel::from_shared(format!("https://{address}")).expect("a URI").tls_config(tls);
    TraceServiceClient::new(endpoint.expect("good settings").connect_lazy())
}

/// Settings of an HTTP client that trusts one authority.
pub(crate) fn https(
    trusted: &Authority,
    own: Option<&Papers>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(trusted.pem().as_bytes()).expect("a certificate"))
        .expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("versions");
    let builder = builder.with_root_certificates(roots);
    Arc::new(match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let chain = vec![
                CertificateDer::from_pem_slice(own.certificate.as_bytes()).expect("a certificate"),
            ];
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).expect("a key");
            builder.with_client_auth_cert(chain, key).expect("papers")
        }
    })
}

/// Opens a connection over TLS.
pub(crate) async fn connect(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    tokio_rustls::TlsConnector::from(Arc::clone(config)).connect(name, socket).await
}

/// An answer over HTTP/1.1: its status, and its head in lower case.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The value of a header that is there once.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values =
            self.head.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let value = values.next();
        assert_eq!(values.next(), None, "{name} twice in {}", self.head);
        value
    }
}

/// Sends a request over an open connection and reads its answer, which says its length. The
/// connection stays open.
pub(crate) async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request_line: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<Answer> {
    let mut text =
        format!("{request_line} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n", body.len());
    headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    stream.write_all(&[text.as_bytes(), b"\r\n", body].concat()).await?;
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let mut body = bytes.split_off(end + 4);
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
        .unwrap_or(0);
    while body.len() < length && stream.read_buf(&mut body).await? > 0 {}
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Ok(Answer { status, head, body })
}

pub(crate) const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");

/// Exports a span; the answer's status.
pub(crate) async fn export(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> std::io::Result<u16> {
    Ok(ask(stream, "POST /v1/traces", &[PROTOBUF], &encoded(1)).await?.status)
}

/// As the kubelet does it: a new link beside the old one, renamed over it.
pub(crate) fn exchange_symlink(folder: &Path, target: &str) {
    std::os::unix::fs::symlink(target, folder.join("..data_tmp")).expect("a symlink");
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).expect("a rename");
}
