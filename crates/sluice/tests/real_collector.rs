//! A real Collector before and behind the real binary, and nginx before it: every item arrives,
//! once.

mod gateway;
mod peers;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use gateway::{Gateway, Options, SOON, assert_arrives_once, ended_within, eventually, send_signal};
use peers::{component, start_collector};
use sluice_load_test::subject::{Subject, SubjectSpec, free_addr, nginx_relay};
use sluice_load_test::{Backend, BackendOptions, Load, LoadReport, Retry};
use sluice_otlp::{Encoding, Signal};

/// The Collector's batch processor and queues hold items for moments, not longer.
const ARRIVES_WITHIN: Duration = Duration::from_secs(30);

/// The Collector's own telemetry would listen on a fixed port.
const QUIET: &str = "  telemetry:\n    metrics:\n      level: none\n";

async fn backend_of_any_size() -> Backend {
    let options = BackendOptions { message_limit_bytes: 64 << 20, ..BackendOptions::default() };
    Backend::start(options).await.expect("a backend")
}

/// Pipelines of all three signals between these receivers and exporters.
fn pipelines(name: &str, receivers: &str, processors: &str, exporters: &str) -> String {
    let pipeline = |signal| {
        format!(
            "    {signal}/{name}:\n      receivers: [{receivers}]\n      processors: [{processors}]\n      exporters: \
             [{exporters}]\n"
        )
    };
    Signal::ALL.map(pipeline).concat()
}

fn grpc_receiver(name: &str, listen: SocketAddr) -> String {
    format!(
        "  otlp/{name}:\n    protocols:\n      grpc:\n        endpoint: {listen}\n        max_recv_msg_size_mib: 64\n"
    )
}

/// Sends it all and asserts that it was all accepted.
async fn send(load: Load) -> LoadReport {
    let report = load.clone().retry(Retry::SDK).run().await.expect("a load that can be run");
    assert_eq!(report.accepted, report.offered, "{load:?}: {:?}", report.messages);
    report
}

/// A configuration that delivers to its only backend before it answers.
fn delivering_to(backend: SocketAddr) -> String {
    format!(
        "exporters:\n  otlp:\n    endpoint: {backend}\n    tls:\n      insecure: true\nbuffer:\n  ack: delivered\nservice:\n  \
         pipelines:\n{}",
        pipelines("all", "otlp", "", "otlp")
    )
}

/// Generator -> Collector (`batch`, then `otlp_grpc` or `otlp_http` with their default gzip) ->
/// Sluice -> backend.
#[tokio::test]
async fn a_collector_before_it_hands_over_every_item_once() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let backend = backend_of_any_size().await;
    let gateway = Gateway::start(&delivering_to(backend.addr())).await;
    let ways = [("grpc", free_addr().unwrap()), ("http", free_addr().unwrap())];
    let config = format!(
        "receivers:\n{}{}processors:\n  batch:\n    timeout: 100ms\n    send_batch_size: 700\n    send_batch_max_size: 700\n\
         exporters:\n  otlp_grpc:\n    endpoint: {}\n    tls:\n      insecure: true\n  \
         otlp_http:\n    endpoint: http://{}\n\
         service:\n{QUIET}  pipelines:\n{}{}",
        grpc_receiver("grpc", ways[0].1),
        grpc_receiver("http", ways[1].1),
        gateway.grpc,
        gateway.http,
        pipelines("grpc", "otlp/grpc", "batch", "otlp_grpc"),
        pipelines("http", "otlp/http", "batch", "otlp_http"),
    );
    let _collector = start_collector(&binary, &config, ways[1].1).await;
    for signal in Signal::ALL {
        for (way, listen) in ways {
            let load = Load::new(signal, listen).items(5_000).concurrency(2, 4);
            let report = send(Load { encoding: Encoding::Gzip, ..load }).await;
            assert_arrives_once(&report, &backend, ARRIVES_WITHIN).await;
            let name = format!("otelcol_receiver_accepted_{}", signal.items_name());
            // Counted when the sender is answered, which is after the backend has it.
            let labels = [("transport", way)];
            let counted =
                eventually(SOON, async || gateway.metric(&name, &labels).await == 5_000.0).await;
            assert!(counted, "{signal} over {way}: {}", gateway.metric(&name, &labels).await);
        }
    }
    assert_eq!((backend.unique_items(), backend.items()), (30_000, 30_000));
}

/// Generator -> Collector, `otlp_http` and `otlp_grpc` with each compression that they have ->
/// Sluice -> backend.
#[tokio::test]
async fn a_collector_before_it_may_compress_as_it_likes() {
    const OVER_HTTP: [&str; 8] =
        ["none", "gzip", "zstd", "snappy", "x-snappy-framed", "zlib", "deflate", "lz4"];
    const OVER_GRPC: [&str; 4] = ["none", "gzip", "zstd", "snappy"];
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let backend = backend_of_any_size().await;
    let gateway = Gateway::start(&delivering_to(backend.addr())).await;
    let over_http = OVER_HTTP.map(|coding| ("http", coding));
    let ways = over_http.into_iter().chain(OVER_GRPC.map(|coding| ("grpc", coding)));
    let ways: Vec<_> = ways.map(|(way, coding)| (way, coding, free_addr().unwrap())).collect();
    let (mut receivers, mut exporters, mut wiring) = (String::new(), String::new(), String::new());
    for (way, coding, listen) in &ways {
        let name = format!("{way}-{coding}");
        let endpoint = match *way {
            "grpc" => format!("{}\n    tls:\n      insecure: true", gateway.grpc),
            _ => format!("http://{}", gateway.http),
        };
        receivers += &grpc_receiver(&name, *listen);
        exporters += &format!(
            "  otlp_{way}/{coding}:\n    endpoint: {endpoint}\n    compression: {coding}\n"
        );
        wiring += &pipelines(&name, &format!("otlp/{name}"), "", &format!("otlp_{way}/{coding}"));
    }
    let config = format!(
        "receivers:\n{receivers}exporters:\n{exporters}service:\n{QUIET}  pipelines:\n{wiring}"
    );
    let _collector = start_collector(&binary, &config, ways[ways.len() - 1].2).await;
    for (way, coding, listen) in ways {
        for signal in Signal::ALL {
            for (items, items_per_request) in [(1, 1), (3_000, 100)] {
                let load =
                    Load::new(signal, listen).items(items).items_per_request(items_per_request);
                let report = send(load.concurrency(1, 2)).await;
                let arrived =
                    eventually(ARRIVES_WITHIN, async || report.missing_at(&backend) == 0).await;
                let missing = report.missing_at(&backend);
                assert!(arrived, "{signal}, {coding} over {way}: {missing} of {items} are missing");
            }
        }
    }
    assert_eq!((backend.counts().doubled, backend.counts().unidentified), (0, 0));
}

/// Each way to send to a Collector: an exporter type, its protocol and its options.
const WAYS_OUT: [(&str, &str, &str); 13] = [
    ("otlp/gzip", "grpc", "compression: gzip"),
    ("otlp/zstd", "grpc", "compression: zstd"),
    ("otlp/none", "grpc", "compression: none"),
    ("otlphttp/gzip", "http", "compression: gzip"),
    ("otlphttp/zstd", "http", "compression: zstd"),
    ("otlphttp/none", "http", "compression: none"),
    ("otlphttp/json", "http", "encoding: json"),
    ("otlp/snappy", "grpc", "compression: snappy"),
    ("otlphttp/snappy", "http", "compression: snappy"),
    ("otlphttp/framed", "http", "compression: x-snappy-framed"),
    ("otlphttp/zlib", "http", "compression: zlib"),
    ("otlphttp/deflate", "http", "compression: deflate"),
    ("otlphttp/lz4", "http", "compression: lz4"),
];

/// A Collector as a backend, with its default limits: 4 MiB a gRPC message, 20 MiB an HTTP body.
/// Each way in leads to `backend`, which is asked before the sender is answered.
async fn start_collector_as_backend(
    binary: &std::path::Path,
    backend: &Backend,
) -> ([SocketAddr; 2], Subject) {
    let [grpc, http] = [free_addr().unwrap(), free_addr().unwrap()];
    let config = format!(
        "receivers:\n  otlp:\n    protocols:\n      grpc:\n        endpoint: {grpc}\n      http:\n        endpoint: {http}\n\
         exporters:\n  otlp_grpc:\n    endpoint: {}\n    compression: none\n    tls:\n      \
         insecure: true\n    sending_queue:\n      enabled: false\n\
         service:\n{QUIET}  pipelines:\n{}",
        backend.addr(),
        pipelines("all", "otlp", "", "otlp_grpc"),
    );
    ([grpc, http], start_collector(binary, &config, http).await)
}

/// A gateway with a receiver of its own for each way out, so that each is tried alone. Its
/// deliveries share the memory: each may hold several of the largest requests.
async fn start_gateway_before(collector: [SocketAddr; 2]) -> (Vec<SocketAddr>, Gateway) {
    let ports: Vec<SocketAddr> = WAYS_OUT.iter().map(|_| free_addr().unwrap()).collect();
    let (mut receivers, mut exporters, mut wiring) = (String::new(), String::new(), String::new());
    for (index, (exporter, protocol, option)) in WAYS_OUT.iter().enumerate() {
        let endpoint = match *protocol {
            "grpc" => format!("{}\n    tls:\n      insecure: true", collector[0]),
            _ => format!("http://{}", collector[1]),
        };
        receivers += &grpc_receiver(&index.to_string(), ports[index]);
        exporters += &format!("  {exporter}:\n    endpoint: {endpoint}\n    {option}\n");
        wiring += &pipelines(&index.to_string(), &format!("otlp/{index}"), "", exporter);
    }
    let config = format!(
        "receivers:\n{receivers}exporters:\n{exporters}buffer:\n  ack: delivered\n  memory:\n    limit_mib: 2048\nservice:\n  pipelines:\n{wiring}"
    );
    (ports, Gateway::start(&config).await)
}

/// Generator -> Sluice (every encoding that its exporters have) -> Collector -> backend.
#[tokio::test]
async fn a_collector_behind_it_is_handed_every_item_once() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let backend = backend_of_any_size().await;
    let (collector, _collector) = start_collector_as_backend(&binary, &backend).await;
    let (ports, gateway) = start_gateway_before(collector).await;
    let mut sent = 0;
    for ((exporter, ..), port) in WAYS_OUT.iter().zip(ports) {
        for signal in Signal::ALL {
            for encoding in [Encoding::Identity, Encoding::Gzip] {
                let load = Load::new(signal, port).items(1_500).concurrency(2, 4);
                let report = send(Load { encoding, ..load }).await;
                sent += report.accepted;
                // The sender was answered when it was delivered.
                assert_eq!(report.missing_at(&backend), 0, "{exporter} {signal} {encoding:?}");
            }
            let sent = format!("otelcol_exporter_sent_{}", signal.items_name());
            assert_eq!(
                gateway.metric(&sent, &[("exporter", exporter)]).await,
                3_000.0,
                "{exporter} {signal}"
            );
        }
    }
    let counts = backend.counts();
    assert_eq!((counts.items, counts.doubled, counts.unidentified), (sent, 0, 0));
}

/// Bodies of 2,000 to 3,900,000 bytes in requests of up to 10 MB reach a Collector that takes gRPC
/// messages of up to 4 MiB.
#[tokio::test]
async fn no_log_record_is_lost_to_the_collectors_message_limit() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let backend = backend_of_any_size().await;
    let (collector, _collector) = start_collector_as_backend(&binary, &backend).await;
    let (ports, gateway) = start_gateway_before(collector).await;
    let mut sent = 0;
    for (body_bytes, items_per_request, requests) in [
        (2_000, 4_000, 1),
        (50_000, 150, 1),
        (400_000, 25, 2),
        (1_300_000, 7, 2),
        (3_900_000, 1, 2),
        (3_900_000, 3, 1),
    ] {
        for (way, port) in WAYS_OUT.iter().zip(&ports) {
            let mut load = Load::new(Signal::Logs, *port).items_per_request(items_per_request);
            load.shape.body_bytes = body_bytes;
            let report =
                send(load.items(u64::from(items_per_request) * requests).concurrency(1, 2)).await;
            assert_eq!(
                report.missing_at(&backend),
                0,
                "{items_per_request} of {body_bytes} bytes over {}",
                way.0
            );
            sent += report.accepted;
        }
    }
    let counts = backend.counts();
    assert_eq!((counts.items, counts.doubled, counts.unidentified), (sent, 0, 0));
    assert_eq!(gateway.metric("otelcol_exporter_send_failed_log_records", &[]).await, 0.0);
}

/// The example's configuration in the words of the Collector 0.160, which has lost `logging` and
/// the metrics' `address`.
fn as_of_today(config: &str) -> String {
    let mut config = config.to_owned();
    for (old, new) in [
        ("  logging:\n", "  debug:\n"),
        ("exporters: [otlp, logging]", "exporters: [otlp, debug]"),
        ("exporters: [otlp/2, logging]", "exporters: [otlp/2, debug]"),
        (
            "    metrics:\n      address: ${env:MY_POD_IP:-127.0.0.1}:8888\n",
            "    metrics:\n      level: none\n",
        ),
    ] {
        assert_eq!(config.matches(old).count(), 1, "`{old}` in the example");
        config = config.replace(old, new);
    }
    config
}

/// The metric gateway of the Kyma telemetry module with its two pipelines and `logging`, in Sluice
/// as it stands, in the Collector as far as it still takes it: both deliver every point to both
/// backends, and neither reports an error.
#[tokio::test]
async fn the_kyma_metric_gateway_runs_in_both() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let example = include_str!("../../../examples/kyma-metric-gateway.yaml");
    let own = PathBuf::from(env!("CARGO_BIN_EXE_sluice"));
    let subjects = [
        ("sluice", own, example.to_owned(), vec!["run"], "127.77.0.1"),
        ("otelcol", binary, as_of_today(example), vec![], "127.77.0.2"),
    ];
    for (name, binary, config, args, address) in subjects {
        let backends = [backend_of_any_size().await, backend_of_any_size().await];
        let url = |index: usize| format!("http://{}", backends[index].addr());
        let listen: SocketAddr = format!("{address}:4317").parse().unwrap();
        let env = [
            ("MY_POD_IP", address.to_owned()),
            ("FIRST_OTLP_ENDPOINT", url(0)),
            ("OTLP_ENDPOINT", url(1)),
        ];
        let subject = Subject::start(SubjectSpec {
            name: name.to_owned(),
            binary,
            args: args.into_iter().chain(["--config", "{config}"]).map(str::to_owned).collect(),
            config,
            config_file: "config.yaml".to_owned(),
            env: env.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            ready: Some(listen.into()),
            ..SubjectSpec::default()
        })
        .await
        .unwrap_or_else(|error| panic!("{error}"));
        let report = send(Load::new(Signal::Metrics, listen).items(3_000).concurrency(2, 4)).await;
        for backend in &backends {
            // The batch processor's timeout is 10 s.
            assert_arrives_once(&report, backend, ARRIVES_WITHIN).await;
        }
        let output = subject.output();
        assert!(output.contains("Metrics"), "{name}: the exporter `logging` writes: {output}");
        let is_error =
            |line: &&str| ["ERROR", "error\t", "\terror"].iter().any(|word| line.contains(word));
        let errors: Vec<&str> = output.lines().filter(is_error).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        send_signal(&subject, rustix::process::Signal::TERM);
        let status = ended_within(&subject, Duration::from_secs(20)).await;
        assert!(status.success(), "{name}: {status}");
    }
}

/// The same `debug` configuration, three verbosities, in both: each takes everything and writes
/// something about it.
#[tokio::test]
async fn the_debug_exporter_takes_the_collectors_options() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let listen = free_addr().unwrap();
    let config = |listen| {
        format!(
            "receivers:\n{}exporters:\n  debug:\n    verbosity: basic\n  debug/normal:\n    verbosity: normal\n    \
             sampling_initial: 5\n    sampling_thereafter: 100\n  debug/detailed:\n    \
             verbosity: detailed\n    \
             use_internal_logger: false\nservice:\n{QUIET}  pipelines:\n{}",
            grpc_receiver("debug", listen),
            pipelines("debug", "otlp/debug", "", "debug, debug/normal, debug/detailed")
        )
    };
    let collector = start_collector(&binary, &config(listen), listen).await;
    let own_listen = free_addr().unwrap();
    let gateway = Gateway::start_with(&config(own_listen), Options::default()).await;
    for signal in Signal::ALL {
        for listen in [listen, own_listen] {
            let report =
                send(Load::new(signal, listen).items(20).items_per_request(10).concurrency(1, 1))
                    .await;
            assert_eq!(report.accepted, 20);
        }
    }
    let wrote_all = |output: &str| {
        ["Span #", "LogRecord #", "Metric #"].iter().all(|text| output.contains(text))
    };
    let wrote =
        eventually(SOON, async || wrote_all(&collector.output()) && wrote_all(&gateway.output()))
            .await;
    assert!(wrote, "collector:\n{}\nsluice:\n{}", collector.output_tail(), gateway.output());
    for output in [collector.output(), gateway.output()] {
        assert!(!output.contains("ERROR") && !output.contains("\terror\t"), "{output}");
    }
}

/// nginx as a gRPC proxy (`grpc_pass`, HTTP/2, with and without kept connections) before Sluice.
#[tokio::test]
async fn nginx_before_it_relays_every_item_once() {
    let Some(binary) = component("SLUICE_TEST_NGINX") else { return };
    let backend = backend_of_any_size().await;
    let gateway = Gateway::start(&delivering_to(backend.addr())).await;
    let mut sent = 0;
    for keepalive in [false, true] {
        let listen = free_addr().unwrap();
        let _nginx = Subject::start(SubjectSpec {
            name: "nginx".to_owned(),
            binary: binary.clone(),
            args: ["-e", "{dir}/start.log", "-p", "{dir}", "-c", "{config}"]
                .map(str::to_owned)
                .to_vec(),
            config: nginx_relay(listen, gateway.grpc, keepalive),
            config_file: "nginx.conf".to_owned(),
            ready: Some(listen.into()),
            ..SubjectSpec::default()
        })
        .await
        .unwrap_or_else(|error| panic!("{error}"));
        for signal in Signal::ALL {
            for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Zstd] {
                let load = Load::new(signal, listen).items(3_000).concurrency(2, 8);
                let report = send(Load { encoding, ..load }).await;
                assert_eq!(
                    report.missing_at(&backend),
                    0,
                    "{signal} {encoding:?}, kept connections: {keepalive}"
                );
                sent += report.accepted;
            }
        }
    }
    let counts = backend.counts();
    assert_eq!((counts.items, counts.doubled, counts.unidentified), (sent, 0, 0));
}
