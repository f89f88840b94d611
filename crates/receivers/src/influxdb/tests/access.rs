//! Users and tokens, as the extensions that authenticate know them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue};
use serde_json::json;
use sluice_extensions::EXTENSIONS;
use sluice_net::auth::server::AuthError;

use super::*;

async fn start_for(engine: &Arc<Engine>, kind: &str, options: &str) -> Box<dyn StartedReceiver> {
    let (extension, diagnostics) =
        read_text("extensions.it", options, |fields| EXTENSIONS.read(kind, fields));
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let build = extension.and_then(|extension| extension.server).expect("it has a server's side");
    let server = build().unwrap_or_else(|error| panic!("{error}"));
    let authenticators = HashMap::from([("it".to_owned(), server)]);
    start_with(engine, "auth: {authenticator: it}", authenticators).await
}

/// The statuses of writes with these parameters and headers.
async fn statuses(receiver: &dyn StartedReceiver, forms: &[(&str, String)]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for (query, authorization) in forms {
        let header = match authorization.as_str() {
            "" => String::new(),
            value => format!("\nauthorization: {value}"),
        };
        let head = format!("POST /write?db=a{query}{header}");
        statuses.push(parts(&send(receiver, &head, b"m v=1\n").await).0);
    }
    statuses
}

fn basic(credentials: &str) -> String {
    format!("Basic {}", STANDARD.encode(credentials))
}

/// Guarantee: a user is known by each form of InfluxDB's clients. A wrong, an empty or no password
/// is refused, and nothing of the body is taken.
#[tokio::test]
async fn users_are_let_in_by_all_forms() {
    let engine = Engine::new(64 << 20);
    let receiver = start_for(&engine, "basicauth", "htpasswd: {inline: 'k6:secret'}").await;
    let none = String::new;
    let good = [
        ("", basic("k6:secret")),
        ("", "Token k6:secret".to_owned()),
        ("&u=k6&p=secret", none()),
        ("&u=k6&p=secret", basic("k6:wrong")),
    ];
    assert_eq!(statuses(&*receiver, &good).await, [204; 4]);
    let bad = [
        ("", none()),
        ("", basic("k6:wrong")),
        ("", basic("k6:")),
        ("", basic(":")),
        ("", "Basic".to_owned()),
        ("", "Token secret".to_owned()),
        ("", "Token k6:".to_owned()),
        ("", "Bearer secret".to_owned()),
        ("&u=k6&p=", none()),
        ("&u=&p=secret", none()),
        ("&u=k6&p=wrong", basic("k6:secret")),
    ];
    assert_eq!(statuses(&*receiver, &bad).await, [401; 11]);
    assert_eq!(engine.points(), 4);
    assert_eq!(metric(&*receiver, &["refused_requests", "\"unauthenticated\""]), 11.0);
}

#[tokio::test]
async fn tokens_are_let_in_by_all_forms() {
    let engine = Engine::new(64 << 20);
    let receiver = start_for(&engine, "bearertokenauth", "token: secret").await;
    let good = [
        ("", "Token secret".to_owned()),
        ("", "token secret".to_owned()),
        ("", "Bearer secret".to_owned()),
        ("", basic("any:secret")),
        ("&u=any&p=secret", String::new()),
    ];
    assert_eq!(statuses(&*receiver, &good).await, [204; 5]);
    let bad = [
        ("", String::new()),
        ("", "Token wrong".to_owned()),
        ("", "Token ".to_owned()),
        ("", "Bearer ".to_owned()),
        ("", basic("secret:")),
        ("&u=secret&p=", String::new()),
    ];
    assert_eq!(statuses(&*receiver, &bad).await, [401; 6]);
    assert_eq!(engine.points(), 5);
}

/// Guarantee: each API has its own words for that, a query needs credentials too, and a probe none.
#[tokio::test]
async fn a_refusal_of_access_is_worded_as_in_influxdb() {
    let engine = Engine::new(64 << 20);
    let receiver = start_for(&engine, "bearertokenauth", "token: secret").await;
    let missing = json!({ "error": "unable to parse authentication credentials" });
    for (head, expected) in [
        ("POST /write?db=a", missing.clone()),
        ("POST /query?q=CREATE+DATABASE+a", missing.clone()),
        ("POST /write?db=a\nauthorization: Token x", json!({ "error": "authorization failed" })),
        (
            "POST /api/v2/write?bucket=a",
            json!({ "code": "unauthorized", "message": "unauthorized access" }),
        ),
        ("POST /api/v3/write_lp?db=a", json!({ "error": "the request was not authenticated" })),
    ] {
        let answer = send(&*receiver, head, b"").await;
        let (status, body) = parts(&answer);
        let body: serde_json::Value = serde_json::from_str(body).expect("is JSON");
        assert_eq!((status, body), (401, expected), "{head}");
        assert!(answer.contains("www-authenticate: "), "{answer}");
    }
    for (head, status) in [
        ("GET /ping", 204),
        ("GET /health", 200),
        ("OPTIONS /write?db=a", 200),
        ("POST /query?q=CREATE+DATABASE+a\nauthorization: Token secret", 200),
    ] {
        assert_eq!(parts(&send(&*receiver, head, b"").await).0, status, "{head}");
    }
}

/// Too many passwords are being checked.
struct Busy(HeaderValue);

impl ServerAuth for Busy {
    fn authenticate<'a>(&'a self, _: &'a HeaderMap) -> BoxFuture<'a, Result<(), AuthError>> {
        Box::pin(std::future::ready(Err(AuthError::Busy)))
    }

    fn challenge(&self) -> &HeaderValue {
        &self.0
    }
}

/// Guarantee: a sender whose credentials could not be checked comes back. Telegraf drops what is
/// answered with any 4xx, also 429.
#[tokio::test]
async fn a_busy_check_of_credentials_is_overload() {
    let engine = Engine::new(64 << 20);
    let busy: Arc<dyn ServerAuth> = Arc::new(Busy(HeaderValue::from_static("Basic")));
    let authenticators = HashMap::from([("it".to_owned(), busy)]);
    let receiver = start_with(&engine, "auth: {authenticator: it}", authenticators).await;
    for head in ["POST /write?db=a", "POST /api/v2/write?bucket=a", "GET /query?q=SHOW+DATABASES"] {
        let answer = send(&*receiver, head, b"").await;
        assert_eq!(parts(&answer).0, 503, "{head} {answer}");
        assert!(answer.contains("retry-after: 1\r\n"), "{head} {answer}");
    }
    receiver.shutdown().await;
    engine.assert_is_free();
}
