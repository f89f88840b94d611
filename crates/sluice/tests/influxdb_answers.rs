//! The exporter `influxdb` of the real binary before servers that are a mock: what they answer is
//! taken from the documentation of InfluxDB 2.x and 3, which the tests do not have, and of 1.x,
//! whose rights and limits are set here. `influxdb_export.rs` has a real InfluxDB 1.x.

mod gateway;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gateway::{Gateway, SOON, eventually};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use parking_lot::Mutex;
use prost::Message as _;
use sluice_net::compress::decompress;
use sluice_otlp::Encoding;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request: its first line and headers in lower case, and its lines.
struct Asked {
    head: String,
    lines: Vec<String>,
}

/// A server that stores nothing: a function of a request answers with a status, headers and a body.
struct Mock {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Mock {
    async fn start<F>(answer: F) -> Mock
    where
        F: Fn(&Asked) -> (u16, &'static str, String) + Clone + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let all = asked.clone();
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (answer, all) = (answer.clone(), all.clone());
                tokio::spawn(async move {
                    while let Some(asked) = read(&mut stream).await {
                        let (status, headers, body) = answer(&asked);
                        all.lock().push(asked);
                        let length = body.len();
                        let text = format!(
                            "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
                        );
                        let _ = stream.write_all(text.as_bytes()).await;
                    }
                });
            }
        });
        Mock { address, asked, task }
    }

    /// All lines of requests that a function takes, with how often each came.
    fn lines(&self, is_taken: impl Fn(&Asked) -> bool) -> BTreeMap<String, usize> {
        let mut lines = BTreeMap::new();
        let asked = self.asked.lock();
        for line in asked.iter().filter(|it| is_taken(it)).flat_map(|it| &it.lines) {
            *lines.entry(line.clone()).or_default() += 1;
        }
        lines
    }
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let length: usize =
        head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
    let mut body = bytes.split_off(end);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    let body = match head.contains("content-encoding: gzip") {
        true => decompress(Encoding::Gzip, &body, 64 << 20).expect("is gzip"),
        false => Bytes::from(body),
    };
    let lines = String::from_utf8(body.to_vec()).expect("is text");
    Some(Asked { head, lines: lines.lines().map(str::to_owned).collect() })
}

/// A gateway from OTLP to a server, with these options.
async fn before(server: SocketAddr, options: &str) -> Gateway {
    Gateway::start(&format!(
        "exporters:\n  influxdb:\n    endpoint: http://{server}\n{options}service:\n  pipelines:\n\
         \x20   metrics:\n      receivers: [otlp]\n      exporters: [influxdb]\n"
    ))
    .await
}

const V1: &str = "    v1_compatibility: {enabled: true, db: k6}\n";
const V2: &str = "    org: o\n    bucket: b\n    token: my-token\n";
const V3: &str = "    api: v3\n    bucket: b\n    token: my-token\n";

fn point(time_unix_nano: u64, value: f64) -> NumberDataPoint {
    let zone = Some(AnyValue { value: Some(any_value::Value::StringValue("a".to_owned())) });
    let zone = KeyValue { key: "zone".to_owned(), value: zone, ..KeyValue::default() };
    let attributes = vec![zone];
    let value = Some(number_data_point::Value::AsDouble(value));
    NumberDataPoint { attributes, time_unix_nano, value, ..NumberDataPoint::default() }
}

/// Sends a metric by OTLP over HTTP: a gauge, or a sum of deltas.
async fn export(gateway: &Gateway, name: &str, is_sum: bool, points: Vec<NumberDataPoint>) {
    let data = match is_sum {
        false => metric::Data::Gauge(Gauge { data_points: points }),
        true => metric::Data::Sum(Sum {
            data_points: points,
            aggregation_temporality: 1,
            is_monotonic: true,
        }),
    };
    let metrics = vec![Metric { name: name.to_owned(), data: Some(data), ..Metric::default() }];
    let scope_metrics = vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }];
    let resource_metrics = vec![ResourceMetrics { scope_metrics, ..ResourceMetrics::default() }];
    let body = ExportMetricsServiceRequest { resource_metrics }.encode_to_vec();
    let mut stream = TcpStream::connect(gateway.http).await.expect("connects");
    let head = format!(
        "POST /v1/metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.expect("writes");
    stream.write_all(&body).await.expect("writes");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("reads");
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}

/// Lines of a gauge from the first number on.
fn points(first: u64, count: u64) -> Vec<NumberDataPoint> {
    (first..first + count).map(|at| point(1_700_000_000_000_000_000 + at, at as f64)).collect()
}

/// InfluxDB 1.x without a database. It runs a statement as `runs` says, and stores lines once it
/// has the database.
struct WithoutDatabase {
    mock: Mock,
    exists: Arc<AtomicBool>,
    stored: Arc<Mutex<Vec<String>>>,
}

impl WithoutDatabase {
    async fn start(runs: Result<(), &'static str>) -> WithoutDatabase {
        let (exists, stored) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (is_there, kept) = (exists.clone(), Arc::<Mutex<Vec<String>>>::clone(&stored));
        let error = |text: &str| serde_json::json!({ "error": text }).to_string();
        let mock = Mock::start(move |asked| match (asked.head.starts_with("post /query "), runs) {
            (true, Ok(())) => {
                is_there.store(true, Ordering::SeqCst);
                (200, "", "{\"results\":[{\"statement_id\":0}]}\n".to_owned())
            }
            (true, Err(text)) => (403, "", error(text)),
            (false, _) if is_there.load(Ordering::SeqCst) => {
                kept.lock().extend(asked.lines.clone());
                (204, "", String::new())
            }
            (false, _) => (404, "", error("database not found: \"k6\"")),
        })
        .await;
        WithoutDatabase { mock, exists, stored }
    }

    fn queries(&self) -> usize {
        let asked = self.mock.asked.lock();
        asked.iter().filter(|it| it.head.starts_with("post /query ")).count()
    }
}

/// Scenario: a listener built from the documentation of InfluxDB 1.x has no database, and creates
/// one. Guarantee: one statement goes out, with the credentials of a write and the name in quotes;
/// then each point is stored once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_missing_is_created() {
    let server = WithoutDatabase::start(Ok(())).await;
    let options = "    v1_compatibility: {enabled: true, db: 'k6 \"load\"', username: me, \
                   password: my-password, create_database: true}\n";
    let gateway = before(server.mock.address, options).await;
    export(&gateway, "load", false, points(0, 1_000)).await;
    let all = async || server.stored.lock().len() == 1_000;
    assert!(eventually(SOON, all).await, "{}", gateway.output());
    assert_eq!(server.queries(), 1);
    let asked = server.mock.asked.lock();
    let authorization = |asked: &Asked| {
        let found = asked.head.lines().find(|line| line.starts_with("authorization: basic "));
        found.expect("credentials").to_owned()
    };
    let query = asked.iter().find(|it| it.head.starts_with("post /query ")).expect("a query");
    assert_eq!(query.lines, ["q=CREATE%20DATABASE%20%22k6%20%5C%22load%5C%22%22"]);
    assert_eq!(authorization(query), authorization(&asked[0]));
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    assert!(query.head.contains(form) && !query.head.contains("gzip\r\n"), "{}", query.head);
}

/// Scenario: a listener built from the documentation of InfluxDB 1.x lets the user create no
/// database; an administrator does it later. Guarantee: the delivery is held and says both reasons,
/// the log has the remedy once however often it is tried, and all arrives in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_may_not_be_created_holds_the_delivery() {
    let refusal = "error authorizing query: me not authorized to execute statement \
                   'CREATE DATABASE k6', requires admin privilege";
    let server = WithoutDatabase::start(Err(refusal)).await;
    let options = "    v1_compatibility: {enabled: true, db: k6, username: me, \
                   password: my-password, create_database: true}\n";
    let gateway = before(server.mock.address, options).await;
    export(&gateway, "load", false, points(0, 5)).await;
    let is_told = async || {
        let health = gateway.health().await.expect("a health check").1;
        ["held", "database not found", "requires admin privilege"]
            .iter()
            .all(|words| health.contains(words))
    };
    assert!(eventually(SOON, is_told).await, "{:?}", gateway.health().await);
    let again = eventually(Duration::from_secs(60), async || server.queries() >= 2).await;
    assert!(again, "{}", gateway.output());
    assert_eq!(gateway.count_in_output("create it as an administrator"), 1);
    assert!(!gateway.output().contains("my-password"), "{}", gateway.output());
    server.exists.store(true, Ordering::SeqCst);
    let all = async || server.stored.lock().len() == 5;
    assert!(eventually(Duration::from_secs(60), all).await, "{}", gateway.output());
    assert_eq!(gateway.metric("sluice_delivery_dead_letter_items", &[]).await, 0.0);
}

/// Scenario: a server takes at most 100 lines, and answers 413 to more. Guarantee: requests are
/// halved until it takes them; each point arrives, and increments of one time are told apart
/// however they are cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_too_large_are_halved() {
    let takes = |asked: &Asked| asked.lines.len() <= 100;
    let mock = Mock::start(move |asked| match takes(asked) {
        true => (204, "", String::new()),
        false => (413, "", "{\"error\":\"Request Entity Too Large\"}".to_owned()),
    })
    .await;
    let gateway = before(mock.address, V1).await;
    export(&gateway, "load", false, points(0, 1_000)).await;
    let at = |time_ns: u64| 1_700_000_000_000_000_000 + time_ns;
    export(&gateway, "calls", true, (0..1_000).map(|it| point(at(it / 4), 1.0)).collect()).await;
    let all = async || mock.lines(takes).len() == 2_000;
    assert!(eventually(SOON, all).await, "{}", gateway.output());
    assert!(mock.lines(|asked| !takes(asked)).len() >= 1_000, "larger ones were refused");
    assert!(mock.lines(takes).values().all(|times| *times == 1), "nothing is sent twice");
    assert_eq!(gateway.metric("sluice_delivery_dead_letter_items", &[]).await, 0.0);
}

/// Scenario: more lines wait than a request is to have. Guarantee: no request has more, and none
/// more bytes than it may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_have_no_more_lines_than_they_may() {
    for (option, lines, bytes) in
        [("payload_max_lines: 150", 150, usize::MAX), ("payload_max_bytes: 4096", 10_000, 4_096)]
    {
        let mock = Mock::start(|_| (204, "", String::new())).await;
        let gateway = before(mock.address, &format!("{V1}    {option}\n")).await;
        export(&gateway, "load", false, points(0, 1_000)).await;
        let all = async || mock.lines(|_| true).len() == 1_000;
        assert!(eventually(SOON, all).await, "{option}: {}", gateway.output());
        for asked in mock.asked.lock().iter() {
            let len: usize = asked.lines.iter().map(|line| line.len() + 1).sum();
            assert!(
                asked.lines.len() <= lines && len <= bytes.saturating_add(100),
                "{option} {len}"
            );
        }
    }
}

/// Scenario: InfluxDB 2.x is overloaded, then fails, then takes all. Guarantee: path, parameters
/// and token are those of 2.x, the pause is the one that it asks for, and all arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn influxdb_2_is_written_to_again_after_its_pause() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let seen = times.clone();
    let mock = Mock::start(move |_| {
        let mut seen = seen.lock();
        seen.push(std::time::Instant::now());
        let error = |code: &str| format!("{{\"code\":\"{code}\",\"message\":\"later\"}}");
        match seen.len() {
            1 => (429, "retry-after: 2\r\n", error("too many requests")),
            2 => (503, "retry-after: 1\r\n", error("unavailable")),
            3 => (500, "", error("internal error")),
            _ => (204, "", String::new()),
        }
    })
    .await;
    let gateway = before(mock.address, V2).await;
    export(&gateway, "load", false, points(0, 3)).await;
    let all = async || times.lock().len() == 4;
    assert!(eventually(SOON, all).await, "{}", gateway.output());
    {
        let asked = mock.asked.lock();
        let head = &asked[0].head;
        let line = "post /api/v2/write?org=o&bucket=b&precision=ns http/1.1\r\n";
        assert!(head.starts_with(line), "{head}");
        assert!(head.contains("authorization: token my-token\r\n"), "{head}");
        let first = "load,zone=a value=0 1700000000000000000";
        assert!(asked.iter().all(|it| it.lines.len() == 3 && it.lines[0] == first));
        let times = times.lock();
        let pauses: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
        assert!(pauses[0] >= 2 && pauses[1] >= 1, "{pauses:?}");
    }
    assert_eq!(gateway.metric("sluice_delivery_dead_letter_items", &[]).await, 0.0);
}

/// Scenario: InfluxDB 3 stores the lines of a request but for one, of which it says what is wrong.
/// Guarantee: that one alone becomes a dead letter, with its reason; no point is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_influxdb_3_refuses_becomes_a_dead_letter() {
    let is_bad = |line: &&String| line.contains(" value=13 ");
    let mock = Mock::start(move |asked| match asked.lines.iter().find(is_bad) {
        None => (204, "", String::new()),
        Some(line) => {
            let fault = serde_json::json!({
                "error": "partial write of line protocol occurred",
                "data": [{
                    "error_message": "invalid column type for column 'value'",
                    "line_number": 1,
                    "original_line": line,
                }],
            });
            (400, "content-type: application/json\r\n", fault.to_string())
        }
    })
    .await;
    let gateway = before(mock.address, V3).await;
    export(&gateway, "load", false, points(0, 200)).await;
    let dead = async || gateway.metric("sluice_delivery_dead_letter_items", &[]).await;
    assert!(eventually(SOON, async || dead().await == 1.0).await, "{}", gateway.output());
    let letters = gateway.dead_letters().await;
    assert!(letters.contains("invalid column type for column 'value'"), "{letters}");
    let taken = mock.lines(|asked| !asked.lines.iter().any(|line| is_bad(&line)));
    assert_eq!(taken.len(), 199);
    let asked = mock.asked.lock();
    let head = &asked[0].head;
    let line = "post /api/v3/write_lp?db=b&precision=nanosecond http/1.1\r\n";
    assert!(head.starts_with(line), "{head}");
    assert!(head.contains("authorization: bearer my-token\r\n"), "{head}");
}

/// Scenario: points have no time, or no value that a line can have. Guarantee: they are counted as
/// refused, because InfluxDB would give them another time with each attempt; others are sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn points_without_a_time_are_counted() {
    let mock = Mock::start(|_| (204, "", String::new())).await;
    let gateway = before(mock.address, V2).await;
    let mut points = points(0, 5);
    points[1].time_unix_nano = 0;
    points[3].value = Some(number_data_point::Value::AsDouble(f64::NAN));
    export(&gateway, "load", false, points).await;
    let refused = async || gateway.metric("sluice_delivery_partly_rejected_items", &[]).await;
    assert!(eventually(SOON, async || refused().await == 2.0).await, "{}", gateway.output());
    assert_eq!(mock.lines(|_| true).len(), 3);
    assert!(gateway.output().contains("1 have no time"), "{}", gateway.output());
}

/// Scenario: InfluxDB 2.x does not know the token, and says it in its answer. Guarantee: the
/// delivery is held, says why without the token, and nothing is given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_token_holds_the_delivery() {
    let mock = Mock::start(|_| {
        let text = "{\"code\":\"unauthorized\",\"message\":\"no such token: my-token\"}";
        (401, "content-type: application/json\r\n", text.to_owned())
    })
    .await;
    let gateway = before(mock.address, V2).await;
    export(&gateway, "load", false, points(0, 5)).await;
    let is_told = async || {
        let health = gateway.health().await.expect("a health check").1;
        health.contains("held") && health.contains("no such token")
    };
    assert!(eventually(SOON, is_told).await, "{:?}", gateway.health().await);
    assert!(!gateway.output().contains("my-token"), "{}", gateway.output());
    assert!(!gateway.health().await.expect("health").1.contains("my-token"));
    assert_eq!(gateway.metric("sluice_delivery_dead_letter_items", &[]).await, 0.0);
}
