//! Over real connections.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use sluice_flow::{Exporter, Outcome};
use sluice_net::auth::client::ClientAuths;
use sluice_net::auth::server::{AuthError, ServerAuth};
use sluice_net::compress::decompress;
use sluice_net::server::{BindError, Listener};
use sluice_otlp::{Encoding, Signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::config::PrometheusConfig;
use crate::tests::{config, context, packed};
use crate::{BuildContext, Files, Pages};

/// An exporter that listens on a port of its own.
pub(super) struct Served {
    pub(super) exporter: Arc<dyn Exporter>,
    pub(super) address: SocketAddr,
    listener: Listener,
}

struct Token(HeaderValue);

impl ServerAuth for Token {
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<(), AuthError>> {
        let given = headers.get("authorization").map(HeaderValue::as_bytes);
        let result = match given {
            Some(b"Bearer good") => Ok(()),
            Some(b"Bearer later") => Err(AuthError::Busy),
            _ => Err(AuthError::Missing),
        };
        Box::pin(std::future::ready(result))
    }

    fn challenge(&self) -> &HeaderValue {
        &self.0
    }
}

impl Served {
    /// `options`: beside the endpoint.
    pub(super) async fn start(options: &str) -> Served {
        Served::after(options, &Pages::default(), &[]).await
    }

    async fn after(options: &str, pages: &Pages, held: &[Listener]) -> Served {
        let config = config("prometheus", &format!("{{endpoint: '127.0.0.1:0', {options}}}"));
        let listener = match held {
            [held] => held.clone(),
            _ => {
                let address = config.listening().expect("listens").address.clone();
                Listener::bind(&address).await.expect("binds")
            }
        };
        let token: Arc<dyn ServerAuth> = Arc::new(Token(HeaderValue::from_static("Bearer")));
        let servers = HashMap::from([("token".to_owned(), token)]);
        let exporter = config.build(&BuildContext {
            listener: Some(listener.clone()),
            servers: &servers,
            pages,
            ..context(&ClientAuths::new(), &Files::default())
        });
        let address = listener.local_address().expect("has an address");
        Served { exporter: exporter.expect("builds"), address, listener }
    }

    pub(super) async fn send(&self, metrics: Vec<Metric>) -> Outcome {
        let request = request(metrics);
        self.exporter.send(&packed(&*self.exporter, Signal::Metrics, vec![request])).await
    }

    /// The head of an answer in small letters, and the body.
    async fn request(&self, line: &str, headers: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(self.address).await.expect("connects");
        let request = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.expect("writes");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("reads");
        let end = answer.windows(4).position(|it| it == b"\r\n\r\n").expect("a head") + 4;
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        (head, answer.split_off(end))
    }

    async fn page(&self) -> String {
        let (head, body) = self.request("GET /metrics", "").await;
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        String::from_utf8(body).expect("text")
    }
}

fn request(metrics: Vec<Metric>) -> Bytes {
    let text = crate::prometheusremotewrite::tests::text;
    let attributes = vec![text("service.name", "shop"), text("service.instance.id", "a:80")];
    let resource = Some(Resource { attributes, ..Resource::default() });
    let scope_metrics = vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }];
    let resource_metrics =
        vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
    ExportMetricsServiceRequest { resource_metrics }.encode_to_vec().into()
}

fn points(values: &[f64]) -> Vec<NumberDataPoint> {
    let point = |value: &f64| NumberDataPoint {
        time_unix_nano: 2_000_000_000,
        value: Some(number_data_point::Value::AsDouble(*value)),
        ..NumberDataPoint::default()
    };
    values.iter().map(point).collect()
}

fn gauge(name: &str, value: f64) -> Metric {
    let data = Some(Data::Gauge(Gauge { data_points: points(&[value]) }));
    Metric { name: name.to_owned(), data, ..Metric::default() }
}

#[tokio::test]
async fn a_scrape_gets_the_last_values_in_the_form_that_it_asks_for() {
    let options = "enable_open_metrics: true, const_labels: {my zone: z}, send_timestamps: true, \
                   response_headers: {x-a: b}";
    let served = Served::start(options).await;
    assert_eq!(served.page().await, "", "nothing has come yet");
    for value in [1.0, 2.0] {
        assert_eq!(served.send(vec![gauge("load", value)]).await, Outcome::Delivered);
    }
    let labels = "instance=\"a:80\",job=\"shop\"";
    let of_load = "instance=\"a:80\",job=\"shop\",my_zone=\"z\"";
    let expected = format!(
        "# HELP load \n# TYPE load gauge\nload{{{of_load}}} 2 2000\n\
         # HELP target_info Target metadata\n# TYPE target_info gauge\ntarget_info{{{labels}}} 1\n"
    );
    assert_eq!(served.page().await, expected);
    let (head, body) = served.request("HEAD /metrics", "").await;
    assert!(head.starts_with("http/1.1 200") && body.is_empty(), "{head}");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains("x-a: b\r\n"), "{head}");
    let accept = "accept: application/openmetrics-text;version=1.0.0\r\n";
    let (head, body) = served.request("GET /metrics?x=y", accept).await;
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.ends_with(b"# EOF\n"));
    for (line, status) in [("GET /", 404), ("GET /metrics/", 404), ("POST /metrics", 405)] {
        let (head, _) = served.request(line, "content-length: 0\r\n").await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{line}: {head}");
    }
}

#[tokio::test]
async fn long_pages_are_packed_for_those_that_take_it() {
    let served = Served::start("").await;
    let metrics = (0..100).map(|index| gauge(&format!("load_{index}"), 1.0)).collect();
    assert_eq!(served.send(metrics).await, Outcome::Delivered);
    let (head, body) = served.request("GET /metrics", "accept-encoding: gzip\r\n").await;
    assert!(head.contains("content-encoding: gzip\r\n"), "{head}");
    let page = decompress(Encoding::Gzip, &body, 1 << 20).expect("unpacks");
    assert_eq!(page, served.page().await.as_bytes());
}

#[tokio::test]
async fn only_scrapers_with_credentials_get_a_page() {
    let served = Served::start("auth: {authenticator: token}").await;
    for (credentials, status) in [("", 401), ("bad", 401), ("good", 200), ("later", 503)] {
        let headers = format!("authorization: Bearer {credentials}\r\n");
        let (head, _) = served.request("GET /metrics", &headers).await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{credentials}: {head}");
        assert_eq!(head.contains("www-authenticate: bearer"), status == 401);
    }
}

/// Guarantee: points that are on no page are counted.
#[tokio::test]
async fn points_that_no_page_can_have_are_partly_rejected() {
    let served = Served::start("max_series: 2").await;
    let delta =
        Sum { data_points: points(&[1.0, 2.0]), aggregation_temporality: 1, is_monotonic: false };
    let delta = Metric { name: "d".to_owned(), data: Some(Data::Sum(delta)), ..Metric::default() };
    let outcome = served.send(vec![delta, gauge("a", 1.0)]).await;
    let Outcome::PartlyRejected { items: 2, reason } = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("non-monotonic"), "{reason}");
    // One is `target_info`.
    let outcome = served.send(vec![gauge("a", 2.0), gauge("b", 1.0)]).await;
    let Outcome::PartlyRejected { items: 1, reason } = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("at most 2 series"), "{reason}");
    assert!(served.page().await.contains("a{instance=\"a:80\",job=\"shop\"} 2\n"));
    let packed = packed(&*served.exporter, Signal::Metrics, vec![Bytes::from_static(b"\x0a\x7f")]);
    assert!(matches!(served.exporter.send(&packed).await, Outcome::Rejected { .. }));
}

/// Scenario: no Prometheus scrapes. Guarantee: series that expire take no memory.
#[tokio::test]
async fn series_expire_without_a_scrape() {
    let pages = Pages::default();
    let served = Served::after("metric_expiration: 100ms", &pages, &[]).await;
    served.send(vec![gauge("load", 1.0)]).await;
    let begin = Instant::now();
    while pages.series("otlp/test") != Some(0) {
        assert!(begin.elapsed() < Duration::from_secs(30), "they are still there");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Scenario: a reload changes options. Guarantee: the port stays open and the series are there,
/// unless they would have other names or labels; the one before is no longer served.
#[tokio::test]
async fn a_changed_exporter_goes_on_with_port_and_series() {
    let pages = Pages::default();
    let first = Served::after("", &pages, &[]).await;
    first.send(vec![gauge("load", 1.0)]).await;
    let held = [first.listener.clone()];
    let second = Served::after("send_timestamps: true", &pages, &held).await;
    drop(first);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(second.page().await.contains("load{instance=\"a:80\",job=\"shop\"} 1 2000\n"));
    let third = Served::after("namespace: n", &pages, &held).await;
    drop(second);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(third.page().await, "");
}

#[tokio::test]
async fn an_address_in_use_is_an_error() {
    let served = Served::start("").await;
    let options = format!("{{endpoint: '{}'}}", served.address);
    let config = config("prometheus", &options);
    let address = config.listening().expect("listens").address.clone();
    let error = Listener::bind(&address).await.err().expect("is in use");
    assert!(matches!(error, BindError::InUse { .. }), "{error}");
}

fn diagnosed(options: &str) -> (usize, String) {
    let (_, diagnostics) =
        sluice_config::read_text("exporters.test", options, PrometheusConfig::read);
    (diagnostics.errors().count(), diagnostics.render(false))
}

/// Guarantee: the options of the Collector's `testdata/config.yaml`, and no others.
#[test]
fn options_are_read_or_refused() {
    let collectors = "{endpoint: '1.2.3.4:1234', namespace: test-space, const_labels: {label1: \
                      value1, another label: spaced value}, send_timestamps: true, \
                      metric_expiration: 60m, add_metric_suffixes: false, \
                      resource_constant_labels: {included: [service.name]}}";
    assert_eq!(diagnosed(collectors), (0, String::new()));
    for wrong in [
        "{}",
        "{endpoint: 'localhost'}",
        "{endpoint: 'localhost:1', const_labels: {a: ''}}",
        "{endpoint: 'localhost:1', metric_expiration: 0}",
        "{endpoint: 'localhost:1', translation_strategy: None}",
        "{endpoint: 'localhost:1', middlewares: [{id: x}]}",
        "{endpoint: 'localhost:1', unknown: 1}",
    ] {
        let (errors, said) = diagnosed(wrong);
        assert_eq!(errors, 1, "{wrong}: {said}");
    }
    for warned in ["read_timeout: 1s", "compression_algorithms: [gzip]", "include_metadata: true"] {
        let (errors, said) = diagnosed(&format!("{{endpoint: 'localhost:1', {warned}}}"));
        assert!(errors == 0 && said.contains("has no effect"), "{said}");
    }
}
