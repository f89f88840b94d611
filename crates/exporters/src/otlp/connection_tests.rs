//! Names, encryption and headers of connections, as backends see them.

use std::sync::Arc;

use http::{HeaderMap, Response};
use parking_lot::Mutex;
use sluice_config::Diagnostics;
use sluice_flow::Outcome;
use sluice_net::grpc::{Code, Status};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use super::config::OtlpConfig;
use super::tests::{NEVER, named};
use crate::exporter::ExporterConfig;
use crate::tests::{Backend, Moving, authority_of, read, send};

/// A request as a backend got it.
#[derive(Clone, Default)]
struct Seen {
    /// The name that the TLS handshake asked for.
    server_name: Option<String>,
    authority: String,
    headers: HeaderMap,
}

/// Answers one request with this status.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    server_name: Option<String>,
    status: Status,
    seen: Arc<Mutex<Seen>>,
) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let headers = request.headers().clone();
        *seen.lock() = Seen { server_name: server_name.clone(), authority, headers };
        let mut answer = Response::builder().status(200).body(()).expect("a head");
        status.write_to(answer.headers_mut());
        let _ = respond.send_response(answer, true);
    }
}

/// Sends to a backend without TLS that is called `target.test:4317`.
async fn sent_plainly(options: &str, status: Status) -> (Outcome, Seen) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let taken = seen.clone();
    let backend =
        Backend::start(move |stream, _| serve(stream, None, status.clone(), taken.clone())).await;
    let text = format!("endpoint: target.test:4317\n{options}");
    let outcome = send(&named(&text, &Moving::at([backend.address]), NEVER)).await;
    let seen = seen.lock().clone();
    (outcome, seen)
}

/// Sends to a backend of that name with TLS. Its certificate is for `certified` and is its own
/// authority's, which is `CA` in the options.
async fn sent_over_tls(certified: &str, options: &str) -> (Outcome, Seen) {
    let (pem, config) = authority_of(&[certified], &[b"h2"]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, pem).expect("is written");
    let (seen, acceptor) = (Arc::new(Mutex::new(Seen::default())), TlsAcceptor::from(config));
    let taken = seen.clone();
    let backend = Backend::start(move |stream, _| {
        let (acceptor, taken) = (acceptor.clone(), taken.clone());
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let server_name = stream.get_ref().1.server_name().map(str::to_owned);
            serve(stream, server_name, Status::new(Code::Ok, ""), taken).await;
        }
    })
    .await;
    let options = options.replace("CA", &path.display().to_string());
    let text = format!("endpoint: target.test:4317\n{options}");
    let outcome = send(&named(&text, &Moving::at([backend.address]), NEVER)).await;
    let seen = seen.lock().clone();
    (outcome, seen)
}

/// Scenario: `insecure` beside an authority, as in files that once had no TLS. Guarantee: nothing
/// goes out in plain text, as in the Collector, and the plan says so.
#[tokio::test]
async fn authorities_mean_tls_also_beside_insecure() {
    let options = "tls: {insecure: true, ca_file: CA}";
    let (outcome, seen) = sent_over_tls("target.test", options).await;
    assert_eq!((outcome, seen.server_name.as_deref()), (Outcome::Delivered, Some("target.test")));
    for (endpoint, tls, expected) in [
        ("a:1", "insecure: true, ca_file: a.pem", true),
        ("a:1", "insecure: true, ca_pem: PEM", true),
        ("a:1", "insecure: true", false),
        ("a:1", "insecure: true, ca_file: ''", false),
        ("https://a:1", "insecure: true", true),
        ("http://a:1", "ca_file: a.pem", false),
    ] {
        let config = read(&format!("endpoint: {endpoint}\ntls: {{{tls}}}"), OtlpConfig::read);
        assert_eq!(config.destinations()[0].tls, Some(expected), "{endpoint} {tls}");
    }
}

/// Scenario: an authority and a name for the certificate, alone and together. Guarantee: the
/// handshake asks for, and verifies, the same name as grpc-go, and requests have its authority.
#[tokio::test]
async fn names_are_joined_as_in_grpc_go() {
    for (certified, tls, more, authority) in [
        ("target.test", "", "", "target.test:4317"),
        ("front.test", "", "authority: front.test", "front.test"),
        ("front.test", "", "authority: front.test:443", "front.test:443"),
        ("name.test", "server_name_override: name.test", "", "name.test"),
        ("name.test", "server_name_override: name.test", "authority: front.test:1", "front.test:1"),
    ] {
        let text = format!("tls: {{ca_file: CA, {tls}}}\n{more}");
        let (outcome, seen) = sent_over_tls(certified, &text).await;
        assert_eq!(outcome, Outcome::Delivered, "{text}");
        assert_eq!(seen.server_name.as_deref(), Some(certified), "{text}");
        assert_eq!(seen.authority, authority, "{text}");
    }
    let plain = "tls: {insecure: true, server_name_override: name.test}";
    let (outcome, seen) = sent_plainly(plain, Status::new(Code::Ok, "")).await;
    assert_eq!((outcome, seen.authority.as_str()), (Outcome::Delivered, "target.test:4317"));
}

/// Scenario: a header whose name says that its value is bytes, and a backend that answers with it.
/// Guarantee: gRPC's base64 goes out, without padding; the answer's text shows neither form.
#[tokio::test]
async fn binary_headers_are_sent_as_base64() {
    let options = "tls: {insecure: true}\nheaders: {x-a-bin: hello-4711, X-B-Bin: a, x-c: hello}";
    let status = Status::new(Code::Unauthenticated, "hello-4711 aGVsbG8tNDcxMQ");
    let (outcome, seen) = sent_plainly(options, status).await;
    assert_eq!(seen.headers["x-a-bin"], "aGVsbG8tNDcxMQ");
    assert_eq!(seen.headers["x-b-bin"], "YQ");
    assert_eq!(seen.headers["x-c"], "hello");
    let Outcome::Misconfigured { reason } = outcome else { panic!("{outcome:?}") };
    assert_eq!(reason.matches("[redacted]").count(), 2, "{reason}");
}

fn remarks(text: &str) -> Diagnostics {
    sluice_config::read_text("exporters.otlp", text, OtlpConfig::read).1
}

/// Scenario: an authenticator with and without TLS. Guarantee: a warning names exporter,
/// authenticator and remedy where credentials go over a network in plain text, and only there.
#[test]
fn credentials_without_tls_are_warned_of() {
    for (endpoint, tls, authenticator, warnings) in [
        ("a:1", "insecure: true", "bearertokenauth/x", 1),
        ("http://a:1", "", "basicauth", 1),
        ("a:1", "insecure: true", "oauth2client", 1),
        ("a:1", "insecure: true", "headers_setter/x", 0),
        ("a:1", "insecure: true, ca_file: a.pem", "bearertokenauth", 0),
        ("a:1", "", "bearertokenauth", 0),
        ("https://a:1", "insecure: true", "bearertokenauth", 0),
        ("unix:/a", "insecure: true", "bearertokenauth", 0),
    ] {
        let text = format!(
            "endpoint: {endpoint}\ntls: {{{tls}}}\nauth: {{authenticator: {authenticator}}}"
        );
        let diagnostics = remarks(&text);
        let said = diagnostics.render(false);
        assert_eq!(diagnostics.warnings().count(), warnings, "{text}: {said}");
        let expected =
            format!("`exporters.otlp.auth` sends the credentials of `{authenticator}` without");
        assert_eq!(said.contains(&expected), warnings == 1, "{said}");
        assert_eq!(said.contains("`tls.insecure`"), warnings == 1, "{said}");
    }
    assert_eq!(remarks("endpoint: a:1\ntls: {insecure: true}").warnings().count(), 0);
}
