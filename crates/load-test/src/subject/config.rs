//! Configurations of the subjects that come with the bench.

use std::net::SocketAddr;

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

/// A line with `# with` at its end stays if that part is wanted; with `# each`, once a backend.
const GATEWAY: &str = include_str!("gateway.yaml");
/// Options of an exporter, added to its other ones.
const QUEUE_ON_DISK: &str = ", sending_queue: {storage: file_storage, queue_size: 1000000}, \
     retry_on_failure: {initial_interval: 1s, max_interval: 5s, max_elapsed_time: 0s}";

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
        let GatewayConfig { signal, listen, metrics, queue_on_disk, .. } = *self;
        let (kind, scheme) = match self.protocol {
            Protocol::Grpc => ("otlp", ""),
            Protocol::Http => ("otlphttp", "http://"),
        };
        let mut processors: Vec<_> =
            self.memory_limit_mib.map(|_| "memory_limiter").into_iter().collect();
        processors.extend(&self.processors);
        let mut lines = Vec::new();
        for line in GATEWAY.lines() {
            let (line, mark) = line.split_once(" # ").unwrap_or((line, ""));
            let times = match mark {
                "" => 1,
                "each backend" => self.backends.len(),
                "with processors" => usize::from(!processors.is_empty()),
                "with queue" => usize::from(queue_on_disk),
                processor => usize::from(processors.iter().any(|name| processor.ends_with(name))),
            };
            lines.extend((0..times).map(|index| {
                let backend = self.backends.get(index).map(SocketAddr::to_string);
                line.replace("@BACKEND@", &(scheme.to_owned() + &backend.unwrap_or_default()))
                    .replace("@EXPORTER@", &format!("{kind}/{index}"))
                    .replace("@PIPELINE@", &format!("{signal}/{index}"))
            }));
        }
        let values = [
            ("@LISTEN@", listen.to_string()),
            ("@METRICS_HOST@", metrics.ip().to_string()),
            ("@METRICS_PORT@", metrics.port().to_string()),
            ("@LIMIT_MIB@", self.memory_limit_mib.unwrap_or_default().to_string()),
            ("@BATCH_ITEMS@", if signal == Signal::Metrics { "1024" } else { "512" }.to_owned()),
            ("@COMPRESSION@", if self.gzip_out { "gzip" } else { "none" }.to_owned()),
            ("@QUEUE@", if queue_on_disk { QUEUE_ON_DISK } else { "" }.to_owned()),
            ("@PROCESSORS@", processors.join(", ")),
        ];
        let yaml = lines.join("\n") + "\n" + &self.sections;
        values.iter().fold(yaml, |yaml, (name, value)| yaml.replace(name, value))
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
