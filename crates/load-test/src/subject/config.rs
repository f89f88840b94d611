//! Configurations of the subjects that come with the bench.

use std::fmt::Write as _;
use std::net::SocketAddr;

use sluice_otlp::Signal;

use crate::generate::Protocol;

/// A gateway in the Collector's YAML: one OTLP gRPC receiver, one pipeline a backend.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    pub signal: Signal,
    pub listen: SocketAddr,
    /// Where Prometheus metrics are served.
    pub metrics: SocketAddr,
    /// Pipeline `traces/0` exports to the first by `otlp/0`, over HTTP by `otlphttp/0`, and so on.
    pub backends: Vec<SocketAddr>,
    /// Of the exporters.
    pub protocol: Protocol,
    /// Compression of the exporters: gzip, or none.
    pub gzip_out: bool,
    /// With `memory_limiter`.
    pub memory_limit_mib: Option<u64>,
    /// `resource` inserts `k8s.cluster.name`.
    pub resource_insert: bool,
    /// `attributes` upserts `load_test.upserted` in every item.
    pub attributes_upsert: bool,
    /// `batch` with the values of the Kyma gateways: 512 items (metrics 1024).
    pub batch: bool,
    /// A persistent queue that holds whatever comes, as the Collector has it.
    pub queue_on_disk: bool,
    /// Top-level sections of the subject's own.
    pub sections: String,
}

/// Before `exporters`, in `service`, and of each exporter.
const QUEUE_ON_DISK: [&str; 3] = [
    "extensions:\n  file_storage:\n    directory: {dir}/queue\n    create_directory: true\n",
    "  extensions: [file_storage]\n",
    "    sending_queue:\n      storage: file_storage\n      queue_size: 1000000\n\
     \x20   retry_on_failure:\n      initial_interval: 1s\n      max_interval: 5s\n\
     \x20     max_elapsed_time: 0s\n",
];

impl GatewayConfig {
    /// Of traces, with nothing but receiver and exporters.
    pub fn new(listen: SocketAddr, metrics: SocketAddr, backends: Vec<SocketAddr>) -> Self {
        GatewayConfig {
            signal: Signal::Traces,
            listen,
            metrics,
            backends,
            protocol: Protocol::Grpc,
            gzip_out: false,
            memory_limit_mib: None,
            resource_insert: false,
            attributes_upsert: false,
            batch: false,
            queue_on_disk: false,
            sections: String::new(),
        }
    }

    pub fn to_yaml(&self) -> String {
        let GatewayConfig { listen, metrics, sections, signal, .. } = self;
        let [extensions, in_service, of_exporter] =
            if self.queue_on_disk { QUEUE_ON_DISK } else { [""; 3] };
        let (kind, scheme) = match self.protocol {
            Protocol::Grpc => ("otlp", ""),
            Protocol::Http => ("otlphttp", "http://"),
        };
        let compression = if self.gzip_out { "gzip" } else { "none" };
        let processors = self.processors();
        let names = processors.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let options = processors.iter().map(|(name, options)| format!("  {name}:\n{options}"));
        let title = if processors.is_empty() { "" } else { "processors:\n" };
        let processors = title.to_owned() + &options.collect::<String>();
        let (mut exporters, mut pipelines) = (String::new(), String::new());
        for (index, backend) in self.backends.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = write!(
                exporters,
                "  {kind}/{index}:\n    endpoint: {scheme}{backend}\n\
                 \x20   compression: {compression}\n    tls:\n      insecure: true\n{of_exporter}"
            );
            let _ = write!(
                pipelines,
                "    {signal}/{index}:\n      receivers: [otlp]\n      processors: [{names}]\n\
                 \x20     exporters: [{kind}/{index}]\n"
            );
        }
        let (host, port) = (metrics.ip(), metrics.port());
        format!(
            "receivers:\n  otlp:\n    protocols:\n      grpc:\n        endpoint: {listen}\n\
             {processors}{extensions}exporters:\n{exporters}{sections}\
             service:\n{in_service}  telemetry:\n    logs:\n      level: error\n\
             \x20   metrics:\n      readers:\n        - pull:\n            exporter:\n\
             \x20             prometheus:\n                host: {host}\n\
             \x20               port: {port}\n\
             \x20 pipelines:\n{pipelines}"
        )
    }

    /// In the order of the pipelines, each with its options.
    fn processors(&self) -> Vec<(&'static str, String)> {
        let limit_mib = self.memory_limit_mib.unwrap_or_default();
        let limiter = format!("    check_interval: 100ms\n    limit_mib: {limit_mib}\n");
        let action = |list: &str, key: &str, value: &str, action: &str| {
            format!(
                "    {list}:\n      - key: {key}\n        value: {value}\n\
                 \x20       action: {action}\n"
            )
        };
        let resource = action("attributes", "k8s.cluster.name", "load-test-cluster", "insert");
        let attributes = action("actions", "load_test.upserted", "by-the-gateway", "upsert");
        let size = if self.signal == Signal::Metrics { 1024 } else { 512 };
        let batch = format!(
            "    send_batch_size: {size}\n    send_batch_max_size: {size}\n    timeout: 10s\n"
        );
        let all = [
            ("memory_limiter", self.memory_limit_mib.is_some(), limiter),
            ("resource", self.resource_insert, resource),
            ("attributes", self.attributes_upsert, attributes),
            ("batch", self.batch, batch),
        ];
        let wanted = all.into_iter().filter(|(_, is_wanted, _)| *is_wanted);
        wanted.map(|(name, _, options)| (name, options)).collect()
    }
}

/// nginx as a gRPC relay of one process: what moving the bytes costs. With `keepalive` it keeps its
/// connections to the backend, which `grpc_pass` alone does not.
pub fn nginx_relay(listen: SocketAddr, backend: SocketAddr, keepalive: bool) -> String {
    let (upstream, target) = if keepalive {
        let kept = "keepalive 64; keepalive_requests 1000000000;";
        (format!("    upstream backend {{ server {backend}; {kept} }}\n"), "backend".to_owned())
    } else {
        (String::new(), backend.to_string())
    };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {{dir}}/{kind};\n"))
        .concat();
    format!(
        "daemon off;\nmaster_process off;\nerror_log {{dir}}/error.log crit;\n\
         pid {{dir}}/nginx.pid;\nevents {{ worker_connections 4096; }}\n\
         http {{\n    access_log off;\n    client_max_body_size 0;\n\
         \x20   keepalive_requests 1000000000;\n{temporary}{upstream}    server {{\n\
         \x20       listen {listen} http2;\n\
         \x20       location / {{ grpc_pass grpc://{target}; }}\n    }}\n}}\n"
    )
}
