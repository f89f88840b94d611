//! `udplog`: datagrams, each a record or several.

#[cfg(test)]
mod tests;

use sluice_config::{Fields, Kind};
use sluice_otlp::Signal;

use crate::netlog::{Common, NetlogConfig, Source, UdpConfig, metrics};
use crate::receiver::ReceiverKind;

pub(crate) const KIND: ReceiverKind = ReceiverKind::new(
    Kind { signals: &[Signal::Logs], ..Kind::new("udplog", "Receives log lines over UDP") }
        .aliases(&["udp_log"]),
    |fields| Box::new(read(fields)),
)
.metrics(|| metrics("Receiver udplog").describe());

pub(crate) fn read(fields: &mut Fields<'_>) -> NetlogConfig {
    let source = Source::Udp(UdpConfig::read(fields));
    NetlogConfig { source, path: &["listen_address"], common: Common::read(fields) }
}
