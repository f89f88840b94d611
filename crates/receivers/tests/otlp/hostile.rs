//! Peers that mean harm, or are broken. Each is refused precisely, takes no memory with it, and
//! disturbs no other client.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join, join_all};
use sluice_net::compress;
use sluice_net::grpc::Code;
use sluice_net::grpc::frame::PREFIX_BYTES;
use sluice_net::server::BodyTimeouts;
use sluice_otlp::{Encoding, Signal};
use sluice_receivers::otlp::OtlpConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::*;

const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");
const MIB: usize = 1 << 20;

/// HTTP/2's error code for peers whose behaviour might be an attack.
const ENHANCE_YOUR_CALM: u32 = 0xb;

/// Scenario: a gigabyte of zeros in a kilobyte or a megabyte of gzip or zstd, over both transports,
/// many at a time; 64 MiB in the codings that HTTP alone has. Guarantee: RESOURCE_EXHAUSTED / 413;
/// memory grows by the limit a bomb, not by the bombs' unpacked sizes.
#[tokio::test(flavor = "multi_thread")]
async fn compression_bombs_are_refused_at_the_limit() {
    const AT_ONCE: usize = 32;
    const LIMIT: usize = 4 * MIB;
    if !is_alone("hostile::compression_bombs_are_refused_at_the_limit") {
        return;
    }
    let text = "protocols: {grpc: {endpoint: 'localhost:0', max_recv_msg_size_mib: 4}, http: {endpoint: 'localhost:0', max_request_body_size: 4MiB}}";
    let receiver =
        Receiver::start(text, MockIntake { keeps: Some(Encoding::Gzip), ..MockIntake::default() })
            .await;
    let zeros = vec![0; 64 * MIB];
    let bombs = [Encoding::Gzip, Encoding::Zstd]
        .map(|encoding| (encoding, packed(encoding, &zeros).repeat(16)));
    let zeros = [Bytes::from(zeros)];
    let only_over_http = [
        ("deflate", compress::compress(compress::Packing::Zlib, &zeros, Some(9)).expect("packs")),
        ("lz4", compress::compress(compress::Packing::Lz4, &zeros, None).expect("packs")),
        ("snappy", compress::compress_snappy_block(&zeros).expect("packs")),
    ];
    drop(zeros);
    let growth = Growth::from_here();
    for (encoding, bomb) in &bombs {
        let clients = join_all((0..4).map(|_| connect_h2(receiver.grpc))).await;
        let message = framed(1, bomb);
        let calls = (0..AT_ONCE).map(async |index| {
            let headers = [("grpc-encoding", encoding.as_str())];
            let mut client = clients[index % clients.len()].clone();
            let status = unary(&mut client, Signal::Traces, &headers, &message).await;
            assert_eq!(
                (status.code, status.retry_delay),
                (Code::ResourceExhausted, None),
                "{status}"
            );
        });
        let posts = (0..AT_ONCE).map(async |_| {
            let headers = [PROTOBUF, ("content-encoding", encoding.as_str())];
            assert_eq!(post(receiver.http, "/v1/traces", &headers, bomb).await.0, 413);
        });
        receiver.undisturbed(join(join_all(calls), join_all(posts))).await;
    }
    let types = ["application/x-protobuf", "application/json"];
    let cases = only_over_http
        .iter()
        .flat_map(|(coding, bomb)| types.map(|content_type| (coding, content_type, bomb)));
    let posts = cases.map(async |(coding, content_type, bomb)| {
        let headers = [("content-type", content_type), ("content-encoding", coding)];
        assert_eq!(post(receiver.http, "/v1/traces", &headers, bomb).await.0, 413, "{coding}");
    });
    receiver.undisturbed(join_all(posts)).await;
    let grown = growth.bytes();
    assert!(grown < 2 * AT_ONCE * LIMIT, "grew by {grown} bytes");
    let peak = receiver.intake.peak.load(Ordering::SeqCst);
    assert!(peak < (2 * AT_ONCE + 1) * LIMIT, "{peak} bytes were admitted");
    receiver.assert_gives_all_memory_back().await;
}

/// Scenario: messages within messages, a million deep, in protobuf and in JSON. Guarantee: invalid,
/// no overflowing stack.
#[tokio::test(flavor = "multi_thread")]
async fn a_million_levels_of_nesting_are_invalid() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let mut client = connect_h2(receiver.grpc).await;
    // AnyValue { array_value { values { array_value { … } } } }: each level is a tag and a length
    // around the one before.
    let mut nested = Vec::new();
    for level in 0..1_000_000_u32 {
        let tag = if level.is_multiple_of(2) { 0x0a } else { 0x2a };
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
    let json = [br#"{"resourceLogs":"#.to_vec(), b"[".repeat(1_000_000)].concat();
    let arrays = [
        br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":"#.to_vec(),
        br#"{"arrayValue":{"values":["#.repeat(1_000_000),
    ]
    .concat();
    let attack = async {
        let status = unary(&mut client, Signal::Logs, &[], &framed(0, &request)).await;
        assert_eq!(status.code, Code::InvalidArgument, "{status}");
        assert!(status.message.contains("messages nest too deeply"), "{status}");
        for json in [json, arrays] {
            let headers = [("content-type", "application/json")];
            assert_eq!(post(receiver.http, "/v1/logs", &headers, &json).await.0, 400);
        }
    };
    receiver.undisturbed(attack).await;
    receiver.assert_gives_all_memory_back().await;
}

/// Scenario: a prefix and a content-length that claim the whole limit, followed by a few bytes and
/// nothing more. Guarantee: no more memory than arrived, and an end to the waiting.
#[tokio::test(flavor = "multi_thread")]
async fn lengths_that_lie_hold_a_permit_but_no_memory_and_not_for_long() {
    if !is_alone("hostile::lengths_that_lie_hold_a_permit_but_no_memory_and_not_for_long") {
        return;
    }
    let mut config = config(BOTH);
    quick_bodies(&mut config);
    let receiver = Receiver::start_with(config, MockIntake::default()).await;
    let growth = Growth::from_here();
    let mut client = connect_h2(receiver.grpc).await;
    let attack = async {
        let mut streams = Vec::new();
        for _ in 0..50 {
            let mut ready = client.clone().ready().await.expect("is open");
            let request = grpc_request(Signal::Traces.grpc_path(), &[]);
            let (response, mut stream) = ready.send_request(request, false).expect("is sent");
            stream.send_data(Bytes::from_static(&[0, 4, 0, 0, 0, 10]), false).expect("is sent");
            streams.push((response, stream));
        }
        until("all claims are admitted", || {
            receiver.intake.peak.load(Ordering::SeqCst) >= 50 * 64 * MIB
        })
        .await;
        for (response, _stream) in streams {
            let head = response.await.expect("is answered");
            assert_eq!(head.headers()["grpc-status"], "4");
        }
        let head = "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 60000000\r\n\r\n{";
        assert_eq!(exchange(receiver.http, head.as_bytes()).await.0, 503);
    };
    receiver.undisturbed(attack).await;
    let grown = growth.bytes();
    assert!(grown < 16 * MIB, "grew by {grown} bytes");
    receiver.assert_gives_all_memory_back().await;
    assert!(unary(&mut client, Signal::Traces, &[], &framed(0, &traces(1))).await.is_ok());
}

fn quick_bodies(config: &mut OtlpConfig) {
    let timeouts =
        BodyTimeouts { gap: Duration::from_millis(300), total: Duration::from_millis(1000) };
    config.grpc.as_mut().expect("is on").body_timeouts = timeouts;
    config.http.as_mut().expect("is on").shared.body_timeouts = timeouts;
}

/// Scenario: a body that comes a byte at a time, each in time. Guarantee: the whole has an end too.
#[tokio::test(flavor = "multi_thread")]
async fn a_trickling_body_is_given_up() {
    let mut config = config(BOTH);
    quick_bodies(&mut config);
    let receiver = Receiver::start_with(config, MockIntake::default()).await;
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
    receiver.undisturbed(answered).await.expect("is answered").expect("is read");
    assert_eq!(&answer, b"HTTP/1.1 503");
    receiver.assert_gives_all_memory_back().await;
}

/// Scenario: many clients vanish at once within their bodies, or while they wait for the answer.
/// Guarantee: the admitted memory comes back.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_vanish_leave_nothing_behind() {
    const CLIENTS: usize = 32;
    let receiver =
        Receiver::start(BOTH, MockIntake { stalls: Some(Signal::Traces), ..MockIntake::default() })
            .await;
    let body = framed(0, &traces(10));
    let length = body.len() - PREFIX_BYTES;
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: {length}\r\n\r\n"
    );
    for sent in [body.len() / 2, body.len()] {
        let attack = async {
            let mut clients = JoinSet::new();
            let mut open = Vec::new();
            for _ in 0..CLIENTS {
                let socket = TcpStream::connect(receiver.grpc).await.expect("connects");
                let (client, connection) =
                    h2::client::handshake(socket).await.expect("shakes hands");
                clients.spawn(connection);
                let mut client: h2::client::SendRequest<Bytes> =
                    client.ready().await.expect("is open");
                let (response, mut stream) = client
                    .send_request(grpc_request(Signal::Traces.grpc_path(), &[]), false)
                    .expect("is sent");
                stream
                    .send_data(Bytes::copy_from_slice(&body[..sent]), sent == body.len())
                    .expect("is sent");
                let mut socket = TcpStream::connect(receiver.http).await.expect("connects");
                socket
                    .write_all(&[head.as_bytes(), &body[PREFIX_BYTES..sent]].concat())
                    .await
                    .expect("is sent");
                open.push((client, response, stream, socket));
            }
            until("all are admitted", || receiver.intake.outstanding() >= 2 * CLIENTS * length)
                .await;
            clients.shutdown().await;
            drop(open);
            receiver.assert_gives_all_memory_back().await;
        };
        receiver.undisturbed(attack).await;
    }
}

/// Scenario: streams are opened and reset as fast as the network takes them (CVE-2023-44487).
/// Guarantee: that connection is told to calm down and closed, and leaves no memory behind; no
/// other client notices.
#[tokio::test(flavor = "multi_thread")]
async fn rapid_resets_end_the_connection() {
    if !is_alone("hostile::rapid_resets_end_the_connection") {
        return;
    }
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let growth = Growth::from_here();
    // :method POST, :scheme http, :path /, :authority a: enough for a request.
    let headers = [0x83, 0x86, 0x84, 0x41, 0x01, b'a'];
    let flood = (0..1_000_000_u32).map(|index| 2 * index + 1).map(|stream| {
        [frame(0x1, 0x4, stream, &headers), frame(0x3, 0, stream, &8_u32.to_be_bytes())].concat()
    });
    for address in [receiver.grpc, receiver.http] {
        let code = receiver.undisturbed(goaway_after(address, flood.clone())).await;
        assert_eq!(code, Some(ENHANCE_YOUR_CALM));
    }
    let grown = growth.bytes();
    assert!(grown < 16 * MIB, "grew by {grown} bytes");
}

/// Scenario: a header block that never ends (CVE-2024-27316). Guarantee: the connection is told to
/// calm down and closed after a bounded number of bytes.
#[tokio::test(flavor = "multi_thread")]
async fn continuation_floods_end_the_connection() {
    if !is_alone("hostile::continuation_floods_end_the_connection") {
        return;
    }
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let growth = Growth::from_here();
    // :method POST, :scheme http, and a literal header x whose value has 256 MiB.
    let begin = frame(0x1, 0, 1, &[0x83, 0x86, 0x00, 0x01, b'x', 0x7f, 0x81, 0xff, 0xff, 0x7f]);
    for (address, piece, times) in [
        (receiver.grpc, 16_000, 10_000),
        (receiver.http, 16_000, 10_000),
        (receiver.grpc, 0, 200_000),
        (receiver.grpc, 1, 200_000),
    ] {
        let flood = std::iter::once(begin.clone())
            .chain(std::iter::repeat_n(frame(0x9, 0, 1, &vec![b'a'; piece]), times));
        let code = receiver.undisturbed(goaway_after(address, flood)).await;
        assert_eq!(code, Some(ENHANCE_YOUR_CALM), "pieces of {piece}");
    }
    let grown = growth.bytes();
    assert!(grown < 16 * MIB, "grew by {grown} bytes");
}

/// Sends frames, as far as they are taken, until the other side closes. The code of its GOAWAY, if
/// it sent one.
async fn goaway_after(address: SocketAddr, flood: impl Iterator<Item = Vec<u8>>) -> Option<u32> {
    let (mut read, mut write) = TcpStream::connect(address).await.expect("connects").into_split();
    let send = async {
        let _ = write.write_all(PREFACE).await;
        let mut write = BufWriter::new(write);
        for frame in flood {
            if write.write_all(&frame).await.is_err() {
                break;
            }
        }
        let _ = write.flush().await;
        std::future::pending::<()>().await;
    };
    let mut answer = Vec::new();
    timeout(Duration::from_secs(20), async {
        tokio::select! { _ = read.read_to_end(&mut answer) => {}, () = send => {} }
    })
    .await
    .expect("is closed");
    let (.., payload) = frames(&answer).into_iter().rfind(|(kind, ..)| *kind == 0x7)?;
    Some(u32::from_be_bytes(payload[4..8].try_into().expect("four bytes")))
}

/// Scenario: more headers, and longer ones, than a client needs. Guarantee: 431, or the stream is
/// refused.
#[tokio::test(flavor = "multi_thread")]
async fn header_floods_are_refused() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let long = "x".repeat(40_000);
    let many: String = (0..500).map(|index| format!("x-{index}: y\r\n")).collect();
    let attack = async {
        assert_eq!(
            post(receiver.http, "/v1/traces", &[PROTOBUF, ("x-long", &long)], &traces(1)).await.0,
            431
        );
        let request =
            format!("POST /v1/traces HTTP/1.1\r\nhost: x\r\n{many}content-length: 0\r\n\r\n");
        assert_eq!(exchange(receiver.http, request.as_bytes()).await.0, 431);
        let client = connect_h2(receiver.grpc).await;
        let mut ready = client.clone().ready().await.expect("is open");
        let request = grpc_request(Signal::Traces.grpc_path(), &[("x-long", &long)]);
        if let Ok((response, _stream)) = ready.send_request(request, true) {
            assert!(!response.await.is_ok_and(|head| head.status() == 200));
        }
    };
    receiver.undisturbed(attack).await;
    assert!(receiver.taken_from_attackers().is_empty());
}
