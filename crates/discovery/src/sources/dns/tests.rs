use std::net::{Ipv4Addr, SocketAddr};

use simple_dns::rdata::{A, AAAA, CNAME, MX, NS, PTR, RData, SRV};
use simple_dns::{CLASS, Name, Packet, PacketFlag, RCODE, ResourceRecord};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};

use super::*;
use crate::index::Index;
use crate::scrape_config::DnsRecord;

/// The answer of a name server to a query.
fn answer(query: &[u8], is_tcp: bool) -> Option<Vec<u8>> {
    let packet = Packet::parse(query).ok()?;
    let name = packet.questions[0].qname.to_string().to_lowercase();
    let mut reply = packet.clone().into_reply();
    *reply.opt_mut() = None;
    let host = |text: &'static str| Name::new(text).expect("a name");
    let service =
        |port| RData::SRV(SRV { priority: 1, weight: 1, port, target: host("pod.example") });
    let records = match name.as_str() {
        "a.example" => vec![
            RData::CNAME(CNAME(host("b.example"))),
            RData::A(A { address: Ipv4Addr::new(10, 0, 0, 1).into() }),
        ],
        "aaaa.example" => vec![RData::AAAA(AAAA { address: 1 })],
        "_http._tcp.example" => vec![service(8080), service(9090)],
        "mx.example" => vec![RData::MX(MX { preference: 1, exchange: host("mail.example") })],
        "ns.example" => vec![RData::NS(NS(host("dns.example")))],
        "1.0.0.10.in-addr.arpa" => vec![RData::PTR(PTR(host("host.example")))],
        "many.example" if is_tcp => (0..1000).map(service).collect(),
        "many.example" => {
            reply.set_flags(PacketFlag::TRUNCATION);
            Vec::new()
        }
        "short.svc.cluster" => vec![service(1)],
        "broken.example" => {
            *reply.rcode_mut() = RCODE::ServerFailure;
            Vec::new()
        }
        "silent.example" => return None,
        "empty.example" => Vec::new(),
        _ => {
            *reply.rcode_mut() = RCODE::NameError;
            Vec::new()
        }
    };
    let record = |data| ResourceRecord::new(packet.questions[0].qname.clone(), CLASS::IN, 30, data);
    reply.answers = records.into_iter().map(record).collect();
    reply.build_bytes_vec_compressed().ok()
}

/// A name server on UDP and TCP, which sends an answer to another question before each.
async fn server() -> SocketAddr {
    let (listener, socket) = loop {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("an address");
        if let Ok(socket) = UdpSocket::bind(address).await {
            break (listener, socket);
        }
    };
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((read, peer)) = socket.recv_from(&mut buffer).await {
            let Some(reply) = answer(&buffer[..read], false) else { continue };
            let mut other = reply.clone();
            other[0] ^= 1;
            let _ = socket.send_to(&other, peer).await;
            let _ = socket.send_to(&reply, peer).await;
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let length = stream.read_u16().await.expect("a length");
            let mut query = vec![0; usize::from(length)];
            stream.read_exact(&mut query).await.expect("a query");
            let reply = answer(&query, true).expect("an answer");
            stream.write_u16(reply.len() as u16).await.expect("is taken");
            stream.write_all(&reply).await.expect("is taken");
        }
    });
    address
}

fn resolver(servers: Vec<SocketAddr>) -> Resolver {
    Resolver { servers, search: vec!["svc.cluster".to_owned()], dots: 1 }
}

fn shown(group: &Group) -> Vec<String> {
    let labels = |labels: &Labels| {
        let pairs = labels.iter().filter(|label| &*label.name != NAME);
        pairs.map(|it| format!("{}={}", it.name, it.value)).collect::<Vec<_>>().join(" ")
    };
    group.targets.iter().map(labels).collect()
}

/// Guarantee: records of each type become targets as Prometheus makes them; an answer that is too
/// long for UDP comes over TCP.
#[tokio::test]
async fn records_become_targets() {
    use DnsRecord::{A, Aaaa, Mx, Ns, Srv};
    let resolver = resolver(vec![server().await]);
    for (name, record, expected) in [
        ("a.example", A, vec!["__address__=10.0.0.1:80"]),
        ("A.Example.", A, vec!["__address__=10.0.0.1:80"]),
        ("aaaa.example", Aaaa, vec!["__address__=[::1]:80"]),
        (
            "_http._tcp.example",
            Srv,
            vec![
                "__address__=pod.example:8080 __meta_dns_srv_record_port=8080 \
                 __meta_dns_srv_record_target=pod.example.",
                "__address__=pod.example:9090 __meta_dns_srv_record_port=9090 \
                 __meta_dns_srv_record_target=pod.example.",
            ],
        ),
        (
            "mx.example",
            Mx,
            vec!["__address__=mail.example:80 __meta_dns_mx_record_target=mail.example."],
        ),
        (
            "ns.example",
            Ns,
            vec!["__address__=dns.example:80 __meta_dns_ns_record_target=dns.example."],
        ),
        (
            "short",
            Srv,
            vec![
                "__address__=pod.example:1 __meta_dns_srv_record_port=1 \
                 __meta_dns_srv_record_target=pod.example.",
            ],
        ),
        ("empty.example", A, vec![]),
        ("nowhere.example", A, vec![]),
    ] {
        let records = resolver.look_up(name, record).await;
        let group = group(&name.into(), &records.expect(name), 80);
        assert_eq!(shown(&group), expected, "{name}");
        assert!(group.targets.iter().all(|target| &**target.get(NAME) == name));
    }
    let many = resolver.look_up("many.example", Srv).await.expect("over TCP");
    assert_eq!(many.len(), 1000);
}

/// Guarantee: a host is told its whole name, or that which it is an alias of, and an address its
/// names; a host without an address has none.
#[tokio::test]
async fn hosts_and_addresses_are_told_their_names() {
    let resolver = resolver(vec![server().await]);
    let name = async |host: &str| resolver.canonical_name(host).await;
    assert_eq!(name("a.example").await.as_deref(), Ok("b.example"));
    assert_eq!(name("aaaa.example.").await.as_deref(), Ok("aaaa.example"));
    assert_eq!(name("short").await.as_deref(), Ok("short.svc.cluster"));
    assert_eq!(name("empty.example").await, Err("it has no address".to_owned()));
    let names = async |ip: &str| resolver.names_of(ip.parse().expect("an address")).await;
    assert_eq!(names("10.0.0.1").await, Ok(vec!["host.example".to_owned()]));
    assert_eq!(names("10.0.0.2").await, Ok(Vec::new()));
}

/// Scenario: a server that is not there comes before one that is. Guarantee: the next one is asked;
/// without any the reason is told, and what was known of a name stays.
#[tokio::test]
async fn names_without_an_answer_keep_their_targets() {
    let nowhere = UdpSocket::bind("127.0.0.1:0").await.expect("binds");
    let closed = nowhere.local_addr().expect("an address");
    drop(nowhere);
    let both = resolver(vec![closed, server().await]);
    let names = ["_http._tcp.example", "broken.example"].map(Text::from).to_vec();
    let interval = std::time::Duration::from_secs(30);
    let config = DnsSd { names, record: DnsRecord::Srv, port: 0, refresh_interval: interval };
    let index = Index::new(Arc::default());
    let mut outlet = Outlet::new("j".into(), index.reporter());
    let mut known = BTreeMap::new();
    look(&config, &both, &mut known, &mut outlet).await;
    let (groups, version) = index.groups();
    assert_eq!((groups.len(), groups[0].targets.len()), (1, 2));
    assert!(outlet.told["broken.example"].contains("ServerFailure"), "{:?}", outlet.told);

    look(&config, &resolver(vec![closed]), &mut known, &mut outlet).await;
    assert_eq!((index.version(), outlet.told.len()), (version, 2));
}
