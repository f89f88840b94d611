//! Configurations of the subjects that come with the bench.

use std::net::SocketAddr;

use minijinja::Environment;
use minijinja::value::Serde;
use serde_json::json;
use sluice_otlp::Signal;

use crate::generate::Protocol;

/// A gateway in the Collector's YAML: one OTLP gRPC receiver, one pipeline a backend.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    pub signal: Signal,
    pub listen: SocketAddr,
    /// Address of the Prometheus metrics.
    pub metrics: SocketAddr,
    /// Pipeline `traces/0` exports to the first by `otlp/0`, over HTTP by `otlphttp/0`, and so on.
    pub backends: Vec<SocketAddr>,
    /// Protocol of the exporters.
    pub protocol: Protocol,
    /// Compression of the exporters: gzip, or none.
    pub gzip_out: bool,
    /// Limit of `memory_limiter`; `None`: without this processor.
    pub memory_limit_mib: Option<u64>,
    /// Behind that, in this order: `resource` inserts `k8s.cluster.name`, `attributes` upserts
    /// `load_test.upserted` in every item, `batch` is the Kyma gateways': 512 items (metrics 1024).
    pub processors: Vec<&'static str>,
    /// A persistent queue that no run fills, as the Collector has it.
    pub queue_on_disk: bool,
    /// Top-level sections of the subject's own.
    pub sections: String,
}

const GATEWAY: &str = include_str!("gateway.yaml");

impl GatewayConfig {
    /// A gateway for traces that has receiver and exporters only.
    pub fn new(listen: SocketAddr, metrics: SocketAddr, backends: Vec<SocketAddr>) -> Self {
        GatewayConfig {
            signal: Signal::Traces,
            listen,
            metrics,
            backends,
            protocol: Protocol::Grpc,
            gzip_out: false,
            memory_limit_mib: None,
            processors: Vec::new(),
            queue_on_disk: false,
            sections: String::new(),
        }
    }

    pub fn to_yaml(&self) -> String {
        let limiter = self.memory_limit_mib.map(|_| "memory_limiter");
        let processors: Vec<_> = limiter.iter().chain(&self.processors).collect();
        let (exporter, scheme) = match self.protocol {
            Protocol::Grpc => ("otlp", ""),
            Protocol::Http => ("otlphttp", "http://"),
        };
        let values = json!({
            "signal": self.signal.as_str(),
            "listen": self.listen,
            "metrics": { "host": self.metrics.ip(), "port": self.metrics.port() },
            "backends": self.backends,
            "exporter": exporter,
            "scheme": scheme,
            "compression": if self.gzip_out { "gzip" } else { "none" },
            "limit_mib": self.memory_limit_mib,
            "processors": processors,
            "batch_items": if self.signal == Signal::Metrics { 1024 } else { 512 },
            "queue_on_disk": self.queue_on_disk,
        });
        let yaml = Environment::new().render_str(GATEWAY, Serde(values));
        yaml.expect("the template fits its values") + "\n" + &self.sections
    }
}

/// nginx as a gRPC relay of one process: the cost of moving the bytes. With `keepalive` it keeps
/// its connections to the backend, which `grpc_pass` alone does not.
pub fn nginx_relay(listen: SocketAddr, backend: SocketAddr, keepalive: bool) -> String {
    let backend = backend.to_string();
    let kept = "keepalive 64; keepalive_requests 1000000000;";
    let upstream = format!("upstream backend {{ server {backend}; {kept} }}");
    let (upstream, target) = if keepalive { (&*upstream, "backend") } else { ("", &*backend) };
    include_str!("nginx.conf")
        .replace("@LISTEN@", &listen.to_string())
        .replace("@UPSTREAM@", upstream)
        .replace("@TARGET@", target)
}
