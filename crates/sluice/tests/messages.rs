//! The log, the pages and the commands say the truth: of refused, dropped and held data, of reloads
//! that fail, and of starts that do.

mod gateway;

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use gateway::{Gateway, SOON, eventually, fan_out, faulty_backend, get, refusing, request};
use serde_json::Value;
use sluice_load_test::{Backend, Code, Faults, Load};
use sluice_net::compress::decompress;
use sluice_otlp::{Encoding, Signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn sluice(arguments: &[&str], output: Stdio) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(arguments)
        .stdout(output)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .expect("sluice runs")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Sends this head and body to the HTTP port.
async fn post(gateway: &Gateway, headers: &str, body: &str) -> u16 {
    let length = match headers.contains("content-length") {
        true => String::new(),
        false => format!("content-length: {}\r\n", body.len()),
    };
    let text = format!(
        "POST /v1/traces HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-type: application/json\r\n{length}{headers}\r\n{body}"
    );
    request(gateway.http, &text).await.expect("an answer").0
}

/// Scenario: senders without a token, with a request that the memory limit can never hold, with
/// one beyond the receiver's limit, with nonsense, and to a wrong path. Guarantee: each gets its
/// answer, is counted under a reason of its own, and the log names receiver, reason and remedy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_at_the_door_are_in_the_log() {
    let backend = Backend::healthy().await.expect("a backend");
    let config = fan_out(Signal::Traces, 128, &[("backend", &backend)]);
    let service = "service:\n  extensions: [health_check, bearertokenauth]\n";
    let config = config.replace("service:\n", service);
    let gateway = Gateway::start(&format!(
        "receivers:\n  otlp:\n    protocols:\n      http:\n        \
         auth: {{authenticator: bearertokenauth}}\n\
         extensions:\n  bearertokenauth: {{token: good}}\n{config}"
    ))
    .await;
    const GOOD: &str = "authorization: Bearer good\r\n";
    let large = |bytes: u64| format!("{GOOD}content-length: {bytes}\r\n");
    for (headers, body, status, reason, remedy) in [
        ("authorization: Bearer bad\r\n", "{}", 401, "unauthenticated", "auth.authenticator"),
        (&large(60_000_000), "", 413, "never_fits", "raise the memory limit"),
        (&large(70_000_000), "", 413, "too_large", "max_request_body_size"),
        (GOOD, "{]", 400, "invalid", "no valid OTLP"),
    ] {
        let began = Instant::now();
        assert_eq!(post(&gateway, headers, body).await, status, "{reason}");
        let labels = [("receiver", "otlp"), ("reason", reason)];
        let count = gateway.metric("sluice_receiver_refused_requests", &labels).await;
        assert_eq!(count, 1.0, "{reason}");
        gateway.wait_for_output(remedy, 1).await;
        let output = gateway.output();
        let line = output.lines().find(|line| line.contains(remedy)).expect("a line");
        for part in ["WARN", "receiver=\"otlp\"", "transport=\"http\"", "peer=\"127.0.0.1:", reason]
        {
            assert!(line.contains(part), "{part}: {line}");
        }
        // Ten more are told only later. After a refusal of an announced body it takes seconds until
        // the connection ends.
        for _ in 0..if reason == "unauthenticated" { 10 } else { 0 } {
            assert_eq!(post(&gateway, headers, body).await, status);
        }
        let most = 1 + began.elapsed().as_secs() as usize / 10;
        assert!(gateway.count_in_output(remedy) <= most, "{}", gateway.output());
    }
    assert_eq!(get(gateway.http, "/elsewhere").await.expect("an answer").0, 404);
    gateway.wait_for_output("there is no path /elsewhere", 1).await;
}

/// Scenario: a backend refuses an item for good, and there is no room for dead letters. Guarantee:
/// neither the log nor the page says that the item is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_is_not_kept_is_not_said_to_be() {
    for (limit_mib, kept) in [(0, false), (1, true)] {
        let backend = faulty_backend(Faults::rejecting_poison()).await;
        let config = fan_out(Signal::Traces, 128, &[("backend", &backend)]);
        let limit = format!("buffer:\n  dead_letters:\n    limit_mib: {limit_mib}\n");
        let gateway = Gateway::start(&config.replace("buffer:\n", &limit)).await;
        let load = gateway.load(Signal::Traces).items(100);
        Load { poison_every: Some(100), ..load }.run().await.expect("a load");
        let (said, unsaid) = match kept {
            true => ("cannot be delivered and become dead letters", "are dropped"),
            false => ("cannot be delivered and are dropped", "become dead letters"),
        };
        gateway.wait_for_output(said, 1).await;
        assert_eq!(gateway.count_in_output(unsaid), 0, "{}", gateway.output());
        let has_page = async || !gateway.dead_letters().await.ends_with("\r\n\r\n");
        assert!(eventually(SOON, has_page).await);
        let page = gateway.dead_letters().await;
        let (line, count) = if kept { ("1 items in 1 letters", 1) } else { ("0 items in 0", 0) };
        assert!(page.contains(line), "{page}");
        assert_eq!(page.contains("1 items are not kept: they gave way"), !kept, "{page}");
        assert_eq!(gateway.metric("sluice_delivery_dead_letters", &[]).await, f64::from(count));
    }
}

/// Scenario: a backend refuses credentials. Guarantee: the log says what becomes of the data once
/// the budget is spent, as the policy has it, and promises nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_delivery_promises_what_its_policy_keeps() {
    for (policy, then) in [
        ("backpressure", "senders are refused"),
        ("drop_oldest", "the oldest is dropped"),
        (
            "isolate",
            "the oldest that another delivery has taken is dropped, or senders are refused",
        ),
    ] {
        let backend = faulty_backend(refusing(1.0, Code::Unauthenticated)).await;
        let config = fan_out(Signal::Traces, 128, &[("backend", &backend)]);
        let policy = format!("      buffer: {{policy: {policy}}}\n");
        let gateway = Gateway::start(&(config + &policy)).await;
        gateway.load(Signal::Traces).items(100).run().await.expect("a load");
        gateway.wait_for_output("delivery held", 1).await;
        let output = gateway.output();
        let promise = format!("; once its budget is spent, {then}");
        for line in ["delivery held", "refuses requests as it is configured"] {
            let line = output.lines().find(|it| it.contains(line)).expect("a line");
            assert!(line.contains(&promise), "{promise}: {line}");
        }
        assert!(!output.contains("is kept"), "{output}");
    }
}

/// Scenario: requests hang at a backend. Guarantee: their age has a figure of its own, and `/log`
/// says how many they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_in_flight_have_an_age_of_their_own() {
    let backend = faulty_backend(gateway::delaying(Duration::from_secs(3600))).await;
    let config = fan_out(Signal::Traces, 128, &[("backend", &backend)]);
    let config = config.replace("    compression", "    timeout: 60s\n    compression");
    let gateway = Gateway::start(&config).await;
    let age = async || gateway.metric("sluice_delivery_in_flight_age_seconds", &[]).await;
    assert_eq!(age().await, 0.0);
    gateway.load(Signal::Traces).items(100).run().await.expect("a load");
    assert!(eventually(SOON, async || age().await > 1.0).await);
    assert!(gateway.metric("sluice_delivery_oldest_age_seconds", &[]).await >= 1.0);
    let (_, page) = get(gateway.metrics, "/log").await.expect("a page");
    assert!(page.contains("requests of these in flight, the oldest was sent "), "{page}");
}

/// Scenario: a reload whose file has two errors, then a good one, with a log in JSON. Guarantee:
/// one line of JSON has the reasons with their places, and the metrics say that it failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_that_fails_is_in_the_log_and_in_the_metrics() {
    let backend = Backend::healthy().await.expect("a backend");
    let config = fan_out(Signal::Traces, 128, &[("backend", &backend)])
        .replace("service:\n", "service:\n  telemetry: {logs: {encoding: json}}\n");
    let gateway = Gateway::start(&config).await;
    let figures = async || {
        let scrape = gateway.scrape().await;
        let reloads = |result| scrape.sum("sluice_configuration_reloads", &[("result", result)]);
        let last = scrape.sum("sluice_configuration_last_reload_failed", &[]);
        [reloads("succeeded"), reloads("failed"), last].map(|figure| figure.expect("a figure"))
    };
    assert_eq!(figures().await, [0.0, 0.0, 0.0]);
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    assert_eq!(gateway.metric("sluice_build_info", &version).await, 1.0);
    let first = gateway.output().lines().next().expect("a line").to_owned();
    let first: Value = serde_json::from_str(&first).expect("JSON");
    assert_eq!(first["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(first["health"], format!("{}/", gateway.health));
    assert!(first["configuration"].as_str().expect("text").contains("gateway.yaml"), "{first}");
    gateway.reconfigure(&config.replace("compression: none", "compression: nine\n    tiemout: 5s"));
    gateway.wait_for_output("not reloaded, the old configuration goes on", 1).await;
    let output = gateway.output();
    let line = output.lines().find(|line| line.contains("not reloaded")).expect("a line");
    let line: Value = serde_json::from_str(line).expect("JSON");
    let reason = line["reason"].as_str().expect("a reason");
    assert_eq!(line["errors"], 2);
    for part in ["gateway.yaml:4: `exporters.otlp/backend.compression` must be", "gateway.yaml:5: "]
    {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    assert_eq!(figures().await, [0.0, 1.0, 1.0]);
    gateway.reconfigure(&config);
    gateway.wait_for_output("\"reloaded\"", 1).await;
    assert_eq!(figures().await, [1.0, 1.0, 0.0]);
    let is_json = |line: &str| serde_json::from_str::<Value>(line).is_ok();
    assert!(gateway.output().lines().all(is_json), "{}", gateway.output());
}

/// Guarantee: a page of metrics is packed with gzip for a client that takes that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_packed_when_asked() {
    let backend = Backend::healthy().await.expect("a backend");
    let gateway = Gateway::start(&fan_out(Signal::Traces, 128, &[("backend", &backend)])).await;
    for packs in [true, false] {
        let asked = if packs { "accept-encoding: br, gzip;q=0.5\r\n" } else { "" };
        let mut stream = TcpStream::connect(gateway.metrics).await.expect("connects");
        let head = "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
        stream.write_all(format!("{head}{asked}\r\n").as_bytes()).await.expect("is sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("an answer");
        let end = answer.windows(4).position(|it| it == b"\r\n\r\n").expect("a head") + 4;
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        assert_eq!(head.contains("content-encoding: gzip"), packs, "{head}");
        assert!(head.contains("vary: accept-encoding"), "{head}");
        let encoding = if packs { Encoding::Gzip } else { Encoding::Identity };
        let body = bytes::Bytes::from(answer.split_off(end));
        let page = decompress(encoding, &body, 1 << 24).expect("whole");
        assert!(page.windows(17).any(|it| it == b"sluice_build_info"), "{head}");
    }
}

/// Scenario: starts that fail: a directory that is a file, certificates that are not there, a port
/// of another process. Guarantee: the error names the component and its line, says the cause once,
/// and no remedy that would not help.
#[test]
fn a_start_that_fails_says_where_and_why_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gateway.yaml");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address");
    let tls = "tls: {cert_file: /no/cert, key_file: /no/key}";
    for (grpc, more, expected, cause) in [
        (
            "endpoint: localhost:0".to_owned(),
            format!("buffer: {{directory: {}}}\n", file.display()),
            "buffer.directory: ",
            "Not a directory (os error 20); it has to be a directory",
        ),
        (
            format!("endpoint: localhost:0\n        {tls}"),
            String::new(),
            "gateway.yaml:2): grpc: tls: cannot read /no/cert",
            "No such file or directory (os error 2)",
        ),
        (
            format!("endpoint: {taken}"),
            String::new(),
            "gateway.yaml:2): grpc: cannot listen on ",
            "another process listens there already",
        ),
        (
            "endpoint: localhost:0".to_owned(),
            "service::telemetry::logs::output_paths: [/no/such/log]\n".to_owned(),
            "cannot open `/no/such/log` of `service.telemetry.logs.output_paths`",
            "No such file or directory (os error 2)",
        ),
    ] {
        let text = format!(
            "receivers:\n  otlp:\n    protocols:\n      grpc:\n        {grpc}\n\
             exporters: {{nop: }}\n{more}\
             service:\n  telemetry: {{metrics: {{level: none}}}}\n  \
             pipelines: {{traces: {{receivers: [otlp], exporters: [nop]}}}}\n"
        );
        std::fs::write(&path, text).expect("a configuration");
        let output = sluice(&["run", path.to_str().expect("a name")], Stdio::null());
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        let last = errors.lines().last().expect("an error");
        assert!(last.contains(expected), "{expected}: {errors}");
        assert_eq!(last.matches(cause).count(), 1, "{cause}: {errors}");
        assert!(!last.contains("a directory of its own"), "{errors}");
    }
}

/// Scenario: `debug` beside each setting of the log. Guarantee: as in the Collector, its text goes
/// to the log's output, in its encoding, and nowhere if the level is above `info`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debug_writes_through_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("log");
    let to_file = format!("output_paths: ['{}']", file.display());
    for logs in ["level: warn", "level: info", "encoding: json", &to_file] {
        let mut gateway = Gateway::start(&format!(
            "exporters:\n  debug: {{verbosity: normal}}\nservice:\n  \
             telemetry: {{logs: {{{logs}}}}}\n  \
             pipelines: {{traces: {{receivers: [otlp], exporters: [debug]}}}}\n"
        ))
        .await;
        gateway.accepts(100).await;
        let sent = async || gateway.metric("otelcol_exporter_sent_spans", &[]).await == 100.0;
        assert!(eventually(SOON, sent).await, "{logs}");
        gateway.terminate();
        gateway.ended_within(SOON).await;
        let output = match logs == to_file {
            true => std::fs::read_to_string(&file).expect("the log"),
            false => gateway.output(),
        };
        let id = "\"otelcol.component.id\": \"debug\"";
        let heads: Vec<_> = output.lines().filter(|line| line.contains(id)).collect();
        match logs {
            "level: warn" => assert_eq!(heads, Vec::<&str>::new()),
            "encoding: json" => {
                let head: Value = serde_json::from_str(heads[0]).expect("JSON");
                assert_eq!((&head["level"], &head["msg"]), (&"info".into(), &"Traces".into()));
                assert!(head["spans"].as_u64().is_some_and(|spans| spans > 0), "{head}");
            }
            _ => assert!(heads[0].contains("Z\tinfo\tTraces\t{\"otel"), "{}", heads[0]),
        }
        let elsewhere = logs == to_file && gateway.output().contains(id);
        assert!(!elsewhere, "{}", gateway.output());
    }
}

/// Guarantee: `plan` says where receivers listen, where exporters send, and how both are secured.
#[test]
fn a_plan_has_addresses_tls_and_authentication() {
    let text = "receivers:\n  otlp:\n    protocols:\n      grpc: {endpoint: '0.0.0.0:4317'}\n      \
                http:\n        endpoint: localhost:4318\n        \
                auth: {authenticator: bearertokenauth}\n        \
                tls: {cert_file: a, key_file: b, client_ca_file: c}\n\
                exporters:\n  otlp: {endpoint: 'backend:4317', tls: {insecure: true}}\n  \
                otlphttp: {endpoint: 'https://backend/x', auth: {authenticator: bearertokenauth}}\n\
                \x20 file: {path: /tmp/x.json}\n\
                extensions:\n  bearertokenauth: {token: t}\n  health_check: \n\
                buffer: {memory: {limit_mib: 128}}\n\
                service:\n  extensions: [bearertokenauth, health_check]\n  pipelines:\n    \
                traces: {receivers: [otlp], exporters: [otlp, otlphttp, file]}\n";
    let output = sluice(&["plan", &format!("yaml:{text}")], Stdio::piped());
    let plan = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "otlp receives at 0.0.0.0:4317 (grpc; no TLS; no authentication; requests up to ",
        "otlp receives at localhost:4318 (http; mutual TLS; bearertokenauth; requests up to ",
        "\nfile sends to /tmp/x.json\n",
        "\notlp sends to backend:4317 (no TLS; no authentication)\n",
        "\notlphttp sends to https://backend/x (TLS; bearertokenauth)\n",
        "\nMetrics: http://localhost:8888/metrics\n",
        "\nHealth: http://localhost:13133/\n",
    ] {
        assert!(plan.contains(line), "{line}: {plan}{}", errors(&output));
    }
}
