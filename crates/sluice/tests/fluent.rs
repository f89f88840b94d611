//! Fluent's own libraries for Node.js and Go send through the real binary, and the one for Node.js
//! receives from it: each record arrives, as it was sent.

mod doors;
mod gateway;
mod peers;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use doors::{Authority, Papers};
use gateway::{Gateway, eventually, keeping_backend};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use peers::{component, run};
use prost::Message as _;
use sluice_load_test::subject::{Subject, SubjectSpec, free_addr};
use sluice_load_test::{Backend, Faults};

/// Records of a run.
const COUNT: u64 = 1_000;
const ARRIVES_WITHIN: Duration = Duration::from_secs(60);

/// The gateway's configuration: from the receiver to a backend.
fn config(fluent: &str, backend: &Backend, more: &str) -> String {
    format!(
        "receivers:\n  fluentforward:\n    {fluent}\nexporters:\n  otlp:\n    endpoint: {}\n    \
         tls:\n      insecure: true\n{more}service:\n  pipelines:\n    logs:\n      \
         receivers: [otlp, fluentforward]\n      exporters: [otlp]\n",
        backend.addr()
    )
}

/// Runs a client until all of its records are acknowledged, or written.
async fn send(language: &str, endpoint: &str, id: &str, more: &[&str]) -> bool {
    let Some(client) = component("SLUICE_TEST_CLIENTS") else { return false };
    let count = COUNT.to_string();
    let mut words = vec![language, "--endpoint", endpoint, "--count", &count, "--run-id", id];
    words.extend(more);
    let finished = run(&client, words.into_iter().map(str::to_owned).collect()).await;
    assert_eq!(finished.code, Some(0), "{language} {more:?}: {finished:?}");
    assert_eq!(finished.stdout.lines().last(), Some(&*format!("sent {COUNT}")), "{finished:?}");
    true
}

/// Says that the libraries are missing, if they are.
fn are_installed() -> bool {
    component("SLUICE_TEST_FLUENT").is_some() && component("SLUICE_TEST_CLIENTS").is_some()
}

fn value<'v>(pairs: &'v [KeyValue], key: &str) -> Option<&'v Value> {
    let found = pairs.iter().find(|pair| pair.key == key)?;
    found.value.as_ref()?.value.as_ref()
}

fn text(value: &str) -> Value {
    Value::StringValue(value.to_owned())
}

/// The records of one run, by their numbers, and how often each came. Each is as it was sent.
fn records(backend: &Backend, id: &str) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    for request in backend.kept() {
        let request = ExportLogsServiceRequest::decode(request.body.clone()).expect("logs");
        let scopes = request.resource_logs.iter().flat_map(|resource| &resource.scope_logs);
        for record in scopes.flat_map(|scope| &scope.log_records) {
            if value(&record.attributes, "run") == Some(&text(id)) {
                *found.entry(check(record)).or_default() += 1;
            }
        }
    }
    found
}

fn check(record: &LogRecord) -> u64 {
    let Some(Value::IntValue(number)) = value(&record.attributes, "seq") else {
        panic!("{record:?}")
    };
    let number = number.cast_unsigned();
    let body = record.body.as_ref().and_then(|body| body.value.clone());
    assert_eq!(body, Some(text(&format!("log-{number}"))));
    assert_eq!(record.time_unix_nano, (1_700_000_000 + number) * 1_000_000_000 + 5);
    assert_eq!(value(&record.attributes, "fluent.tag"), Some(&text("sluice.test")));
    let Some(Value::KvlistValue(nested)) = value(&record.attributes, "nested") else {
        panic!("{record:?}")
    };
    let half = AnyValue { value: Some(Value::DoubleValue(number as f64 + 0.5)) };
    assert_eq!(nested.values[0].key, "half");
    assert_eq!(nested.values[0].value, Some(half));
    assert_eq!(record.attributes.len(), 4, "{record:?}");
    number
}

fn assert_all_once(backend: &Backend, id: &str) {
    let found = records(backend, id);
    let is_right = found.len() as u64 == COUNT && found.values().all(|count| *count == 1);
    assert!(is_right, "{id}: {} of {COUNT} records", found.len());
}

/// Scenario: each mode of the protocol, with acknowledgements when the backend has the records.
/// Guarantee: each record arrives once, and before its acknowledgement.
#[tokio::test]
async fn all_modes_of_real_clients_arrive_once() {
    if !are_installed() {
        return;
    }
    let backend = keeping_backend(100_000).await;
    let address = free_addr().expect("a free port");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("fluent.sock").display().to_string();
    let ack = "buffer:\n  ack: delivered\n";
    let fluent = format!("endpoint: {address}");
    let config = config(&fluent, &backend, ack)
        .replace(
            "receivers:\n",
            &format!("receivers:\n  fluent_forward/unix:\n    endpoint: {socket}\n"),
        )
        .replace("[otlp, fluentforward]", "[otlp, fluentforward, fluent_forward/unix]");
    let mut gateway = Gateway::start(&config).await;
    let address = address.to_string();
    for mode in ["Message", "Forward", "PackedForward", "CompressedPackedForward"] {
        assert!(send("fluent-node", &address, mode, &["--mode", mode]).await);
        assert_all_once(&backend, mode);
    }
    for (id, endpoint) in [("go", &address), ("go over a socket", &socket)] {
        assert!(send("fluent-go", endpoint, id, &[]).await);
        assert_all_once(&backend, id);
    }
    let acknowledged = gateway.metric("sluice_receiver_acknowledged_chunks_total", &[]).await;
    assert!(acknowledged >= 2.0 * COUNT as f64, "{acknowledged} chunks");
    // Without acknowledgements: all that was written is read, also after the client's end.
    assert!(send("fluent-go", &address, "go without", &["--no-ack"]).await);
    assert!(send("fluent-node", &address, "node without", &["--no-ack"]).await);
    let arrive = async |id: &str| records(&backend, id).len() as u64 == COUNT;
    for id in ["go without", "node without"] {
        assert!(eventually(ARRIVES_WITHIN, async || arrive(id).await).await, "{id}");
    }
    gateway.terminate();
    let status = gateway.ended_within(ARRIVES_WITHIN).await;
    assert!(status.success(), "{status}: {}", gateway.output());
}

/// Scenario: senders wait for the backend, which refuses all the requests for the moment.
/// Guarantee: refused chunks are not acknowledged, and their senders send them again; so nothing is
/// lost.
#[tokio::test]
async fn refused_chunks_are_sent_again() {
    if !are_installed() {
        return;
    }
    let backend = keeping_backend(100_000).await;
    backend.faults().set(Faults::unavailable(1.0));
    let address = free_addr().expect("a free port");
    // Then the sender repeats what the backend refuses.
    let more =
        "    sending_queue:\n      enabled: false\n    retry_on_failure:\n      enabled: false\n";
    let gateway = Gateway::start(&config(&format!("endpoint: {address}"), &backend, more)).await;
    let recovers = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        backend.faults().clear();
    };
    let endpoint = address.to_string();
    let (is_sent, ()) = tokio::join!(send("fluent-node", &endpoint, "refused", &[]), recovers);
    assert!(is_sent);
    let found = records(&backend, "refused");
    assert_eq!(found.len() as u64, COUNT);
    let labels = [("reason", "overloaded")];
    let refused = gateway.metric("sluice_receiver_refused_requests_total", &labels).await;
    let all = gateway.metric("sluice_receiver_refused_requests_total", &[]).await;
    assert!(refused >= 1.0, "some were refused: {refused} of {all}");
}

/// Scenario: a handshake with a shared key and a user. Guarantee: the client gets in with the right
/// ones, and not with others.
#[tokio::test]
async fn clients_have_to_know_the_shared_key() {
    if !are_installed() {
        return;
    }
    let backend = keeping_backend(100_000).await;
    let address = free_addr().expect("a free port");
    let fluent = format!(
        "endpoint: {address}\n    security: {{shared_key: correct-horse, \
         users: [{{username: me, password: battery}}]}}"
    );
    let gateway = Gateway::start(&config(&fluent, &backend, "buffer:\n  ack: delivered\n")).await;
    let (address, right) = (
        address.to_string(),
        ["--shared-key", "correct-horse", "--username", "me", "--password", "battery"],
    );
    assert!(send("fluent-node", &address, "right", &right).await);
    assert_all_once(&backend, "right");
    let client = component("SLUICE_TEST_CLIENTS").expect("is there");
    let mut words =
        vec!["fluent-node", "--endpoint", &address, "--count", "1", "--run-id", "wrong"];
    words.extend(["--shared-key", "other", "--username", "me", "--password", "battery"]);
    run(&client, words.into_iter().map(str::to_owned).collect()).await;
    assert!(records(&backend, "wrong").is_empty());
    let labels = [("reason", "unauthenticated")];
    assert!(gateway.metric("sluice_receiver_refused_requests_total", &labels).await >= 1.0);
}

/// Fluent's server for Node.js.
async fn start_server(client: &Path, address: SocketAddr, more: &[&str]) -> Subject {
    let words = ["fluent-node", "--serve", "--endpoint", &address.to_string()];
    let security = ["--shared-key", "correct-horse", "--username", "me", "--password", "battery"];
    let spec = SubjectSpec {
        name: "fluent-node".to_owned(),
        binary: client.to_owned(),
        args: words.iter().chain(&security).chain(more).map(|it| (*it).to_owned()).collect(),
        ready: Some(address.into()),
        ..SubjectSpec::default()
    };
    Subject::start(spec).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Scenario: from a real client through the receiver and the exporter to a real server, with a
/// handshake and compression. Guarantee: the server has each record as the client sent it.
#[tokio::test]
async fn a_real_server_takes_what_a_real_client_sent() {
    if !are_installed() {
        return;
    }
    let client = component("SLUICE_TEST_CLIENTS").expect("is there");
    let [address, server] = [(); 2].map(|()| free_addr().expect("a free port"));
    let subject = start_server(&client, server, &[]).await;
    let config = format!(
        "receivers:\n  fluentforward:\n    endpoint: {address}\nexporters:\n  fluentforward:\n    \
         endpoint: {server}\n    compress: gzip\n    tag_from: fluent.tag\n    \
         security: {{shared_key: correct-horse, username: me, password: battery}}\n\
         buffer:\n  ack: delivered\nservice:\n  pipelines:\n    logs:\n      \
         receivers: [otlp, fluentforward]\n      exporters: [fluentforward]\n"
    );
    let _gateway = Gateway::start(&config).await;
    assert!(send("fluent-go", &address.to_string(), "through", &[]).await);
    assert_server_got_all(&subject, "through").await;
}

/// Each record came once, as it was sent.
async fn assert_server_got_all(server: &Subject, id: &str) {
    let lines = || -> Vec<serde_json::Value> {
        let output = server.output();
        let lines = output.lines().filter(|line| line.starts_with('{'));
        lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let came = eventually(ARRIVES_WITHIN, async || lines().len() as u64 >= COUNT).await;
    assert!(came, "{} lines: {}", lines().len(), server.output_tail());
    let mut numbers: Vec<u64> = Vec::new();
    for line in lines() {
        let number = line["record"]["seq"].as_u64().expect("a number");
        let expected = serde_json::json!({
            "tag": "sluice.test",
            "time": [1_700_000_000 + number, 5],
            "record": {
                "log": format!("log-{number}"), "run": id, "seq": number,
                "nested": {"half": number as f64 + 0.5},
            },
        });
        assert_eq!(line, expected);
        numbers.push(number);
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..COUNT).collect::<Vec<_>>());
}

/// Scenario: the same over TLS on both sides, with certificates of an authority of our own.
/// Guarantee: the records arrive; a client that does not trust the receiver's certificate sends
/// nothing, and the exporter nothing to a server whose certificate it does not trust.
#[tokio::test]
async fn real_clients_and_servers_speak_tls() {
    if !are_installed() {
        return;
    }
    let client = component("SLUICE_TEST_CLIENTS").expect("is there");
    let (authority, other) = (Authority::new("own"), Authority::new("other"));
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (ca, other_ca) = (path("ca"), path("other"));
    std::fs::write(&ca, authority.pem()).expect("a file");
    std::fs::write(&other_ca, other.pem()).expect("a file");
    let papers: Papers = authority.issue();
    papers.write(folder.path());
    let (certificate, key) = (path("tls.crt"), path("tls.key"));
    let [address, server] = [(); 2].map(|()| free_addr().expect("a free port"));
    let own = ["--cert", &*certificate, "--key", &*key];
    let subject = start_server(&client, server, &own).await;
    let config = |trusted: &str| {
        format!(
            "receivers:\n  fluentforward:\n    endpoint: {address}\n    \
             tls: {{cert_file: {certificate}, key_file: {key}}}\n    \
             security: {{shared_key: correct-horse}}\nexporters:\n  fluentforward:\n    \
             endpoint: localhost:{}\n    tag_from: fluent.tag\n    {trusted}\n    \
             security: {{shared_key: correct-horse, username: me, password: battery}}\n\
             buffer:\n  ack: delivered\nservice:\n  pipelines:\n    logs:\n      \
             receivers: [otlp, fluentforward]\n      exporters: [fluentforward]\n",
            server.port()
        )
    };
    let gateway = Gateway::start(&config(&format!("tls: {{ca_file: {other_ca}}}"))).await;
    let endpoint = address.to_string();
    let shared = ["--shared-key", "correct-horse", "--ca", &*ca];
    let words = ["fluent-node", "--endpoint", &endpoint, "--count", "1", "--run-id", "untrusted"];
    let mut untrusting: Vec<_> = words.into_iter().chain(shared).map(str::to_owned).collect();
    *untrusting.last_mut().expect("the authority") = other_ca;
    run(&client, untrusting).await;
    let accepted = "sluice_receiver_accepted_requests_total";
    assert!(gateway.metric(accepted, &[("transport", "forward")]).await < 1.0);
    // The client is trusted; the exporter does not trust the server.
    let sending = send("fluent-node", &endpoint, "over TLS", &shared);
    let mended = async {
        gateway.wait_for_output("certificate", 1).await;
        assert!(!subject.output().contains("seq"), "{}", subject.output());
        gateway.reload(&config(&format!("tls: {{ca_file: {ca}}}"))).await;
    };
    let (is_sent, ()) = tokio::join!(sending, mended);
    assert!(is_sent);
    assert_server_got_all(&subject, "over TLS").await;
}
