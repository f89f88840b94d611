//! The requests to targets, and to the server of their tokens.

use std::io::Write as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use sluice_net::compress;
use sluice_otlp::Encoding;

use crate::scene::{Scene, job, until};
use crate::server::{Server, answer, packed, page};

/// Scenario: a job with parameters and credentials. Guarantee: the request is Prometheus', and the
/// page arrives with the report, on one connection for all scrapes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_is_asked_as_prometheus_asks() {
    let server = Server::with_page("# TYPE a counter\na_total{b=\"c\"} 7\n").await;
    let options = "metrics_path: /probe\nparams: {module: [http_2xx]}\n\
                   basic_auth: {username: me, password: secret}\n\
                   http_headers: {x-tenant: {values: [one]}}";
    let mut scene = Scene::start(&job("j", &[server.address], options)).await;
    scene.until_points("j a_total{b=c}", 3).await;
    let head = server.head().to_lowercase();
    for expected in [
        "get /probe?module=http_2xx http/1.1\r\n",
        "\r\nauthorization: basic bwu6c2vjcmv0\r\n",
        "\r\nx-tenant: one\r\n",
        "\r\nuser-agent: sluice/test\r\n",
        "\r\naccept-encoding: gzip,zstd;q=0.9\r\n",
        "\r\nx-prometheus-scrape-timeout-seconds: 0.25\r\n",
        "\r\naccept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,",
        &format!("\r\nhost: {}\r\n", server.address),
    ] {
        assert!(head.contains(expected), "{expected:?} in {head:?}");
    }
    assert_eq!(*server.connections.lock(), 1);
    let engine = &scene.engine;
    assert!(engine.values("j a_total{b=c}").iter().all(|value| *value == Some(7.0)));
    assert_eq!(engine.last("j up{}"), Some(Some(1.0)));
    assert_eq!(engine.last("j scrape_samples_scraped{}"), Some(Some(1.0)));
    assert_eq!(engine.values("j scrape_series_added{}")[..2], [Some(1.0), Some(0.0)]);
    let resource = engine.resources.lock()[0].clone();
    let expected = format!(
        "sluice/receiver/prometheus service.name=j,service.instance.id={0},server.port={1},\
         url.scheme=http",
        server.address,
        server.address.port()
    );
    assert_eq!(resource, expected);
    assert_eq!(scene.metric("sluice_prometheus_up_targets", ""), 1.0);
    scene.stop().await;
    assert_eq!(scene.engine.used_bytes(), 0, "all memory is given back");
    assert_eq!(scene.metric("sluice_prometheus_up_targets", ""), 0.0);
    assert_eq!(scene.metric("sluice_prometheus_series_bytes", ""), 0.0);
}

/// Scenario: targets with TLS; one job trusts them, one does not. Guarantee: the first is scraped,
/// the other one is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn targets_are_scraped_over_tls() {
    let (server, authority) = Server::start_tls(|_| page("a 1\n")).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("authority.pem");
    std::fs::write(&file, authority).expect("is written");
    let tls = format!("scheme: https\ntls_config: {{ca_file: '{}'}}", file.display());
    let jobs =
        job("trusts", &[server.address], &tls) + &job("doubts", &[server.address], "scheme: https");
    let scene = Scene::start(&jobs).await;
    scene.until_last("trusts a{}", Some(1.0)).await;
    scene.until_last("doubts up{}", Some(0.0)).await;
    assert!(scene.metric("sluice_prometheus_failed_scrapes", "\"connection\"") > 0.0);
    assert!(scene.engine.resources.lock()[0].contains("url.scheme=https"));
}

/// Scenario: small and large pages in each encoding. Guarantee: they are taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_inflated() {
    let text: String = (0..20_000).map(|at| format!("a{{n=\"{at}\"}} {at}\n")).collect();
    for (body, last) in [("a{n=\"0\"} 0\n", 0), (&*text, 19_999)] {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(body.as_bytes()).expect("is packed");
        let gzip = gzip.finish().expect("is packed");
        let zstd = [bytes::Bytes::from(body.to_owned())];
        let zstd = compress::compress(Encoding::Zstd, &zstd, None).expect("is packed");
        for (encoding, bytes) in [("gzip", gzip), ("zstd", zstd.to_vec())] {
            let server = Server::start(move |_| packed(encoding, &bytes)).await;
            let more = "extra_scrape_metrics: true";
            let scene = Scene::start(&job("j", &[server.address], more)).await;
            scene.until_last(&format!("j a{{n={last}}}"), Some(f64::from(last))).await;
            let bytes = Some(body.len() as f64);
            assert_eq!(scene.engine.last("j scrape_body_size_bytes{}"), Some(bytes));
        }
    }
}

/// Scenario: a target redirects to itself and to another server. Guarantee: the page is found, and
/// credentials stay with the target. Without `follow_redirects` the target is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_are_followed_without_credentials() {
    let other = Server::with_page("a 1\n").await;
    let to_other = format!("location: http://{}/there\r\n", other.address);
    let server = Server::start(move |head| match head.starts_with("GET /metrics ") {
        true => answer("302 Found", "location: /next\r\n", b"moved"),
        false => answer("307 Temporary Redirect", &to_other, b""),
    })
    .await;
    let auth = "authorization: {credentials: secret}\nhttp_headers: {x-key: {secrets: [hidden]}}";
    let stays = format!("{auth}\nfollow_redirects: false");
    let jobs = job("follows", &[server.address], auth) + &job("stays", &[server.address], &stays);
    let scene = Scene::start(&jobs).await;
    scene.until_last("follows a{}", Some(1.0)).await;
    let heads = server.heads.lock().clone();
    let next = heads.iter().find(|head| head.starts_with("GET /next ")).expect("is asked");
    assert!(next.contains("Bearer secret") && next.contains("hidden"), "{next}");
    let head = other.head();
    assert!(head.starts_with("GET /there ") && head.contains("sluice/test"), "{head}");
    assert!(!head.contains("secret") && !head.contains("hidden"), "{head}");
    scene.until_last("stays up{}", Some(0.0)).await;
    assert!(scene.metric("sluice_prometheus_failed_scrapes", "reason=\"status\"") > 0.0);
}

/// Scenario: a job with tokens; its server of tokens reads credentials only in the form, and the
/// targets take the second token only. Guarantee: all targets share a token, and one that a target
/// refuses is replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_fetched_shared_and_replaced() {
    let given = Arc::<Mutex<usize>>::default();
    let count = given.clone();
    let tokens = Server::start(move |request| {
        if request.contains("Basic ") {
            return answer("401 Unauthorized", "", b"");
        }
        let asked = request.contains("grant_type=client_credentials")
            && request.contains("scope=a%20b")
            && request.contains("client_id=me&client_secret=s%26");
        assert!(asked, "{request}");
        *count.lock() += 1;
        let token = format!("{{\"access_token\": \"t{}\", \"expires_in\": 3600}}", count.lock());
        answer("200 OK", "content-type: application/json\r\n", token.as_bytes())
    })
    .await;
    let reply = |head: &str| match head.contains("Bearer t2\r\n") {
        true => page("a 1\n"),
        false => answer("401 Unauthorized", "", b""),
    };
    let (first, second) = (Server::start(reply).await, Server::start(reply).await);
    let oauth2 = format!(
        "oauth2: {{client_id: me, client_secret: 's&', token_url: 'http://{}/token', scopes: [a, \
         b]}}",
        tokens.address
    );
    let scene = Scene::start(&job("j", &[first.address, second.address], &oauth2)).await;
    let up = || scene.metric("sluice_prometheus_up_targets", "") == 2.0;
    until("both are up", up).await;
    assert_eq!(*given.lock(), 2);
}
