//! Listening addresses, and the connections that come in there.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UdpSocket, UnixListener, UnixStream};
use tokio_util::either::Either;

use super::datagrams;
use super::transport::Socket;
use crate::tls::TlsOptions;

/// Connections that wait in the kernel until they are accepted: a burst of them is accepted over
/// some time, and one too many would try again only after a second.
const BACKLOG: u32 = 4096;
/// Pause between probes of a TCP peer, as in Go; after nine without an answer it is gone.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Mode of a Unix socket: its owner and its group may connect. It does not depend on the umask.
const SOCKET_MODE: u32 = 0o660;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `host:port`; no host and `0.0.0.0` mean all interfaces, port 0 a free one.
    Tcp(String, Family),
    Unix(PathBuf),
    /// As `Tcp`, of both families, for datagrams.
    Udp(String),
}

/// The addresses of a host that are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Any,
    V4,
    V6,
}

impl Family {
    pub fn has(self, ip: IpAddr) -> bool {
        match self {
            Family::Any => true,
            Family::V4 => ip.is_ipv4(),
            Family::V6 => ip.is_ipv6(),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Family::Any => "IP",
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address, _) | Address::Udp(address) => formatter.write_str(address),
            Address::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// An address that a component listens on, for checks and `sluice plan`.
#[derive(Clone, Copy)]
pub struct Listening<'a> {
    pub protocol: &'static str,
    /// The options in which the address stands, from the outermost.
    pub path: &'static [&'static str],
    pub address: &'a Address,
    pub tls: Option<&'a TlsOptions>,
    pub authenticator: Option<&'a str>,
    /// The limit on a request, and its option beside the address.
    pub request_limit: (&'static str, usize),
}

impl<'a> Listening<'a> {
    /// The path of an option beside the address.
    pub fn beside_address(&self, option: &'a str) -> Vec<&'a str> {
        let (_, section) = self.path.split_last().unwrap_or((&"", &[]));
        section.iter().copied().chain([option]).collect()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("`{address}` is not an address to listen on: use host:port, [ipv6]:port or :port")]
    Malformed { address: String },
    #[error(
        "cannot listen on {address}: another process listens there already (is a second instance \
         or a Collector running?)"
    )]
    InUse { address: String },
    /// As `InUse`, and one of the `held` listeners has that port on another interface: there may be
    /// room when it is closed.
    #[error("cannot listen on {address}: the listener that it replaces has the port still")]
    Held { address: String },
    #[error(
        "cannot listen on {address}: its host has no {family} address; name one that has, or \
         write `transport: tcp`"
    )]
    OtherFamily { address: String, family: Family },
    #[error("cannot listen on {address}: {reason}")]
    Other { address: String, reason: String },
}

impl BindError {
    fn new(address: &Address, error: &io::Error) -> Self {
        let address = address.to_string();
        let reason = match error.kind() {
            io::ErrorKind::AddrInUse => return BindError::InUse { address },
            io::ErrorKind::AddrNotAvailable => {
                "no interface of this machine has that address".to_owned()
            }
            io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => error.to_string(),
        };
        BindError::Other { address, reason }
    }
}

enum Inner {
    Tcp(TcpListener),
    /// The path is removed when the listener is dropped.
    Unix(UnixListener, PathBuf),
    Udp(UdpSocket),
}

/// A bound address. It is open until the last clone is dropped, so that one server can take it over
/// from another without a moment in which the port is closed.
#[derive(Clone)]
pub struct Listener(Arc<Inner>);

impl Listener {
    pub async fn bind(address: &Address) -> Result<Self, BindError> {
        Listener::bind_or_take_over(address, &[]).await
    }

    /// Binds the address, or shares the one of `held` that has it already.
    pub async fn bind_or_take_over(
        address: &Address,
        held: &[Listener],
    ) -> Result<Self, BindError> {
        let path = match address {
            Address::Tcp(text, family) => {
                return bind_ip(address, text, *family, Open::Tcp, held).await;
            }
            Address::Udp(text) => {
                return bind_ip(address, text, Family::Any, Open::Udp, held).await;
            }
            Address::Unix(path) => path,
        };
        let has_path = |own: &&Listener| matches!(&*own.0, Inner::Unix(_, own) if own == path);
        if let Some(own) = held.iter().find(has_path) {
            return Ok(own.clone());
        }
        let listener = bind_unix(path).await.map_err(|error| BindError::new(address, &error))?;
        Ok(Listener(Arc::new(Inner::Unix(listener, path.clone()))))
    }

    /// True if it is bound to this address, and to as many families.
    fn has_address(&self, open: Open, address: SocketAddr, only_v6: bool) -> bool {
        let socket = match (&*self.0, open) {
            (Inner::Tcp(listener), Open::Tcp) => socket2::SockRef::from(listener),
            (Inner::Udp(socket), Open::Udp) => socket2::SockRef::from(socket),
            _ => return false,
        };
        self.local_address().is_some_and(|own| own == address)
            && (address.is_ipv4() || socket.only_v6().unwrap_or(true) == only_v6)
    }

    /// The socket of an address for datagrams.
    pub fn datagrams(&self) -> Option<&UdpSocket> {
        if let Inner::Udp(socket) = &*self.0 { Some(socket) } else { None }
    }

    /// The address as it is now, with its real port. `None` for a Unix socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match &*self.0 {
            Inner::Tcp(listener) => listener.local_addr().ok(),
            Inner::Udp(socket) => socket.local_addr().ok(),
            Inner::Unix(..) => None,
        }
    }

    /// The next connection, and its peer's address if it has one.
    pub(super) async fn accept(&self) -> io::Result<(Socket, Option<SocketAddr>)> {
        match &*self.0 {
            Inner::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // A small answer must not wait for the acknowledgement of the one before.
                let _ = stream.set_nodelay(true);
                let address = SocketAddr::new(address.ip().to_canonical(), address.port());
                Ok((Either::Left(stream), Some(address)))
            }
            Inner::Unix(listener, _) => Ok((Either::Right(listener.accept().await?.0), None)),
            // Datagrams have no connections.
            Inner::Udp(_) => std::future::pending().await,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Inner::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[derive(Clone, Copy)]
enum Open {
    Tcp,
    Udp,
}

async fn bind_ip(
    address: &Address,
    text: &str,
    family: Family,
    open: Open,
    held: &[Listener],
) -> Result<Listener, BindError> {
    let malformed = || BindError::Malformed { address: text.to_owned() };
    let (host, port) = text.rsplit_once(':').ok_or_else(malformed)?;
    let port: u16 = port.parse().map_err(|_| malformed())?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    // `0.0.0.0` means all interfaces of both families, as in Go, if none is asked for.
    let is_any = family == Family::Any && host.parse() == Ok(Ipv4Addr::UNSPECIFIED);
    let mut candidates: Vec<SocketAddr> = if host.is_empty() || is_any {
        // One socket takes both where the machine has IPv6.
        vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
    } else {
        let resolved = tokio::net::lookup_host((host, port)).await;
        let mut resolved: Vec<_> =
            resolved.map_err(|error| BindError::new(address, &error))?.collect();
        // `localhost` means 127.0.0.1 to most clients.
        resolved.sort_by_key(SocketAddr::is_ipv6);
        resolved
    };
    candidates.retain(|candidate| family.has(candidate.ip()));
    if candidates.is_empty() {
        return Err(BindError::OtherFamily { address: address.to_string(), family });
    }
    let mut refused = None;
    for candidate in candidates {
        let only_v6 = family == Family::V6 || !candidate.ip().is_unspecified();
        if let Some(own) = held.iter().find(|own| own.has_address(open, candidate, only_v6)) {
            return Ok(own.clone());
        }
        let opened = match open {
            Open::Tcp => listen(candidate, only_v6).map(Inner::Tcp),
            Open::Udp => datagrams::open(candidate, only_v6).map(Inner::Udp),
        };
        match opened {
            Ok(inner) => return Ok(Listener(Arc::new(inner))),
            // The next candidate would be another socket than the one that was meant.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let mut held = held.iter().filter_map(Listener::local_address);
                return Err(if held.any(|own| own.port() == port) {
                    BindError::Held { address: address.to_string() }
                } else {
                    BindError::new(address, &error)
                });
            }
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.map_or_else(malformed, |error| BindError::new(address, &error)))
}

fn listen(address: SocketAddr, only_v6: bool) -> io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for old connections to time out.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    // Connections inherit it; HTTP/1 has no other way to notice a peer that vanished.
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG as i32)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}

/// A socket file on which no process listens is left over from a crash, and replaced.
async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match listen_unix(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let metadata = std::fs::symlink_metadata(path);
            let is_socket = metadata.is_ok_and(|metadata| metadata.file_type().is_socket());
            // Any other error comes from a process that is busy, or of another user.
            let is_refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            if !is_socket || !UnixStream::connect(path).await.is_err_and(is_refused) {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            listen_unix(path)
        }
        result => result,
    }
}

/// Before `listen` the kernel refuses every peer: none connects while the mode is another.
fn listen_unix(path: &Path) -> io::Result<UnixListener> {
    use socket2::{Domain, SockAddr, Socket, Type};
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let listening = set_socket_mode(path).and_then(|()| {
        socket.listen(BACKLOG as i32)?;
        socket.set_nonblocking(true)?;
        UnixListener::from_std(socket.into())
    });
    listening.inspect_err(|_| {
        let _ = std::fs::remove_file(path);
    })
}

/// Follows no link: any user that may write to the directory could put one in the socket's place.
fn set_socket_mode(path: &Path) -> io::Result<()> {
    use rustix::fs::{FileType, Mode, OFlags, fstat, open};
    let file = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::Socket {
        return Err(io::Error::other("the socket's file was replaced by another"));
    }
    let file = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(SOCKET_MODE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(address: &str) -> Address {
        Address::Tcp(address.to_owned(), Family::Any)
    }

    /// Guarantee: the address of a held listener is taken over, also under another of its names; it
    /// stays open until both are dropped.
    #[tokio::test]
    async fn an_address_that_is_held_is_taken_over() {
        let first = Listener::bind(&tcp("127.0.0.1:0")).await.expect("is bound");
        let port = first.local_address().expect("is TCP").port();
        let held = [first];
        let second = Listener::bind_or_take_over(&tcp(&format!("localhost:{port}")), &held)
            .await
            .expect("is shared");
        assert_eq!(second.local_address(), held[0].local_address());
        let weak = Arc::downgrade(&second.0);
        drop(held);
        let address = tcp(&format!("127.0.0.1:{port}"));
        assert!(matches!(Listener::bind(&address).await, Err(BindError::InUse { .. })));
        drop(second);
        assert!(weak.upgrade().is_none());
        Listener::bind(&address).await.expect("is free");
    }

    /// Guarantee: another process's port is in use; a port of a held listener on another interface
    /// is told apart.
    #[tokio::test]
    async fn a_port_that_is_held_on_another_interface_is_told_apart() {
        let held = [Listener::bind(&tcp("127.0.0.1:0")).await.expect("is bound")];
        let all = tcp(&format!("0.0.0.0:{}", held[0].local_address().expect("is TCP").port()));
        assert!(matches!(Listener::bind(&all).await, Err(BindError::InUse { .. })));
        assert!(matches!(
            Listener::bind_or_take_over(&all, &held).await,
            Err(BindError::Held { .. })
        ));
    }

    /// Guarantee: with a family only its addresses are listened on, also if the host has other ones
    /// or none is named; a host without any gets an error that says so.
    #[tokio::test]
    async fn a_family_is_kept_to() {
        let of = |text: &str, family| Address::Tcp(text.to_owned(), family);
        let reaches = async |host: &str, listener: &Listener| {
            let port = listener.local_address().expect("is TCP").port();
            tokio::net::TcpStream::connect((host, port)).await.is_ok()
        };
        for (text, family, is_on_v4, is_on_v6) in [
            (":0", Family::Any, true, true),
            (":0", Family::V4, true, false),
            (":0", Family::V6, false, true),
            ("0.0.0.0:0", Family::Any, true, true),
            ("0.0.0.0:0", Family::V4, true, false),
            ("[::]:0", Family::Any, true, true),
            ("[::]:0", Family::V6, false, true),
            ("localhost:0", Family::V4, true, false),
        ] {
            let listener = Listener::bind(&of(text, family)).await.expect("is bound");
            let reached = (reaches("127.0.0.1", &listener).await, reaches("::1", &listener).await);
            assert_eq!(reached, (is_on_v4, is_on_v6), "{text} {family}");
        }
        for (text, family) in [
            ("127.0.0.1:0", Family::V6),
            ("0.0.0.0:0", Family::V6),
            ("[::1]:0", Family::V4),
            ("[::]:0", Family::V4),
        ] {
            let error = Listener::bind(&of(text, family)).await.err().expect("has no such address");
            assert!(
                matches!(error, BindError::OtherFamily { .. })
                    && error.to_string().contains("transport"),
                "{error}"
            );
        }
        // Whether `localhost` has an IPv6 address is the machine's business.
        match Listener::bind(&of("localhost:0", Family::V6)).await {
            Ok(listener) => {
                assert!(listener.local_address().is_some_and(|address| address.is_ipv6()))
            }
            Err(error) => assert!(matches!(error, BindError::OtherFamily { .. }), "{error}"),
        }
    }

    /// Scenario: the family of an address without a host changes. Guarantee: the socket that takes
    /// both is not taken over.
    #[tokio::test]
    async fn a_listener_for_both_families_is_none_for_one() {
        let both = Listener::bind(&tcp(":0")).await.expect("is bound");
        let text = format!(":{}", both.local_address().expect("is TCP").port());
        let held = [both];
        for family in [Family::V4, Family::V6] {
            let bound =
                Listener::bind_or_take_over(&Address::Tcp(text.clone(), family), &held).await;
            assert!(matches!(bound, Err(BindError::Held { .. })), "{family}");
        }
        assert!(Listener::bind_or_take_over(&tcp(&text), &held).await.is_ok());
    }

    /// Guarantee: owner and group may connect to a Unix socket, other users may not, whatever the
    /// umask; also where it replaces one that a crash has left, with another mode.
    #[tokio::test]
    async fn other_users_cannot_connect_to_a_unix_socket() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let left = std::os::unix::net::UnixListener::bind(&path).expect("is bound");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("is set");
        drop(left);
        let listener = Listener::bind(&Address::Unix(path.clone())).await.expect("is bound");
        let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o7777, 0o660, "{mode:o}");
        let (accepted, connected) = tokio::join!(listener.accept(), UnixStream::connect(&path));
        assert!(accepted.is_ok() && connected.is_ok());
    }

    /// Scenario: another process took the place of a socket by a link to a file of ours.
    #[test]
    fn the_mode_of_no_other_file_is_changed() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        std::fs::write(&file, "secret").expect("is written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("is set");
        std::os::unix::fs::symlink(&file, &link).expect("is linked");
        assert!(set_socket_mode(&link).is_err() && set_socket_mode(&file).is_err());
        let mode = std::fs::metadata(&file).expect("a file").permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{mode:o}");
    }

    /// Scenario: the queue of connections of the process that listens is full. Guarantee: its
    /// socket is not taken for one that a crash has left.
    #[tokio::test]
    async fn a_unix_socket_whose_process_is_busy_is_in_use() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let busy = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
        let busy = busy.expect("a socket");
        busy.bind(&socket2::SockAddr::unix(&path).expect("an address")).expect("is bound");
        busy.listen(0).expect("listens");
        let _waiting = UnixStream::connect(&path).await.expect("waits to be accepted");
        assert!(UnixStream::connect(&path).await.is_err(), "the queue is full");
        let bound = Listener::bind(&Address::Unix(path.clone())).await;
        assert!(matches!(bound, Err(BindError::InUse { .. })));
        assert!(path.exists());
    }

    #[tokio::test]
    async fn the_file_of_a_unix_socket_goes_with_its_last_owner() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let address = Address::Unix(path.clone());
        let held = [Listener::bind(&address).await.expect("is bound")];
        let second = Listener::bind_or_take_over(&address, &held).await.expect("is shared");
        drop(held);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }
}
