//! The interfaces of the network and their addresses, as the kernel lists them over netlink.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// `AF_NETLINK` and `NETLINK_ROUTE`.
const NETLINK: (i32, i32) = (16, 0);
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// Types of messages.
const DONE: u16 = 3;
const ERROR: u16 = 2;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
/// A request for all that there are: `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
const HEADER_BYTES: usize = 16;
/// `IFF_UP` and `IFF_LOOPBACK`.
const UP: u32 = 1;
const LOOPBACK: u32 = 8;
/// Attributes of interfaces and of addresses.
const IFLA_ADDRESS: u16 = 1;
const IFLA_NAME: u16 = 3;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// Types of tunnels, whose hardware addresses are those of IPv4 and of IPv6.
const TUNNELS_V4: [u16; 3] = [768, 776, 778];
const TUNNELS_V6: [u16; 2] = [769, 823];
/// The kernel sends no longer datagrams.
const DATAGRAM_BYTES: usize = 64 << 10;
const ANSWER_LIMIT_BYTES: usize = 16 << 20;
const TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Interface {
    index: u32,
    pub(super) name: String,
    pub(super) is_up: bool,
    pub(super) is_loopback: bool,
    /// As `0A-1B-2C-3D-4E-5F`. Empty: it has none.
    pub(super) hardware_address: String,
    pub(super) addresses: Vec<IpAddr>,
}

/// All interfaces, in the kernel's order.
pub(super) fn interfaces() -> io::Result<Vec<Interface>> {
    let mut interfaces = Vec::new();
    for message in messages(&ask(GET_LINK)?)? {
        if let (NEW_LINK, Some(interface)) = (message.0, link(message.1)) {
            interfaces.push(interface);
        }
    }
    for message in messages(&ask(GET_ADDRESS)?)? {
        if let (NEW_ADDRESS, Some((index, address))) = (message.0, address(message.1)) {
            let owner = interfaces.iter_mut().find(|it| it.index == index);
            owner.into_iter().for_each(|it| it.addresses.push(address));
        }
    }
    Ok(interfaces)
}

/// As Go shows it, which has no IPv6 form of an IPv4 address.
pub(super) fn shown(address: IpAddr) -> String {
    address.to_canonical().to_string()
}

/// All datagrams of the answer to a request for everything of a kind.
fn ask(kind: u16) -> io::Result<Vec<u8>> {
    let (domain, protocol) = NETLINK;
    let mut socket = Socket::new(Domain::from(domain), Type::RAW, Some(Protocol::from(protocol)))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    // The head, and a body of zeros: of every family.
    let mut request = [0; HEADER_BYTES + 16];
    request[..4].copy_from_slice(&(HEADER_BYTES as u32 + 16).to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    request[8..12].copy_from_slice(&1_u32.to_ne_bytes());
    socket.write_all(&request)?;
    let (mut answer, mut datagram) = (Vec::new(), vec![0; DATAGRAM_BYTES]);
    loop {
        let read = socket.read(&mut datagram)?;
        let received = &datagram[..read];
        answer.extend_from_slice(received);
        let is_last = messages(received)?.iter().any(|(kind, _)| *kind == DONE);
        if is_last {
            return Ok(answer);
        }
        if read == 0 || answer.len() > ANSWER_LIMIT_BYTES {
            return Err(io::Error::other("the kernel's answer has no end"));
        }
    }
}

/// Types and bodies of messages.
fn messages(mut bytes: &[u8]) -> io::Result<Vec<(u16, &[u8])>> {
    let mut found = Vec::new();
    while bytes.len() >= HEADER_BYTES {
        let length = u32_at(bytes, 0).unwrap_or(0) as usize;
        let kind = u16_at(bytes, 4).unwrap_or(0);
        let Some(body) = bytes.get(HEADER_BYTES..length) else {
            return Err(io::Error::other("the kernel's answer is cut"));
        };
        if kind == ERROR {
            let code = u32_at(body, 0).unwrap_or(0) as i32;
            return Err(io::Error::from_raw_os_error(code.saturating_neg()));
        }
        found.push((kind, body));
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
    }
    Ok(found)
}

/// Types and contents of the attributes behind the fixed part of a message.
fn attributes(body: &[u8], fixed: usize) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    let mut rest = body.get(fixed..).unwrap_or_default();
    while let (Some(length), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let length = usize::from(length);
        let Some(content) = rest.get(4..length) else { break };
        // Two bits say how the content is coded.
        found.push((kind & 0x3fff, content));
        rest = rest.get(aligned(length)..).unwrap_or_default();
    }
    found
}

fn link(body: &[u8]) -> Option<Interface> {
    let (kind, index, flags) = (u16_at(body, 2)?, u32_at(body, 4)?, u32_at(body, 8)?);
    let (is_up, is_loopback) = (flags & UP != 0, flags & LOOPBACK != 0);
    let mut interface = Interface { index, is_up, is_loopback, ..Interface::default() };
    for (attribute, content) in attributes(body, 16) {
        match attribute {
            IFLA_NAME => {
                let name = content.split(|byte| *byte == 0).next().unwrap_or_default();
                interface.name = String::from_utf8_lossy(name).into_owned();
            }
            IFLA_ADDRESS if is_hardware_address(content, kind) => {
                let bytes = content.iter().map(|byte| format!("{byte:02X}"));
                interface.hardware_address = bytes.collect::<Vec<_>>().join("-");
            }
            _ => {}
        }
    }
    Some(interface)
}

fn is_hardware_address(content: &[u8], kind: u16) -> bool {
    let is_of_tunnel = match content.len() {
        4 => TUNNELS_V4.contains(&kind),
        16 => TUNNELS_V6.contains(&kind),
        _ => false,
    };
    !is_of_tunnel && content.iter().any(|byte| *byte != 0)
}

/// The interface and its own address, not the one at the other end.
fn address(body: &[u8]) -> Option<(u32, IpAddr)> {
    let (family, index) = (*body.first()?, u32_at(body, 4)?);
    let attributes = attributes(body, 8);
    let of = |kind| attributes.iter().find(|(it, _)| *it == kind).map(|(_, content)| *content);
    let content = of(IFA_LOCAL).or_else(|| of(IFA_ADDRESS))?;
    let address = match family {
        AF_INET => IpAddr::from(<[u8; 4]>::try_from(content).ok().map(Ipv4Addr::from)?),
        AF_INET6 => IpAddr::from(<[u8; 16]>::try_from(content).ok().map(Ipv6Addr::from)?),
        _ => return None,
    };
    Some((index, address))
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4).max(4)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
        let length = (content.len() + 4) as u16;
        let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), content].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn fixed(kind: u16, flags: u32) -> Vec<u8> {
        let (index, change) = (7_u32.to_ne_bytes(), [0; 4]);
        [&[0, 0][..], &kind.to_ne_bytes(), &index, &flags.to_ne_bytes(), &change].concat()
    }

    #[test]
    fn an_interface_has_its_name_and_hardware_address() {
        let mac = attribute(IFLA_ADDRESS, &[0, 0x1b, 2, 3, 4, 0xff]);
        let name = attribute(IFLA_NAME, b"eth0\0");
        let found = link(&[fixed(1, UP), mac, name.clone()].concat()).expect("an interface");
        assert_eq!((found.index, found.name.as_str()), (7, "eth0"));
        assert_eq!(found.hardware_address, "00-1B-02-03-04-FF");
        assert!(found.is_up && !found.is_loopback);
        // Zeros are no address, nor is the end of a tunnel.
        for (kind, content) in [(772, vec![0; 6]), (768, vec![1; 4]), (769, vec![1; 16])] {
            let body = [fixed(kind, LOOPBACK), attribute(IFLA_ADDRESS, &content)].concat();
            let found = link(&body).expect("an interface");
            assert_eq!(found.hardware_address, "");
            assert!(found.is_loopback && !found.is_up);
        }
    }

    #[test]
    fn an_address_is_that_of_the_own_end() {
        let body = |family: u8, attributes: &[Vec<u8>]| {
            [&[family, 24, 0, 0][..], &3_u32.to_ne_bytes(), &attributes.concat()].concat()
        };
        let (far, own) =
            (attribute(IFA_ADDRESS, &[10, 0, 0, 2]), attribute(IFA_LOCAL, &[10, 0, 0, 1]));
        let found = address(&body(AF_INET, &[far.clone(), own]));
        assert_eq!(found, Some((3, "10.0.0.1".parse().unwrap())));
        assert_eq!(address(&body(AF_INET, &[far])), Some((3, "10.0.0.2".parse().unwrap())));
        let six = attribute(IFA_ADDRESS, &Ipv6Addr::LOCALHOST.octets());
        let six = [six];
        assert_eq!(address(&body(AF_INET6, &six)), Some((3, "::1".parse().unwrap())));
        assert_eq!(address(&body(AF_INET, &six)), None);
    }

    /// Guarantee: the loopback interface of this machine is found.
    #[test]
    fn the_kernel_is_asked() {
        let interfaces = interfaces().expect("the kernel answers");
        let loopback = interfaces.iter().find(|it| it.is_loopback).expect("a loopback interface");
        assert_eq!(loopback.name, "lo");
    }

    proptest! {
        /// Guarantee: no answer panics or is read without an end.
        #[test]
        fn hostile_answers_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = messages(&bytes).map(|messages| messages.len());
            let _ = (link(&bytes), address(&bytes));
        }
    }
}
