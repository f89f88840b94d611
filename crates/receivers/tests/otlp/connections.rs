//! The beginning, life and end of connections.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sluice_otlp::Signal;
use sluice_receivers::otlp::Transport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

use crate::support::*;

const SOON: Duration = Duration::from_secs(10);

/// True once the other side has closed.
async fn is_closed(socket: &mut TcpStream) -> bool {
    let mut bytes = Vec::new();
    timeout(SOON, socket.read_to_end(&mut bytes)).await.is_ok()
}

/// Scenario: peers that say nothing, half a preface, half a request line, half a TLS handshake.
/// Guarantee: they are closed in time.
#[tokio::test(flavor = "multi_thread")]
async fn slow_beginnings_are_cut_off() {
    let directory = tempfile::tempdir().expect("a directory");
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let file = |name: &str, text: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("is written");
        path.display().to_string()
    };
    let certificate = file("cert", own.cert.pem());
    let key = file("key", own.signing_key.serialize_pem());
    let tls = format!("'localhost:0', tls: {{cert_file: '{certificate}', key_file: '{key}'}}");
    let start = async |text: &str| {
        let mut config = config(text);
        for server in [
            &mut config.grpc.as_mut().expect("is on").server,
            &mut config.http.as_mut().expect("is on").shared.server,
        ] {
            server.handshake_timeout = Duration::from_millis(500);
            server.read_header_timeout = Duration::from_millis(500);
        }
        Receiver::start_with(config, MockIntake::default()).await
    };
    let (plain, encrypted) = (start(BOTH).await, start(&BOTH.replace("'localhost:0'", &tls)).await);
    // A record of a handshake of 512 bytes: a ClientHello of TLS 1.2 or above, as far as its
    // version.
    let half_a_hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    let beginnings = [
        (plain.grpc, &b""[..]),
        (plain.grpc, b"PRI * HTTP/2.0\r\n"),
        (plain.http, b""),
        (plain.http, b"PRI * HTTP/2.0\r\n"),
        (plain.http, b"POST /v1/traces HTTP/1.1\r\nhost: localhost\r\nx-slow: "),
        (encrypted.grpc, b""),
        (encrypted.grpc, half_a_hello),
        (encrypted.http, b""),
        (encrypted.http, half_a_hello),
    ];
    let attack = join_all(beginnings.map(async |(address, beginning)| {
        let mut socket = TcpStream::connect(address).await.expect("connects");
        socket.write_all(beginning).await.expect("is sent");
        assert!(is_closed(&mut socket).await, "{}", String::from_utf8_lossy(beginning));
    }));
    plain.undisturbed(attack).await;
    for counters in Transport::ALL.map(|transport| encrypted.counters.connections(transport)) {
        assert_eq!(counters.tls_failures.load(Ordering::Relaxed), 2);
    }
    for receiver in [plain, encrypted] {
        let counters = receiver.counters;
        let open =
            || Transport::ALL.map(|it| counters.connections(it).open.load(Ordering::Relaxed));
        until("no connection is left", || open() == [0, 0]).await;
    }
}

/// Scenario: HTTP/1 connections that are without a request for longer than headers may take.
/// Guarantee: they stay open; the next request is served, and its headers must come in time.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_stay_and_slow_headers_end_them() {
    const HEADERS: Duration = Duration::from_millis(300);
    let mut config = config(BOTH);
    config.http.as_mut().expect("is on").shared.server.read_header_timeout = HEADERS;
    let receiver = Receiver::start_with(config, MockIntake::default()).await;
    let mut socket = TcpStream::connect(receiver.http).await.expect("connects");
    let request = b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
        content-length: 2\r\n\r\n{}";
    for _ in 0..2 {
        socket.write_all(request).await.expect("is sent");
        let mut answer = vec![0; 1_000];
        let length =
            timeout(SOON, socket.read(&mut answer)).await.expect("in time").expect("reads");
        assert!(answer[..length].starts_with(b"HTTP/1.1 200"), "{answer:?}");
        tokio::time::sleep(3 * HEADERS).await;
    }
    socket.write_all(b"POST /v1").await.expect("is sent");
    assert!(is_closed(&mut socket).await);
}

/// Scenario: an HTTP/2 header block that stops halfway, at the end of a frame or within one, or
/// comes a byte at a time. Guarantee: amid it no ping can be answered, and so the connection is
/// closed when the time for that is over.
#[tokio::test(flavor = "multi_thread")]
async fn header_blocks_that_never_end_are_cut_off() {
    let mut config = config(BOTH);
    for server in [
        &mut config.grpc.as_mut().expect("is on").server,
        &mut config.http.as_mut().expect("is on").shared.server,
    ] {
        server.keepalive_time = Duration::from_millis(300);
        server.keepalive_timeout = Duration::from_millis(500);
    }
    let receiver = Receiver::start_with(config, MockIntake::default()).await;
    let block = [0x83, 0x86, 0x84, 0x41, 0x01, b'a'];
    // A literal header whose value is all bytes that come after it.
    let endless = [&[0x00, 0x01, b'x', 0x7f, 0xff, 0x7f][..], &[b'a'; 8000]].concat();
    let whole = frame(0x1, 0, 1, &block);
    let half = [whole.clone(), frame(0x9, 0, 1, &endless)[..100].to_vec()].concat();
    let cases = [(&whole, false), (&half, false), (&half, true)];
    let attack =
        cases.iter().flat_map(|case| [receiver.grpc, receiver.http].map(|address| (address, case)));
    let attack = attack.map(async |(address, (beginning, trickles))| {
        let (mut read, mut write) =
            TcpStream::connect(address).await.expect("connects").into_split();
        write.write_all(&[PREFACE, beginning].concat()).await.expect("is sent");
        let trickle = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(20));
            while *trickles && write.write_all(b"a").await.is_ok() {
                ticks.tick().await;
            }
            std::future::pending::<()>().await;
        };
        let mut answer = Vec::new();
        let closed = async {
            tokio::select! { _ = read.read_to_end(&mut answer) => {}, () = trickle => {} }
        };
        timeout(SOON, closed)
            .await
            .unwrap_or_else(|_| panic!("{beginning:?}, {trickles}: the connection lives on"));
    });
    receiver.undisturbed(join_all(attack)).await;
}

#[tokio::test]
async fn connections_above_the_limit_are_closed_and_counted_and_make_room_again() {
    let text = "protocols: {grpc: {endpoint: 'localhost:0', max_connections: 2}, http: {endpoint: 'localhost:0'}}";
    let receiver = Receiver::start(text, MockIntake::default()).await;
    let counters = receiver.counters.connections(Transport::Grpc);
    let first = TcpStream::connect(receiver.grpc).await.expect("connects");
    let _second = TcpStream::connect(receiver.grpc).await.expect("connects");
    let mut third = TcpStream::connect(receiver.grpc).await.expect("connects");
    assert!(is_closed(&mut third).await);
    // Each connection is counted by its own task.
    until("both are open", || counters.open.load(Ordering::Relaxed) == 2).await;
    assert_eq!(counters.refused.load(Ordering::Relaxed), 1);
    drop(first);
    until("there is room", || counters.open.load(Ordering::Relaxed) == 1).await;
    receiver.assert_serves_others().await;
}

/// Guarantee: an aged connection is asked to go and its client loses nothing.
#[tokio::test]
async fn aged_and_idle_connections_are_asked_to_go() {
    for parameters in ["max_connection_age: 300ms", "max_connection_idle: 300ms"] {
        let text = format!(
            "protocols: {{grpc: {{endpoint: 'localhost:0', keepalive: {{server_parameters: {{{parameters}, max_connection_age_grace: 5s}}}}}}}}"
        );
        let receiver = Receiver::start(&text, MockIntake::default()).await;
        let socket = TcpStream::connect(receiver.grpc).await.expect("connects");
        let (client, connection) = h2::client::handshake(socket).await.expect("shakes hands");
        let connection = tokio::spawn(connection);
        let mut client: h2::client::SendRequest<bytes::Bytes> = client;
        assert!(unary(&mut client, Signal::Traces, &[], &framed(0, &traces(1))).await.is_ok());
        let ended = timeout(SOON, connection).await.expect("ends").expect("did not panic");
        assert!(ended.is_ok(), "{parameters}: {ended:?}");
        drop(client);
        let counters = receiver.counters.connections(Transport::Grpc);
        let asked = counters.aged.load(Ordering::Relaxed) + counters.idled.load(Ordering::Relaxed);
        assert_eq!((asked, counters.cut_off.load(Ordering::Relaxed)), (1, 0), "{parameters}");
    }
}

/// Scenario: a call that takes longer than its connection may live, and longer than the grace.
/// Guarantee: it is cut off, and the memory that was admitted for it comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_outlasts_the_grace_is_cut_off() {
    let text = "protocols: {grpc: {endpoint: 'localhost:0', keepalive: {server_parameters: {max_connection_age: 300ms, max_connection_age_grace: 300ms}}}}";
    let receiver =
        Receiver::start(text, MockIntake { stalls: Some(Signal::Traces), ..MockIntake::default() })
            .await;
    let mut client = connect_h2(receiver.grpc).await;
    let request = grpc_request(Signal::Traces.grpc_path(), &[]);
    let (response, mut stream) = client.send_request(request, false).expect("is sent");
    stream.send_data(framed(0, &traces(1)).into(), true).expect("is sent");
    until("the request is admitted", || receiver.intake.outstanding() > 0).await;
    assert!(timeout(SOON, response).await.expect("ends").is_err());
    let counters = receiver.counters.connections(Transport::Grpc);
    assert_eq!(
        (counters.aged.load(Ordering::Relaxed), counters.cut_off.load(Ordering::Relaxed)),
        (1, 1)
    );
    receiver.assert_gives_all_memory_back().await;
}

/// Scenario: a peer begins one request more than it may at a time. Guarantee: that one is refused,
/// the earlier ones go on.
#[tokio::test(flavor = "multi_thread")]
async fn streams_above_the_limit_are_refused() {
    let text = "protocols: {grpc: {endpoint: 'localhost:0', max_concurrent_streams: 2}, http: {endpoint: 'localhost:0'}}";
    let receiver = Receiver::start(text, MockIntake::default()).await;
    let path = Signal::Traces.grpc_path().as_bytes();
    // :method POST, :scheme http, :authority a, and literals for :path and content-type, which are
    // 4 and 31 in the table.
    let length = u8::try_from(path.len()).expect("is short");
    let head = [
        &[0x83, 0x86, 0x41, 0x01, b'a', 0x04, length],
        path,
        &[0x0f, 0x10, 16],
        b"application/grpc",
    ]
    .concat();
    let begin = |stream| frame(0x1, 0x4, stream, &head);
    let end = |stream| frame(0x0, 0x1, stream, &framed(0, &traces(1)));
    let attack = async {
        let (mut read, mut write) =
            TcpStream::connect(receiver.grpc).await.expect("connects").into_split();
        let sent = [PREFACE.to_vec(), begin(1), begin(3), begin(5), end(1), end(3)].concat();
        write.write_all(&sent).await.expect("is sent");
        let mut answer = Vec::new();
        // RST_STREAM with REFUSED_STREAM.
        let is_refused = |answer: &[u8]| frames(answer).contains(&(0x3, 5, &7_u32.to_be_bytes()));
        let answered = async {
            while !is_refused(&answer) || receiver.taken_from_attackers().len() < 2 {
                assert!(read.read_buf(&mut answer).await.expect("is read") > 0);
            }
        };
        timeout(SOON, answered).await.expect("one is refused, two are accepted");
    };
    receiver.undisturbed(attack).await;
}

/// Scenario: a peer shakes hands and then answers nothing, nor pings. Guarantee: its connection is
/// closed; one whose peer answers pings stays.
#[tokio::test]
async fn peers_that_answer_no_ping_are_given_up() {
    let text = "protocols: {grpc: {endpoint: 'localhost:0', keepalive: {server_parameters: {time: 200ms, timeout: 300ms}}}, http: {endpoint: 'localhost:0'}}";
    let receiver = Receiver::start(text, MockIntake::default()).await;
    let mut alive = connect_h2(receiver.grpc).await;
    assert!(unary(&mut alive, Signal::Traces, &[], &framed(0, &traces(1))).await.is_ok());
    let mut silent = TcpStream::connect(receiver.grpc).await.expect("connects");
    silent
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .expect("is sent");
    assert!(is_closed(&mut silent).await);
    assert!(unary(&mut alive, Signal::Traces, &[], &framed(0, &traces(1))).await.is_ok());
    receiver.assert_serves_others().await;
}

/// Scenario: shutdown while a request waits for its answer that never comes. Guarantee: the port
/// closes at once, the drain has an end, the permit comes back.
#[tokio::test]
async fn shutdown_drains_for_a_bounded_time() {
    let mut config = config(BOTH);
    config.grpc.as_mut().expect("is on").server.drain_timeout = Duration::from_millis(300);
    let intake = MockIntake { stalls: Some(Signal::Traces), ..MockIntake::default() };
    let receiver = Receiver::start_with(config, intake).await;
    let address = receiver.grpc;
    let call = tokio::spawn(async move {
        let client = connect_h2(address).await;
        let mut ready = client.ready().await.expect("is open");
        let request = grpc_request(Signal::Traces.grpc_path(), &[]);
        let (response, mut stream) = ready.send_request(request, false).expect("is sent");
        stream.send_data(framed(0, &traces(1)).into(), true).expect("is sent");
        response.await.map(drop)
    });
    until("the request is admitted", || receiver.intake.outstanding() > 0).await;
    timeout(SOON, receiver.running.shutdown()).await.expect("closes");
    assert!(TcpStream::connect(address).await.is_err());
    assert!(timeout(SOON, call).await.expect("ends").expect("did not panic").is_err());
    let intake = receiver.intake;
    until("the permit comes back", || intake.outstanding() == 0).await;
}

#[tokio::test]
async fn unix_sockets_work_and_are_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("otlp.sock");
    let text = format!("protocols: {{grpc: {{endpoint: '{}', transport: unix}}}}", path.display());
    // Left over from a crash.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("is bound"));
    let receiver = Receiver::start(&text, MockIntake::default()).await;
    let socket = UnixStream::connect(&path).await.expect("connects");
    let (mut client, connection) = h2::client::handshake(socket).await.expect("shakes hands");
    tokio::spawn(connection);
    assert!(unary(&mut client, Signal::Traces, &[], &framed(0, &traces(1))).await.is_ok());
    assert_eq!(receiver.intake.taken()[0].metadata.peer, None);
    timeout(SOON, receiver.running.shutdown()).await.expect("closes");
    assert!(!path.exists());
}

/// Scenario: tonic over mTLS; once with a certificate of the right authority, once without.
#[tokio::test]
async fn mutual_tls_lets_in_only_whom_it_should() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"))
        .expect("an authority");
    let issue = || {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        (params.signed_by(&key, &authority).expect("a certificate").pem(), key.serialize_pem())
    };
    let (certificate, key) = issue();
    for (name, text) in [("cert", &certificate), ("key", &key), ("ca", &authority.pem())] {
        std::fs::write(directory.path().join(name), text).expect("is written");
    }
    let file = |name: &str| directory.path().join(name).display().to_string();
    let tls = format!(
        "tls: {{cert_file: '{}', key_file: '{}', client_ca_file: '{}'}}",
        file("cert"),
        file("key"),
        file("ca")
    );
    let receiver = Receiver::start(
        &BOTH.replace("'localhost:0'", &format!("'localhost:0', {tls}")),
        MockIntake::default(),
    )
    .await;
    let trusting = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(authority.pem()))
        .domain_name("localhost");
    let (certificate, key) = issue();
    for (address, transport) in [(receiver.grpc, "grpc"), (receiver.http, "http")] {
        for (config, is_let_in) in [
            (trusting.clone().identity(Identity::from_pem(&certificate, &key)), true),
            (trusting.clone(), false),
        ] {
            let endpoint = Channel::from_shared(format!("https://{address}")).expect("a URI");
            let channel = endpoint.tls_config(config).expect("good settings").connect_lazy();
            let result = TraceServiceClient::new(channel).export(trace_request(1)).await;
            // The HTTP port speaks HTTP/2 over TLS as well; it has no such path.
            let unknown = receiver.counters.unknown_requests.swap(0, Ordering::Relaxed);
            let reached = if transport == "grpc" { result.is_ok() } else { unknown == 1 };
            assert_eq!(reached, is_let_in, "{transport}");
        }
    }
    assert_eq!(receiver.intake.taken().len(), 1);
    let failures = &receiver.counters.connections(Transport::Grpc).tls_failures;
    until("the failure is counted", || failures.load(Ordering::Relaxed) >= 1).await;
}
