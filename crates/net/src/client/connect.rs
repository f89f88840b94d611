//! One connection: name → addresses → TCP or Unix socket → (proxy) → (TLS).

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::endpoint::Target;
use super::error::{TransportError, rustls_reason};
use super::proxy::{self, Proxy};
use super::resolve::{Resolve, SystemResolver};
use crate::tls::ClientTls;

/// The kernel probes a silent peer after this time, so that a vanished one is noticed without
/// HTTP/2 pings, too.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// A byte stream to a peer.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}
pub type BoxIo = Box<dyn Io>;

/// Where TLS settings come from. Asked for every new connection, so that rotated certificates are
/// used.
pub trait TlsSettings: Send + Sync + 'static {
    /// The settings as the files are now. The same `Arc` as long as nothing changed.
    fn current(&self) -> Result<Arc<rustls::ClientConfig>, String>;
}

impl TlsSettings for Arc<rustls::ClientConfig> {
    fn current(&self) -> Result<Arc<rustls::ClientConfig>, String> {
        Ok(self.clone())
    }
}

impl TlsSettings for ClientTls {
    fn current(&self) -> Result<Arc<rustls::ClientConfig>, String> {
        Ok(ClientTls::current(self))
    }
}

/// One address to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(formatter),
            Address::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// How connections to one target are made.
#[derive(Clone)]
pub struct ConnectOptions {
    /// For each address: TCP, proxy and TLS handshake together.
    pub connect_timeout: Duration,
    pub tls: Option<Arc<dyn TlsSettings>>,
    /// The name that the certificate must bear, where it is not the target's host.
    pub server_name: Option<String>,
    pub resolver: Arc<dyn Resolve>,
    pub proxy: Option<Proxy>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            connect_timeout: Duration::from_secs(5),
            tls: None,
            server_name: None,
            resolver: Arc::new(SystemResolver),
            proxy: None,
        }
    }
}

pub(crate) struct Connected {
    pub(crate) io: BoxIo,
    /// The peer chose HTTP/2 in the TLS handshake.
    pub(crate) alpn_h2: bool,
}

pub(crate) struct Connector {
    target: Target,
    options: ConnectOptions,
    alpn: &'static [&'static [u8]],
    /// The settings last used, before and after our ALPN was put in.
    with_alpn: Mutex<Option<(Arc<rustls::ClientConfig>, Arc<rustls::ClientConfig>)>>,
}

impl Connector {
    pub(crate) fn new(
        target: Target,
        options: ConnectOptions,
        alpn: &'static [&'static [u8]],
    ) -> Connector {
        Connector { target, options, alpn, with_alpn: Mutex::new(None) }
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    pub(crate) fn uses_tls(&self) -> bool {
        self.options.tls.is_some()
    }

    /// True where the name may point elsewhere tomorrow.
    pub(crate) fn resolves(&self) -> bool {
        let target = self.options.proxy.as_ref().map_or(&self.target, |proxy| &proxy.target);
        matches!(target, Target::Host { .. }) && target.ip().is_none()
    }

    /// The addresses of the target, or of the proxy on the way to it.
    pub(crate) async fn addresses(&self) -> Result<Vec<Address>, TransportError> {
        let target = self.options.proxy.as_ref().map_or(&self.target, |proxy| &proxy.target);
        match target {
            Target::Unix(path) => Ok(vec![Address::Unix(path.clone())]),
            Target::Host { host, port } => {
                if let Some(ip) = target.ip() {
                    return Ok(vec![Address::Tcp(SocketAddr::new(ip, *port))]);
                }
                let found = self.options.resolver.resolve(host, *port).await?;
                Ok(found
                    .into_iter()
                    .take(super::resolve::ADDRESSES_LIMIT)
                    .map(Address::Tcp)
                    .collect())
            }
        }
    }

    /// Connects to the first of the addresses that works.
    pub(crate) async fn connect_any(
        &self,
        addresses: Vec<Address>,
    ) -> Result<(Connected, Address), TransportError> {
        let mut failure = TransportError::Resolve {
            host: self.target.to_string(),
            reason: "no addresses".to_owned(),
        };
        for address in addresses {
            match self.connect(&address).await {
                Ok(connected) => return Ok((connected, address)),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn connect(&self, address: &Address) -> Result<Connected, TransportError> {
        let timeout = self.options.connect_timeout;
        match tokio::time::timeout(timeout, self.connect_untimed(address)).await {
            Ok(result) => result,
            Err(_) => Err(TransportError::ConnectTimeout { address: address.to_string(), timeout }),
        }
    }

    async fn connect_untimed(&self, address: &Address) -> Result<Connected, TransportError> {
        let mut io = open(address).await.map_err(|error| TransportError::Connect {
            address: address.to_string(),
            reason: error.to_string(),
        })?;
        if let Some(proxy) = &self.options.proxy {
            io = proxy::tunnel(io, proxy, &self.target).await?;
        }
        match &self.options.tls {
            None => Ok(Connected { io, alpn_h2: false }),
            Some(settings) => self.handshake(io, address, settings.as_ref()).await,
        }
    }

    async fn handshake(
        &self,
        io: BoxIo,
        address: &Address,
        settings: &dyn TlsSettings,
    ) -> Result<Connected, TransportError> {
        let config = self.config(settings)?;
        let name = self.options.server_name.as_deref().unwrap_or(self.target.server_name());
        let name =
            ServerName::try_from(name.to_owned()).map_err(|_| TransportError::TlsSettings {
                reason: format!("{name:?} is neither a host name nor an address"),
            })?;
        let stream =
            TlsConnector::from(config).connect(name, io).await.map_err(
                |error| match rustls_reason(&error) {
                    Some(reason) => TransportError::Tls {
                        address: format!("{} ({address})", self.target),
                        reason,
                    },
                    None => TransportError::Connect {
                        address: address.to_string(),
                        reason: format!("the connection ended in the TLS handshake: {error}"),
                    },
                },
            )?;
        let alpn_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Connected { io: Box::new(stream), alpn_h2 })
    }

    fn config(
        &self,
        settings: &dyn TlsSettings,
    ) -> Result<Arc<rustls::ClientConfig>, TransportError> {
        let source = settings.current().map_err(|reason| TransportError::TlsSettings { reason })?;
        let mut cached = self.with_alpn.lock();
        if let Some((seen, config)) = cached.as_ref()
            && Arc::ptr_eq(seen, &source)
        {
            return Ok(config.clone());
        }
        let mut config = (*source).clone();
        config.alpn_protocols = self.alpn.iter().map(|protocol| protocol.to_vec()).collect();
        let config = Arc::new(config);
        *cached = Some((source, config.clone()));
        Ok(config)
    }
}

async fn open(address: &Address) -> std::io::Result<BoxIo> {
    match address {
        Address::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        Address::Tcp(address) => {
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
