//! Access of senders to the real binary: passwords, tokens, browsers, Unix sockets.

mod doors;
mod gateway;

use std::path::Path;

use base64::Engine as _;
use doors::{Answer, PROTOBUF, ask, encoded, spans};
use gateway::{Gateway, SOON, eventually, fan_out};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use sluice_load_test::Backend;
use sluice_otlp::Signal;
use tokio::net::{TcpStream, UnixStream};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

/// `secret`, as `htpasswd -s` writes it.
const SHA_OF_SECRET: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
/// `correct horse`, as `htpasswd -B -C 4` writes it.
const BCRYPT_OF_CORRECT_HORSE: &str =
    "$2y$04$4BVWMmdpSe9ZWyNfRLoEk.MxrIeskcA80YMddXhUTTj2j60nK4.3q";

/// Starts a gateway whose ports have these options.
async fn start(protocols: &str, extensions: &[(&str, &str)]) -> (Gateway, Backend) {
    let backend = Backend::healthy().await.expect("a backend");
    let mut config = format!("receivers: {{otlp: {{protocols: {protocols}}}}}\n");
    config += &fan_out(Signal::Traces, 256, &[("backend", &backend)]);
    let mut names = "health_check".to_owned();
    if !extensions.is_empty() {
        config += "extensions:\n";
    }
    for (name, options) in extensions {
        config += &format!("  {name}: {options}\n");
        names += &format!(", {name}");
    }
    let config = config.replacen("service:\n", &format!("service:\n  extensions: [{names}]\n"), 1);
    (Gateway::start(&config).await, backend)
}

fn basic(user: &str, password: &str) -> String {
    format!(
        "Basic {}",
        base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"))
    )
}

/// One export over each port: gRPC's code, HTTP's answer.
async fn try_both(gateway: &Gateway, authorization: Option<&str>) -> (Code, Answer) {
    let channel =
        Channel::from_shared(format!("http://{}", gateway.grpc)).expect("a URI").connect_lazy();
    let mut request = tonic::Request::new(spans(1));
    if let Some(value) = authorization {
        request.metadata_mut().insert("authorization", value.parse().expect("a value"));
    }
    let code = TraceServiceClient::new(channel)
        .export(request)
        .await
        .map_or_else(|status| status.code(), |_| Code::Ok);
    let mut headers = vec![PROTOBUF];
    headers.extend(authorization.map(|value| ("authorization", value)));
    let mut stream = TcpStream::connect(gateway.http).await.expect("connects");
    (code, ask(&mut stream, "POST /v1/traces", &headers, &encoded(1)).await.expect("is answered"))
}

async fn assert_let_in(gateway: &Gateway, authorization: &str) {
    let (code, answer) = try_both(gateway, Some(authorization)).await;
    assert_eq!((code, answer.status), (Code::Ok, 200), "{authorization}: {answer:?}");
}

async fn assert_shut_out(gateway: &Gateway, authorization: Option<&str>, challenge: &str) {
    let (code, answer) = try_both(gateway, authorization).await;
    assert_eq!(
        (code, answer.status),
        (Code::Unauthenticated, 401),
        "{authorization:?}: {answer:?}"
    );
    assert!(
        answer.header("www-authenticate").is_some_and(|value| value.starts_with(challenge)),
        "{answer:?}"
    );
}

async fn assert_all_arrived(gateway: &Gateway, backend: &Backend) {
    let accepted = gateway.metric("otelcol_receiver_accepted_spans", &[]).await as u64;
    assert!(accepted > 0);
    let arrived = eventually(SOON, async || backend.counts().items == accepted).await;
    assert!(arrived, "{accepted} accepted, {:?}", backend.counts());
}

/// Guarantee: over both protocols a sender with a user's password is let in, and all others learn
/// what to show; a changed htpasswd file takes effect while the gateway runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn basic_authentication_follows_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("htpasswd");
    std::fs::write(&file, format!("sha:{SHA_OF_SECRET}\nbcrypt:{BCRYPT_OF_CORRECT_HORSE}\n"))
        .expect("a file");
    let guarded =
        "{grpc: {auth: {authenticator: basicauth}}, http: {auth: {authenticator: basicauth}}}";
    let options =
        format!("{{htpasswd: {{file: {}, inline: 'inline:{SHA_OF_SECRET}'}}}}", file.display());
    let (gateway, backend) = start(guarded, &[("basicauth", &options)]).await;
    for user in [("sha", "secret"), ("bcrypt", "correct horse"), ("inline", "secret")] {
        assert_let_in(&gateway, &basic(user.0, user.1)).await;
    }
    let wrong = [
        basic("sha", "Secret"),
        basic("bcrypt", "secret"),
        basic("unknown", "secret"),
        basic("sha", ""),
    ];
    let malformed = ["Basic ???", "Basic", "Bearer secret"].map(str::to_owned);
    for authorization in wrong.iter().chain(&malformed) {
        assert_shut_out(&gateway, Some(authorization), "basic realm=").await;
    }
    assert_shut_out(&gateway, None, "basic realm=").await;

    std::fs::write(&file, format!("other:{SHA_OF_SECRET}\n")).expect("a file");
    let let_in = async || try_both(&gateway, Some(&basic("other", "secret"))).await.0 == Code::Ok;
    assert!(eventually(SOON, let_in).await, "{}", gateway.output());
    assert_shut_out(&gateway, Some(&basic("sha", "secret")), "basic realm=").await;
    assert_shut_out(&gateway, Some(&basic("bcrypt", "correct horse")), "basic realm=").await;
    assert_let_in(&gateway, &basic("inline", "secret")).await;
    assert_all_arrived(&gateway, &backend).await;
    for secret in ["secret", "correct horse", SHA_OF_SECRET, &basic("sha", "secret")] {
        assert!(!gateway.output().contains(secret), "{secret} is in the output");
    }
}

/// Guarantee: every token of the file is let in; a token that is taken out is not any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bearer_tokens_follow_their_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    std::fs::write(&file, "first\nsecond\n").expect("a file");
    let guarded = "{grpc: {auth: {authenticator: bearertokenauth}}, http: {auth: {authenticator: \
                   bearertokenauth}}}";
    let options = format!("{{filename: {}}}", file.display());
    let (gateway, backend) = start(guarded, &[("bearertokenauth", &options)]).await;
    assert_let_in(&gateway, "Bearer first").await;
    assert_let_in(&gateway, "Bearer second").await;
    for authorization in [None, Some("Bearer third"), Some("Bearer"), Some("first")] {
        assert_shut_out(&gateway, authorization, "bearer").await;
    }
    std::fs::write(&file, "second\nthird\n").expect("a file");
    let shut_out =
        async || try_both(&gateway, Some("Bearer first")).await.0 == Code::Unauthenticated;
    assert!(eventually(SOON, shut_out).await, "{}", gateway.output());
    assert_let_in(&gateway, "Bearer second").await;
    assert_let_in(&gateway, "Bearer third").await;
    assert_all_arrived(&gateway, &backend).await;
}

/// Scenario: pages of two origins ask whether they may send, and send, without and with
/// credentials; the port has response headers. Guarantee: browsers get the headers that they need;
/// a preflight needs no credentials, as browsers send none with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browsers_may_send_from_allowed_origins() {
    let http = "{http: {auth: {authenticator: basicauth}, response_headers: {x-frame-options: \
                deny}, cors: \
         {allowed_origins: ['https://*.shop.example'], allowed_headers: [X-Tenant], \
         exposed_headers: [X-Id], max_age: 600}}}";
    let options = format!("{{htpasswd: {{inline: 'user:{SHA_OF_SECRET}'}}}}");
    let (gateway, backend) = start(http, &[("basicauth", &options)]).await;
    // One connection for all, as a browser has it.
    let mut stream = TcpStream::connect(gateway.http).await.expect("connects");
    let mut send = async |line: &str, headers: &[(&str, &str)], body: &[u8]| {
        ask(&mut stream, line, headers, body).await.expect("is answered")
    };
    let (ours, theirs) =
        (("origin", "https://www.shop.example"), ("origin", "https://evil.example"));
    let wish = [
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "content-type,x-tenant"),
    ];

    let answer = send("OPTIONS /v1/traces", &[ours, wish[0], wish[1]], b"").await;
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(answer.header("access-control-allow-origin"), Some(ours.1));
    assert_eq!(answer.header("access-control-allow-credentials"), Some("true"));
    assert_eq!(answer.header("access-control-max-age"), Some("600"));
    assert!(
        answer
            .header("access-control-allow-methods")
            .is_some_and(|methods| methods.contains("post"))
    );
    let allowed = answer.header("access-control-allow-headers").expect("is there");
    for name in ["content-type", "content-encoding", "authorization", "x-tenant"] {
        assert!(allowed.split(", ").any(|own| own == name), "{name} is not in {allowed}");
    }
    let answer = send("OPTIONS /v1/traces", &[theirs, wish[0], wish[1]], b"").await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (204, None));

    let credentials = ("authorization", &*basic("user", "secret"));
    for (headers, status, origin) in [
        (vec![PROTOBUF, ours, credentials], 200, Some(ours.1)),
        // The page may read that it was refused.
        (vec![PROTOBUF, ours], 401, Some(ours.1)),
        (vec![PROTOBUF, theirs, credentials], 200, None),
        (vec![PROTOBUF, credentials], 200, None),
    ] {
        let answer = send("POST /v1/traces", &headers, &encoded(1)).await;
        assert_eq!(
            (answer.status, answer.header("access-control-allow-origin")),
            (status, origin),
            "{headers:?}"
        );
        assert_eq!(answer.header("access-control-expose-headers"), origin.map(|_| "x-id"));
        assert_eq!(
            answer.header("vary").is_some(),
            headers.iter().any(|(name, _)| *name == "origin")
        );
        assert_eq!(answer.header("x-frame-options"), Some("deny"));
    }
    assert_all_arrived(&gateway, &backend).await;
}

/// Guarantee: without `cors` pages get no CORS headers; the other answers are as ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_cors_browsers_are_told_nothing() {
    let (gateway, backend) = start("{http: {response_headers: {x-served-by: gateway}}}", &[]).await;
    let mut stream = TcpStream::connect(gateway.http).await.expect("connects");
    let origin = ("origin", "https://www.shop.example");
    let wish = ("access-control-request-method", "POST");
    let answer =
        ask(&mut stream, "OPTIONS /v1/traces", &[origin, wish], b"").await.expect("is answered");
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (405, None));
    let answer = ask(&mut stream, "POST /v1/traces", &[origin, PROTOBUF], &encoded(1))
        .await
        .expect("is answered");
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, None));
    let unknown =
        ask(&mut stream, "POST /v1/nothing", &[PROTOBUF], b"").await.expect("is answered");
    assert_eq!((unknown.status, unknown.header("x-served-by")), (404, Some("gateway")));
    assert_all_arrived(&gateway, &backend).await;
}

async fn over_socket(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let endpoint = Endpoint::try_from(format!("unix:{}", path.display()))?;
    TraceServiceClient::new(endpoint.connect().await?).export(spans(1)).await?;
    Ok(())
}

/// Guarantee: both protocols listen on Unix sockets, also on one that a crash left behind; a reload
/// with other options keeps them, one that moves a protocol away removes its file, and so does the
/// end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unix_sockets_are_doors_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let [grpc, http] = ["grpc.sock", "http.sock"].map(|name| folder.path().join(name));
    drop(std::os::unix::net::UnixListener::bind(&grpc).expect("left over"));
    let grpc_options = format!("endpoint: {}, transport: unix", grpc.display());
    let protocols =
        format!("{{grpc: {{{grpc_options}}}, http: {{endpoint: 'unix://{}'}}}}", http.display());
    let (mut gateway, backend) = start(&protocols, &[]).await;
    over_socket(&grpc).await.expect("is accepted");
    let mut stream = UnixStream::connect(&http).await.expect("connects");
    assert_eq!(doors::export(&mut stream).await.expect("is answered"), 200);

    let config = |protocols: &str| {
        format!("receivers: {{otlp: {{protocols: {protocols}}}}}\n")
            + &fan_out(Signal::Traces, 256, &[("backend", &backend)])
    };
    gateway
        .reload(&config(
            &protocols.replace("transport: unix", "transport: unix, max_connections: 9"),
        ))
        .await;
    over_socket(&grpc).await.expect("is accepted");
    gateway
        .reload(&config(&format!(
            "{{grpc: {{{grpc_options}}}, http: {{endpoint: {}}}}}",
            gateway.http
        )))
        .await;
    over_socket(&grpc).await.expect("is accepted");
    assert!(grpc.exists() && !http.exists());
    let mut stream = TcpStream::connect(gateway.http).await.expect("connects");
    assert_eq!(doors::export(&mut stream).await.expect("is answered"), 200);
    assert_all_arrived(&gateway, &backend).await;
    gateway.terminate();
    assert!(gateway.ended_within(SOON).await.success());
    assert!(!grpc.exists());
}
