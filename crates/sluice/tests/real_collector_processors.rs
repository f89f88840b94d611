//! `resource` and `attributes` do what the real Collector's do: the same requests through both,
//! with the very same section `processors`, arrive as the same telemetry.

mod gateway;
#[path = "peers/meaning.rs"]
mod meaning;
mod peers;
#[path = "peers/processor_cases.rs"]
mod processor_cases;
#[path = "peers/samples.rs"]
mod samples;

use std::fmt::Write as _;
use std::net::SocketAddr;

use gateway::{Gateway, keeping_backend};
use meaning::Meaning;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use peers::{component, start_collector};
use processor_cases::{CASES, Case};
use sluice_load_test::Backend;
use sluice_load_test::subject::free_addr;
use sluice_otlp::Signal;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;

/// The configuration of both: for each case a receiver and its processors, and one exporter that
/// has answered before the sender is answered.
fn common_config(
    ports: &[SocketAddr],
    backend: &Backend,
    exporter_options: &str,
) -> (String, String) {
    let (mut receivers, mut processors, mut pipelines) =
        (String::new(), String::new(), String::new());
    for (case, port) in CASES.iter().zip(ports) {
        // Writing to a string cannot fail.
        let _ = write!(
            receivers,
            "  otlp/{}:\n    protocols:\n      grpc:\n        endpoint: {port}\n        include_metadata: true\n",
            case.name
        );
        processors += &case.processors.replace("NAME", case.name);
        for signal in case.signals {
            let _ = write!(
                pipelines,
                "    {signal}/{0}:\n      receivers: [otlp/{0}]\n      processors: [{1}]\n      exporters: [otlp_grpc]\n",
                case.name,
                case.chain.replace("NAME", case.name)
            );
        }
    }
    let components = format!(
        "receivers:\n{receivers}processors:\n{processors}exporters:\n  otlp_grpc:\n    endpoint: {}\n    tls:\n      \
         insecure: true\n{exporter_options}",
        backend.addr()
    );
    (components, pipelines)
}

/// Sends the samples of a signal and returns the one request that the backend got.
async fn relayed(signal: Signal, port: SocketAddr, backend: &Backend) -> Meaning {
    let before = backend.counts().taken_requests;
    let channel = Channel::from_shared(format!("http://{port}"))
        .expect("a URL")
        .connect()
        .await
        .expect("connects");
    match signal {
        Signal::Traces => TraceServiceClient::new(channel)
            .export(of_tenant(samples::traces()))
            .await
            .map(drop)
            .expect("taken"),
        Signal::Metrics => MetricsServiceClient::new(channel)
            .export(of_tenant(samples::metrics()))
            .await
            .map(drop)
            .expect("taken"),
        Signal::Logs => LogsServiceClient::new(channel)
            .export(of_tenant(samples::logs()))
            .await
            .map(drop)
            .expect("taken"),
    }
    assert_eq!(
        backend.counts().taken_requests,
        before + 1,
        "{signal}: delivered when the sender is answered, in one piece"
    );
    let kept = backend.kept();
    let last = kept.last().expect("a request");
    assert_eq!(last.signal, signal);
    meaning::meaning(last)
}

fn of_tenant<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("x-tenant", MetadataValue::from_static("blue"));
    request
}

fn unprocessed(signal: Signal) -> Meaning {
    match signal {
        Signal::Traces => meaning::traces(samples::traces()),
        Signal::Metrics => meaning::metrics(samples::metrics()),
        Signal::Logs => meaning::logs(samples::logs()),
    }
}

/// The first place where they differ, with the fields around it.
fn first_difference(collector: &Meaning, sluice: &Meaning) -> String {
    let (collector, sluice) = (format!("{collector:#?}"), format!("{sluice:#?}"));
    let line = collector.lines().zip(sluice.lines()).position(|(one, other)| one != other);
    let line = line.unwrap_or_else(|| collector.lines().count().min(sluice.lines().count()));
    let around = |text: &str| {
        let lines = text.lines().skip(line.saturating_sub(8)).take(16);
        lines.map(|line| line.trim_start().to_owned()).collect::<Vec<_>>().join(" ")
    };
    format!("\n  Collector: {}\n  Sluice:    {}", around(&collector), around(&sluice))
}

#[tokio::test]
async fn resource_and_attributes_do_what_the_collectors_do() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let backends = [keeping_backend(1).await, keeping_backend(1).await];
    let ports: Vec<_> = (0..2 * CASES.len()).map(|_| free_addr().expect("a port")).collect();
    let (for_collector, for_sluice) = ports.split_at(CASES.len());
    let at_once =
        "    sending_queue:\n      enabled: false\n    retry_on_failure:\n      enabled: false\n";
    let (components, pipelines) = common_config(for_collector, &backends[0], at_once);
    let config = format!(
        "{components}service:\n  telemetry:\n    metrics:\n      level: none\n  pipelines:\n{pipelines}"
    );
    let _collector = start_collector(&binary, &config, for_collector[CASES.len() - 1]).await;
    let (components, pipelines) = common_config(for_sluice, &backends[1], "");
    let _gateway = Gateway::start(&format!(
        "{components}buffer:\n  ack: delivered\nservice:\n  pipelines:\n{pipelines}"
    ))
    .await;

    let mut differences = Vec::new();
    for (index, Case { name, signals, changes, .. }) in CASES.iter().enumerate() {
        for &signal in *signals {
            let expected = relayed(signal, for_collector[index], &backends[0]).await;
            let actual = relayed(signal, for_sluice[index], &backends[1]).await;
            if expected != actual {
                differences
                    .push(format!("{name}, {signal}: {}", first_difference(&expected, &actual)));
            }
            // A case that selects nothing, or everything by mistake, would prove nothing.
            assert_eq!(
                expected != unprocessed(signal),
                *changes,
                "{name}, {signal}: what the Collector does"
            );
        }
    }
    assert!(
        differences.is_empty(),
        "{} differences\n{}",
        differences.len(),
        differences.join("\n")
    );
}
