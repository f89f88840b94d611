//! The options that the three receivers share.

use std::time::Duration;

use sluice_config::Fields;
use sluice_net::server::config::{check_endpoint, max_connections};
use sluice_net::server::{Address, Family, Protocols, ServerOptions};
use sluice_net::tls::TlsOptions;
use sluice_operators::{Chain, ChainConfig, Label, Root};
use sluice_tail::{Boundary, Charset, Splitter};

use super::attributes::Attributes;
use super::cutter::Cutter;
use super::decoding;
use crate::splitting;

const MIB: u64 = 1 << 20;
const LEAST_LOG_BYTES: u64 = 64 << 10;
/// No datagram is longer.
const DATAGRAM_BYTES: usize = 64 << 10;

/// The options of a receiver.
#[derive(Clone)]
pub(crate) struct NetlogConfig {
    pub source: Source,
    /// The options in which the address stands, from the outermost.
    pub path: &'static [&'static str],
    pub common: Common,
}

#[derive(Clone)]
pub(crate) enum Source {
    Tcp(Box<TcpConfig>),
    Udp(UdpConfig),
}

#[derive(Clone)]
pub(crate) struct TcpConfig {
    pub address: Address,
    pub tls: Option<TlsOptions>,
    pub cutter: Cutter,
    /// Of the messages.
    pub charset: Charset,
    /// Bytes are decoded from this as they come, before they are cut.
    pub decoded_from: Option<Charset>,
    pub adds_attributes: bool,
    pub idle_timeout: Option<Duration>,
    pub server: ServerOptions,
}

#[derive(Clone)]
pub(crate) struct UdpConfig {
    pub address: Address,
    pub splitter: Splitter,
    /// Datagrams are decoded from this before they are cut.
    pub decoded_from: Option<Charset>,
    pub adds_attributes: bool,
    /// A datagram is a record as it is.
    pub is_one_record: bool,
}

/// Options that do not depend on the transport.
#[derive(Clone)]
pub(crate) struct Common {
    /// Of all records, and of their resource.
    pub attributes: Attributes,
    pub resource: Attributes,
    /// Attributes with expressions, which records have before they come to the operators.
    pub labels: Vec<Label>,
    pub operators: ChainConfig,
}

/// The way in which syslog tells its messages apart over TCP.
#[derive(Clone, Copy, Default)]
pub(crate) struct Framing {
    pub counts_octets: bool,
    pub trailer: Option<u8>,
}

impl Common {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Common {
        let mut labels = Vec::new();
        let doc = "Attributes of all records. Values may have `EXPR(…)` in them.";
        let attributes = splitting::constants(fields, Root::Attributes, doc, &mut labels);
        let doc = "Attributes of the resource of all records. Values may have `EXPR(…)` in them.";
        let resource = splitting::constants(fields, Root::Resource, doc, &mut labels);
        let doc = "Operators that parse and change each record, in this order: `docs/operators.md` \
                   has them.";
        let operators = Chain::read(fields, "operators", doc);
        let doc = "What is refused for the moment always waits and is tried again.";
        splitting::retry_on_failure(fields, doc, "records that are refused are tried again");
        fields.no_effect("storage", "nothing can be read again, so there is no checkpoint");
        fields.no_effect("id", "the receiver is named by its key in `receivers`");
        Common { attributes, resource, labels, operators }
    }
}

fn read_address(fields: &mut Fields<'_>) -> String {
    let doc = "Address to listen on: `host:port`, `[ipv6]:port`, `:port` for all interfaces.";
    let address = fields.required_string("listen_address", doc);
    if let (false, Err(why)) = (address.is_empty(), check_endpoint(&address)) {
        fields.error_at_with_hint("listen_address", why, "write `0.0.0.0:514`");
    }
    address
}

fn read_adds_attributes(fields: &mut Fields<'_>) -> bool {
    let doc = "Adds `net.transport`, and `ip`, `port` and `name` of `net.peer` and `net.host`. \
               Names are those of `/etc/hosts`; of other addresses, the address.";
    fields.boolean("add_attributes", false, doc)
}

impl TcpConfig {
    pub(crate) fn read(fields: &mut Fields<'_>, framing: Framing) -> TcpConfig {
        let address = Address::Tcp(read_address(fields), Family::Any);
        let doc = "The longest record, in bytes of its text as UTF-8; at least 64 KiB. A longer \
                   one becomes several. A connection whose octet count is larger is closed.";
        let bytes = fields.size("max_log_size", MIB, 0..=1024 * MIB, doc);
        if (1..LEAST_LOG_BYTES).contains(&bytes) {
            fields.error_at("max_log_size", "must be at least 64KiB");
        }
        let max_bytes = if bytes == 0 { MIB } else { bytes } as usize;
        let adds_attributes = read_adds_attributes(fields);
        let doc = "All that comes over a connection is one record, up to `max_log_size`; the rest \
                   is left out.";
        let is_one_record = fields.boolean("one_log_per_packet", false, doc);
        let charset = splitting::encoding(fields);
        let boundary = splitting::multiline(fields, charset);
        let (keeps_leading, keeps_trailing) = splitting::white_space(fields);
        if boundary.is_some() && (framing.counts_octets || is_one_record) {
            let why = "has no effect: records end where their length or the connection says";
            fields.warn_at("multiline", why);
        }
        let doc = "TLS. Unset: connections are not encrypted.";
        let tls = fields.section_unless_empty("tls", doc, TlsOptions::read_server);
        let mut server = ServerOptions::new(Protocols::Other);
        server.max_connections = max_connections(fields, false);
        let doc = "A connection over which neither a whole record nor 1 KiB of one comes for this \
                   long is closed. 0: never.";
        let idle_timeout = fields.duration("connection_idle_timeout", Duration::ZERO, doc);
        let boundary = match (charset, boundary) {
            _ if is_one_record => Boundary::None,
            (Charset::Nop, _) => Boundary::None,
            (_, Some(boundary)) => boundary,
            (_, None) if framing.trailer == Some(0) => splitting::behind_nul(),
            (_, None) => Boundary::LineFeed,
        };
        let charset = of_text(charset);
        // Octets are counted before they are decoded.
        let is_counted = framing.counts_octets && !is_one_record;
        let (decoded_from, charset) = if is_counted { (None, charset) } else { decoded(charset) };
        let cutter = if is_counted {
            Cutter::Counted { max_bytes }
        } else {
            Cutter::Lines(Splitter {
                boundary,
                charset,
                max_bytes,
                truncates: is_one_record,
                keeps_leading: keeps_leading || is_one_record,
                keeps_trailing: keeps_trailing || is_one_record,
            })
        };
        let idle_timeout = Some(idle_timeout).filter(|timeout| !timeout.is_zero());
        TcpConfig {
            address,
            tls,
            cutter,
            charset,
            decoded_from,
            adds_attributes,
            idle_timeout,
            server,
        }
    }

    pub(super) fn limit_bytes(&self) -> usize {
        self.cutter.window_bytes()
    }

    /// Messages have their lengths before them.
    pub(super) fn counts_octets(&self) -> bool {
        matches!(self.cutter, Cutter::Counted { .. })
    }
}

impl UdpConfig {
    pub(crate) fn read(fields: &mut Fields<'_>) -> UdpConfig {
        let address = Address::Udp(read_address(fields));
        let adds_attributes = read_adds_attributes(fields);
        let doc = "A datagram is one record as it is, but for control characters at its end.";
        let is_one_record = fields.boolean("one_log_per_packet", false, doc);
        let charset = splitting::encoding(fields);
        let boundary = splitting::multiline(fields, charset).unwrap_or(Boundary::None);
        let (keeps_leading, keeps_trailing) = splitting::white_space(fields);
        let doc = "Datagrams are read while those before are processed, on any thread.";
        fields.section("async", doc, |fields| {
            for key in ["readers", "processors", "max_queue_length"] {
                fields.no_effect(key, "memory bounds the datagrams that wait");
            }
        });
        let (decoded_from, charset) = decoded(of_text(charset));
        let splitter = Splitter { boundary, charset, keeps_leading, keeps_trailing, ..whole() };
        UdpConfig { address, splitter, decoded_from, adds_attributes, is_one_record }
    }

    /// In the place of options that are missing, which is an error.
    pub(crate) fn none() -> UdpConfig {
        let address = Address::Udp(String::new());
        let (decoded_from, adds_attributes) = (None, false);
        UdpConfig { address, splitter: whole(), decoded_from, adds_attributes, is_one_record: true }
    }
}

/// As in the Collector, what is a text is one, and is trimmed, also if it has no encoding.
fn of_text(charset: Charset) -> Charset {
    if charset == Charset::Nop { Charset::Utf8Raw } else { charset }
}

/// The encoding from which bytes are decoded before they are cut, and their encoding then.
fn decoded(charset: Charset) -> (Option<Charset>, Charset) {
    match charset {
        Charset::Latin1 | Charset::Other(_) => (Some(charset), Charset::Utf8),
        Charset::Utf8 | Charset::Utf8Raw | Charset::Nop => (None, charset),
    }
}

/// A datagram is a record.
fn whole() -> Splitter {
    Splitter {
        boundary: Boundary::None,
        charset: Charset::Utf8,
        max_bytes: decoding::GROWTH * DATAGRAM_BYTES,
        truncates: false,
        keeps_leading: false,
        keeps_trailing: false,
    }
}
