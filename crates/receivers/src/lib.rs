//! Receivers: they bring telemetry in. Each sees the engine only as a
//! [`sluice_flow::source::Ingress`].
//!
//! One folder a receiver, and its line in the list below: nothing else knows of a kind.

pub mod filelog;
mod files;
mod fluentforward;
mod influxdb;
mod k6;
mod k8s_cluster;
pub mod kubeletstats;
mod large_work;
mod ledger;
mod listen;
mod netlog;
pub mod otlp;
pub mod prometheus;
mod prometheusremotewrite;
mod receiver;
mod refused;
mod scraping;
mod splitting;
mod syslog;
mod tcplog;
mod udplog;
mod untold;

pub use receiver::{
    BindContext, BoundReceiver, Checkpoints, ReceiverConfig, ReceiverContext, ReceiverCounters,
    ReceiverError, ReceiverKind, ReceiverKinds, StartedReceiver, Streams,
};

/// The kinds of receivers in this build.
pub static RECEIVERS: ReceiverKinds = ReceiverKinds::new(&[
    otlp::KIND,
    filelog::KIND,
    fluentforward::KIND,
    influxdb::KIND,
    k6::KIND,
    k8s_cluster::KIND,
    kubeletstats::KIND,
    prometheus::KIND,
    prometheusremotewrite::KIND,
    syslog::KIND,
    tcplog::KIND,
    udplog::KIND,
]);
