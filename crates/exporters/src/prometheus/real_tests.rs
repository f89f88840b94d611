//! A real Prometheus scrapes. Where it is missing the test passes over it, unless
//! SLUICE_TEST_REQUIRE_COMPONENTS=1.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluice_flow::Outcome;

use super::tests::Served;
use crate::prometheusremotewrite::real_tests::{Real, metrics};

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("is later").as_nanos() as u64
}

/// Guarantee: Prometheus has every kind of metric as it was sent: native histograms in protobuf,
/// exemplars, the target's attributes, and series that end.
#[tokio::test]
async fn prometheus_scrapes_every_kind_of_metric() {
    let options = "enable_open_metrics: true, const_labels: {zone: z}, metric_expiration: 4s, \
                   namespace: real";
    let served = Served::start(options).await;
    let config = format!(
        "{{global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}, scrape_configs: [{{\
         job_name: sluice, honor_labels: true, static_configs: [{{targets: ['{}']}}]}}]}}\n",
        served.address
    );
    let Some(real) = Real::prometheus_with(&config).await else { return };
    let time_ns = now_ns();
    let sent = tokio::spawn(async move {
        loop {
            assert_eq!(served.send(metrics(time_ns)).await, Outcome::Delivered);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let labels = "{job=%22shop%22,zone=%22z%22}";
    assert_eq!(real.value(&format!("real_load{labels}")).await, "1.5");
    assert_eq!(real.value(&format!("real_orders_total{labels}")).await, "7");
    assert_eq!(real.value(&format!("real_took_sum{labels}")).await, "21.5");
    assert_eq!(real.value("real_took_bucket{le=~%2210(.0)?%22}").await, "3");
    assert_eq!(real.value("real_target_info").await, "1");
    assert_eq!(real.value("histogram_count(real_native)").await, "9");
    let seconds = time_ns / 1_000_000_000;
    let (from, to) = (seconds - 60, seconds + 60);
    let path = format!("/api/v1/query_exemplars?query=real_orders_total&start={from}&end={to}");
    let exemplars = real.get(&path).await;
    assert!(exemplars.contains(&"01".repeat(16)), "{exemplars}");
    sent.abort();
    assert_eq!(real.value("absent(real_load)").await, "1");
}

/// Guarantee: Prometheus scrapes over TLS with HTTP/2, and only with its token.
#[tokio::test]
async fn prometheus_scrapes_over_tls_with_a_token() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = |name: &str| folder.path().join(name);
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("generates");
    std::fs::write(path("cert.pem"), own.cert.pem()).expect("writes");
    std::fs::write(path("key.pem"), own.signing_key.serialize_pem()).expect("writes");
    let served = Served::start(&format!(
        "tls: {{cert_file: '{}', key_file: '{}'}}, auth: {{authenticator: token}}",
        path("cert.pem").display(),
        path("key.pem").display(),
    ))
    .await;
    assert_eq!(served.send(metrics(now_ns())).await, Outcome::Delivered);
    let job = |name: &str, token: &str| {
        format!(
            "{{job_name: {name}, scheme: https, tls_config: {{ca_file: '{}'}}, authorization: \
             {{credentials: {token}}}, static_configs: [{{targets: ['{}']}}]}}",
            path("cert.pem").display(),
            served.address
        )
    };
    let config = format!(
        "{{global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}, scrape_configs: [{}, {}]}}\n",
        job("known", "good"),
        job("unknown", "bad"),
    );
    let Some(real) = Real::prometheus_with(&config).await else { return };
    assert_eq!(real.value("load{job=%22known%22}").await, "1.5");
    assert_eq!(real.value("up{job=%22unknown%22}").await, "0");
}
