//! Asks name servers for records that the system's resolver does not give.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use simple_dns::rdata::{OPT, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};
use sluice_net::reload::read_bounded;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

use crate::scrape_config::DnsRecord;

/// For the answer of one server.
const TIMEOUT: Duration = Duration::from_secs(2);
const PORT: u16 = 53;
/// Answers over UDP have at most this size; longer ones are asked for over TCP.
const UDP_BYTES: u16 = 4096;
const SERVERS_LIMIT: usize = 8;
const SEARCH_LIMIT: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Address(IpAddr),
    /// Hosts are without a dot at the end.
    Service {
        host: String,
        port: u16,
    },
    Exchange(String),
    NameServer(String),
}

/// Where and how names are looked up, as `resolv.conf` says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Resolver {
    pub(super) servers: Vec<SocketAddr>,
    /// Domains that are tried behind a name.
    pub(super) search: Vec<String>,
    /// A name with as many dots is tried alone first.
    pub(super) dots: usize,
}

impl Resolver {
    pub(super) fn read(path: &Path) -> Result<Resolver, String> {
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
    pub(super) async fn look_up(
        &self,
        name: &str,
        record: DnsRecord,
    ) -> Result<Vec<Record>, String> {
        let mut failure = None;
        for name in self.full_names(name) {
            match self.ask_any(&name, record).await {
                Ok(Some(records)) => return Ok(records),
                Ok(None) => {}
                Err(reason) => failure = Some(reason),
            }
        }
        failure.map_or(Ok(Vec::new()), Err)
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
    async fn ask_any(&self, name: &str, record: DnsRecord) -> Result<Option<Vec<Record>>, String> {
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

async fn ask(
    server: SocketAddr,
    name: &str,
    record: DnsRecord,
) -> Result<Option<Vec<Record>>, String> {
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

fn query(id: u16, name: &str, record: DnsRecord) -> Result<Vec<u8>, String> {
    let parsed = Name::new(name).map_err(|_| format!("`{name}` is not a name"))?;
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let class = QCLASS::CLASS(CLASS::IN);
    packet.questions.push(Question::new(parsed, QTYPE::TYPE(kind(record)), class, false));
    *packet.opt_mut() = Some(OPT { opt_codes: Vec::new(), udp_packet_size: UDP_BYTES, version: 0 });
    packet.build_bytes_vec().map_err(|error| error.to_string())
}

fn kind(record: DnsRecord) -> TYPE {
    match record {
        DnsRecord::A => TYPE::A,
        DnsRecord::Aaaa => TYPE::AAAA,
        DnsRecord::Srv => TYPE::SRV,
        DnsRecord::Mx => TYPE::MX,
        DnsRecord::Ns => TYPE::NS,
    }
}

enum Understood {
    /// Not the answer to this question.
    Foreign,
    Truncated,
    Answer(Result<Option<Vec<Record>>, String>),
}

fn understand(bytes: &[u8], id: u16, name: &str, record: DnsRecord) -> Understood {
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
        RCODE::NoError => Ok(Some(records_of(&packet))),
        RCODE::NameError => Ok(None),
        other => Err(format!("the server answers {other:?}")),
    })
}

/// The records of types that were asked for; a CNAME on the way to them is none.
fn records_of(packet: &Packet<'_>) -> Vec<Record> {
    let record = |data: &RData<'_>| {
        Some(match data {
            RData::A(found) => Record::Address(Ipv4Addr::from(found.address).into()),
            RData::AAAA(found) => Record::Address(Ipv6Addr::from(found.address).into()),
            RData::SRV(found) => {
                Record::Service { host: found.target.to_string(), port: found.port }
            }
            RData::MX(found) => Record::Exchange(found.exchange.to_string()),
            RData::NS(found) => Record::NameServer(found.0.to_string()),
            _ => return None,
        })
    };
    packet.answers.iter().filter_map(|answer| record(&answer.rdata)).collect()
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
            let _ = understand(&bytes, 7, &name, DnsRecord::Srv);
            let _ = query(7, &name, DnsRecord::Srv);
        }
    }
}
