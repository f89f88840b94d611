//! Attributes that say where a record came from: `net.*`, as the Collector adds them.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluice_otlp::AnyValue;

pub(super) type Attributes = Vec<(String, AnyValue)>;

/// The names of hosts are read again after this time.
const NAMES_INTERVAL: Duration = Duration::from_secs(300);
/// A longer file is not read.
const HOSTS_MAX_BYTES: u64 = 1 << 20;

/// The names of addresses in `/etc/hosts`.
#[derive(Default)]
pub(super) struct Names(Mutex<Option<(Instant, HashMap<IpAddr, String>)>>);

impl Names {
    /// The name of an address; the address itself if the file has none.
    fn of(&self, ip: IpAddr) -> String {
        let (mut known, now) = (self.0.lock(), Instant::now());
        if known.as_ref().is_none_or(|(read_at, _)| now - *read_at >= NAMES_INTERVAL) {
            let path = "/etc/hosts";
            let is_short = fs::metadata(path).is_ok_and(|it| it.len() <= HOSTS_MAX_BYTES);
            let text = if is_short { fs::read_to_string(path) } else { Ok(String::new()) };
            *known = Some((now, names(&text.unwrap_or_default())));
        }
        let name = known.as_ref().and_then(|(_, names)| names.get(&ip));
        name.cloned().unwrap_or_else(|| ip.to_string())
    }

    /// Sets the attributes of a peer and of our own address. `transport`: `IP.TCP` or `IP.UDP`.
    pub(super) fn set(
        &self,
        attributes: &mut Attributes,
        transport: &str,
        peer: Option<SocketAddr>,
        own: Option<SocketAddr>,
    ) {
        let mut set = |key: &str, value: String| {
            attributes.retain(|(known, _)| known != key);
            attributes.push((key.to_owned(), AnyValue::String(value)));
        };
        set("net.transport", transport.to_owned());
        for (side, address) in [("peer", peer), ("host", own)] {
            let Some(address) = address else { continue };
            set(&format!("net.{side}.ip"), address.ip().to_string());
            set(&format!("net.{side}.port"), address.port().to_string());
            set(&format!("net.{side}.name"), self.of(address.ip()));
        }
    }
}

/// The first name of each address.
fn names(hosts: &str) -> HashMap<IpAddr, String> {
    let mut names = HashMap::new();
    for line in hosts.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        if let (Some(ip), Some(name)) = (words.next().and_then(|it| it.parse().ok()), words.next())
        {
            names.entry(ip).or_insert_with(|| name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_say_where_they_came_from() {
        let names = Names(Mutex::new(Some((Instant::now(), names("10.0.0.1 a.example a # b\n")))));
        let peer = Some("10.0.0.1:5000".parse().expect("is an address"));
        let own = Some("[::1]:514".parse().expect("is an address"));
        let mut found = vec![("net.transport".to_owned(), AnyValue::String("mine".to_owned()))];
        names.set(&mut found, "IP.TCP", peer, own);
        let expected = [
            ("net.transport", "IP.TCP"),
            ("net.peer.ip", "10.0.0.1"),
            ("net.peer.port", "5000"),
            ("net.peer.name", "a.example"),
            ("net.host.ip", "::1"),
            ("net.host.port", "514"),
            ("net.host.name", "::1"),
        ];
        let text =
            |(key, value): (&str, &str)| (key.to_owned(), AnyValue::String(value.to_owned()));
        assert_eq!(found, expected.map(text));
    }
}
