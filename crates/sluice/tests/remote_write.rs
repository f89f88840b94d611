//! Remote write in and out between real servers: what one Prometheus sends can be queried at
//! another one and at VictoriaMetrics. Where one is missing the test passes over it, unless
//! SLUICE_TEST_REQUIRE_COMPONENTS=1.

#[path = "../../load-test/tests/support/component.rs"]
mod component;
mod gateway;
mod prometheus;
mod victoria;

use std::net::SocketAddr;
use std::time::Duration;

use gateway::{Gateway, eventually, get};
use prometheus::Prometheus;
use sluice_load_test::subject::free_addr;
use victoria::VictoriaMetrics;

const ARRIVES_WITHIN: Duration = Duration::from_secs(60);

/// The labels and values of all series that a query finds.
async fn values(server: SocketAddr, query: &str) -> Vec<(String, f64)> {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let path = format!("/api/v1/query?query={encoded}");
    let Some((200, answer)) = get(server, &path).await else { return Vec::new() };
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let answer: serde_json::Value = serde_json::from_str(body).expect("is JSON");
    let found = answer["data"]["result"].as_array().cloned().unwrap_or_default();
    let one = |series: &serde_json::Value| {
        let value = series["value"][1].as_str().and_then(|text| text.parse().ok());
        (series["metric"].to_string(), value.unwrap_or(f64::NAN))
    };
    found.iter().map(one).collect()
}

/// Requests of 1.0 come in at the first port and go to the second one as 2.0, and from there to the
/// backends as 1.0.
fn config(ports: [SocketAddr; 2], backends: [SocketAddr; 2]) -> String {
    let [first, second] = ports;
    let mut exporters = format!(
        "  prometheusremotewrite/second:\n    endpoint: http://{second}/api/v1/write\n    \
         protobuf_message: io.prometheus.write.v2.Request\n    external_labels: {{via: sluice}}\n"
    );
    for (index, backend) in backends.iter().enumerate() {
        exporters.push_str(&format!(
            "  prometheusremotewrite/{index}:\n    endpoint: http://{backend}/api/v1/write\n"
        ));
    }
    format!(
        "receivers:\n  prometheusremotewrite/first: {{endpoint: '{first}'}}\n  \
         prometheusremotewrite/second: {{endpoint: '{second}'}}\nexporters:\n{exporters}\
         service:\n  pipelines:\n    metrics/first:\n      \
         receivers: [prometheusremotewrite/first]\n      \
         exporters: [prometheusremotewrite/second]\n    metrics/second:\n      \
         receivers: [prometheusremotewrite/second]\n      \
         exporters: [prometheusremotewrite/0, prometheusremotewrite/1]\n"
    )
}

/// Scenario: a Prometheus sends to Sluice, that to itself by 2.0, and then to another Prometheus
/// and to VictoriaMetrics. Guarantee: all series arrive under their names with their labels,
/// nothing is refused for its order, and the sender counts all as taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_prometheus_sends_arrives_at_others() {
    let ports = [(); 2].map(|()| free_addr().expect("a port"));
    let more = format!("remote_write: [{{url: 'http://{}/api/v1/write'}}]\n", ports[0]);
    let native = "--enable-feature=native-histograms";
    let Some(source) = Prometheus::start_with("groups: []\n", &more, &[native]) else { return };
    let receiver = "--web.enable-remote-write-receiver";
    let Some(backend) = Prometheus::start_with("groups: []\n", "", &[receiver, native]) else {
        return;
    };
    let Some(victoria) = VictoriaMetrics::start() else { return };
    let gateway = Gateway::start(&config(ports, [backend.addr, victoria.address])).await;
    source.scrape(&[source.addr]);
    let instance = source.addr;
    for server in [backend.addr, victoria.address] {
        let up = format!("up{{job='sluice',instance='{instance}',via='sluice'}}");
        let arrives = async || values(server, &up).await.iter().any(|(_, value)| *value == 1.0);
        assert!(eventually(ARRIVES_WITHIN, arrives).await, "{}", gateway.output());
        let build = async || !values(server, "prometheus_build_info{version!=''}").await.is_empty();
        assert!(eventually(ARRIVES_WITHIN, build).await, "{}", gateway.output());
        // The parts of a histogram stay under their names.
        let bucket = "prometheus_http_request_duration_seconds_bucket{le='+Inf',\
                      handler='/metrics'}";
        let buckets = async || values(server, bucket).await.len() == 1;
        assert!(eventually(ARRIVES_WITHIN, buckets).await, "{:?}", values(server, bucket).await);
    }
    let all = |server| async move {
        let count = values(server, "count({job='sluice'})").await;
        count.first().map_or(0.0, |(_, value)| *value)
    };
    let sent = all(source.addr).await;
    let arrive = async || (all(backend.addr).await - sent).abs() < 0.05 * sent && sent > 300.0;
    let found = eventually(ARRIVES_WITHIN, arrive).await;
    assert!(found, "{sent} series at the source, {} behind", all(backend.addr).await);

    let failed = values(source.addr, "prometheus_remote_storage_samples_failed_total").await;
    assert!(failed.iter().all(|(_, value)| *value == 0.0), "{failed:?}");
    let page = gateway.scrape().await;
    for name in ["sluice_delivery_dead_letter_items", "sluice_delivery_partly_rejected_items"] {
        let refused = page.sum(name, &[]).expect("is there");
        assert_eq!(refused, 0.0, "{name}: {}", gateway.output());
    }

    // The source's end of a series arrives, too.
    source.scrape(&[]);
    let up = "up{job='sluice'}";
    let ended = async || values(backend.addr, up).await.is_empty();
    assert!(eventually(ARRIVES_WITHIN, ended).await, "{:?}", values(backend.addr, up).await);
}
