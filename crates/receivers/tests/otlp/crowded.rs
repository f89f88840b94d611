//! More connections, headers and unread answers than there is room for.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, HeaderValue};
use sluice_flow::BoxFuture;
use sluice_net::auth::server::{AuthError, ServerAuth};
use sluice_net::server::ConnectionBudget;
use sluice_otlp::Signal;
use sluice_receivers::otlp::Transport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::support::*;

const SOON: Duration = Duration::from_secs(10);
const MIB: usize = 1 << 20;

async fn with_budget(budget: &Arc<ConnectionBudget>) -> Receiver {
    Receiver::start_within(config(BOTH), MockIntake::default(), Arc::clone(budget)).await
}

/// A connection, and the task that ends with it.
async fn open(address: SocketAddr) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    let socket = TcpStream::connect(address).await.expect("connects");
    let (client, connection) = h2::client::handshake(socket).await.expect("shakes hands");
    (client, tokio::spawn(connection))
}

/// Scenario: there is room for no more connections, and some were idle for longer than others.
/// Guarantee: the one that was idle longest is asked to go, in order, for each new one; the rest
/// stay.
#[tokio::test(flavor = "multi_thread")]
async fn the_longest_idle_connection_makes_room() {
    let receiver = with_budget(&ConnectionBudget::new(MIB, MIB)).await;
    let room = ConnectionBudget::connections(MIB);
    let mut all = Vec::new();
    for _ in 0..room {
        let (mut client, connection) = open(receiver.grpc).await;
        assert!(unary(&mut client, Signal::Traces, &[], &framed(0, &traces(1))).await.is_ok());
        all.push((client, connection));
    }
    sleep(Duration::from_millis(1_500)).await;
    // All but the third and the fifth have something to do.
    for (index, (client, _)) in all.iter_mut().enumerate() {
        if ![2, 4].contains(&index) {
            assert!(unary(client, Signal::Traces, &[], &framed(0, &traces(1))).await.is_ok());
        }
    }
    for gone in [2, 4] {
        let (mut client, connection) = open(receiver.grpc).await;
        assert!(unary(&mut client, Signal::Traces, &[], &framed(0, &traces(1))).await.is_ok());
        let (client_before, before) = std::mem::replace(&mut all[gone], (client, connection));
        drop(client_before);
        let ended = timeout(SOON, before).await.expect("is closed").expect("did not panic");
        assert!(ended.is_ok(), "it is told to go: {ended:?}");
    }
    for (client, connection) in &mut all {
        assert!(!connection.is_finished());
        assert!(unary(client, Signal::Traces, &[], &framed(0, &traces(1))).await.is_ok());
    }
    let counters = receiver.counters.connections(Transport::Grpc);
    assert_eq!(
        (counters.evicted.load(Ordering::Relaxed), counters.refused.load(Ordering::Relaxed)),
        (2, 0)
    );
}

/// Scenario: streams with large headers that wait for their bodies, on several connections.
/// Guarantee: at most as many as there is memory for are let in, the rest get a retryable refusal;
/// another client is served, and all are let in again afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn headers_of_streams_that_wait_are_bounded() {
    const CONNECTIONS: usize = 4;
    /// A connection may have 36 while there are seven: these, and those of the other client.
    const STREAMS: usize = 32;
    let receiver = with_budget(&ConnectionBudget::new(2 * MIB, MIB)).await;
    let value = "x".repeat(10_000);
    let counters = receiver.counters.connections(Transport::Grpc);
    for _ in 0..2 {
        let refused_before = counters.refused_streams.load(Ordering::Relaxed);
        let mut waiting = Vec::new();
        let begun = async {
            for _ in 0..CONNECTIONS {
                let client = connect_h2(receiver.grpc).await;
                for _ in 0..STREAMS {
                    let mut ready = client.clone().ready().await.expect("is open");
                    let request = grpc_request(Signal::Traces.grpc_path(), &[("x-large", &value)]);
                    waiting.push(ready.send_request(request, false).expect("is sent"));
                }
            }
            // A quarter of the budget, and 23 kB a stream.
            let refused = || counters.refused_streams.load(Ordering::Relaxed) - refused_before;
            until("most are refused", || refused() > (CONNECTIONS * STREAMS) as u64 / 2).await;
        };
        receiver.undisturbed(begun).await;
        let mut accepted = 0;
        for (response, mut stream) in waiting {
            // A refused stream takes no body.
            let _ = stream.send_data(framed(0, &traces(1)).into(), true);
            accepted += usize::from(is_accepted(response).await);
        }
        assert!(accepted < 50, "{accepted}");
        // Else the next ones may have fewer streams.
        until("they are closed", || counters.open.load(Ordering::Relaxed) == 0).await;
    }
}

/// Scenario: the memory for streams is spent for some that send nothing. Guarantee: they get a
/// retryable refusal, and another client is served, long before their time is up.
#[tokio::test(flavor = "multi_thread")]
async fn streams_without_progress_make_room() {
    const CONNECTIONS: usize = 40;
    let receiver = with_budget(&ConnectionBudget::new(MIB, MIB)).await;
    let mut waiting = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = connect_h2(receiver.grpc).await;
        let request = grpc_request(Signal::Traces.grpc_path(), &[]);
        // The last ones find no room for their connections.
        waiting.extend(client.send_request(request, false).ok().map(|sent| (sent, client)));
    }
    assert!(waiting.len() > CONNECTIONS / 2, "{}", waiting.len());
    let accepted = async {
        while !is_served(receiver.grpc).await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, accepted).await.expect("there is room");
    for ((response, _stream), _client) in waiting {
        assert!(!response.await.is_ok_and(|head| head.headers().get("grpc-status").is_none()));
    }
}

/// Scenario: streams that send nothing have all found memory, and there is none left for a further
/// connection. Guarantee: they get a retryable refusal, and the connection finds room. At most one
/// other is closed for it, after its stream was refused.
#[tokio::test(flavor = "multi_thread")]
async fn streams_without_progress_leave_room_for_connections() {
    const CONNECTIONS: usize = 30;
    let receiver = with_budget(&ConnectionBudget::new(MIB, MIB)).await;
    let counters = receiver.counters.connections(Transport::Grpc);
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let mut waiting = Vec::new();
    for index in 0..CONNECTIONS as u64 {
        let mut client = connect_h2(receiver.grpc).await;
        let request = grpc_request(Signal::Traces.grpc_path(), &[]);
        waiting.extend(client.send_request(request, false).ok().map(|sent| (sent, client)));
        let settled = || count(&counters.open) + count(&counters.refused) > index;
        until("it is open or closed", settled).await;
        if count(&counters.refused) > 0 {
            break;
        }
        // Its stream is charged by then.
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!((count(&counters.refused), count(&counters.refused_streams)), (1, 0));
    let mut refused = 0;
    for ((response, _stream), _client) in &mut waiting {
        refused += usize::from(timeout(SOON, response).await.is_ok_and(|head| head.is_ok()));
        if is_served(receiver.grpc).await {
            break;
        }
    }
    assert!((1..waiting.len()).contains(&refused), "{refused} of {}", waiting.len());
    let (evicted, failed) = (count(&counters.evicted), count(&counters.failed));
    assert!(evicted <= 1 && failed == 0, "evicted {evicted}, failed {failed}");
    // The last connection found no room, and those before have their answers.
    let rest = waiting.len() - 1;
    for ((response, _stream), _client) in waiting[..rest].iter_mut().skip(refused) {
        assert!(!matches!(response.now_or_never(), Some(Err(_))), "closed without an answer");
    }
}

/// Checks no credentials to the end but these.
struct Endless(HeaderValue);

impl ServerAuth for Endless {
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<(), AuthError>> {
        if headers.contains_key("authorization") {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(std::future::pending())
    }

    fn challenge(&self) -> &HeaderValue {
        &self.0
    }
}

/// Scenario: the memory for streams is spent for requests whose credentials are being checked.
/// Guarantee: they get a retryable refusal, and a client with known credentials is served.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_for_a_check_make_room() {
    const CALLS: usize = 100;
    let endless: Arc<dyn ServerAuth> = Arc::new(Endless(HeaderValue::from_static("Basic")));
    let authenticators = HashMap::from([("own".to_owned(), endless)]);
    let text = BOTH.replace("'localhost:0'", "'localhost:0', auth: {authenticator: own}");
    let intake = MockIntake { authenticators, ..MockIntake::default() };
    let budget = ConnectionBudget::new(MIB, MIB);
    let receiver = Receiver::start_within(config(&text), intake, budget).await;
    let mut known = connect_h2(receiver.grpc).await;
    let good = [("authorization", "Basic known")];
    assert!(unary(&mut known, Signal::Traces, &good, &framed(0, &traces(1))).await.is_ok());

    let mut attacker = connect_h2(receiver.grpc).await;
    let mut waiting = Vec::new();
    for _ in 0..CALLS {
        attacker = attacker.ready().await.expect("is open");
        let request = grpc_request(Signal::Traces.grpc_path(), &[]);
        let (response, mut stream) = attacker.send_request(request, false).expect("is sent");
        // A refused stream takes no body.
        let _ = stream.send_data(framed(0, &traces(1)).into(), true);
        waiting.push(response);
    }
    let refused = async {
        for response in waiting {
            assert!(!is_accepted(response).await);
        }
    };
    timeout(SOON, refused).await.expect("they give way");
    // The memory of the last ones is free a moment after their refusals. Clients try again.
    let served = async {
        loop {
            known = known.ready().await.expect("is open");
            let request = grpc_request(Signal::Traces.grpc_path(), &good);
            let (response, mut stream) = known.send_request(request, false).expect("is sent");
            let _ = stream.send_data(framed(0, &traces(1)).into(), true);
            if is_accepted(response).await {
                break;
            }
        }
    };
    timeout(SOON, served).await.expect("is served");
}

/// Whether there is room for a connection, and for its request.
async fn is_served(address: SocketAddr) -> bool {
    let mut client = connect_h2(address).await;
    let request = grpc_request(Signal::Traces.grpc_path(), &[]);
    let Ok((response, mut stream)) = client.send_request(request, false) else { return false };
    let _ = stream.send_data(framed(0, &traces(1)).into(), true);
    response.await.is_ok_and(|head| head.headers().get("grpc-status").is_none())
}

/// A receiver over TLS that takes one connection at a time.
async fn with_tls() -> Receiver {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("is written");
        path.display().to_string()
    };
    let certificate = file("cert", own.cert.pem());
    let key = file("key", own.signing_key.serialize_pem());
    let tls = format!("tls: {{cert_file: '{certificate}', key_file: '{key}'}}");
    let text =
        format!("protocols: {{grpc: {{endpoint: 'localhost:0', max_connections: 1, {tls}}}}}");
    Receiver::start(&text, MockIntake::default()).await
}

/// Guarantee: a TLS handshake whose first message is long is cut off, long before its time is up.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_tls_handshake_may_hold_is_bounded() {
    let receiver = with_tls().await;
    let mut socket = TcpStream::connect(receiver.grpc).await.expect("connects");
    // A ClientHello of 60,000 bytes, in records of 16,384.
    let record = |content: &[u8]| [b"\x16\x03\x01\x40\x00", content].concat();
    let first = [&b"\x01\x00\xea\x60\x03\x03"[..], &[0; (16 << 10) - 6]].concat();
    let hello = [record(&first), record(&[0; 16 << 10]), record(&[0; 16 << 10])].concat();
    let _ = socket.write_all(&hello).await;
    let end = timeout(SOON / 2, socket.read(&mut [0])).await.expect("is closed");
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

/// Scenario: all connections that a port may have are open, one of them within a TLS handshake that
/// never ends. Guarantee: that one makes room for the next connection, long before its time is up.
#[tokio::test(flavor = "multi_thread")]
async fn a_tls_handshake_makes_room_for_the_next_connection() {
    let receiver = with_tls().await;
    let mut half = TcpStream::connect(receiver.grpc).await.expect("connects");
    half.write_all(b"\x16\x03\x01").await.expect("is sent");
    let counters = receiver.counters.connections(Transport::Grpc);
    until("it is open", || counters.open.load(Ordering::Relaxed) == 1).await;
    sleep(Duration::from_millis(1_500)).await;
    let _next = TcpStream::connect(receiver.grpc).await.expect("connects");
    // Half of the time that a handshake may take.
    let end = timeout(SOON / 2, half.read(&mut [0])).await.expect("is closed");
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    // The socket is closed just before it is counted.
    until("it is counted", || counters.evicted.load(Ordering::Relaxed) == 1).await;
    assert_eq!(counters.refused.load(Ordering::Relaxed), 0);
}

/// Scenario: for thousands of requests of one connection there is no room, and their bodies come
/// after the refusals. Guarantee: the connection lives.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_refused_streams_do_not_end_their_connection() {
    const STREAMS: usize = 40;
    const ROUNDS: usize = 60;
    let receiver = with_budget(&ConnectionBudget::new(400 << 10, MIB)).await;
    let (client, connection) = open(receiver.grpc).await;
    let value = "x".repeat(14_000);
    for _ in 0..ROUNDS {
        let mut sent = Vec::new();
        for _ in 0..STREAMS {
            let mut ready = client.clone().ready().await.expect("is open");
            let request = grpc_request(Signal::Traces.grpc_path(), &[("x-large", &value)]);
            sent.push(ready.send_request(request, false).expect("is sent"));
        }
        sleep(Duration::from_millis(2)).await;
        for (response, mut stream) in sent {
            let _ = stream.send_data(framed(0, &traces(1)).into(), true);
            let _ = is_accepted(response).await;
        }
    }
    let counters = receiver.counters.connections(Transport::Grpc);
    let refused = counters.refused_streams.load(Ordering::Relaxed);
    assert!(refused > 1_024, "more than HTTP/2 lets a peer reset: {refused}");
    assert!(!connection.is_finished());
}

/// Scenario: a peer's flow control has no room for any answer, and it begins request after request.
/// Guarantee: its connection is closed; the memory charged for the answers comes back.
#[tokio::test(flavor = "multi_thread")]
async fn answers_without_a_window_end_their_connection() {
    let mut config = config(BOTH);
    config.grpc.as_mut().expect("is on").server.write_timeout = Duration::from_millis(500);
    let receiver = Receiver::start_with(config, MockIntake::default()).await;
    let attack = async {
        let socket = TcpStream::connect(receiver.grpc).await.expect("connects");
        let (client, connection) = h2::client::Builder::new()
            .initial_window_size(0)
            .handshake::<_, Bytes>(socket)
            .await
            .expect("shakes hands");
        let connection = tokio::spawn(connection);
        let mut answers = Vec::new();
        while let Ok(mut ready) = client.clone().ready().await {
            let request = grpc_request(Signal::Traces.grpc_path(), &[]);
            let Ok((response, mut stream)) = ready.send_request(request, false) else { break };
            let _ = stream.send_data(framed(0, &traces(1)).into(), true);
            match response.await {
                Ok(head) => answers.push(head),
                Err(_) => break,
            }
        }
        assert!(answers.len() > 1, "{}", answers.len());
        timeout(SOON, connection).await.expect("is closed")
    };
    let _ = receiver.undisturbed(attack).await;
    let counters = receiver.counters.connections(Transport::Grpc);
    until("it is counted", || counters.failed.load(Ordering::Relaxed) == 1).await;
}

/// True if the request is accepted; otherwise its refusal must be retryable.
async fn is_accepted(response: ResponseFuture) -> bool {
    let head = match response.await {
        // The client did not know yet how many streams it may open.
        Err(error) if error.reason() == Some(h2::Reason::REFUSED_STREAM) => return false,
        answer => answer.expect("is answered"),
    };
    let status = head.headers().get("grpc-status").map(|status| status.as_bytes());
    assert!(matches!(status, None | Some(b"14")), "{head:?}");
    status.is_none()
}

/// Scenario: peers pipeline requests and never read an answer. Guarantee: they are closed, whatever
/// is refused or accepted; other clients are undisturbed.
#[tokio::test(flavor = "multi_thread")]
async fn peers_that_never_read_are_closed() {
    let mut config = config(BOTH);
    config.http.as_mut().expect("is on").shared.server.write_timeout = Duration::from_millis(500);
    let receiver = Receiver::start_with(config, MockIntake::default()).await;
    let body = traces(1);
    let good = format!(
        "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let good = [good.as_bytes(), &body].concat();
    let refused = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec();
    let attack = async {
        for request in [refused, good] {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.set_recv_buffer_size(4 << 10).expect("is set");
            let mut socket = socket.connect(receiver.http).await.expect("connects");
            let requests = request.repeat(100);
            let flood = async { while socket.write_all(&requests).await.is_ok() {} };
            timeout(SOON, flood).await.expect("is closed");
        }
    };
    receiver.undisturbed(attack).await;
    let counters = receiver.counters.connections(Transport::Http);
    until("both are closed", || counters.failed.load(Ordering::Relaxed) >= 2).await;
}
