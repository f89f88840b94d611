//! `tcplog`: lines over TCP.

#[cfg(test)]
mod tests;

use sluice_config::{Fields, Kind};
use sluice_otlp::Signal;

use crate::netlog::{Common, Framing, NetlogConfig, Source, TcpConfig, metrics};
use crate::receiver::ReceiverKind;

pub(crate) const KIND: ReceiverKind = ReceiverKind::new(
    Kind { signals: &[Signal::Logs], ..Kind::new("tcplog", "Receives log lines over TCP") }
        .aliases(&["tcp_log"]),
    |fields| Box::new(read(fields)),
)
.metrics(|| metrics("Receiver tcplog").describe());

pub(crate) fn read(fields: &mut Fields<'_>) -> NetlogConfig {
    let source = Source::Tcp(Box::new(TcpConfig::read(fields, Framing::default())));
    NetlogConfig { source, path: &["listen_address"], common: Common::read(fields) }
}
