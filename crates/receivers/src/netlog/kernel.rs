//! Datagrams that the kernel has dropped, because its buffer for a socket was full.

use std::fs;
use std::net::SocketAddr;

/// The sum over the sockets of this port. `None`: the kernel does not say.
pub(super) fn dropped_datagrams(address: SocketAddr) -> Option<u64> {
    let file = if address.is_ipv4() { "/proc/net/udp" } else { "/proc/net/udp6" };
    dropped(&fs::read_to_string(file).ok()?, address.port())
}

/// Of a table as `/proc/net/udp`: the last column of the lines whose local port it is.
fn dropped(table: &str, port: u16) -> Option<u64> {
    let of_port = |line: &str| {
        let mut words = line.split_whitespace();
        let local = words.nth(1)?.rsplit_once(':')?.1;
        let is_it = u16::from_str_radix(local, 16) == Ok(port);
        if is_it { words.next_back()?.parse::<u64>().ok() } else { None }
    };
    let counts: Vec<u64> = table.lines().skip(1).filter_map(of_port).collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drops_of_a_port_are_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   \
                     uid  timeout inode ref pointer drops\n\
                     9: 0100007F:0202 00000000:0000 07 00000000:00000000 00:00000000 00000000     \
                     0        0 18 2 0000000000000000 17\n\
                     12: 00000000:0203 00000000:0000 07 00000000:00000000 00:00000000 00000000     \
                     0        0 19 2 0000000000000000 5\n";
        assert_eq!(dropped(table, 514), Some(17));
        assert_eq!(dropped(table, 516), None);
        assert_eq!(dropped("", 514), None);
    }

    #[test]
    fn the_kernel_says_what_it_has_dropped() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("is bound");
        let address = socket.local_addr().expect("has one");
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("is bound");
        assert_eq!(dropped_datagrams(address), Some(0));
        for _ in 0..10_000 {
            sender.send_to(&[b'x'; 1000], address).expect("is sent");
        }
        assert!(dropped_datagrams(address).is_some_and(|count| count > 0));
    }
}
