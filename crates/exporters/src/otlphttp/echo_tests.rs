//! Backends, proxies and token endpoints that answer with what they got.

use std::sync::Arc;

use sluice_extensions::oauth2client;
use sluice_flow::Outcome;
use sluice_net::auth::client::ClientAuths;

use super::tests::ok;
use crate::Files;
use crate::tests::{Backend, HttpRequest, config, context, exporter, http_backend, read, send};

/// The secrets of all tests; `me:hunter2-proxy` in Base64.
const SECRETS: [&str; 7] = [
    "hunter2",
    "bWU6aHVudGVyMi1wcm94eQ",
    "key-4711",
    "eyjhbgcioijub25l",
    "p&q+r",
    "code/0815",
    "claim/0815",
];

fn reason(outcome: Outcome) -> String {
    match outcome {
        Outcome::Misconfigured { reason }
        | Outcome::Rejected { reason }
        | Outcome::Failed { reason }
        | Outcome::Overlaps { reason }
        | Outcome::PartlyRejected { reason, .. }
        | Outcome::RetryAfter { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

fn assert_hidden(outcome: Outcome, count: usize) {
    let reason = reason(outcome);
    for secret in SECRETS {
        assert!(!reason.contains(secret), "{secret}: {reason}");
    }
    assert_eq!(reason.matches("[redacted]").count(), count, "{reason}");
}

/// Answers with the request's head in one of the forms in which texts come.
async fn echo(status: &'static str, kind: &'static str) -> Backend {
    http_backend(move |request: &HttpRequest| {
        let head = &request.head;
        let body = match kind {
            "json" => serde_json::json!({ "message": head }).to_string(),
            "partial" => serde_json::json!({
                "partialSuccess": { "rejectedSpans": 1, "errorMessage": head }
            })
            .to_string(),
            "values" => "no key code/0815, and session 5e551042-0815 of dark".to_owned(),
            _ => head.clone(),
        };
        let kind = if kind == "text" { "text/plain" } else { "application/json" };
        (status.to_owned(), format!("content-type: {kind}\r\n"), body.into_bytes())
    })
    .await
}

/// Guarantee: no outcome, and so no log line, health report or dead letter, has the secrets of the
/// headers and the URL that were sent, whatever the answer's form.
#[tokio::test]
async fn a_backend_that_answers_with_the_headers_shows_no_secret() {
    for (status, kind) in [
        ("401 Who", "text"),
        ("400 Bad", "json"),
        ("400 Bad", "plain json"),
        ("500 Broken", "text"),
        ("503 Busy", "text"),
        ("200 OK", "partial"),
    ] {
        let backend = echo(status, kind).await;
        let text = format!(
            "traces_endpoint: http://{}/v1/traces?api=p&q+r\nheaders: {{authorization: bearer \
             eyjhbgcioijub25l.x, x-api-key: key-4711, x-tenant: prod}}",
            backend.address
        );
        let outcome = send(&*exporter("otlphttp", &text)).await;
        assert!(reason(outcome.clone()).contains("x-tenant: prod"), "{outcome:?}");
        assert_hidden(outcome, 3);
    }
}

/// Scenario: a backend names a parameter of the URL, decoded, and a part of a header. Guarantee:
/// neither is shown.
#[tokio::test]
async fn a_backend_that_names_parts_of_the_request_shows_no_secret() {
    let backend = echo("400 Bad", "values").await;
    let text = format!(
        "traces_endpoint: http://{}/v1/traces?v=1&api_key=code%2F0815\nheaders: {{cookie: \
         session=5e551042-0815; theme=dark}}",
        backend.address
    );
    let outcome = send(&*exporter("otlphttp", &text)).await;
    let expected = "no key [redacted], and session [redacted] of [redacted]";
    assert!(reason(outcome.clone()).ends_with(expected), "{outcome:?}");
    assert_hidden(outcome, 3);
}

/// Guarantee: the same for a proxy that shows the credentials which it refuses.
#[tokio::test]
async fn a_proxy_shows_no_secret() {
    let proxy = http_backend(|_: &HttpRequest| {
        let body = "Basic bWU6aHVudGVyMi1wcm94eQ== is not me:hunter2-proxy";
        ("407 Who".to_owned(), String::new(), body.into())
    })
    .await;
    let text = format!(
        "endpoint: http://backend.invalid:4318\nproxy_url: http://me:hunter2-proxy@{}",
        proxy.address
    );
    assert_hidden(send(&*exporter("otlphttp", &text)).await, 2);
}

/// Guarantee: neither a token endpoint's text nor that of a backend that got the token shows a
/// secret: the client's, as it is and in a form, those of the URL and the parameters, the token.
#[tokio::test]
async fn with_tokens_no_secret_is_shown() {
    for fails in [true, false] {
        let endpoint = http_backend(move |request: &HttpRequest| {
            if fails {
                let body = [&request.body[..], b" p&q+r of key-4711, code/0815"].concat();
                return ("400 Bad".to_owned(), String::new(), body);
            }
            let body = br#"{"access_token":"eyjhbgcioijub25l.x","expires_in":60}"#;
            ("200 OK".to_owned(), "content-type: application/json\r\n".to_owned(), body.into())
        })
        .await;
        let backend = match fails {
            true => http_backend(|_: &HttpRequest| ok()).await,
            false => echo("403 No", "text").await,
        };
        let url = format!("http://{}/token?code=code%2F0815", endpoint.address);
        let text = format!(
            "{{token_url: '{url}', client_id: me, client_secret: 'p&q+r', endpoint_params: \
             {{api_key: key-4711, client_assertion: claim/0815}}}}"
        );
        let built = oauth2client::OAuth2Client::new(&read(&text, oauth2client::Config::read));
        let authenticators: ClientAuths =
            [("oauth2client".to_owned(), Arc::new(built.expect("builds")) as _)].into();
        let text =
            format!("endpoint: http://{}\nauth: {{authenticator: oauth2client}}", backend.address);
        let files = Files::default();
        let exporter = config("otlphttp", &text).build(&context(&authenticators, &files));
        let outcome = send(&*exporter.expect("builds")).await;
        // In the endpoint's text: two parameters in the form, one as it is, the secret, the code.
        assert!(!reason(outcome.clone()).contains("claim%2F"), "{outcome:?}");
        assert_hidden(outcome, if fails { 5 } else { 1 });
    }
}
