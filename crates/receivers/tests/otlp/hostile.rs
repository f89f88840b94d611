//! Peers that mean harm, or are broken. Each is refused precisely, takes no memory with it, and disturbs nobody else.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use sluice_net::compress;
use sluice_net::grpc::Code;
use sluice_net::server::BodyTimeouts;
use sluice_otlp::{Encoding, Signal};
use sluice_receivers::otlp::{Authenticators, OtlpConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::*;

const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");
const MIB: usize = 1 << 20;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Resident memory of this process in bytes.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("is readable");
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("is a number");
    pages * 4096
}

/// Scenario: a gigabyte of zeros in a kilobyte or a megabyte of gzip or zstd, over both transports, many at a time; 64 MiB
/// in the codings that HTTP alone has.
/// Guarantee: RESOURCE_EXHAUSTED / 413, and memory grows by the limit a thread, not by what the bombs unpack to.
#[tokio::test]
async fn compression_bombs_are_refused_at_the_limit() {
    let text = "protocols: {grpc: {endpoint: 'localhost:0', max_recv_msg_size_mib: 4}, http: {endpoint: 'localhost:0', max_request_body_size: 4MiB}}";
    let receiver = Receiver::start(text, MockIntake { keeps: Some(Encoding::Gzip), ..MockIntake::default() }).await;
    let zeros = vec![0; 64 * MIB];
    let bombs = [Encoding::Gzip, Encoding::Zstd].map(|encoding| (encoding, packed(encoding, &zeros).repeat(16)));
    let zeros = [Bytes::from(zeros)];
    let only_over_http = [
        ("deflate", compress::compress_zlib(&zeros, Some(9)).expect("packs")),
        ("lz4", compress::compress_lz4(&zeros).expect("packs")),
        ("snappy", compress::compress_snappy_block(&zeros).expect("packs")),
    ];
    drop(zeros);
    let before = resident_bytes();
    let mut client = connect_h2(receiver.grpc).await;
    for (encoding, bomb) in &bombs {
        for _ in 0..4 {
            let headers = [("grpc-encoding", encoding.as_str())];
            let status = unary(&mut client, Signal::Traces, &headers, &framed(1, bomb)).await;
            assert_eq!((status.code, status.retry_delay), (Code::ResourceExhausted, None), "{status}");
            let headers = [PROTOBUF, ("content-encoding", encoding.as_str())];
            assert_eq!(post(receiver.http, "/v1/traces", &headers, bomb).await.0, 413);
        }
    }
    for (coding, bomb) in &only_over_http {
        for content_type in ["application/x-protobuf", "application/json"] {
            let headers = [("content-type", content_type), ("content-encoding", coding)];
            assert_eq!(post(receiver.http, "/v1/traces", &headers, bomb).await.0, 413, "{coding}");
        }
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 128 * MIB, "grew by {grown} bytes");
    assert!(receiver.intake.peak.load(Ordering::SeqCst) <= 8 * MIB);
    receiver.assert_gives_all_memory_back().await;
    receiver.assert_serves_others().await;
}

/// Scenario: messages within messages, a million deep, in protobuf and in JSON. Guarantee: invalid, no overflowing stack.
#[tokio::test]
async fn a_million_levels_of_nesting_are_invalid() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let mut client = connect_h2(receiver.grpc).await;
    // AnyValue { array_value { values { array_value { … } } } }: each level is a tag and a length around the one before.
    let mut nested = Vec::new();
    for level in 0..1_000_000_u32 {
        let tag = if level.is_multiple_of(2) { 0x2a } else { 0x0a };
        let mut head = vec![tag];
        let mut length = nested.len();
        while length >= 0x80 {
            head.push(length as u8 | 0x80);
            length >>= 7;
        }
        head.push(length as u8);
        head.reverse();
        nested.extend(head);
    }
    nested.reverse();
    let wrap = |tag: u8, inner: &[u8]| {
        let mut bytes = vec![tag];
        let mut length = inner.len();
        while length >= 0x80 {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend_from_slice(inner);
        bytes
    };
    // resource_logs { scope_logs { log_records { body { … } } } }
    let request = wrap(0x0a, &wrap(0x12, &wrap(0x12, &wrap(0x2a, &nested))));
    let status = unary(&mut client, Signal::Logs, &[], &framed(0, &request)).await;
    assert_eq!(status.code, Code::InvalidArgument, "{status}");
    let json = [br#"{"resourceLogs":"#.to_vec(), b"[".repeat(1_000_000)].concat();
    let arrays = [
        br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":"#.to_vec(),
        br#"{"arrayValue":{"values":["#.repeat(1_000_000),
    ]
    .concat();
    for json in [json, arrays] {
        let headers = [("content-type", "application/json")];
        assert_eq!(post(receiver.http, "/v1/logs", &headers, &json).await.0, 400);
    }
    receiver.assert_gives_all_memory_back().await;
    receiver.assert_serves_others().await;
}

/// Scenario: a prefix and a content-length that claim the whole limit, followed by a few bytes and nothing more.
/// Guarantee: no more memory than arrived, and an end to the waiting.
#[tokio::test]
async fn lengths_that_lie_hold_a_permit_but_no_memory_and_not_for_long() {
    let mut config = config(BOTH);
    quick_bodies(&mut config);
    let receiver = Receiver::start_with(config, MockIntake::default(), Authenticators::default()).await;
    let before = resident_bytes();
    let mut client = connect_h2(receiver.grpc).await;
    let mut streams = Vec::new();
    for _ in 0..50 {
        let mut ready = client.clone().ready().await.expect("is open");
        let request = grpc_request(Signal::Traces.grpc_path(), &[]);
        let (response, mut stream) = ready.send_request(request, false).expect("is sent");
        stream.send_data(Bytes::from_static(&[0, 4, 0, 0, 0, 10]), false).expect("is sent");
        streams.push((response, stream));
    }
    until("all claims are admitted", || receiver.intake.peak.load(Ordering::SeqCst) >= 50 * 64 * MIB).await;
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 * MIB, "grew by {grown} bytes");
    for (response, _stream) in streams {
        let head = response.await.expect("is answered");
        assert_eq!(head.headers()["grpc-status"], "4");
    }
    let head =
        "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 60000000\r\n\r\n{";
    assert_eq!(exchange(receiver.http, head.as_bytes()).await.0, 408);
    receiver.assert_gives_all_memory_back().await;
    assert!(unary(&mut client, Signal::Traces, &[], &framed(0, &traces(1))).await.is_ok());
    receiver.assert_serves_others().await;
}

fn quick_bodies(config: &mut OtlpConfig) {
    let timeouts = BodyTimeouts { gap: Duration::from_millis(300), total: Duration::from_millis(1000) };
    config.grpc.as_mut().expect("is on").shared.body_timeouts = timeouts;
    config.http.as_mut().expect("is on").shared.body_timeouts = timeouts;
}

/// Scenario: a body that comes a byte at a time, each in time. Guarantee: the whole has an end too.
#[tokio::test]
async fn a_trickling_body_is_given_up() {
    let mut config = config(BOTH);
    quick_bodies(&mut config);
    let receiver = Receiver::start_with(config, MockIntake::default(), Authenticators::default()).await;
    let mut socket = TcpStream::connect(receiver.http).await.expect("connects");
    let head = "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 6000\r\n\r\n";
    socket.write_all(head.as_bytes()).await.expect("is sent");
    let mut answer = [0; 12];
    let answered = timeout(Duration::from_secs(10), async {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        loop {
            tokio::select! {
                result = socket.read_exact(&mut answer) => return result,
                _ = ticks.tick() => {}
            }
            let _ = socket.write_all(b" ").await;
        }
    });
    answered.await.expect("is answered").expect("is read");
    assert_eq!(&answer, b"HTTP/1.1 408");
    receiver.assert_gives_all_memory_back().await;
    receiver.assert_serves_others().await;
}

/// Scenario: clients vanish within their body, and while they wait for the answer. Guarantee: what was admitted comes back.
#[tokio::test]
async fn clients_that_vanish_leave_nothing_behind() {
    let receiver = Receiver::start(BOTH, MockIntake { stalls: true, ..MockIntake::default() }).await;
    let body = framed(0, &traces(10));
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    for sent in [body.len() / 2, body.len()] {
        let socket = TcpStream::connect(receiver.grpc).await.expect("connects");
        let (client, connection) = h2::client::handshake(socket).await.expect("shakes hands");
        let connection = tokio::spawn(connection);
        let mut client: h2::client::SendRequest<Bytes> = client.ready().await.expect("is open");
        let (_response, mut stream) =
            client.send_request(grpc_request(Signal::Traces.grpc_path(), &[]), false).expect("is sent");
        stream.send_data(Bytes::copy_from_slice(&body[..sent]), sent == body.len()).expect("is sent");
        let mut socket = TcpStream::connect(receiver.http).await.expect("connects");
        socket.write_all(&[head.as_bytes(), &body[5..sent]].concat()).await.expect("is sent");
        until("both are admitted", || receiver.intake.outstanding() >= 2 * (body.len() - 5)).await;
        connection.abort();
        drop(socket);
        receiver.assert_gives_all_memory_back().await;
    }
}

/// Scenario: streams are opened and reset as fast as the network takes them (CVE-2023-44487).
/// Guarantee: that connection is closed; nobody else notices.
#[tokio::test]
async fn rapid_resets_end_the_connection() {
    let receiver = Receiver::start(BOTH, MockIntake { ..MockIntake::default() }).await;
    for address in [receiver.grpc, receiver.http] {
        let mut socket = TcpStream::connect(address).await.expect("connects");
        let mut bytes = [PREFACE, &frame(0x4, 0, 0, b"")].concat();
        // :method POST, :scheme http, :path /, :authority a: enough for a request.
        let headers = [0x83, 0x86, 0x84, 0x41, 0x01, b'a'];
        for index in 0..20_000_u32 {
            let stream = 2 * index + 1;
            bytes.extend(frame(0x1, 0x4, stream, &headers));
            bytes.extend(frame(0x3, 0, stream, &8_u32.to_be_bytes()));
        }
        assert!(is_closed_after(&mut socket, &bytes).await, "the connection lives on");
        receiver.assert_serves_others().await;
    }
}

/// Scenario: a header block that never ends (CVE-2024-27316). Guarantee: the connection is closed after a bounded number of
/// bytes.
#[tokio::test]
async fn continuation_floods_end_the_connection() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let before = resident_bytes();
    for (address, piece) in [(receiver.grpc, 16_000), (receiver.http, 16_000), (receiver.grpc, 0), (receiver.grpc, 1)] {
        let mut socket = TcpStream::connect(address).await.expect("connects");
        let mut bytes = [PREFACE, &frame(0x4, 0, 0, b"")].concat();
        bytes.extend(frame(0x1, 0, 1, &[0x83, 0x86]));
        // A literal header without indexing whose value goes on for ever.
        for _ in 0..if piece > 1 { 2000 } else { 200_000 } {
            bytes.extend(frame(0x9, 0, 1, &vec![0x00; piece]));
        }
        assert!(is_closed_after(&mut socket, &bytes).await, "pieces of {piece}: the connection lives on");
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 160 * MIB, "grew by {grown} bytes");
    receiver.assert_serves_others().await;
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Sends everything, as far as it is taken, and waits for the other side to close.
async fn is_closed_after(socket: &mut TcpStream, bytes: &[u8]) -> bool {
    let (mut read, mut write) = socket.split();
    let sink = async {
        let mut buffer = vec![0; 65_536];
        while read.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
    };
    let send = async {
        let _ = write.write_all(bytes).await;
        std::future::pending::<()>().await;
    };
    timeout(Duration::from_secs(20), async {
        tokio::select! { () = sink => (), () = send => () }
    })
    .await
    .is_ok()
}

/// Scenario: more headers, and longer ones, than anybody needs. Guarantee: 431, or the stream is refused.
#[tokio::test]
async fn header_floods_are_refused() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let long = "x".repeat(40_000);
    assert_eq!(post(receiver.http, "/v1/traces", &[PROTOBUF, ("x-long", &long)], &traces(1)).await.0, 431);
    let many: String = (0..500).map(|index| format!("x-{index}: y\r\n")).collect();
    let request = format!("POST /v1/traces HTTP/1.1\r\nhost: x\r\n{many}content-length: 0\r\n\r\n");
    assert_eq!(exchange(receiver.http, request.as_bytes()).await.0, 431);
    let client = connect_h2(receiver.grpc).await;
    let mut ready = client.clone().ready().await.expect("is open");
    let request = grpc_request(Signal::Traces.grpc_path(), &[("x-long", &long)]);
    if let Ok((response, _stream)) = ready.send_request(request, true) {
        assert!(!response.await.is_ok_and(|head| head.status() == 200));
    }
    assert!(receiver.intake.taken().is_empty());
    receiver.assert_serves_others().await;
}
