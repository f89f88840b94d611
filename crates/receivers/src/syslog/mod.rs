//! `syslog`: messages of RFC 3164 and RFC 5424 over TCP or UDP, in the frames of RFC 6587.

#[cfg(test)]
mod tests;

use sluice_config::{Fields, Kind};
use sluice_operators::{OnError, Syslog};
use sluice_otlp::Signal;

use crate::netlog::{Common, Framing, NetlogConfig, Source, TcpConfig, UdpConfig, metrics};
use crate::receiver::ReceiverKind;

pub(crate) const KIND: ReceiverKind = ReceiverKind::new(
    Kind { signals: &[Signal::Logs], ..Kind::new("syslog", "Receives syslog over TCP or UDP") },
    |fields| Box::new(read(fields)),
)
.metrics(|| metrics("Receiver syslog").describe());

pub(crate) fn read(fields: &mut Fields<'_>) -> NetlogConfig {
    let syslog = Syslog::read(fields);
    let on_error = OnError::read(fields);
    let framing = Framing {
        counts_octets: syslog.as_ref().is_some_and(Syslog::counts_octets),
        trailer: syslog.as_ref().and_then(Syslog::trailer),
    };
    let doc = "Receives over TCP. Either this or `udp` is needed.";
    let tcp = fields.section("tcp", doc, |fields| TcpConfig::read(fields, framing));
    let doc = "Receives over UDP: a datagram is a message.";
    let udp = fields.section("udp", doc, UdpConfig::read);
    let is_framed = framing.counts_octets || framing.trailer.is_some();
    let (source, path): (_, &'static [&'static str]) = match (tcp, udp) {
        (Some(tcp), udp) => {
            if udp.is_some() {
                let why = "has no effect beside `tcp`, as in the Collector: add a second receiver";
                fields.warn_at("udp", why);
            }
            (Source::Tcp(Box::new(tcp)), &["tcp", "listen_address"])
        }
        (None, Some(udp)) => {
            if is_framed {
                let why = "cannot be used with `enable_octet_counting` or \
                           `non_transparent_framing_trailer`: a datagram is a message";
                fields.error_at("udp", why);
            }
            (Source::Udp(udp), &["udp", "listen_address"])
        }
        (None, None) => {
            fields.error("needs `tcp` or `udp`");
            (Source::Udp(UdpConfig::none()), &["udp", "listen_address"])
        }
    };
    let mut common = Common::read(fields);
    if let Some(syslog) = &syslog {
        common.operators = common.operators.behind_syslog(syslog, on_error);
    }
    NetlogConfig { source, path, common }
}
