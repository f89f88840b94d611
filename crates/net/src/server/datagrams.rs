//! Sockets for datagrams.

use std::io;
use std::net::SocketAddr;

use tokio::net::UdpSocket;

/// Datagrams that wait in the kernel, if it allows as many.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

pub(super) fn open(address: SocketAddr, only_v6: bool) -> io::Result<UdpSocket> {
    use rustix::net::sockopt::set_socket_recv_buffer_size_force;
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    // Beyond `net.core.rmem_max` only with CAP_NET_ADMIN.
    if set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES).is_err() {
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
    }
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use crate::server::{Address, BindError, Family, Listener};

    /// Guarantee: a socket for datagrams is taken over, and is apart from the port of TCP.
    #[tokio::test]
    async fn a_socket_for_datagrams_is_taken_over() {
        let first = Listener::bind(&Address::Udp("127.0.0.1:0".to_owned())).await.expect("bound");
        let port = first.local_address().expect("has one").port();
        let held = [first];
        let address = Address::Udp(format!("localhost:{port}"));
        let second = Listener::bind_or_take_over(&address, &held).await.expect("is shared");
        assert!(second.local_address() == held[0].local_address() && second.datagrams().is_some());
        let in_use = Listener::bind(&address).await;
        assert!(matches!(in_use, Err(BindError::InUse { .. })));
        let tcp = Address::Tcp(format!("127.0.0.1:{port}"), Family::Any);
        let tcp = Listener::bind_or_take_over(&tcp, &held).await;
        assert!(tcp.expect("is another port").datagrams().is_none());
    }
}
