//! The OpenTelemetry SDKs for Python, Java, Node.js and Go, and `telemetrygen`, send through the
//! real binary: each item arrives at the backend once, and unchanged.

mod gateway;
#[path = "peers/items.rs"]
mod items;
mod peers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use gateway::{Gateway, eventually, keeping_backend};
use items::{ReceivedItem, Texts, items_of};
use peers::{component, pass_over, run};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use sluice_load_test::Backend;
use sluice_load_test::subject::free_addr;
use sluice_otlp::{Encoding, Signal};
use tempfile::TempDir;

/// Items of each signal in a run: three exports of an SDK.
const COUNT: u64 = 1_200;
const TOKEN: &str = "correct-horse";
/// In `memory` mode the sender is answered before the backend has anything.
const ARRIVES_WITHIN: Duration = Duration::from_secs(30);

/// The gateway, and its receiver, that a client sends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// `buffer.ack: delivered`.
    Delivered,
    /// `buffer.ack: memory`.
    Memory,
    /// `delivered`, with TLS and a bearer token.
    Guarded,
}

/// One run of a client.
#[derive(Clone, Copy, Debug)]
struct Run {
    protocol: &'static str,
    compression: &'static str,
    door: Door,
}

/// The gateways, one for each promise to senders, before one backend.
struct Site {
    backend: Backend,
    delivered: Gateway,
    memory: Gateway,
    guarded: [std::net::SocketAddr; 2],
    folder: TempDir,
}

impl Site {
    async fn start() -> Site {
        let backend = keeping_backend(100_000).await;
        let folder = TempDir::new().expect("a folder");
        write_certificates(folder.path());
        let guarded = [(); 2].map(|()| free_addr().expect("a free port"));
        let delivered = Gateway::start(&guarded_config(&backend, guarded, folder.path())).await;
        let memory = Gateway::start(&config(&backend, "memory", "otlp")).await;
        Site { backend, delivered, memory, guarded, folder }
    }

    fn arguments(&self, run: Run, id: &str) -> Vec<String> {
        let is_grpc = run.protocol == "grpc";
        let gateway = if run.door == Door::Memory { &self.memory } else { &self.delivered };
        let port = match run.door {
            Door::Guarded => self.guarded[usize::from(!is_grpc)].port(),
            _ if is_grpc => gateway.grpc.port(),
            _ => gateway.http.port(),
        };
        let endpoint = format!("localhost:{port}");
        let count = COUNT.to_string();
        let mut words = vec![
            "--protocol",
            run.protocol,
            "--compression",
            run.compression,
            "--endpoint",
            &endpoint,
        ];
        words.extend(["--count", &count, "--run-id", id]);
        let (authority, header) = (self.authority(), format!("authorization=Bearer {TOKEN}"));
        let authority = authority.display().to_string();
        if run.door == Door::Guarded {
            words.extend(["--ca", &authority, "--header", &header]);
        }
        words.into_iter().map(str::to_owned).collect()
    }

    fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The items of one run.
    fn items(&self, signal: Signal, id: &str) -> Vec<ReceivedItem> {
        let is_of_run = |item: &ReceivedItem| {
            item.attributes.get("sluice.test.run").is_some_and(|run| run == id)
        };
        items_of(&self.backend.kept(), signal).into_iter().filter(is_of_run).collect()
    }

    /// Ends the gateways, so that nothing is on its way any more.
    async fn close(&mut self) {
        for gateway in [&mut self.delivered, &mut self.memory] {
            gateway.terminate();
            let status = gateway.ended_within(ARRIVES_WITHIN).await;
            assert!(status.success(), "{status}: {}", gateway.output());
        }
    }
}

/// Everything that the receiver `receivers` takes goes to the backend.
fn config(backend: &Backend, ack: &str, receivers: &str) -> String {
    let pipeline = |signal| {
        format!("    {signal}:\n      receivers: [{receivers}]\n      exporters: [otlp]\n")
    };
    let pipelines: String = Signal::ALL.map(pipeline).concat();
    format!(
        "exporters:\n  otlp:\n    endpoint: {}\n    tls:\n      insecure: true\nbuffer:\n  ack: {ack}\nservice:\n  \
         pipelines:\n{pipelines}",
        backend.addr()
    )
}

fn guarded_config(
    backend: &Backend,
    [grpc, http]: [std::net::SocketAddr; 2],
    folder: &Path,
) -> String {
    let folder = folder.display();
    let door = |protocol, address| {
        format!(
            "      {protocol}:\n        endpoint: {address}\n        auth:\n          authenticator: bearertokenauth\n        \
             tls:\n          cert_file: {folder}/server.pem\n          \
             key_file: {folder}/server.key\n"
        )
    };
    let common = config(backend, "delivered", "otlp, otlp/guarded").replacen(
        "service:\n",
        "service:\n  extensions: [health_check, bearertokenauth]\n",
        1,
    );
    format!(
        "receivers:\n  otlp/guarded:\n    protocols:\n{}{}extensions:\n  bearertokenauth:\n    token: {TOKEN}\n{common}",
        door("grpc", grpc),
        door("http", http)
    )
}

/// An authority, and a certificate of it for localhost.
fn write_certificates(folder: &Path) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // OpenSSL takes a certificate whose issuer has its own name for one that it signed itself.
    authority.distinguished_name.push(DnType::CommonName, "sluice test authority");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key"))
        .expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let server =
        CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).expect("names");
    let server = server.signed_by(&key, &authority).expect("a certificate");
    let files = [
        ("ca.pem", authority.pem()),
        ("server.pem", server.pem()),
        ("server.key", key.serialize_pem()),
    ];
    for (name, contents) in files {
        std::fs::write(folder.join(name), contents).expect("a file");
    }
}

/// The text that the clients promise for item `sequence` (see `tests/clients/README.md`).
fn expected_text(signal: Signal, sequence: u64) -> String {
    match signal {
        Signal::Traces => format!("sluice.test: span-{sequence} root"),
        // Cumulative is 2.
        Signal::Metrics => {
            "sluice.test: sluice.test.counter sum monotonic=true temporality=2 1".to_owned()
        }
        Signal::Logs => format!("sluice.test: log-{sequence} severity=9"),
    }
}

/// Resource attributes that do not depend on the process that sends.
fn lasting(resource: &Texts) -> Texts {
    let lasting = |key: &str| !key.starts_with("process.") && key != "service.instance.id";
    resource
        .iter()
        .filter(|(key, _)| lasting(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Asserts that every item of a run is there once, and as it was sent.
fn assert_exactly_once(items: &[ReceivedItem], signal: Signal, resource: &Texts, case: &str) {
    let sequence = |item: &ReceivedItem| -> u64 {
        let text =
            item.attributes.get("sluice.test.seq").unwrap_or_else(|| panic!("{case}: {item:?}"));
        let digits = text.strip_prefix("Some(IntValue(").and_then(|rest| rest.strip_suffix("))"));
        digits
            .and_then(|digits| digits.parse().ok())
            .unwrap_or_else(|| panic!("{case}: sequence {text}"))
    };
    let mut sequences: Vec<u64> = items.iter().map(sequence).collect();
    sequences.sort_unstable();
    assert!(
        sequences == (0..COUNT).collect::<Vec<_>>(),
        "{case} {signal}: {} of {COUNT} items",
        items.len()
    );
    for item in items {
        assert_eq!(item.text, expected_text(signal, sequence(item)), "{case}");
        assert_eq!(item.attributes.len(), 2, "{case}: {item:?}");
        assert_eq!(lasting(&item.resource), *resource, "{case} {signal}");
    }
}

/// The resource that the client sends to a backend without a gateway between, over each protocol,
/// in its encoding: behind a gateway, the two could not be told apart.
async fn resource_sent_directly(
    client: &Path,
    language: &str,
    protocols: &[&str],
) -> Option<Texts> {
    let mut sent = Vec::new();
    for &protocol in protocols {
        for (compression, encoding) in [("none", Encoding::Identity), ("gzip", Encoding::Gzip)] {
            let case = format!("{language} {protocol} {compression}");
            let backend = keeping_backend(10).await;
            let endpoint = backend.addr().to_string();
            // A single item may be larger compressed, and is then sent as it is.
            let words = [
                language,
                "--protocol",
                protocol,
                "--compression",
                compression,
                "--endpoint",
                &endpoint,
            ];
            let words = words
                .into_iter()
                .chain(["--count", "100", "--run-id", "direct"])
                .map(str::to_owned)
                .collect();
            let finished = run(client, words).await;
            if finished.code == Some(127) {
                pass_over(&format!("the client for {language} is not installed"));
                return None;
            }
            assert_eq!(finished.code, Some(0), "{case}: {finished:?}");
            let kept = backend.kept();
            for signal in Signal::ALL {
                assert!(kept.iter().any(|request| request.signal == signal), "{case}: no {signal}");
            }
            for request in &kept {
                let came = (request.encoding, request.is_json);
                assert_eq!(came, (encoding, protocol == "http-json"), "{case} {}", request.signal);
            }
            if protocol != "http-json" {
                sent.extend(
                    Signal::ALL.map(|signal| lasting(&items_of(&kept, signal)[0].resource)),
                );
            }
        }
    }
    assert!(sent.iter().all(|resource| *resource == sent[0]), "{language}: {sent:?}");
    assert_eq!(sent[0]["service.name"], format!("sluice-test-{language}"));
    sent.into_iter().next()
}

/// The SDK of one language: every combination of protocol, compression and promise, and once
/// through TLS with a token.
async fn sdk_exports_arrive_once(language: &str, protocols: &[&'static str]) {
    let Some(client) = component("SLUICE_TEST_CLIENTS") else { return };
    let Some(resource) = resource_sent_directly(&client, language, protocols).await else { return };
    let mut site = Site::start().await;
    let mut runs = Vec::new();
    for &protocol in protocols {
        for compression in ["none", "gzip"] {
            for door in [Door::Delivered, Door::Memory] {
                runs.push(Run { protocol, compression, door });
            }
        }
        runs.push(Run { protocol, compression: "gzip", door: Door::Guarded });
    }
    for &way in &runs {
        let id = format!("{way:?}");
        let mut words = vec![language.to_owned()];
        words.extend(site.arguments(way, &id));
        let finished = run(&client, words).await;
        let case = format!("{language} {way:?}: {finished:?}");
        assert_eq!(finished.code, Some(0), "{case}");
        let sent = format!("exported traces={COUNT} metrics={COUNT} logs={COUNT}");
        assert_eq!(finished.stdout.lines().last(), Some(sent.as_str()), "{case}");
        if way.door != Door::Memory {
            let arrived = Signal::ALL.map(|signal| site.items(signal, &id).len() as u64);
            assert_eq!(arrived, [COUNT; 3], "the sender is answered when it is delivered: {case}");
        }
    }
    assert_wrong_token_is_refused(&site, &client, language).await;
    let all = runs.len() as u64 * COUNT * Signal::ALL.len() as u64;
    let arrived = eventually(ARRIVES_WITHIN, async || site.backend.items() >= all).await;
    assert!(arrived, "{language}: {} of {all} items", site.backend.items());
    site.close().await;
    for way in runs {
        for signal in Signal::ALL {
            assert_exactly_once(
                &site.items(signal, &format!("{way:?}")),
                signal,
                &resource,
                &format!("{language} {way:?}"),
            );
        }
    }
    assert_eq!(site.backend.items(), all, "{language}: nothing but what was sent");
}

/// The SDK learns that its export failed, and nothing of it gets through.
async fn assert_wrong_token_is_refused(site: &Site, client: &Path, language: &str) {
    let run_as_stranger = Run { protocol: "http", compression: "none", door: Door::Guarded };
    let mut words = vec![language.to_owned()];
    words.extend(
        site.arguments(run_as_stranger, "stranger").iter().map(|word| word.replace(TOKEN, "wrong")),
    );
    let finished = run(client, words).await;
    assert_eq!(finished.code, Some(1), "{language}: {finished:?}");
    for signal in Signal::ALL {
        assert!(site.items(signal, "stranger").is_empty(), "{language} {signal}");
    }
}

#[tokio::test]
async fn the_python_sdk_is_relayed_exactly_once() {
    sdk_exports_arrive_once("python", &["grpc", "http"]).await;
}

#[tokio::test]
async fn the_java_sdk_is_relayed_exactly_once() {
    sdk_exports_arrive_once("java", &["grpc", "http"]).await;
}

#[tokio::test]
async fn the_node_sdk_is_relayed_exactly_once() {
    sdk_exports_arrive_once("node", &["grpc", "http", "http-json"]).await;
}

#[tokio::test]
async fn the_go_sdk_is_relayed_exactly_once() {
    sdk_exports_arrive_once("go", &["grpc", "http"]).await;
}

/// `telemetrygen`, two workers, over gRPC and HTTP: as many items as it was told to make, and no
/// span twice.
#[tokio::test]
async fn telemetrygen_is_relayed_exactly_once() {
    const EACH: usize = 500;
    let Some(binary) = component("SLUICE_TEST_TELEMETRYGEN") else { return };
    let mut site = Site::start().await;
    let each = EACH.to_string();
    for (signal, flag, path) in [
        (Signal::Traces, "--traces", "/v1/traces"),
        (Signal::Metrics, "--metrics", "/v1/metrics"),
        (Signal::Logs, "--logs", "/v1/logs"),
    ] {
        for is_http in [false, true] {
            let endpoint =
                if is_http { site.delivered.http } else { site.delivered.grpc }.to_string();
            let id = format!("sluice.test.run=\"{signal}-{is_http}\"");
            let mut words = vec![
                signal.as_str(),
                flag,
                &each,
                "--workers",
                "2",
                "--rate",
                "0",
                "--otlp-insecure",
            ];
            words.extend(["--otlp-endpoint", &endpoint, "--telemetry-attributes", &id]);
            if is_http {
                words.extend(["--otlp-http", "--otlp-http-url-path", path]);
            }
            let finished = run(&binary, words.into_iter().map(str::to_owned).collect()).await;
            assert_eq!(finished.code, Some(0), "{finished:?}");
        }
    }
    site.close().await;
    for is_http in [false, true] {
        for signal in Signal::ALL {
            let items = site.items(signal, &format!("{signal}-{is_http}"));
            // A trace has a child.
            let expected = 2 * EACH * if signal == Signal::Traces { 2 } else { 1 };
            assert_eq!(items.len(), expected, "{signal}, HTTP: {is_http}");
            assert!(
                items.iter().all(|item| item.resource["service.name"] == "telemetrygen"),
                "{signal}"
            );
            if signal == Signal::Traces {
                let ids: std::collections::HashSet<_> =
                    items.iter().map(|item| item.span_id.clone()).collect();
                assert_eq!(ids.len(), expected, "no span comes twice");
            }
        }
    }
}
