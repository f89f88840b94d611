//! Where connections come in.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, UnixListener, UnixStream};

use super::Peer;
use super::transport::Socket;

/// Connections that the kernel holds until they are accepted.
const BACKLOG: u32 = 1024;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `host:port`; no host means all interfaces, port 0 a free one.
    Tcp(String),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => formatter.write_str(address),
            Address::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// Why nobody can listen there.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("`{address}` is not an address to listen on: use host:port, [ipv6]:port or :port")]
    Malformed { address: String },
    #[error(
        "cannot listen on {address}: another process listens there already (is a second instance or a Collector running?)"
    )]
    InUse { address: String },
    #[error("cannot listen on {address}: no interface of this machine has that address")]
    NotLocal { address: String },
    #[error("cannot listen on {address}: permission denied")]
    Denied { address: String },
    #[error("cannot listen on {address}: {reason}")]
    Other { address: String, reason: String },
}

impl BindError {
    fn new(address: &Address, error: &io::Error) -> Self {
        let address = address.to_string();
        match error.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse { address },
            io::ErrorKind::AddrNotAvailable => BindError::NotLocal { address },
            io::ErrorKind::PermissionDenied => BindError::Denied { address },
            _ => BindError::Other { address, reason: error.to_string() },
        }
    }
}

enum Inner {
    Tcp(TcpListener),
    /// The path is removed when the listener is dropped.
    Unix(UnixListener, PathBuf),
}

/// A bound address.
pub struct Listener(Inner);

impl Listener {
    pub async fn bind(address: &Address) -> Result<Self, BindError> {
        match address {
            Address::Tcp(text) => bind_tcp(address, text).await.map(|listener| Listener(Inner::Tcp(listener))),
            Address::Unix(path) => {
                let listener = bind_unix(path).await.map_err(|error| BindError::new(address, &error))?;
                Ok(Listener(Inner::Unix(listener, path.clone())))
            }
        }
    }

    /// The address as it is now, with its real port. `None` for a Unix socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match &self.0 {
            Inner::Tcp(listener) => listener.local_addr().ok(),
            Inner::Unix(..) => None,
        }
    }

    pub(super) async fn accept(&self) -> io::Result<(Socket, Peer)> {
        match &self.0 {
            Inner::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // A small answer must not wait for the acknowledgement of the one before.
                let _ = stream.set_nodelay(true);
                let address = SocketAddr::new(address.ip().to_canonical(), address.port());
                Ok((Socket::Tcp(stream), Peer { address: Some(address), is_tls: false }))
            }
            Inner::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((Socket::Unix(stream), Peer { address: None, is_tls: false }))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Inner::Unix(_, path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

async fn bind_tcp(address: &Address, text: &str) -> Result<TcpListener, BindError> {
    let malformed = || BindError::Malformed { address: text.to_owned() };
    let (host, port) = text.rsplit_once(':').ok_or_else(malformed)?;
    let port: u16 = port.parse().map_err(|_| malformed())?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let mut candidates: Vec<SocketAddr> = if host.is_empty() {
        // One socket takes both where the machine has IPv6.
        vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
    } else {
        let resolved = tokio::net::lookup_host((host, port)).await;
        resolved.map_err(|error| BindError::new(address, &error))?.collect()
    };
    if !host.is_empty() {
        // `localhost` means 127.0.0.1 to most clients.
        candidates.sort_by_key(SocketAddr::is_ipv6);
    }
    let mut refused = None;
    for candidate in candidates {
        match listen(candidate) {
            Ok(listener) => return Ok(listener),
            // The next candidate would be another socket than the one that was meant.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(BindError::new(address, &error)),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.map_or_else(malformed, |error| BindError::new(address, &error)))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for old connections to time out.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG as i32)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}

/// A socket file that nobody answers at is left over from a crash and replaced.
async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let is_socket = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
            if !is_socket || UnixStream::connect(path).await.is_ok() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        result => result,
    }
}
