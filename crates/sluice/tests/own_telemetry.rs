//! Own metrics and log lines that are pushed, as `service.telemetry` says.

mod doors;
mod gateway;
mod peers;

use std::net::SocketAddr;
use std::process::Command;

use doors::Authority;
use gateway::{Gateway, Options, SOON, eventually, exporter};
use peers::{component, start_collector};
use sluice_load_test::subject::{Subject, free_addr};
use sluice_load_test::{Backend, BackendOptions};

/// The Collector writes what it takes, with names, values and attributes.
async fn collector() -> Option<(Subject, SocketAddr, SocketAddr)> {
    let [grpc, http] = [(); 2].map(|()| free_addr().expect("a free port"));
    Some((start_detailed(grpc, http).await?, grpc, http))
}

async fn start_detailed(grpc: SocketAddr, http: SocketAddr) -> Option<Subject> {
    let binary = component("SLUICE_TEST_OTELCOL")?;
    let config = format!(
        "receivers:\n  otlp:\n    protocols:\n      grpc:\n        endpoint: {grpc}\n      \
         http:\n        endpoint: {http}\n\
         exporters:\n  debug:\n    verbosity: detailed\n\
         service:\n  telemetry:\n    metrics:\n      level: none\n  pipelines:\n    \
         metrics:\n      receivers: [otlp]\n      exporters: [debug]\n    \
         logs:\n      receivers: [otlp]\n      exporters: [debug]\n"
    );
    Some(start_collector(&binary, &config, http).await)
}

async fn backend() -> Backend {
    Backend::start(BackendOptions::default()).await.expect("a backend")
}

/// One pipeline to this backend. `push`: an exporter of own telemetry, which is sent often.
fn config(backend: &Backend, metrics: SocketAddr, level: &str, push: &str) -> String {
    let (host, port) = (metrics.ip(), metrics.port());
    let own = match push {
        "" => String::new(),
        push => format!(
            "        - periodic:\n            interval: 200\n            exporter: {{{push}}}\n    \
             logs:\n      level: {level}\n      processors:\n        - batch:\n            \
             schedule_delay: 50\n            exporter: {{{push}}}\n"
        ),
    };
    format!(
        "exporters:\n{}service:\n  telemetry:\n    resource: {{team: blue}}\n    metrics:\n      \
         readers:\n        - pull: {{exporter: {{prometheus: {{host: {host}, port: {port}}}}}}}\n\
         {own}  pipelines:\n    traces:\n      receivers: [otlp]\n      \
         exporters: [otlp/b]\n",
        exporter("b", backend)
    )
}

async fn start(config: &str, metrics: SocketAddr) -> Gateway {
    let mut gateway = Gateway::start_with(config, Options::default()).await;
    gateway.metrics = metrics;
    gateway
}

/// Whether a text comes in the Collector's output.
async fn has(collector: &Subject, text: &str) -> bool {
    eventually(SOON, async || collector.output().contains(text)).await
}

/// A metric in the Collector's output, from its name to the next one, each time that it came.
fn reports<'a>(output: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!("     -> Name: {name}\n");
    let reports = output.split(begin.as_str()).skip(1);
    reports.map(|rest| rest.split("Metric #").next().unwrap_or_default()).collect()
}

/// Scenario: metrics and log lines go to a Collector, over gRPC and over HTTP; the process ends.
/// Guarantee: it takes them, under its own names of metrics, with the last counts and lines.
#[tokio::test]
async fn a_collector_takes_own_metrics_and_log_lines() {
    for protocol in ["grpc", "http/protobuf"] {
        let Some((collector, grpc, http)) = collector().await else { return };
        let (backend, metrics) = (backend().await, free_addr().expect("a free port"));
        let endpoint = if protocol == "grpc" { grpc } else { http };
        let push = format!(
            "otlp: {{protocol: {protocol}, endpoint: 'http://{endpoint}', compression: gzip, \
             headers: [{{name: x-team, value: hunter2}}]}}"
        );
        let mut gateway = start(&config(&backend, metrics, "info", &push), metrics).await;
        gateway.accepts(100).await;
        assert!(has(&collector, "Name: otelcol_process_uptime\n").await, "{protocol}: no metrics");
        assert!(has(&collector, "Body: Str(receiving)\n").await, "{protocol}: no log lines");
        gateway.terminate();
        gateway.ended_within(SOON).await;
        let ending = "Body: Str(shutting down: no new data is accepted";
        assert!(has(&collector, ending).await, "{protocol}: the last line was not sent");
        let output = collector.output();
        let sent = reports(&output, "otelcol_exporter_sent_spans");
        let last = sent.last().expect("reports");
        for text in [
            "DataType: Sum\n",
            "IsMonotonic: true\n",
            "AggregationTemporality: Cumulative\n",
            "Unit: {span}\n",
            "-> exporter: Str(otlp/b)\n",
            "-> pipeline: Str(traces)\n",
            "Value: 100\n",
        ] {
            assert!(last.contains(text), "{protocol}: no {text} in the last report:\n{last}");
        }
        for text in [
            "-> service.name: Str(sluice)\n",
            "-> team: Str(blue)\n",
            "-> service.instance.id: Str(",
            "SeverityText: info\n",
            "-> receiver: Str(otlp)\n",
        ] {
            assert!(output.contains(text), "{protocol}: {text}");
        }
        assert!(!output.contains("Name: target_info"), "the resource says it");
        assert!(!gateway.output().contains("hunter2"), "a header is shown");
    }
}

/// Scenario: the backend of own telemetry takes connections and never answers. Guarantee: the
/// pipelines deliver everything, memory is bounded, drops are counted, the log says it once for
/// each destination, and the end is in time.
#[tokio::test]
async fn a_backend_that_never_answers_hurts_nothing() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listens");
    let endpoint = silent.local_addr().expect("an address");
    let (backend, metrics) = (backend().await, free_addr().expect("a free port"));
    let push =
        format!("otlp: {{protocol: http/protobuf, endpoint: 'http://{endpoint}', timeout: 500}}");
    let config = config(&backend, metrics, "info", &push).replace("interval: 200", "interval: 100");
    let mut gateway = start(&config, metrics).await;
    let reader = [("destination", "metrics.readers[1]")];
    let dropped = async || gateway.metric("sluice_own_telemetry_dropped_items", &reader).await;
    assert!(eventually(SOON * 2, async || dropped().await > 0.0).await, "nothing gives way");
    let waiting = gateway.metric("sluice_own_telemetry_waiting", &reader).await;
    assert!((1.0..100.0).contains(&waiting), "{waiting} reports wait");
    let sent = gateway.metric("sluice_own_telemetry_sent_items", &[]).await;
    let failed = [("outcome", "failed")];
    let failures = gateway.metric("sluice_own_telemetry_requests", &failed).await;
    assert!(sent == 0.0 && failures >= 2.0, "{sent} items sent, {failures} failures");
    let report = gateway.accepts(5_000).await;
    let arrived = eventually(SOON, async || report.missing_at(&backend) == 0).await;
    assert!(arrived, "{} spans are missing", report.missing_at(&backend));
    assert_eq!(gateway.count_in_output("own telemetry cannot be sent"), 2, "{}", gateway.output());
    gateway.terminate();
    let status = gateway.ended_within(SOON).await;
    assert!(status.success(), "{status}");
    assert_eq!(gateway.count_in_output("own telemetry is lost"), 2, "{}", gateway.output());
}

/// Scenario: the backend of log lines of level debug is there only later; each try to connect logs
/// a line. Guarantee: the lines from the start on arrive then, without those about sending them.
#[tokio::test]
async fn lines_wait_for_their_backend_and_cause_no_others() {
    let [grpc, http] = [(); 2].map(|()| free_addr().expect("a free port"));
    let (backend, metrics) = (backend().await, free_addr().expect("a free port"));
    let push = format!("otlp_grpc: {{endpoint: 'http://{grpc}'}}");
    let gateway = start(&config(&backend, metrics, "debug", &push), metrics).await;
    gateway.wait_for_output("connecting failed", 2).await;
    let lines = [("destination", "logs.processors[0]")];
    let waiting = gateway.metric("sluice_own_telemetry_waiting", &lines).await;
    gateway.wait_for_output("connecting failed", 4).await;
    let later = gateway.metric("sluice_own_telemetry_waiting", &lines).await;
    assert!(waiting > 0.0 && later == waiting, "{waiting} lines wait, then {later}");
    let Some(collector) = start_detailed(grpc, http).await else { return };
    assert!(has(&collector, "Body: Str(receiving)\n").await, "the first line is lost");
    gateway.wait_for_output("own telemetry is sent again", 2).await;
    gateway.terminate();
    assert!(has(&collector, "Body: Str(shutting down").await, "the last line is lost");
    let output = collector.output();
    for own in
        ["Body: Str(connecting failed", "Body: Str(own telemetry", "Body: Str(connection ended"]
    {
        assert!(!output.contains(own), "{own} was pushed");
    }
}

/// Scenario: reloads that add a destination, change it to one that cannot be used, and remove it.
/// Guarantee: each takes effect at once, or nothing changes and the log says why; a new destination
/// of deltas gets none of what was before.
#[tokio::test]
async fn destinations_follow_a_reload() {
    let Some((collector, grpc, _)) = collector().await else { return };
    let (backend, metrics) = (backend().await, free_addr().expect("a free port"));
    let without = config(&backend, metrics, "info", "");
    let with = |more: &str| {
        let otlp = format!("otlp: {{protocol: grpc, endpoint: 'http://{grpc}'{more}}}");
        let config = config(&backend, metrics, "info", &otlp);
        // Of logs there is no such option.
        config.replacen("'}}", "', temporality_preference: delta}}", 1)
    };
    let gateway = start(&without, metrics).await;
    gateway.accepts(300).await;
    let delivered = async || gateway.metric("otelcol_exporter_sent_spans", &[]).await == 300.0;
    assert!(eventually(SOON, delivered).await, "the pipeline does not deliver");
    gateway.reload(&with("")).await;
    assert!(has(&collector, "Body: Str(reloaded)\n").await, "log lines");
    gateway.accepts(100).await;
    let counted = || {
        let output = collector.output();
        let sent = reports(&output, "otelcol_exporter_sent_spans");
        let values =
            sent.iter().filter_map(|report| report.split("Value: ").nth(1)?.split('\n').next());
        values.map(|value| value.parse::<u64>().expect("a number")).sum::<u64>()
    };
    let all = eventually(SOON, async || counted() == 100).await;
    assert!(all, "the deltas add up to {}, not 100", counted());
    gateway.reconfigure(&with(", certificate: /does/not/exist").replace("http://", "https://"));
    gateway.wait_for_output("not reloaded", 1).await;
    assert!(gateway.output().contains("/does/not/exist"), "{}", gateway.output());
    gateway.accepts(200).await;
    let all = eventually(SOON, async || counted() == 300).await;
    assert!(all, "the deltas add up to {}, not 300", counted());
    let before = gateway.count_in_output("INFO reloaded");
    gateway.reconfigure(&without);
    gateway.wait_for_output("INFO reloaded", before + 1).await;
    let waiting = gateway.scrape().await.sum("sluice_own_telemetry_waiting", &[]);
    assert_eq!(waiting, None, "there is no destination any more");
}

/// Scenario: a backend that wants TLS, our certificate and a token. Guarantee: it gets all three,
/// over gRPC and over HTTP, and the metrics and lines with them.
#[tokio::test]
async fn own_telemetry_has_tls_and_headers() {
    let authority = Authority::new("ours");
    let folder = tempfile::tempdir().expect("a folder");
    authority.issue().write(folder.path());
    let path = folder.path().display();
    std::fs::write(folder.path().join("ca.crt"), authority.pem()).expect("a file");
    let tls = format!(
        "tls: {{cert_file: {path}/tls.crt, key_file: {path}/tls.key, \
         client_ca_file: {path}/ca.crt}}, auth: {{authenticator: bearertokenauth}}"
    );
    let pipeline = "{receivers: [otlp], exporters: [nop]}";
    let receiving = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{grpc: {{{tls}}}, http: {{{tls}}}}}}}}}\n\
         extensions: {{bearertokenauth: {{token: hunter2}}}}\nexporters: {{nop: }}\nservice:\n  \
         extensions: [health_check, bearertokenauth]\n  \
         pipelines: {{metrics: {pipeline}, logs: {pipeline}}}\n"
    ))
    .await;
    for (transport, protocol, port) in
        [("grpc", "grpc", receiving.grpc.port()), ("http", "http/protobuf", receiving.http.port())]
    {
        let (backend, metrics) = (backend().await, free_addr().expect("a free port"));
        let push = format!(
            "otlp: {{protocol: {protocol}, endpoint: 'localhost:{port}', certificate: {path}/ca.crt, \
             client_certificate: {path}/tls.crt, client_key: {path}/tls.key, \
             headers_list: 'authorization=Bearer%20hunter2'}}"
        );
        let gateway = start(&config(&backend, metrics, "info", &push), metrics).await;
        for items in ["metric_points", "log_records"] {
            let name = format!("otelcol_receiver_accepted_{items}_total");
            let labels = [("transport", transport)];
            let came = eventually(SOON, async || receiving.metric(&name, &labels).await > 0.0);
            assert!(came.await, "no {items} over {protocol}: {}", gateway.output());
        }
    }
}

/// Guarantee: `sluice plan` says where own telemetry goes, without keys.
#[test]
fn the_plan_shows_where_own_telemetry_goes() {
    let text = "receivers: {otlp: {protocols: {grpc: }}}\nexporters: {nop: }\nservice:\n  \
        telemetry:\n    metrics: {readers: [{periodic: {exporter: {otlp: {protocol: http/protobuf, \
        endpoint: 'https://backend/in?key=hunter2', headers: {api-key: hunter2}}}}}]}\n    \
        logs: {processors: [{simple: {exporter: {otlp_grpc: {endpoint: 'http://h:1'}}}}]}\n  \
        pipelines: {traces: {receivers: [otlp], exporters: [nop]}}\n";
    let plan = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["plan", "--config", &format!("yaml:{text}")])
        .output()
        .expect("runs");
    let shown = String::from_utf8_lossy(&plan.stdout).into_owned();
    let said = String::from_utf8_lossy(&plan.stderr).into_owned();
    for line in [
        "Own metrics go every 60s to https://backend/in?… over HTTP (metrics.readers[0]).\n",
        "Own log lines go at once to http://h:1 over gRPC (logs.processors[0]).\n",
    ] {
        assert!(shown.contains(line), "{shown}{said}");
    }
    assert!(!shown.contains("hunter2") && !said.contains("hunter2"), "{shown}{said}");
}
