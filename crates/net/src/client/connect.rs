//! One connection: name → addresses → TCP or Unix socket → (proxy) → (TLS).

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::endpoint::{Origin, Target};
use super::error::{Result, TransportError, rustls_reason};
use super::proxy::{self, Proxy};
use super::resolve::{ADDRESSES_LIMIT, Resolve, SystemResolver};
use crate::tls::{ClientTls, ClientTlsOptions};

/// The kernel probes a silent peer after this time: a vanished one is noticed without pings.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// A byte stream to a peer.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}
pub(crate) type BoxIo = Box<dyn Io>;

/// One address to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PeerAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Tcp(address) => address.fmt(formatter),
            PeerAddress::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// Options for connections to one target.
#[derive(Clone)]
pub struct ConnectOptions {
    /// For each address: TCP, proxy and TLS handshake together.
    pub connect_timeout: Duration,
    pub tls: Option<ClientTls>,
    pub resolver: Arc<dyn Resolve>,
    pub proxy: Option<Proxy>,
}

impl ConnectOptions {
    /// To `origin`, through the proxy that the environment names. Reads the certificates of `tls`.
    pub fn to(
        origin: &Origin,
        tls: &ClientTlsOptions,
        connect_timeout: Duration,
    ) -> Result<ConnectOptions, String> {
        let mut connect = ConnectOptions { connect_timeout, ..ConnectOptions::default() };
        let proxy = Proxy::from_environment(&origin.target, origin.tls);
        connect.secure(origin.tls.then_some(tls), proxy)?;
        Ok(connect)
    }

    /// With this TLS, or without, and through this proxy. Reads the certificates of `tls`.
    pub fn secure(
        &mut self,
        tls: Option<&ClientTlsOptions>,
        proxy: Result<Option<Proxy>, String>,
    ) -> Result<(), String> {
        self.proxy = proxy.map_err(|reason| format!("the proxy cannot be used: {reason}"))?;
        let tls = tls.cloned().map(ClientTls::new).transpose();
        self.tls = tls.map_err(|error| format!("tls: {error}"))?;
        Ok(())
    }
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            connect_timeout: Duration::from_secs(5),
            tls: None,
            resolver: Arc::new(SystemResolver),
            proxy: None,
        }
    }
}

/// A connection that is open, and the address that it leads to.
pub(crate) struct Connected {
    pub(crate) io: BoxIo,
    pub(crate) address: PeerAddress,
    /// The peer chose HTTP/2 in the TLS handshake.
    pub(crate) alpn_h2: bool,
}

pub(crate) struct Connector {
    pub(crate) target: Target,
    pub(crate) options: ConnectOptions,
    pub(crate) alpn: &'static [&'static [u8]],
}

impl Connector {
    /// The target, or the proxy on the way to it.
    fn first_hop(&self) -> &Target {
        self.options.proxy.as_ref().map_or(&self.target, |proxy| &proxy.target)
    }

    /// True if the name may point elsewhere later.
    pub(crate) fn resolves(&self) -> bool {
        let target = self.first_hop();
        matches!(target, Target::Host { .. }) && target.ip().is_none()
    }

    /// The addresses of the target, or of the proxy on the way to it.
    pub(crate) async fn addresses(&self) -> Result<Vec<PeerAddress>> {
        let target = self.first_hop();
        let (host, port) = match target {
            Target::Unix(path) => return Ok(vec![PeerAddress::Unix(path.clone())]),
            Target::Host { host, port } => (host, *port),
        };
        if let Some(ip) = target.ip() {
            return Ok(vec![PeerAddress::Tcp(SocketAddr::new(ip, port))]);
        }
        let found = self.options.resolver.resolve(host, port).await?;
        Ok(found.into_iter().take(ADDRESSES_LIMIT).map(PeerAddress::Tcp).collect())
    }

    /// Connects to the first of the addresses that works.
    pub(crate) async fn connect_any(&self, addresses: Vec<PeerAddress>) -> Result<Connected> {
        let limit = self.options.connect_timeout;
        let mut failure = TransportError::Resolve {
            host: self.target.to_string(),
            reason: "no addresses".to_owned(),
        };
        for address in addresses {
            let connected = timeout(limit, self.connect(&address)).await.unwrap_or_else(|_| {
                Err(TransportError::ConnectTimeout { address: address.to_string(), timeout: limit })
            });
            match connected {
                Ok((io, alpn_h2)) => return Ok(Connected { io, address, alpn_h2 }),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// The byte stream, and whether the peer chose HTTP/2.
    async fn connect(&self, address: &PeerAddress) -> Result<(BoxIo, bool)> {
        let failed =
            |reason: String| TransportError::Connect { address: address.to_string(), reason };
        let mut io = open(address).await.map_err(|error| failed(error.to_string()))?;
        if let Some(proxy) = &self.options.proxy {
            io = proxy::tunnel(io, proxy, &self.target).await?;
        }
        let Some(tls) = &self.options.tls else { return Ok((io, false)) };
        let name = tls.server_name.as_deref().unwrap_or(self.target.server_name());
        let name =
            ServerName::try_from(name.to_owned()).map_err(|_| TransportError::TlsSettings {
                reason: format!("{name:?} is neither a host name nor an address"),
            })?;
        let handshake = TlsConnector::from(tls.current(self.alpn)).connect(name, io).await;
        let stream = handshake.map_err(|error| match rustls_reason(&error) {
            Some(reason) => {
                TransportError::Tls { address: format!("{} ({address})", self.target), reason }
            }
            None => failed(format!("the connection ended in the TLS handshake: {error}")),
        })?;
        let alpn_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((Box::new(stream), alpn_h2))
    }
}

async fn open(address: &PeerAddress) -> std::io::Result<BoxIo> {
    match address {
        PeerAddress::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        PeerAddress::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let keepalive =
                TcpKeepalive::new().with_time(TCP_KEEPALIVE).with_interval(TCP_KEEPALIVE / 3);
            // Only an aid: a socket that cannot have it works as well.
            let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
            Ok(Box::new(stream))
        }
    }
}
