use std::time::{Duration, Instant};

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use sluice_config::{Secret, read_text};
use sluice_net::auth::client::{self, ClientAuth};
use sluice_net::auth::server::{AuthError, ServerAuth};

use super::*;

fn headers(name: &'static str, value: &str) -> HeaderMap {
    let value = HeaderValue::from_str(value).expect("a header value");
    HeaderMap::from_iter([(HeaderName::from_static(name), value)])
}

fn config(tokens: &[&str]) -> Config {
    Config {
        header: AUTHORIZATION,
        scheme: "Bearer".to_owned(),
        tokens: tokens.iter().map(|token| Secret::new(*token)).collect(),
        filename: None,
    }
}

#[tokio::test]
async fn only_configured_tokens_are_let_in() {
    let authenticator = BearerServer::new(&config(&["one", "two"])).expect("good options");
    for (value, expected) in [
        ("Bearer one", Ok(())),
        ("bearer two", Ok(())),
        ("Bearer on", Err(AuthError::Wrong)),
        ("Bearer ", Err(AuthError::Wrong)),
        ("Bearer", Err(AuthError::Malformed)),
        ("Basic one", Err(AuthError::Malformed)),
    ] {
        assert_eq!(authenticator.authenticate(&headers("authorization", value)).await, expected, "{value}");
    }
    assert_eq!(authenticator.authenticate(&HeaderMap::new()).await, Err(AuthError::Missing));
    assert_eq!(authenticator.challenge(), "Bearer");
}

#[tokio::test]
async fn another_header_and_no_scheme_work_and_no_token_is_refused_at_the_start() {
    let header = HeaderName::from_static("x-api-key");
    let options = Config { header, scheme: String::new(), ..config(&["k"]) };
    let authenticator = BearerServer::new(&options).expect("good options");
    assert_eq!(authenticator.authenticate(&headers("x-api-key", "k")).await, Ok(()));
    for none in [&[][..], &[""], &["", ""]] {
        assert!(matches!(BearerServer::new(&config(none)), Err(TokensError::NoTokens)), "{none:?}");
    }
    let with_empty = BearerServer::new(&config(&["", "one"])).expect("a token");
    assert_eq!(with_empty.authenticate(&headers("authorization", "Bearer ")).await, Err(AuthError::Wrong));
}

/// Scenario: the token file is rotated while requests come. Guarantee: the new token works soon, the old one no more.
#[tokio::test]
async fn a_token_file_is_followed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tokens");
    std::fs::write(&path, "old\nother\n").expect("is written");
    let options = Config { filename: Some(path.display().to_string()), ..config(&[]) };
    let authenticator = BearerServer::new(&options).expect("good options");
    assert_eq!(authenticator.authenticate(&headers("authorization", "Bearer other")).await, Ok(()));
    std::fs::write(&path, "new").expect("is written");
    for _ in 0..2000 {
        if authenticator.authenticate(&headers("authorization", "Bearer new")).await.is_ok() {
            let old = authenticator.authenticate(&headers("authorization", "Bearer old")).await;
            assert_eq!(old, Err(AuthError::Wrong));
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the new token was never taken");
}

async fn shown(client: &BearerClient) -> String {
    let mut headers = HeaderMap::new();
    client.authenticate(&mut headers, &[]).await.expect("authenticates");
    let value = headers.get(AUTHORIZATION).expect("a header");
    assert!(value.is_sensitive());
    value.to_str().expect("ASCII").to_owned()
}

/// Scenario: a token file that is replaced by renaming, as Kubernetes does, then vanishes.
/// Guarantee: the new token within seconds; then an error that names the file.
#[tokio::test]
async fn a_bearer_token_follows_its_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("token");
    std::fs::write(&path, "first\n").expect("writes");
    let auth = BearerClient::new(&Config { filename: Some(path.display().to_string()), ..config(&[]) });
    assert_eq!(shown(&auth).await, "Bearer first");

    let next = directory.path().join("next");
    std::fs::write(&next, "other\n").expect("writes");
    std::fs::rename(&next, &path).expect("renames");
    let deadline = Instant::now() + Duration::from_secs(20);
    while shown(&auth).await != "Bearer other" {
        assert!(Instant::now() < deadline, "the new token was never used");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    std::fs::remove_file(&path).expect("removes");
    let error = loop {
        if let Err(error) = auth.authenticate(&mut HeaderMap::new(), &[]).await {
            break error;
        }
        assert!(Instant::now() < deadline, "the missing file was never noticed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(matches!(&error, client::AuthError::Misconfigured { reason } if reason.contains("token")), "{error}");
}

/// Scenario: a token with a line break inside. Guarantee: an error, no second header.
#[tokio::test]
async fn a_token_cannot_smuggle_headers() {
    let mut headers = HeaderMap::new();
    let result = BearerClient::new(&config(&["a\r\nx: y"])).authenticate(&mut headers, &[]).await;
    assert!(matches!(result, Err(client::AuthError::Misconfigured { .. })));
    assert!(headers.is_empty());
}

/// Scenario: `tokens` as the Collector has them, alone and beside `token`.
/// Guarantee: all are known, in their order.
#[test]
fn bearer_tokens_are_a_list() {
    for (text, expected) in
        [("tokens: [a, b]", &["a", "b"][..]), ("{token: t, tokens: [a]}", &["t", "a"]), ("token: t", &["t"])]
    {
        let (config, diagnostics) = read_text("extensions.bearertokenauth", text, Config::read);
        assert!(diagnostics.errors().next().is_none(), "{text}");
        assert_eq!(config.tokens.iter().map(Secret::expose).collect::<Vec<_>>(), expected, "{text}");
    }
}
