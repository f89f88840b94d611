//! How the pod is recognised that telemetry comes from.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use sluice_flow::Metadata;
use sluice_otlp::{Attributes, Value};

pub(super) const POD_IP: &str = "k8s.pod.ip";
pub(super) const POD_UID: &str = "k8s.pod.uid";
pub(super) const HOST_NAME: &str = "host.name";
const IP: &str = "ip";

/// A fact of a resource or its sender.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// The sender's address.
    Connection,
    Attribute(Box<str>),
}

/// Facts that a pod must all have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Association(pub(super) Vec<Source>);

/// A hash of facts that lead to one pod. Hash keys are drawn at random and 128 bits are enough for
/// two sets of facts not to meet, also if an attacker chooses them. Texts take ten times as much.
pub(super) type Identifier = u128;

static KEYS: LazyLock<[RandomState; 2]> =
    LazyLock::new(|| [RandomState::new(), RandomState::new()]);

pub(super) fn identifier(facts: &[(&Source, &str)]) -> Identifier {
    let [high, low] = [0, 1].map(|at| u128::from(KEYS[at].hash_one(Facts(facts))));
    high << 64 | low
}

struct Facts<'a>(&'a [(&'a Source, &'a str)]);

impl std::hash::Hash for Facts<'_> {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        for (source, value) in self.0 {
            match source {
                Source::Connection => hasher.write_u8(0),
                Source::Attribute(name) => {
                    hasher.write_u8(1);
                    name.hash(hasher);
                }
            }
            value.hash(hasher);
        }
    }
}

/// The pod of a resource, as the resource and its sender tell it.
pub(super) struct Identified {
    pub(super) identifier: Identifier,
    /// The address that counts as the sender's.
    pub(super) address: Option<String>,
}

/// The first association all of whose facts are there.
pub(super) fn identify(
    associations: &[Association],
    attributes: &Attributes<'_>,
    peer: Option<&str>,
) -> Option<Identified> {
    if associations.is_empty() {
        let address = default_address(attributes, peer)?;
        let identifier = identifier(&[(&Source::Connection, address)]);
        return Some(Identified { identifier, address: Some(address.to_owned()) });
    }
    associations.iter().find_map(|Association(sources)| {
        let mut facts = Vec::with_capacity(sources.len());
        for source in sources {
            let value = match source {
                Source::Connection => peer?,
                Source::Attribute(name) => text(attributes, name)?,
            };
            // A host name that is no address is not that of a pod.
            let is_host = matches!(source, Source::Attribute(name) if &**name == HOST_NAME);
            if is_host && value.parse::<IpAddr>().is_err() {
                return None;
            }
            facts.push((source, value));
        }
        let of_connection = facts.iter().find(|(source, _)| **source == Source::Connection);
        let address = of_connection.map(|(_, address)| (*address).to_owned());
        Some(Identified { identifier: identifier(&facts), address })
    })
}

fn default_address<'a>(attributes: &'a Attributes<'_>, peer: Option<&'a str>) -> Option<&'a str> {
    let host = || text(attributes, HOST_NAME).filter(|host| host.parse::<IpAddr>().is_ok());
    text(attributes, POD_IP).or_else(|| text(attributes, IP)).or(peer).or_else(host)
}

/// The value of an attribute that is a text and not empty.
pub(super) fn text<'a>(attributes: &'a Attributes<'_>, name: &str) -> Option<&'a str> {
    match attributes.get(name.as_bytes()) {
        Some(Value::String(text)) if !text.is_empty() => str::from_utf8(text).ok(),
        _ => None,
    }
}

/// The sender's address without its port.
pub(super) fn address_of(metadata: &Metadata) -> Option<String> {
    let peer = metadata.peer.as_deref()?;
    let address = peer.parse::<SocketAddr>().ok()?.ip().to_canonical();
    Some(address.to_string())
}

impl Association {
    /// Whether it has the same sources, in any order.
    pub(super) fn is_same(&self, other: &Association) -> bool {
        let sorted = |association: &Association| {
            let mut sources = association.0.clone();
            sources.sort();
            sources
        };
        sorted(self) == sorted(other)
    }
}

impl fmt::Display for Association {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<&str> = self
            .0
            .iter()
            .map(|source| match source {
                Source::Connection => "connection",
                Source::Attribute(name) => name,
            })
            .collect();
        formatter.write_str(&shown.join(", "))
    }
}
