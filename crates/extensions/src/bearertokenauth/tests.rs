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
        waits_for_file: false,
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
        assert_eq!(
            authenticator.authenticate(&headers("authorization", value)).await,
            expected,
            "{value}"
        );
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
        let error = BearerServer::new(&config(none)).err();
        assert_eq!(error.as_deref(), Some("there is no token"), "{none:?}");
    }
    let with_empty = BearerServer::new(&config(&["", "one"])).expect("a token");
    assert_eq!(
        with_empty.authenticate(&headers("authorization", "Bearer ")).await,
        Err(AuthError::Wrong)
    );
}

/// Scenario: the token file is rotated while requests come. Guarantee: the new token works soon,
/// the old one no more.
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

/// Scenario: a receiver starts before its token file is there. Guarantee: it does not start, or
/// with `retry_on_failure` lets in no sender until a token is there, and then those that show it.
#[tokio::test]
async fn a_receiver_may_start_before_its_token_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tokens");
    let options = Config { filename: Some(path.display().to_string()), ..config(&[]) };
    assert!(BearerServer::new(&options).err().expect("is refused").contains("tokens"));
    let options = Config { waits_for_file: true, ..options };
    let authenticator = BearerServer::new(&options).expect("starts");
    for (content, shown, expected) in [
        (None, "Bearer ", Err(AuthError::Wrong)),
        (None, "Bearer new", Err(AuthError::Wrong)),
        (Some(""), "Bearer ", Err(AuthError::Wrong)),
        (Some("new"), "Bearer new", Ok(())),
        (Some(""), "Bearer new", Ok(())),
    ] {
        if let Some(content) = content {
            std::fs::write(&path, content).expect("is written");
            authenticator.tokens.check();
        }
        let headers = headers("authorization", shown);
        assert_eq!(authenticator.authenticate(&headers).await, expected, "{content:?} {shown}");
    }
}

async fn shown(client: &SecretHeader) -> String {
    let mut headers = HeaderMap::new();
    client.authenticate(&mut headers, &[]).await.expect("authenticates");
    let value = headers.get(AUTHORIZATION).expect("a header");
    assert!(value.is_sensitive());
    value.to_str().expect("ASCII").to_owned()
}

/// Scenario: a token file vanishes, is empty for a moment as it is written, and is replaced by
/// renaming, as Kubernetes does. Guarantee: the last token is shown until the new one is there.
#[tokio::test]
async fn a_bearer_token_follows_its_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("token");
    std::fs::write(&path, "first\n").expect("writes");
    let auth = Config { filename: Some(path.display().to_string()), ..config(&[]) }.shown();
    assert_eq!(shown(&auth).await, "Bearer first");

    std::fs::remove_file(&path).expect("removes");
    auth.value.0.check();
    assert_eq!(shown(&auth).await, "Bearer first");
    std::fs::write(&path, "\n").expect("writes");
    auth.value.0.check();
    assert_eq!(shown(&auth).await, "Bearer first");

    let next = directory.path().join("next");
    std::fs::write(&next, "other\n").expect("writes");
    std::fs::rename(&next, &path).expect("renames");
    let deadline = Instant::now() + Duration::from_secs(20);
    while shown(&auth).await != "Bearer other" {
        assert!(Instant::now() < deadline, "the new token was never used");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Scenario: the file is not there at the start. Guarantee: an error that names it; the token once
/// it is there.
#[tokio::test]
async fn a_token_file_may_come_later() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("token");
    let auth = Config { filename: Some(path.display().to_string()), ..config(&[]) }.shown();
    let result = auth.authenticate(&mut HeaderMap::new(), &[]).await;
    let Err(client::CredentialsError { reason, is_temporary: false }) = result else {
        panic!("{result:?}")
    };
    assert!(reason.contains("token"), "{reason}");
    std::fs::write(&path, "late").expect("writes");
    auth.value.0.check();
    assert_eq!(shown(&auth).await, "Bearer late");
}

/// Scenario: one file for both sides, with a token a line. Guarantee: the first is shown.
#[tokio::test]
async fn a_client_shows_the_first_token_of_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tokens");
    for content in ["new\nold\n", "\n new \r\nold\n"] {
        std::fs::write(&path, content).expect("writes");
        let config = Config { filename: Some(path.display().to_string()), ..config(&[]) };
        assert_eq!(shown(&config.shown()).await, "Bearer new", "{content:?}");
    }
}

/// Scenario: a token with a line break inside. Guarantee: an error, no second header.
#[tokio::test]
async fn a_token_cannot_smuggle_headers() {
    let mut headers = HeaderMap::new();
    let result = config(&["a\r\nx: y"]).shown().authenticate(&mut headers, &[]).await;
    assert!(matches!(result, Err(client::CredentialsError { is_temporary: false, .. })));
    assert!(headers.is_empty());
}

/// Scenario: `tokens` as the Collector has them, alone and beside `token`.
/// Guarantee: as there, both together are an error: one of them would be ignored.
#[test]
fn a_list_of_tokens_stands_alone() {
    for (text, expected, errors) in [
        ("tokens: [a, b]", &["a", "b"][..], 0),
        ("{token: t, tokens: [a]}", &["a"], 1),
        ("{token: t, tokens: []}", &["t"], 0),
        ("token: t", &["t"], 0),
    ] {
        let (config, diagnostics) = read_text("extensions.bearertokenauth", text, Config::read);
        assert_eq!(diagnostics.errors().count(), errors, "{text}");
        assert_eq!(diagnostics.warnings().count(), 0, "{text}");
        let tokens: Vec<&str> = config.tokens.iter().map(Secret::expose).collect();
        assert_eq!(tokens, expected, "{text}");
    }
}

/// Guarantee: options about a file that is missing are taken, with a warning for those without
/// effect, and refused where the Collector refuses them.
#[test]
fn options_about_a_missing_file_are_read() {
    for (text, waits, warnings, errors) in [
        ("{filename: f}", false, 0, 0),
        ("{filename: f, retry_on_failure: {enabled: true, interval: 2s}}", true, 0, 0),
        ("{filename: f, retry_on_failure: {enabled: false}}", false, 0, 0),
        (
            "{filename: f, wait_for_token_file: true, \
             retry_on_failure: {enabled: true, interval: 2s, max_retries: 5}}",
            true,
            2,
            0,
        ),
        ("{filename: f, retry_on_failure: {enabled: true}}", true, 0, 1),
        ("{filename: f, wait_for_token_file: true}", false, 0, 1),
        ("{token: t, retry_on_failure: {enabled: true, interval: 2s}}", true, 0, 1),
        ("{filename: f, retry_on_failure: {max_retries: -1}}", false, 0, 1),
    ] {
        let (config, diagnostics) = read_text("extensions.bearertokenauth", text, Config::read);
        assert_eq!(config.waits_for_file, waits, "{text}");
        let counts = (diagnostics.warnings().count(), diagnostics.errors().count());
        assert_eq!(counts, (warnings, errors), "{text}");
    }
}

/// Scenario: a token from a variable that is not set. Guarantee: the configuration is refused.
#[test]
fn an_empty_token_is_an_error_at_the_start() {
    for text in ["token: ''", "token: ' '", "tokens: [a, '']"] {
        let (_, diagnostics) = read_text("extensions.bearertokenauth", text, Config::read);
        assert!(diagnostics.has_errors(), "{text}");
    }
}
