//! Configurations of the subjects that come with the bench.

use std::fmt::Write as _;
use std::net::SocketAddr;

use sluice_otlp::Signal;

/// Whose additions to the common YAML are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The OpenTelemetry Collector: with `memory_limiter` and `batch` as gateways run it.
    Collector,
    /// Sluice: the sender is answered when its data is delivered.
    SluiceDelivered,
}

/// A gateway in the Collector's YAML: one OTLP gRPC receiver, one pipeline a backend.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    pub dialect: Dialect,
    pub signal: Signal,
    pub listen: SocketAddr,
    /// Where Prometheus metrics are served.
    pub metrics: SocketAddr,
    pub backends: Vec<SocketAddr>,
    /// Compression of the exporters: gzip, or none.
    pub gzip_out: bool,
    /// `resource` inserts `k8s.cluster.name`.
    pub resource_insert: bool,
    /// `attributes` upserts `load_test.upserted` in every item.
    pub attributes_upsert: bool,
    /// `memory_limiter` and `batch`. The Kyma gateways' values: batches of 512 (metrics 1024).
    pub batch: bool,
}

impl GatewayConfig {
    pub fn to_yaml(&self) -> String {
        let mut yaml = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut yaml);
        yaml
    }

    fn write(&self, yaml: &mut String) -> std::fmt::Result {
        let GatewayConfig { listen, metrics, .. } = self;
        writeln!(yaml, "receivers:\n  otlp:\n    protocols:\n      grpc:\n        endpoint: {listen}")?;
        writeln!(yaml, "        max_recv_msg_size_mib: 16")?;
        self.write_processors(yaml)?;
        writeln!(yaml, "exporters:")?;
        for (index, backend) in self.backends.iter().enumerate() {
            let compression = if self.gzip_out { "gzip" } else { "none" };
            writeln!(yaml, "  otlp/{index}:\n    endpoint: {backend}\n    compression: {compression}")?;
            writeln!(yaml, "    tls:\n      insecure: true")?;
        }
        if self.dialect == Dialect::SluiceDelivered {
            // Where several pipelines are fed, the default policy would let a slow backend lose data instead of slowing its senders.
            writeln!(yaml, "buffer:\n  ack: delivered\n  policy: backpressure")?;
        }
        writeln!(yaml, "service:\n  telemetry:\n    logs:\n      level: error\n    metrics:\n      readers:")?;
        writeln!(yaml, "        - pull:\n            exporter:\n              prometheus:")?;
        writeln!(yaml, "                host: {}\n                port: {}", metrics.ip(), metrics.port())?;
        writeln!(yaml, "  pipelines:")?;
        let processors = self.processors().join(", ");
        for index in 0..self.backends.len() {
            writeln!(yaml, "    {}/{index}:\n      receivers: [otlp]", self.signal)?;
            writeln!(yaml, "      processors: [{processors}]\n      exporters: [otlp/{index}]")?;
        }
        Ok(())
    }

    fn processors(&self) -> Vec<&'static str> {
        let all = [
            (self.batch, "memory_limiter"),
            (self.resource_insert, "resource"),
            (self.attributes_upsert, "attributes"),
            (self.batch, "batch"),
        ];
        all.into_iter().filter_map(|(wanted, name)| wanted.then_some(name)).collect()
    }

    fn write_processors(&self, yaml: &mut String) -> std::fmt::Result {
        if self.processors().is_empty() {
            return Ok(());
        }
        writeln!(yaml, "processors:")?;
        if self.batch {
            let size = if self.signal == Signal::Metrics { 1024 } else { 512 };
            writeln!(
                yaml,
                "  memory_limiter:\n    check_interval: 100ms\n    limit_mib: 2000\n    spike_limit_mib: 400"
            )?;
            writeln!(yaml, "  batch:\n    send_batch_size: {size}\n    send_batch_max_size: {size}\n    timeout: 10s")?;
        }
        if self.resource_insert {
            writeln!(yaml, "  resource:\n    attributes:\n      - key: k8s.cluster.name")?;
            writeln!(yaml, "        value: load-test-cluster\n        action: insert")?;
        }
        if self.attributes_upsert {
            writeln!(yaml, "  attributes:\n    actions:\n      - key: load_test.upserted")?;
            writeln!(yaml, "        value: by-the-gateway\n        action: upsert")?;
        }
        Ok(())
    }
}

/// nginx as a gRPC relay of one process: what moving the bytes costs. With `keepalive` it keeps its connections to the
/// backend, which `grpc_pass` alone does not.
pub fn nginx_relay(listen: SocketAddr, backend: SocketAddr, keepalive: bool) -> String {
    let (upstream, target) = match keepalive {
        true => (
            format!("    upstream backend {{ server {backend}; keepalive 64; keepalive_requests 1000000000; }}\n"),
            "backend".to_owned(),
        ),
        false => (String::new(), backend.to_string()),
    };
    format!(
        "daemon off;\nmaster_process off;\nerror_log {{dir}}/error.log crit;\npid {{dir}}/nginx.pid;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n    access_log off;\n    client_max_body_size 0;\n    keepalive_requests 1000000000;\n\
         \x20   client_body_temp_path {{dir}}/body;\n    proxy_temp_path {{dir}}/proxy;\n\
         \x20   fastcgi_temp_path {{dir}}/fastcgi;\n    uwsgi_temp_path {{dir}}/uwsgi;\n    scgi_temp_path {{dir}}/scgi;\n\
         {upstream}    server {{\n        listen {listen} http2;\n        location / {{ grpc_pass grpc://{target}; }}\n    }}\n}}\n"
    )
}
