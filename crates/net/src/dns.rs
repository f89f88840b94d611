//! Asks name servers for records that the system's resolver does not give.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use simple_dns::rdata::{OPT, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

use crate::reload::read_bounded;

/// For the answer of one server.
const TIMEOUT: Duration = Duration::from_secs(2);
const PORT: u16 = 53;
/// Answers over UDP have at most this size; longer ones are asked for over TCP.
const UDP_BYTES: u16 = 4096;
const SERVERS_LIMIT: usize = 8;
const SEARCH_LIMIT: usize = 32;

/// The type of records that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    A,
    Aaaa,
    Srv,
    Mx,
    Ns,
    Ptr,
}

/// A record of an answer. Hosts are without a dot at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Address(IpAddr),
    Service {
        host: String,
        port: u16,
    },
    Exchange(String),
    NameServer(String),
    /// The name of an address.
    Pointer(String),
}

/// An answer's records, and the name that the one asked for is an alias of, if it is one.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    alias_of: Option<String>,
    records: Vec<Record>,
}

/// Where and how names are looked up, as `resolv.conf` says.
#[derive(Debug, PartialEq, Eq)]
pub struct Resolver {
    pub servers: Vec<SocketAddr>,
    /// Domains that are tried behind a name.
    pub search: Vec<String>,
    /// A name with as many dots is tried alone first.
    pub dots: usize,
}

impl Resolver {
    /// Reads a file in the format of `resolv.conf`.
    ///
    /// # Errors
    /// It cannot be read, or names no server.
    pub fn read(path: &Path) -> Result<Resolver, String> {
        let text = read_bounded(path).map_err(|error| format!("it cannot be read: {error}"))?;
        let resolver = Resolver::parse(&String::from_utf8_lossy(&text));
        if resolver.servers.is_empty() {
            return Err("it names no server".to_owned());
        }
        Ok(resolver)
    }

    fn parse(text: &str) -> Resolver {
        let mut resolver = Resolver { servers: Vec::new(), search: Vec::new(), dots: 1 };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let ip = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    resolver.servers.extend(ip.map(|ip| SocketAddr::new(ip, PORT)));
                }
                Some("domain") => resolver.search = words.take(1).map(str::to_owned).collect(),
                Some("search") => {
                    resolver.search = words.take(SEARCH_LIMIT).map(str::to_owned).collect();
                }
                Some("options") => {
                    let dots = words.filter_map(|word| word.strip_prefix("ndots:")?.parse().ok());
                    resolver.dots = dots.fold(resolver.dots, |_, last: usize| last.min(15));
                }
                _ => {}
            }
        }
        resolver.servers.truncate(SERVERS_LIMIT);
        resolver
    }

    /// The records of a name; none if all servers say that it does not exist.
    ///
    /// # Errors
    /// No server can tell, the last reason.
    pub async fn look_up(&self, name: &str, record: RecordKind) -> Result<Vec<Record>, String> {
        let mut failure = None;
        for name in self.full_names(name) {
            match self.ask_any(&name, record).await {
                Ok(Some(found)) => return Ok(found.records),
                Ok(None) => {}
                Err(reason) => failure = Some(reason),
            }
        }
        failure.map_or(Ok(Vec::new()), Err)
    }

    /// The whole name of a host that has an address: with its domain, or the one that it is an
    /// alias of. Without a dot at the end.
    ///
    /// # Errors
    /// No server knows an address, the last reason.
    pub async fn canonical_name(&self, host: &str) -> Result<String, String> {
        let mut failure = "it has no address".to_owned();
        for name in self.full_names(host) {
            for record in [RecordKind::A, RecordKind::Aaaa] {
                match self.ask_any(&name, record).await {
                    Ok(Some(found)) if !found.records.is_empty() => {
                        let name = found.alias_of.unwrap_or(name);
                        return Ok(name.trim_end_matches('.').to_owned());
                    }
                    Ok(_) => {}
                    Err(reason) => failure = reason,
                }
            }
        }
        Err(failure)
    }

    /// The names of an address.
    ///
    /// # Errors
    /// No server can tell, the last reason.
    pub async fn names_of(&self, address: IpAddr) -> Result<Vec<String>, String> {
        let found = self.ask_any(&reverse_name(address), RecordKind::Ptr).await?;
        let name = |record| if let Record::Pointer(name) = record { Some(name) } else { None };
        Ok(found.unwrap_or_default().records.into_iter().filter_map(name).collect())
    }

    /// The names that a name may stand for, in the order in which they are tried.
    fn full_names(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.to_owned()];
        }
        let mut names: Vec<String> =
            self.search.iter().map(|domain| format!("{name}.{domain}")).collect();
        let has_dots = name.bytes().filter(|byte| *byte == b'.').count() >= self.dots;
        names.insert(if has_dots { 0 } else { names.len() }, name.to_owned());
        names
    }

    /// `None`: the name does not exist.
    async fn ask_any(&self, name: &str, record: RecordKind) -> Result<Option<Found>, String> {
        let mut failure = "there is no server".to_owned();
        for server in &self.servers {
            let asked = tokio::time::timeout(TIMEOUT, ask(*server, name, record)).await;
            match asked.unwrap_or_else(|_| Err(format!("no answer within {TIMEOUT:?}"))) {
                Ok(answer) => return Ok(answer),
                Err(reason) => failure = format!("{server}: {reason}"),
            }
        }
        Err(failure)
    }
}

/// The name whose pointers are the names of an address.
fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa.")
        }
        IpAddr::V6(address) => {
            let halves = address.octets().into_iter().rev();
            let digits = halves.flat_map(|byte| [byte & 15, byte >> 4]);
            digits.map(|digit| format!("{digit:x}.")).collect::<String>() + "ip6.arpa."
        }
    }
}

async fn ask(server: SocketAddr, name: &str, record: RecordKind) -> Result<Option<Found>, String> {
    let id = fastrand::u16(..);
    let query = query(id, name, record)?;
    let failed = |error: std::io::Error| error.to_string();
    let any = match server.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).await.map_err(failed)?;
    // Only what comes from this server is received then.
    socket.connect(server).await.map_err(failed)?;
    socket.send(&query).await.map_err(failed)?;
    let mut buffer = vec![0; usize::from(UDP_BYTES)];
    loop {
        let read = socket.recv(&mut buffer).await.map_err(failed)?;
        match understand(&buffer[..read], id, name, record) {
            Understood::Foreign => {}
            Understood::Truncated => break,
            Understood::Answer(answer) => return answer,
        }
    }
    let mut stream = TcpStream::connect(server).await.map_err(failed)?;
    let length = u16::try_from(query.len()).map_err(|error| error.to_string())?;
    stream.write_all(&[&length.to_be_bytes(), &query[..]].concat()).await.map_err(failed)?;
    let length = stream.read_u16().await.map_err(failed)?;
    let mut buffer = vec![0; usize::from(length)];
    stream.read_exact(&mut buffer).await.map_err(failed)?;
    match understand(&buffer, id, name, record) {
        Understood::Answer(answer) => answer,
        _ => Err("the answer over TCP is another one".to_owned()),
    }
}

fn query(id: u16, name: &str, record: RecordKind) -> Result<Vec<u8>, String> {
    let parsed = Name::new(name).map_err(|_| format!("`{name}` is not a name"))?;
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let class = QCLASS::CLASS(CLASS::IN);
    packet.questions.push(Question::new(parsed, QTYPE::TYPE(kind(record)), class, false));
    *packet.opt_mut() = Some(OPT { opt_codes: Vec::new(), udp_packet_size: UDP_BYTES, version: 0 });
    packet.build_bytes_vec().map_err(|error| error.to_string())
}

fn kind(record: RecordKind) -> TYPE {
    match record {
        RecordKind::A => TYPE::A,
        RecordKind::Aaaa => TYPE::AAAA,
        RecordKind::Srv => TYPE::SRV,
        RecordKind::Mx => TYPE::MX,
        RecordKind::Ns => TYPE::NS,
        RecordKind::Ptr => TYPE::PTR,
    }
}

enum Understood {
    /// Not the answer to this question.
    Foreign,
    Truncated,
    Answer(Result<Option<Found>, String>),
}

fn understand(bytes: &[u8], id: u16, name: &str, record: RecordKind) -> Understood {
    let packet = match Packet::parse(bytes) {
        Ok(packet) => packet,
        // Of an answer that was cut nothing but its head may be whole.
        Err(_)
            if bytes.starts_with(&id.to_be_bytes())
                && bytes.get(2).is_some_and(|it| it & 2 != 0) =>
        {
            return Understood::Truncated;
        }
        Err(error) => return Understood::Answer(Err(format!("the answer is broken: {error}"))),
    };
    let is_asked = |question: &Question<'_>| {
        question.qname.to_string().eq_ignore_ascii_case(name.trim_end_matches('.'))
            && question.qtype == QTYPE::TYPE(kind(record))
    };
    if packet.id() != id
        || !packet.has_flags(PacketFlag::RESPONSE)
        || !packet.questions.iter().all(is_asked)
    {
        return Understood::Foreign;
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Understood::Truncated;
    }
    Understood::Answer(match packet.rcode() {
        RCODE::NoError => Ok(Some(found_in(&packet))),
        RCODE::NameError => Ok(None),
        other => Err(format!("the server answers {other:?}")),
    })
}

/// The records of types that were asked for; a CNAME on the way to them is none.
fn found_in(packet: &Packet<'_>) -> Found {
    let mut found = Found::default();
    for answer in &packet.answers {
        found.records.push(match &answer.rdata {
            RData::A(it) => Record::Address(Ipv4Addr::from(it.address).into()),
            RData::AAAA(it) => Record::Address(Ipv6Addr::from(it.address).into()),
            RData::SRV(it) => Record::Service { host: it.target.to_string(), port: it.port },
            RData::MX(it) => Record::Exchange(it.exchange.to_string()),
            RData::NS(it) => Record::NameServer(it.0.to_string()),
            RData::PTR(it) => Record::Pointer(it.0.to_string()),
            RData::CNAME(it) => {
                found.alias_of.get_or_insert_with(|| it.0.to_string());
                continue;
            }
            _ => continue,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_systems_file_is_read() {
        let text = "# a\nnameserver 10.0.0.1\nnameserver ::1\nnameserver x\ndomain d\n\
                    search a.b c\noptions timeout:1 ndots:5\n";
        let expected = Resolver {
            servers: ["10.0.0.1:53", "[::1]:53"].map(|it| it.parse().unwrap()).to_vec(),
            search: ["a.b", "c"].map(str::to_owned).to_vec(),
            dots: 5,
        };
        assert_eq!(Resolver::parse(text), expected);
    }

    #[test]
    fn names_are_tried_in_domains() {
        let resolver = Resolver::parse("search x y\noptions ndots:2");
        for (name, expected) in [
            ("a.", vec!["a."]),
            ("a", vec!["a.x", "a.y", "a"]),
            ("a.b", vec!["a.b.x", "a.b.y", "a.b"]),
            ("a.b.c", vec!["a.b.c", "a.b.c.x", "a.b.c.y"]),
        ] {
            assert_eq!(resolver.full_names(name), expected, "{name}");
        }
    }

    /// Guarantee: an address is asked for by the name that RFC 1035 and RFC 3596 give it.
    #[test]
    fn addresses_have_names_of_their_own() {
        let name = |text: &str| reverse_name(text.parse().expect("an address"));
        assert_eq!(name("10.0.0.1"), "1.0.0.10.in-addr.arpa.");
        let expected = format!("1.{}8.b.d.0.1.0.0.2.ip6.arpa.", "0.".repeat(23));
        assert_eq!(name("2001:db8::1"), expected);
    }

    proptest! {
        /// Guarantee: no answer and no name panic or take long.
        #[test]
        fn hostile_answers_are_survived(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            is_reply: bool,
            name in ".{0,20}",
        ) {
            if let (true, [first, second, flags, ..]) = (is_reply, bytes.as_mut_slice()) {
                (*first, *second, *flags) = (0, 7, 0x80);
            }
            let _ = understand(&bytes, 7, &name, RecordKind::Srv);
            let _ = query(7, &name, RecordKind::Srv);
        }
    }
}
