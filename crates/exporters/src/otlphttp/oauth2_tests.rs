//! With tokens from a token endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sluice_extensions::oauth2client;
use sluice_flow::Outcome;
use sluice_net::auth::client::ClientAuths;
use sluice_otlp::Signal;

use super::tests::ok;
use crate::Files;
use crate::tests::{
    Backend, HttpRequest, config, context, http_backend, kind, packed, read, read_http, send,
    write_http,
};

async fn with_oauth2(token_url: &str, backend: &Backend) -> Arc<dyn sluice_flow::Exporter> {
    let text =
        format!("{{token_url: '{token_url}', client_id: me, client_secret: hush, scopes: [a, b]}}");
    let built =
        oauth2client::OAuth2Client::new(&read(&text, oauth2client::Config::read)).expect("builds");
    let authenticators: ClientAuths = [("oauth2client".to_owned(), Arc::new(built) as _)].into();
    let text =
        format!("endpoint: http://{}\nauth: {{authenticator: oauth2client}}", backend.address);
    config("otlphttp", &text).build(&context(&authenticators, &Files::default())).expect("builds")
}

/// Scenario: many requests at once need a token; later the backend refuses it.
/// Guarantee: one fetch for all of them; after the refusal another token is fetched.
#[tokio::test]
async fn tokens_are_fetched_once_and_replaced_when_refused() {
    let fetched = Arc::new(AtomicUsize::new(0));
    let count = fetched.clone();
    let endpoint = http_backend(move |request: &HttpRequest| {
        assert!(request.head.contains("authorization: basic "), "{}", request.head);
        assert_eq!(request.body, b"grant_type=client_credentials&scope=a+b");
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        let body =
            format!(r#"{{"access_token":"t{number}","token_type":"bearer","expires_in":3600}}"#);
        ("200 OK".to_owned(), "content-type: application/json\r\n".to_owned(), body.into_bytes())
    })
    .await;
    let backend = http_backend(|request: &HttpRequest| {
        match request.head.contains("authorization: bearer t1\r\n") {
            true if request.head.contains("content-length: 0\r\n") => {
                ("401 Who".to_owned(), String::new(), Vec::new())
            }
            _ => ok(),
        }
    })
    .await;
    let exporter = with_oauth2(&format!("http://{}/token", endpoint.address), &backend).await;
    let all = futures_util::future::join_all((0..20).map(|_| send(&*exporter))).await;
    assert!(all.iter().all(|outcome| *outcome == Outcome::Delivered), "{all:?}");
    assert_eq!(fetched.load(Ordering::SeqCst), 1);
    let mut empty = packed(&*exporter, Signal::Traces, Vec::new());
    empty.chunks = Arc::from([]);
    assert_eq!(kind(&exporter.send(&empty).await), "misconfigured");
    assert_eq!(send(&*exporter).await, Outcome::Delivered);
    assert_eq!(fetched.load(Ordering::SeqCst), 2);
}

/// Scenario: the token endpoint refuses the client, is overloaded, or is gone. Guarantee: the first
/// is misconfigured, the rest are tried again later; the backend sees no request without a token.
#[tokio::test]
async fn token_endpoints_that_fail() {
    for (status, expected) in
        [("401 Who", "misconfigured"), ("400 Bad", "misconfigured"), ("503 Busy", "retry")]
    {
        let endpoint =
            http_backend(move |_: &HttpRequest| (status.to_owned(), String::new(), b"{}".to_vec()))
                .await;
        let backend = http_backend(|_: &HttpRequest| ok()).await;
        let exporter = with_oauth2(&format!("http://{}/token", endpoint.address), &backend).await;
        let all = futures_util::future::join_all((0..10).map(|_| send(&*exporter))).await;
        assert!(all.iter().all(|outcome| kind(outcome) == expected), "{status}: {all:?}");
        assert_eq!((endpoint.accepted(), backend.accepted()), (1, 0), "{status}");
    }
    let backend = http_backend(|_: &HttpRequest| ok()).await;
    let exporter = with_oauth2("http://127.0.0.1:1/token", &backend).await;
    assert_eq!(kind(&send(&*exporter).await), "retry");
    assert_eq!(backend.accepted(), 0);
}

/// A token endpoint that answers the first request for a token after `delays[0]`, and so on.
async fn slow_tokens(delays: &'static [u64], lives: u64) -> (Backend, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let endpoint = Backend::start(move |mut stream, _| {
        let count = count.clone();
        async move {
            while read_http(&mut stream).await.is_some() {
                let number = count.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(delays[number])).await;
                let body = format!(r#"{{"access_token":"t{number}","expires_in":{lives}}}"#);
                write_http(&mut stream, "200 OK", "", body.as_bytes()).await;
            }
        }
    })
    .await;
    (endpoint, asked)
}

/// Scenario: the token endpoint takes longer than a request may. Guarantee: the fetch outlives the
/// requests that wait for it, and is the only one; later requests have its token.
#[tokio::test]
async fn a_fetch_outlives_the_request_that_asked() {
    let (endpoint, asked) = slow_tokens(&[500], 3600).await;
    let backend = http_backend(|_: &HttpRequest| ok()).await;
    let exporter = with_oauth2(&format!("http://{}/token", endpoint.address), &backend).await;
    let mut cut_off = 0;
    while tokio::time::timeout(Duration::from_millis(100), send(&*exporter)).await
        != Ok(Outcome::Delivered)
    {
        cut_off += 1;
        assert!(cut_off < 50, "no token");
    }
    assert!(cut_off > 1, "{cut_off}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

/// Scenario: a token is to be renewed, and the endpoint hangs. Guarantee: requests are sent with
/// the old one as long as it is good, and one renewal is under way.
#[tokio::test]
async fn a_good_token_is_used_during_its_renewal() {
    let (endpoint, asked) = slow_tokens(&[0, 60_000], 4).await;
    let backend = http_backend(|_: &HttpRequest| ok()).await;
    let exporter = with_oauth2(&format!("http://{}/token", endpoint.address), &backend).await;
    assert_eq!(send(&*exporter).await, Outcome::Delivered);
    // Half of its life.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    for _ in 0..3 {
        let sent = tokio::time::timeout(Duration::from_millis(200), send(&*exporter)).await;
        assert_eq!(sent, Ok(Outcome::Delivered));
    }
    assert!(asked.load(Ordering::SeqCst) <= 2);
}

/// Scenario: the token endpoint's answer does not end. Guarantee: it is cut off long before the
/// deadline, and the outcome is a retry, without a token nor the backend.
#[tokio::test]
async fn an_enormous_token_is_cut_off() {
    use tokio::io::AsyncWriteExt;
    let endpoint = Backend::start(|mut stream, _| async move {
        read_http(&mut stream).await;
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n{\"access_token\": \"";
        let _ = stream.write_all(head).await;
        while stream.write_all(&[b'x'; 1 << 16]).await.is_ok() {}
    })
    .await;
    let backend = http_backend(|_: &HttpRequest| ok()).await;
    let exporter = with_oauth2(&format!("http://{}/token", endpoint.address), &backend).await;
    let start = Instant::now();
    let outcome = send(&*exporter).await;
    let expected = "token endpoint: the peer's answer exceeds 4194304 bytes";
    assert!(
        matches!(&outcome, Outcome::RetryAfter { reason, .. } if reason.contains(expected)),
        "{outcome:?}"
    );
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    endpoint.all_closed().await;
    assert_eq!(backend.accepted(), 0);
}
