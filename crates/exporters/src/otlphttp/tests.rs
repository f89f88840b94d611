//! Against real listeners over HTTP/1.1, TLS with HTTP/2, and a proxy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluice_flow::Outcome;
use sluice_net::auth::client::ClientAuths;
use sluice_net::compress;
use sluice_otlp::{Encoding, Signal};

use super::config::OtlpHttpConfig;
use crate::tests::{
    Backend, HttpRequest, Moving, authority, context, exporter, http_backend, kind, one_span,
    packed, read, read_http, send, write_http,
};
use crate::{ExporterConfig as _, Files};

/// Heads and bodies.
type Seen = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

pub(super) fn ok() -> (String, String, Vec<u8>) {
    ("200 OK".to_owned(), "content-type: application/x-protobuf\r\n".to_owned(), Vec::new())
}

fn unpacked(coding: &str, body: &[u8]) -> Vec<u8> {
    const LIMIT: usize = 1 << 20;
    match coding {
        "zlib" | "deflate" => compress::decompress(compress::Packing::Zlib, body, LIMIT),
        "lz4" => compress::decompress(compress::Packing::Lz4, body, LIMIT),
        "none" => compress::decompress(Encoding::Identity, body, LIMIT),
        "x-snappy-framed" => compress::decompress(Encoding::Snappy, body, LIMIT),
        name => compress::decompress(Encoding::from_name(name).expect("is known"), body, LIMIT),
    }
    .expect("unpacks")
    .to_vec()
}

/// Scenario: each format and compression. Guarantee: the backend can read path, headers and body,
/// on one kept connection.
#[tokio::test]
async fn requests_are_written_as_configured() {
    let seen = Seen::default();
    let taken = seen.clone();
    let backend = http_backend(move |request: &HttpRequest| {
        taken.lock().push((request.head.clone(), request.body.clone()));
        ok()
    })
    .await;
    for (format, compression) in [
        ("proto", "none"),
        ("proto", "gzip"),
        ("proto", "zstd"),
        ("proto", "snappy"),
        ("proto", "x-snappy-framed"),
        ("proto", "zlib"),
        ("proto", "deflate"),
        ("proto", "lz4"),
        ("json", "none"),
        ("json", "gzip"),
        ("json", "deflate"),
        ("json", "lz4"),
    ] {
        let text = format!(
            "endpoint: http://{}/base/\nencoding: {format}\ncompression: {compression}\nheaders: {{X-Tenant: blue}}",
            backend.address
        );
        let before = backend.accepted();
        let exporter = exporter("otlphttp", &text);
        for _ in 0..3 {
            assert_eq!(send(&*exporter).await, Outcome::Delivered, "{format} {compression}");
        }
        assert_eq!(backend.accepted() - before, 1, "{format} {compression}");
        let (head, body) = seen.lock().pop().expect("a request");
        assert!(head.starts_with("post /base/v1/traces http/1.1\r\n"), "{head}");
        assert!(
            head.contains("x-tenant: blue") && head.contains("user-agent: sluice/test"),
            "{head}"
        );
        let content_type =
            if format == "json" { "application/json" } else { "application/x-protobuf" };
        assert!(head.contains(&format!("content-type: {content_type}")), "{head}");
        let coding = head.lines().find_map(|line| line.strip_prefix("content-encoding: "));
        assert_eq!(coding, (compression != "none").then_some(compression), "{head}");
        assert_eq!(body.starts_with(b"\xff\x06\0\0sNaPpY"), compression == "x-snappy-framed");
        let body = unpacked(compression, &body);
        match format {
            "json" => {
                let json: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
                assert_eq!(json["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"], "work");
            }
            _ => assert_eq!(body, one_span()),
        }
        exporter.shutdown();
    }
    backend.all_closed().await;
}

/// Scenario: a signal's own URL, and a signal without any. Guarantee: the first is used as it
/// stands; the second is misconfigured and says why.
#[tokio::test]
async fn signals_have_their_own_urls() {
    let backend = http_backend(|request: &HttpRequest| {
        assert!(request.head.starts_with("post /own?x=1 http/1.1\r\n"), "{}", request.head);
        ok()
    })
    .await;
    let exporter =
        exporter("otlphttp", &format!("traces_endpoint: http://{}/own?x=1", backend.address));
    assert_eq!(send(&*exporter).await, Outcome::Delivered);
    let logs = packed(&*exporter, Signal::Logs, Vec::new());
    assert_eq!(kind(&exporter.send(&logs).await), "misconfigured");
}

/// Scenario: the answers of a backend. Guarantee: the specification's outcomes, with delays and
/// texts.
#[tokio::test]
async fn every_answer_has_its_outcome() {
    for (status, headers, body, expected) in [
        ("202 Accepted", "content-type: application/x-protobuf\r\n", &b"\x0a\x00"[..], "delivered"),
        (
            "200 OK",
            "content-type: application/x-protobuf\r\n",
            b"\x0a\x07\x08\x02\x12\x03bad",
            "partly",
        ),
        (
            "200 OK",
            "content-type: application/json\r\n",
            br#"{"partialSuccess":{"rejectedSpans":"2"}}"#,
            "partly",
        ),
        ("429 Slow", "retry-after: 7\r\n", b"", "retry"),
        ("503 Busy", "", b"", "retry"),
        ("413 Large", "", b"", "large"),
        ("401 Who", "", b"", "misconfigured"),
        ("403 No", "", b"", "misconfigured"),
        ("404 Where", "", b"", "misconfigured"),
        ("302 There", "location: http://127.0.0.1:1/\r\n", b"", "misconfigured"),
        ("400 Bad", "content-type: text/plain\r\n", b"bad", "rejected"),
        ("500 Broken", "", b"", "failed"),
    ] {
        let backend = http_backend(move |_: &HttpRequest| {
            (status.to_owned(), headers.to_owned(), body.to_vec())
        })
        .await;
        let exporter = exporter("otlphttp", &format!("endpoint: http://{}", backend.address));
        let outcome = send(&*exporter).await;
        assert_eq!(kind(&outcome), expected, "{status}: {outcome:?}");
        if status.starts_with("429") {
            let Outcome::RetryAfter { delay, .. } = outcome else { panic!("{outcome:?}") };
            assert_eq!(delay, Some(Duration::from_secs(7)));
        }
        exporter.shutdown();
        backend.all_closed().await;
    }
}

/// Scenario: backends that close, never answer, or send garbage, half an answer, endless headers,
/// bodies or trailers. Guarantee: each request gets a retry with the reason, within its deadline
/// or, where no end is in sight, long before it; no connection stays.
#[tokio::test]
async fn broken_backends_hold_nothing() {
    use tokio::io::AsyncWriteExt;
    for (way, timeout, expected) in [
        ("close", "30s", "the connection was lost"),
        ("silence", "500ms", "deadline"),
        ("garbage", "30s", "invalid HTTP version"),
        ("half", "30s", "the connection was lost"),
        ("header", "30s", "message head is too large"),
        ("headers", "30s", "message head is too large"),
        ("body", "30s", "the peer's answer exceeds 4194304 bytes"),
        ("chunks", "30s", "the peer's answer exceeds 4194304 bytes"),
        ("trailers", "30s", "chunk trailers count overflow"),
    ] {
        let backend = Backend::start(move |mut stream, _| async move {
            if way != "close" {
                read_http(&mut stream).await;
            }
            let x = vec![b'x'; 1 << 16];
            let (head, endless) = match way {
                "silence" => return drop(stream.readable().await),
                "garbage" => ("", x),
                "half" => {
                    return drop(
                        stream
                            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc")
                            .await,
                    );
                }
                "header" => ("HTTP/1.1 200 OK\r\nx: ", x),
                "headers" => ("HTTP/1.1 200 OK\r\n", b"x: y\r\n".repeat(1000)),
                "body" => ("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n", x),
                "chunks" => (
                    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                    [b"10000\r\n", &x[..], b"\r\n"].concat(),
                ),
                "trailers" => (
                    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x\r\n\r\n0\r\n",
                    b"x: y\r\n".repeat(1000),
                ),
                _ => return,
            };
            let _ = stream.write_all(head.as_bytes()).await;
            while stream.write_all(&endless).await.is_ok() {}
        })
        .await;
        let exporter = exporter(
            "otlphttp",
            &format!("endpoint: http://{}\ntimeout: {timeout}", backend.address),
        );
        let start = Instant::now();
        for _ in 0..3 {
            let outcome = send(&*exporter).await;
            assert!(
                matches!(&outcome, Outcome::RetryAfter { reason, .. } if reason.contains(expected)),
                "{way}: {outcome:?}"
            );
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{way}: {:?}", start.elapsed());
        assert!(backend.accepted() <= 6, "{way}: {}", backend.accepted());
        exporter.shutdown();
        backend.all_closed().await;
    }
}

/// Scenario: the backend closes each kept connection after its first answer. Guarantee: every
/// request is delivered all the same.
#[tokio::test]
async fn connections_closed_meanwhile_do_not_fail_requests() {
    let backend = Backend::start(|mut stream, _| async move {
        if read_http(&mut stream).await.is_some() {
            write_http(&mut stream, "200 OK", "", b"").await;
        }
    })
    .await;
    let exporter = exporter("otlphttp", &format!("endpoint: http://{}", backend.address));
    for _ in 0..20 {
        assert_eq!(send(&*exporter).await, Outcome::Delivered);
    }
    assert!((20..=40).contains(&backend.accepted()), "{}", backend.accepted());
}

/// Scenario: an HTTP proxy on the way to a plain backend. Guarantee: it gets the whole URL and its
/// credentials.
#[tokio::test]
async fn a_proxy_is_used() {
    let proxy = http_backend(|request: &HttpRequest| {
        assert!(
            request.head.starts_with("post http://backend.invalid:4318/v1/traces http/1.1\r\n"),
            "{}",
            request.head
        );
        assert!(request.head.contains("proxy-authorization: basic "), "{}", request.head);
        assert!(request.head.contains("host: backend.invalid:4318"), "{}", request.head);
        ok()
    })
    .await;
    let text = format!(
        "endpoint: http://backend.invalid:4318\nproxy_url: http://me:secret@{}",
        proxy.address
    );
    assert_eq!(send(&*exporter("otlphttp", &text)).await, Outcome::Delivered);
    assert_eq!(proxy.accepted(), 1);
}

/// Answers after a delay. Each connection takes this many requests.
async fn tls_backend(
    config: Arc<Mutex<Arc<rustls::ServerConfig>>>,
    delay: Duration,
    requests: usize,
) -> Backend {
    Backend::start(move |stream, _| {
        let acceptor = tokio_rustls::TlsAcceptor::from(config.lock().clone());
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let Ok(mut connection) = h2::server::handshake(stream).await else { return };
            let mut seen = 0;
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                tokio::time::sleep(delay).await;
                let answer = http::Response::builder()
                    .status(200)
                    .header("grpc-status", "0")
                    .body(())
                    .expect("a head");
                let _ = respond.send_response(answer, true);
                seen += 1;
                if seen == requests {
                    connection.graceful_shutdown();
                }
            }
        }
    })
    .await
}

/// Scenario: the backend's certificate is replaced by one of another authority, and later our
/// `ca_file` follows. Guarantee: until then requests are misconfigured, not rejected; afterwards
/// they are delivered without a restart. Over gRPC and HTTP/2.
#[tokio::test]
async fn rotated_certificates() {
    for kind_name in ["otlp", "otlphttp"] {
        let (first_pem, first) = authority(&[b"h2"]);
        let (second_pem, second) = authority(&[b"h2"]);
        let server = Arc::new(Mutex::new(first));
        // One request a connection: each begins with a handshake.
        let backend = tls_backend(server.clone(), Duration::ZERO, 1).await;
        let directory = tempfile::tempdir().expect("a directory");
        let ca = directory.path().join("ca.pem");
        std::fs::write(&ca, first_pem).expect("writes");
        let text = format!(
            "endpoint: https://{}\ntls: {{ca_file: '{}', reload_interval: 50ms}}",
            backend.address,
            ca.display()
        );
        let exporter = exporter(kind_name, &text);
        for _ in 0..3 {
            assert_eq!(send(&*exporter).await, Outcome::Delivered, "{kind_name}");
        }
        *server.lock() = second;
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let outcome = send(&*exporter).await;
            if kind(&outcome) == "misconfigured" {
                break;
            }
            assert!(Instant::now() < deadline, "{kind_name}: {outcome:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::fs::write(&ca, second_pem).expect("writes");
        loop {
            let outcome = send(&*exporter).await;
            if outcome == Outcome::Delivered {
                break;
            }
            assert_eq!(kind(&outcome), "misconfigured", "{kind_name}: {outcome:?}");
            assert!(Instant::now() < deadline, "{kind_name}: the new authority was never used");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        exporter.shutdown();
        backend.all_closed().await;
    }
}

/// Scenario: the backend's name moves while the old address still serves; one request is under way
/// there, and over HTTP/1.1 idle connections are kept. Guarantee: requests follow the next lookup,
/// the one under way is delivered, and the old connections are closed unused.
#[tokio::test]
async fn a_moved_name_is_followed_away_from_a_healthy_backend() {
    const LATE: Duration = Duration::from_millis(200);
    let directory = tempfile::tempdir().expect("a directory");
    let ca = directory.path().join("ca.pem");
    let (pem, server) = authority(&[b"h2"]);
    std::fs::write(&ca, pem).expect("writes");
    let server = Arc::new(Mutex::new(server));
    for scheme in ["http", "https"] {
        let start = async |delay: Duration| match scheme {
            "https" => tls_backend(server.clone(), delay, usize::MAX).await,
            _ => {
                Backend::start(move |mut stream, _| async move {
                    while read_http(&mut stream).await.is_some() {
                        tokio::time::sleep(delay).await;
                        write_http(&mut stream, "200 OK", "", b"").await;
                    }
                })
                .await
            }
        };
        let (first, second) = (start(LATE).await, start(Duration::ZERO).await);
        let name = Moving::at([first.address]);
        let tls = format!("tls: {{ca_file: '{}', server_name_override: 127.0.0.1}}", ca.display());
        let mut config =
            read(&format!("endpoint: {scheme}://backend:4318\n{tls}"), OtlpHttpConfig::read);
        config.connections.http.connect.resolver = name.clone();
        config.connections.http.resolve_interval = Duration::from_millis(50);
        let files = Files::default();
        let exporter = config.build(&context(&ClientAuths::new(), &files)).expect("builds");
        let all = futures_util::future::join_all((0..5).map(|_| send(&*exporter))).await;
        assert_eq!(all, vec![Outcome::Delivered; 5], "{scheme}");
        let opened = first.accepted();
        let under_way = tokio::spawn({
            let exporter = exporter.clone();
            async move { send(&*exporter).await }
        });
        name.to(second.address);
        // The first has the name looked up.
        for _ in 0..2 {
            assert_eq!(send(&*exporter).await, Outcome::Delivered, "{scheme}");
        }
        assert_eq!(second.accepted(), 1, "{scheme}: the old address is used");
        assert_eq!(under_way.await.expect("ends"), Outcome::Delivered, "{scheme}");
        first.all_closed().await;
        assert_eq!(send(&*exporter).await, Outcome::Delivered, "{scheme}");
        assert_eq!((first.accepted(), second.accepted()), (opened, 1), "{scheme}");
    }
}

/// Guarantee: the Collector's spelling of unused connections' options means the same as the older
/// one, stands alone, and may be empty, as may other sections; a deadline of 0 is the longest.
#[test]
fn current_spellings_of_the_collector_are_known() {
    let read = |options: &str| {
        let text = format!("{{endpoint: 'http://localhost:1', {options}}}");
        let (config, diagnostics) =
            sluice_config::load::read_text("exporters.test", &text, OtlpHttpConfig::read);
        (config, diagnostics.items().len())
    };
    for options in [
        "idle_conn_timeout: 5s, max_idle_conns: 7, disable_keep_alives: true",
        "keepalive: {idle_conn_timeout: 5s, max_idle_conns: 7, enabled: false}",
    ] {
        let (config, remarks) = read(options);
        assert_eq!(
            (config.connections.http.idle_timeout, config.connections.http.idle_connections),
            (Duration::from_secs(5), 7)
        );
        assert_eq!((config.connections.http.keep_alive, remarks), (false, 0), "{options}");
    }
    let (config, remarks) = read("keepalive: , tls: , auth: , timeout: 0s");
    assert_eq!(
        (config.connections.http.idle_timeout, config.connections.http.keep_alive),
        (Duration::from_secs(90), true)
    );
    assert_eq!((config.client.timeout, remarks), (Duration::from_secs(3600), 0));
    assert_eq!(read("keepalive: {enabled: true}, max_idle_conns: 7").1, 1);
}

/// Guarantee: a level that the compression does not have is an error, one for a compression without
/// levels is warned of.
#[test]
fn compression_levels_are_checked() {
    let diagnose = |kind: &str, compression: &str, level: i32| {
        let endpoint = if kind == "otlp" { "localhost:1" } else { "http://localhost:1" };
        let text = format!(
            "endpoint: {endpoint}\ncompression: {compression}\ncompression_params: {{level: {level}}}\n"
        );
        let (_, diagnostics) = sluice_config::load::read_text("exporters.test", &text, |fields| {
            crate::EXPORTERS.read(kind, fields)
        });
        (diagnostics.has_errors(), diagnostics.items().len())
    };
    for kind in ["otlp", "otlphttp"] {
        assert_eq!(diagnose(kind, "gzip", 9), (false, 0), "{kind}");
        assert_eq!(diagnose(kind, "gzip", 10), (true, 1), "{kind}");
        assert_eq!(diagnose(kind, "zstd", 22), (false, 0), "{kind}");
        assert_eq!(diagnose(kind, "snappy", 3), (false, 1), "{kind}");
        assert_eq!(diagnose(kind, "snappy", -1), (false, 0), "{kind}");
    }
    assert_eq!(diagnose("otlphttp", "deflate", 10), (true, 1));
    assert_eq!(diagnose("otlphttp", "lz4", 1), (false, 1));
}

/// Scenario: 307 and 308 to another path, to another host, in a circle. Guarantee: those within the
/// origin are followed with the same body, ten times at most; no other host gets anything.
#[tokio::test]
async fn redirects_within_the_origin_are_followed() {
    let other = http_backend(|_: &HttpRequest| ok()).await;
    let elsewhere = format!("location: http://{}/v1/traces\r\n", other.address);
    let bodies = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let seen = bodies.clone();
    let backend = http_backend(move |request: &HttpRequest| {
        seen.lock().push(request.body.clone());
        let to =
            |status: &str, location: &str| (status.to_owned(), location.to_owned(), Vec::new());
        match request.head.split(' ').nth(1).expect("a path") {
            "/first/v1/traces" => to("307 There", "location: /second\r\n"),
            "/second" => to("308 There", "location: /last?a=b\r\n"),
            "/last?a=b" => ok(),
            "/away/v1/traces" => to("307 There", &elsewhere),
            _ => to("308 There", "location: /circle\r\n"),
        }
    })
    .await;
    for (path, expected, requests) in
        [("first", "delivered", 3), ("away", "misconfigured", 1), ("circle", "misconfigured", 11)]
    {
        let exporter =
            exporter("otlphttp", &format!("endpoint: http://{}/{path}", backend.address));
        assert_eq!(kind(&send(&*exporter).await), expected, "{path}");
        let bodies = std::mem::take(&mut *bodies.lock());
        assert_eq!(bodies.len(), requests, "{path}");
        assert!(bodies.iter().all(|body| !body.is_empty() && *body == bodies[0]), "{path}");
    }
    assert_eq!(other.accepted(), 0);
}
