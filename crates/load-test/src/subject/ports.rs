//! Ports for subjects, which nothing else may take before the subject listens.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;

use parking_lot::Mutex;

/// Below Linux' own range (from 32768) and below Kubernetes' node ports (from 30000).
const RANGE: Range<u16> = 20_000..30_000;

/// UDP ports of the same numbers. While bound, they show other load tests which are given away.
static CLAIMS: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());

/// A free port of the loopback interface. While this process lives, no other call gives it away.
pub fn free_addr() -> io::Result<SocketAddr> {
    let count = RANGE.end - RANGE.start;
    // Processes that start together must not all try the same ones.
    let first = (RandomState::new().hash_one(std::process::id()) % u64::from(count)) as u16;
    let claim = |step| {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, RANGE.start + (first + step) % count));
        let claim = UdpSocket::bind(addr).ok()?;
        TcpListener::bind(addr).ok()?;
        CLAIMS.lock().push(claim);
        Some(addr)
    };
    (0..count).find_map(claim).ok_or(io::ErrorKind::AddrInUse.into())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_port_is_given_away_twice_or_while_a_process_listens_on_it() {
        let listeners: Vec<_> =
            (0..8).map(|_| TcpListener::bind(free_addr().unwrap()).unwrap()).collect();
        let mut seen: HashSet<_> =
            listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        for _ in 0..200 {
            assert!(seen.insert(free_addr().unwrap()));
        }
        assert!(seen.iter().all(|addr| RANGE.contains(&addr.port())));
    }
}
