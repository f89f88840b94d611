//! A mock of the engine, requests to send, and raw clients to send them with.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric, number_data_point,
};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use sluice_config::load::read_text;
use sluice_flow::source::{
    ArrivedBody, Ingress, IngressRoute, MemoryPool, Permit, Receipt, Request,
};
use sluice_flow::{BoxFuture, Metadata, Payload, Refusal};
use sluice_net::auth::client::ClientAuths;
use sluice_net::auth::server::ServerAuth;
use sluice_net::grpc::Status;
use sluice_net::server::{ConnectionBudget, OpenConnections, ServerResources};
use sluice_otlp::{Encoding, Signal};
use sluice_receivers::otlp::{Counters, OtlpConfig, Transport};
use sluice_receivers::{BindContext, ReceiverConfig, ReceiverContext, StartedReceiver, Streams};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::runtime::ServerRuntime;

/// A request that the mock accepted.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) signal: Signal,
    pub(crate) items: u32,
    pub(crate) payload: Payload,
    pub(crate) metadata: Arc<Metadata>,
}

/// A mock of the engine: remembers what it accepts and counts what it admits.
#[derive(Default)]
pub(crate) struct MockIntake {
    pub(crate) accepted: std::sync::Mutex<Vec<Accepted>>,
    /// Bytes admitted and not given back, the most there ever were, and how often admission was
    /// asked for.
    pub(crate) outstanding: AtomicUsize,
    pub(crate) peak: AtomicUsize,
    pub(crate) admissions: AtomicUsize,
    /// Authenticators, by name.
    pub(crate) authenticators: HashMap<String, Arc<dyn ServerAuth>>,
    pub(crate) keeps: Option<Encoding>,
    pub(crate) unrouted: Option<Signal>,
    /// Names of the request metadata that something downstream reads.
    pub(crate) metadata_keys: Vec<String>,
    /// The memory for receiving, if it has an end.
    pub(crate) memory_limit_bytes: Option<usize>,
    /// Answered by `admit` and by `submit` instead of success.
    pub(crate) admit_refusal: Option<Refusal>,
    pub(crate) submit_refusal: Option<Refusal>,
    /// Answered when a request that has grown beyond this is judged again.
    pub(crate) grown_refusal: Option<(usize, Refusal)>,
    /// Requests wait to be admitted until it is notified.
    pub(crate) gate: Option<Notify>,
    /// Or until all of them has arrived.
    pub(crate) admits_arrived: bool,
    /// The memory for bytes of requests that wait.
    pub(crate) waiting: Arc<WaitingMemory>,
    /// No request of this signal is ever accepted.
    pub(crate) stalls: Option<Signal>,
}

impl MemoryPool for MockIntake {
    fn take(&self, held_bytes: usize, bytes: usize) -> Result<(), Refusal> {
        let limit = self.memory_limit_bytes.unwrap_or(usize::MAX);
        if held_bytes + bytes > limit {
            return Err(Refusal::TooLarge { reason: "it can never fit".to_owned() });
        }
        let more = |outstanding: usize| outstanding.checked_add(bytes).filter(|sum| *sum <= limit);
        let before = self.outstanding.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        let now = before.map(|before| before + bytes).map_err(|_| Refusal::Retry {
            delay: Duration::from_millis(100),
            reason: "there is none now".to_owned(),
        })?;
        self.peak.fetch_max(now, Ordering::SeqCst);
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.outstanding.fetch_sub(bytes, Ordering::SeqCst);
    }
}

impl MockIntake {
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::SeqCst)
    }

    pub(crate) fn taken(&self) -> Vec<Accepted> {
        self.accepted.lock().expect("is not poisoned").clone()
    }
}

/// The ingress that the receiver sees.
pub(crate) struct Shared(pub(crate) Arc<MockIntake>);

/// Its route of a signal.
struct MockRoute(Arc<MockIntake>, Signal);

impl Ingress for Shared {
    fn route(&self, signal: Signal) -> Option<Arc<dyn IngressRoute>> {
        (self.0.unrouted != Some(signal))
            .then(|| Arc::new(MockRoute(Arc::clone(&self.0), signal)) as _)
    }

    fn waiting(&self, _: bool) -> Arc<dyn MemoryPool> {
        self.0.waiting.clone()
    }
}

/// Counts the memory of requests while they wait.
#[derive(Default)]
pub(crate) struct WaitingMemory {
    pub(crate) limit_bytes: Option<usize>,
    pub(crate) used_bytes: AtomicUsize,
}

impl MemoryPool for WaitingMemory {
    fn take(&self, held_bytes: usize, bytes: usize) -> Result<(), Refusal> {
        if self.limit_bytes.is_some_and(|limit| held_bytes + bytes > limit) {
            return Err(Refusal::overloaded("too much waits"));
        }
        self.used_bytes.fetch_add(bytes, Ordering::SeqCst);
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::SeqCst);
    }
}

impl IngressRoute for MockRoute {
    fn admit<'a>(
        &'a self,
        bytes: usize,
        arrived: &'a ArrivedBody,
    ) -> BoxFuture<'a, Result<Permit, Refusal>> {
        Box::pin(async move {
            self.0.admissions.fetch_add(1, Ordering::SeqCst);
            let arrives = poll_fn(|_| match arrived.is_set() && self.0.admits_arrived {
                true => Poll::Ready(()),
                false => Poll::Pending,
            });
            if let Some(gate) = &self.0.gate {
                tokio::select! {
                    () = gate.notified() => {}
                    () = arrives => {}
                }
            }
            self.admit_at_once(bytes)
        })
    }

    fn admit_at_once(&self, bytes: usize) -> Result<Permit, Refusal> {
        match &self.0.admit_refusal {
            Some(refusal) => Err(refusal.clone()),
            None => Permit::take(Arc::clone(&self.0) as Arc<dyn MemoryPool>, bytes),
        }
    }

    fn judge_again(&self, permit: &Permit) -> Result<(), Refusal> {
        match &self.0.grown_refusal {
            Some((bytes, refusal)) if permit.bytes() > *bytes => Err(refusal.clone()),
            _ => Ok(()),
        }
    }

    fn keeps_compressed(&self, encoding: Encoding, _: usize) -> bool {
        self.0.keeps == Some(encoding)
    }

    fn metadata_keys(&self) -> &[String] {
        &self.0.metadata_keys
    }

    fn submit(self: Arc<Self>, request: Request, permit: Permit) -> Result<Receipt, Refusal> {
        let MockRoute(mock, signal) = &*self;
        if mock.stalls == Some(*signal) {
            // As a sender's answer waits for the deliveries; the permit shows whether the sender
            // has gone.
            let never: BoxFuture<'static, _> = Box::pin(async move {
                let _permit = permit;
                std::future::pending().await
            });
            return Ok(Receipt { pace: None, answer: Some(never) });
        }
        if let Some(refusal) = &mock.submit_refusal {
            return Err(refusal.clone());
        }
        let Request { payload, items, metadata, .. } = request;
        let accepted = Accepted { signal: *signal, items, payload, metadata };
        mock.accepted.lock().expect("is not poisoned").push(accepted);
        Ok(Receipt::default())
    }
}

/// A receiver on free ports.
pub(crate) struct Receiver {
    pub(crate) intake: Arc<MockIntake>,
    pub(crate) running: Box<dyn StartedReceiver>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    _runtime: ServerRuntime,
}

pub(crate) const BOTH: &str =
    "protocols: {grpc: {endpoint: 'localhost:0'}, http: {endpoint: 'localhost:0'}}";

pub(crate) fn config(text: &str) -> OtlpConfig {
    let (config, diagnostics) = read_text("receivers.otlp", text, OtlpConfig::read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    config
}

impl Receiver {
    pub(crate) async fn start(text: &str, intake: MockIntake) -> Receiver {
        Receiver::start_with(config(text), intake).await
    }

    pub(crate) async fn start_with(config: OtlpConfig, intake: MockIntake) -> Receiver {
        Receiver::start_within(config, intake, ConnectionBudget::unlimited()).await
    }

    /// With a budget for connections.
    pub(crate) async fn start_within(
        config: OtlpConfig,
        intake: MockIntake,
        budget: Arc<ConnectionBudget>,
    ) -> Receiver {
        let connections = OpenConnections::new(budget);
        let authenticators = intake.authenticators.clone();
        let (intake, counters) = (Arc::new(intake), Arc::new(Counters::default()));
        let runtime = ServerRuntime::start();
        let context = ReceiverContext {
            ingress: Arc::new(Shared(Arc::clone(&intake))),
            authenticators,
            resources: ServerResources { connections, scheduler: runtime.scheduler() },
            counters: Some(Arc::clone(&counters) as _),
            client_authenticators: ClientAuths::default(),
            user_agent: "sluice/test",
            streams: Streams::default(),
        };
        let bind = BindContext { id: "otlp", ..BindContext::default() };
        let serve = async move { config.bind(bind).await.expect("binds").serve(context) };
        let running = runtime.run(serve).await;
        let none = SocketAddr::from(([127, 0, 0, 1], 1));
        let addresses = running.addresses();
        let [grpc, http] = Transport::ALL.map(|transport| {
            let found = addresses.iter().find(|(by, _)| *by == transport.as_str());
            found.map_or(none, |(_, address)| address.parse().expect("an address"))
        });
        Receiver { intake, running, counters, grpc, http, _runtime: runtime }
    }

    /// Another client's requests succeed over both transports.
    pub(crate) async fn assert_serves_others(&self) {
        let before = self.intake.taken().len();
        let mut client = connect_h2(self.grpc).await;
        let status = unary(&mut client, Signal::Traces, &[], &framed(0, &traces(3))).await;
        assert!(status.is_ok(), "{status:?}");
        let (code, ..) = post(
            self.http,
            "/v1/traces",
            &[("content-type", "application/x-protobuf")],
            &traces(3),
        )
        .await;
        assert_eq!(code, 200);
        assert_eq!(self.intake.taken().len(), before + 2);
    }

    /// Runs an attack while another client exports over both transports, on connections that last
    /// and on new ones. Each of its requests is answered with success, and soon; the last ones come
    /// after the attack.
    pub(crate) async fn undisturbed<T>(&self, attack: impl Future<Output = T>) -> T {
        let of_others = || {
            self.intake
                .taken()
                .iter()
                .filter(|accepted| accepted.signal == SIGNAL_OF_OTHERS)
                .count()
        };
        let before = of_others();
        let over = CancellationToken::new();
        let others = tokio::spawn(export_until(
            over.clone(),
            connect_h2(self.grpc).await,
            self.grpc,
            self.http,
        ));
        let outcome = attack.await;
        over.cancel();
        let exported = others.await.expect("others are undisturbed");
        assert_eq!(of_others() - before, exported);
        outcome
    }

    /// Requests accepted from clients other than those of `undisturbed`.
    pub(crate) fn taken_from_attackers(&self) -> Vec<Accepted> {
        self.intake
            .taken()
            .into_iter()
            .filter(|accepted| accepted.signal != SIGNAL_OF_OTHERS)
            .collect()
    }

    /// All memory that was admitted comes back.
    pub(crate) async fn assert_gives_all_memory_back(&self) {
        until("all permits are given back", || self.intake.outstanding() == 0).await;
    }
}

/// The clients of `undisturbed` send this signal.
const SIGNAL_OF_OTHERS: Signal = Signal::Metrics;

/// Exports until told not to, and once more; returns how many requests there were.
async fn export_until(
    over: CancellationToken,
    mut lasting: h2::client::SendRequest<Bytes>,
    grpc: SocketAddr,
    http: SocketAddr,
) -> usize {
    let body = prost::Message::encode_to_vec(&metrics_request(3));
    let soon = Duration::from_secs(1);
    let mut exported = 0;
    loop {
        let is_last = over.is_cancelled();
        let calls = async {
            for client in [&mut lasting, &mut connect_h2(grpc).await] {
                let status = unary(client, SIGNAL_OF_OTHERS, &[], &framed(0, &body)).await;
                assert!(status.is_ok(), "{status}");
            }
        };
        timeout(soon, calls).await.expect("others are answered soon over gRPC");
        let headers = [("content-type", "application/x-protobuf")];
        let posted = timeout(soon, post(http, SIGNAL_OF_OTHERS.http_path(), &headers, &body)).await;
        assert_eq!(posted.expect("others are answered soon over HTTP").0, 200);
        exported += 3;
        if is_last {
            return exported;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// True in a process that runs this test and no other: the test is about the memory of the process.
/// Elsewhere the test is run in such a process.
pub(crate) fn is_alone(test: &str) -> bool {
    const ALONE: &str = "SLUICE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let own = std::env::current_exe().expect("a path");
    let run = std::process::Command::new(own)
        .args([test, "--exact"])
        .env(ALONE, "1")
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    false
}

/// The most memory that this process had since some moment, beyond its memory then.
pub(crate) struct Growth {
    before_bytes: usize,
}

impl Growth {
    pub(crate) fn from_here() -> Self {
        // Forgets the peak so far: proc_pid_clear_refs(5).
        std::fs::write("/proc/self/clear_refs", "5").expect("is written");
        Growth { before_bytes: Growth::peak_bytes() }
    }

    pub(crate) fn bytes(&self) -> usize {
        Growth::peak_bytes() - self.before_bytes
    }

    fn peak_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("is readable");
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB")?.trim().parse().ok());
        peak.map(|kib: usize| kib << 10).expect("is a number")
    }
}

/// Waits for a condition, at most ten seconds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..1000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never happened that {what}");
}

fn attribute(index: u32) -> KeyValue {
    let value = any_value::Value::StringValue(format!("value of attribute {index}"));
    KeyValue {
        key: format!("key.{index}"),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

pub(crate) fn trace_request(spans: u32) -> ExportTraceServiceRequest {
    let span = |index: u32| Span {
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        name: format!("span {index}"),
        attributes: (0..10).map(attribute).collect(),
        ..Span::default()
    };
    let scope_spans =
        vec![ScopeSpans { spans: (0..spans).map(span).collect(), ..ScopeSpans::default() }];
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }],
    }
}

pub(crate) fn metrics_request(points: u32) -> ExportMetricsServiceRequest {
    let point = |index: u32| NumberDataPoint {
        attributes: vec![attribute(index)],
        value: Some(number_data_point::Value::AsInt(i64::from(index))),
        ..NumberDataPoint::default()
    };
    let data = metric::Data::Gauge(Gauge { data_points: (0..points).map(point).collect() });
    let metrics = vec![Metric { name: "metric".to_owned(), data: Some(data), ..Metric::default() }];
    let scope_metrics = vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }];
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics { scope_metrics, ..ResourceMetrics::default() }],
    }
}

pub(crate) fn logs_request(records: u32) -> ExportLogsServiceRequest {
    let record =
        |index: u32| LogRecord { attributes: vec![attribute(index)], ..LogRecord::default() };
    let scope_logs =
        vec![ScopeLogs { log_records: (0..records).map(record).collect(), ..ScopeLogs::default() }];
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs { scope_logs, ..ResourceLogs::default() }],
    }
}

/// An encoded request of this many spans.
pub(crate) fn traces(spans: u32) -> Vec<u8> {
    prost::Message::encode_to_vec(&trace_request(spans))
}

pub(crate) fn packed(encoding: Encoding, bytes: &[u8]) -> Vec<u8> {
    sluice_net::compress::compress(encoding, &[Bytes::copy_from_slice(bytes)], None)
        .expect("packs")
        .to_vec()
}

/// A gRPC message with its prefix.
pub(crate) fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("is short").to_be_bytes();
    [&[flag], &length[..], message].concat()
}

pub(crate) async fn connect_h2(address: SocketAddr) -> h2::client::SendRequest<Bytes> {
    let socket = TcpStream::connect(address).await.expect("connects");
    let (client, connection) = h2::client::handshake(socket).await.expect("shakes hands");
    tokio::spawn(connection);
    client
}

pub(crate) fn grpc_request(path: &str, headers: &[(&str, &str)]) -> http::Request<()> {
    let mut request =
        http::Request::post(format!("http://localhost{path}")).header("te", "trailers");
    if headers.iter().all(|(name, _)| *name != "content-type") {
        request = request.header("content-type", "application/grpc");
    }
    headers
        .iter()
        .fold(request, |request, (name, value)| request.header(*name, *value))
        .body(())
        .expect("is valid")
}

/// The beginning of an HTTP/2 connection: the client's preface and an empty SETTINGS frame.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// An HTTP/2 frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The whole frames in the bytes that a peer has sent: kind, stream, payload.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<(u8, u32, &[u8])> {
    let mut frames = Vec::new();
    while let [a, b, c, kind, _, e, f, g, h, rest @ ..] = bytes
        && let Some((payload, rest)) =
            rest.split_at_checked(u32::from_be_bytes([0, *a, *b, *c]) as usize)
    {
        frames.push((*kind, u32::from_be_bytes([*e, *f, *g, *h]), payload));
        bytes = rest;
    }
    frames
}

/// A unary call whose body is exactly `body`.
pub(crate) async fn unary(
    client: &mut h2::client::SendRequest<Bytes>,
    signal: Signal,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Status {
    call(client, grpc_request(signal.grpc_path(), headers), body).await.0
}

/// As `unary`, with the answer's headers.
pub(crate) async fn call(
    client: &mut h2::client::SendRequest<Bytes>,
    request: http::Request<()>,
    body: &[u8],
) -> (Status, http::response::Parts) {
    let mut ready = client.clone().ready().await.expect("is open");
    let (response, mut stream) = ready.send_request(request, false).expect("is sent");
    // The server may have answered already; then the body is not taken.
    let _ = stream.send_data(Bytes::copy_from_slice(body), true);
    let (head, mut body) = response.await.expect("is answered").into_parts();
    if let Some(status) = Status::read_from(&head.headers) {
        return (status, head);
    }
    while let Some(data) = body.data().await {
        let length = data.expect("arrives").len();
        let _ = body.flow_control().release_capacity(length);
    }
    let trailers = body.trailers().await.expect("arrive").unwrap_or_default();
    let none =
        Status::new(sluice_net::grpc::Code::Unknown, format!("no status, HTTP {}", head.status));
    (Status::read_from(&trailers).unwrap_or(none), head)
}

/// A POST over HTTP/1.1: status, head in lower case, body.
pub(crate) async fn post(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> (u16, String, Vec<u8>) {
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    if headers.iter().all(|(name, _)| *name != "content-length" && *name != "transfer-encoding") {
        head += &format!("content-length: {}\r\n", body.len());
    }
    headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    exchange(address, &[format!("{head}\r\n").as_bytes(), body].concat()).await
}

/// Sends bytes over a connection of its own and reads the answer to its end.
pub(crate) async fn exchange(address: SocketAddr, bytes: &[u8]) -> (u16, String, Vec<u8>) {
    let mut socket = TcpStream::connect(address).await.expect("connects");
    // The server may close before it has read everything.
    let _ = socket.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = timeout(Duration::from_secs(20), socket.read_to_end(&mut answer)).await.expect("ends");
    parse(&answer)
}

pub(crate) fn parse(answer: &[u8]) -> (u16, String, Vec<u8>) {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return (0, String::new(), answer.to_vec());
    };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (code.unwrap_or(0), head, answer[end + 4..].to_vec())
}
