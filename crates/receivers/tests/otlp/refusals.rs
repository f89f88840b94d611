//! Every refusal is the one that makes OTLP clients do the right thing.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue};
use sluice_extensions::bearertokenauth::{BearerServer, Config};
use sluice_flow::{BoxFuture, Refusal};
use sluice_net::auth::server::{AuthError, ServerAuth};
use sluice_net::compress;
use sluice_net::grpc::{Code, Status};
use sluice_otlp::{Encoding, Signal};
use sluice_receivers::otlp::{RefusedReason, Transport};
use sluice_receivers::{BindContext, ReceiverConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::*;

const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");
const JSON: (&str, &str) = ("content-type", "application/json");

/// Sends a valid request over both transports.
async fn both(receiver: &Receiver) -> (Status, (u16, String, Vec<u8>)) {
    let mut client = connect_h2(receiver.grpc).await;
    let status = unary(&mut client, Signal::Traces, &[], &framed(0, &traces(3))).await;
    (status, post(receiver.http, "/v1/traces", &[PROTOBUF], &traces(3)).await)
}

#[tokio::test]
async fn overload_says_when_to_come_back() {
    let refusal =
        Refusal::Retry { delay: Duration::from_millis(1200), reason: "memory is spent".to_owned() };
    for (admit_refusal, submit_refusal, items) in
        [(Some(refusal.clone()), None, 0), (None, Some(refusal), 3)]
    {
        let intake = MockIntake { admit_refusal, submit_refusal, ..MockIntake::default() };
        let receiver = Receiver::start(BOTH, intake).await;
        let (status, (code, head, body)) = both(&receiver).await;
        let expected = Status {
            retry_delay: Some(Duration::from_millis(1200)),
            ..Status::new(Code::Unavailable, "memory is spent")
        };
        assert_eq!(status, expected);
        assert_eq!(code, 503);
        assert!(head.contains("retry-after: 2"), "{head}");
        assert_eq!(Status::decode_details(&body), Some(expected));
        let counters = receiver.counters.of(Signal::Traces, Transport::Http);
        assert_eq!(counters.refused_requests(RefusedReason::Overloaded), 1);
        assert_eq!(counters.refused_items.load(Ordering::Relaxed), items);
        receiver.assert_gives_all_memory_back().await;
    }
}

/// Scenario: requests whose inflated form exceeds all the memory for receiving, though not the
/// receiver's limit. Guarantee: the answer says that they are too large, and is not retryable.
#[tokio::test]
async fn what_can_never_be_admitted_is_too_large_and_not_overload() {
    let intake = MockIntake { memory_limit_bytes: Some(1 << 20), ..MockIntake::default() };
    let receiver = Receiver::start(BOTH, intake).await;
    let plain = traces(8_000);
    assert!(plain.len() > 2 << 20);
    let mut client = connect_h2(receiver.grpc).await;
    for encoding in [Encoding::Gzip, Encoding::Zstd, Encoding::Snappy] {
        let message = packed(encoding, &plain);
        let headers = [("grpc-encoding", encoding.as_str())];
        let status = unary(&mut client, Signal::Traces, &headers, &framed(1, &message)).await;
        assert_eq!((status.code, status.retry_delay), (Code::ResourceExhausted, None), "{status}");
        let headers = [PROTOBUF, ("content-encoding", encoding.as_str())];
        let (code, head, _) = post(receiver.http, "/v1/traces", &headers, &message).await;
        assert_eq!((code, head.contains("retry-after")), (413, false), "{head}");
    }
    let status = unary(&mut client, Signal::Traces, &[], &framed(0, &plain)).await;
    assert_eq!((status.code, status.retry_delay), (Code::ResourceExhausted, None), "{status}");
    assert_eq!(post(receiver.http, "/v1/traces", &[PROTOBUF], &plain).await.0, 413);
    for transport in Transport::ALL {
        let counters = receiver.counters.of(Signal::Traces, transport);
        let refused = [RefusedReason::NeverFits, RefusedReason::TooLarge, RefusedReason::Invalid];
        assert_eq!(refused.map(|reason| counters.refused_requests(reason)), [4, 0, 0]);
    }
    receiver.assert_gives_all_memory_back().await;
    receiver.assert_serves_others().await;
}

/// Guarantee: memory for a body that does not tell its length is asked for in steps, the last of
/// which is no larger than the memory that is left.
#[tokio::test]
async fn a_body_of_unknown_length_is_taken_if_there_is_memory_for_it() {
    let plain = traces(2_500);
    let intake =
        MockIntake { memory_limit_bytes: Some(plain.len() + 1000), ..MockIntake::default() };
    let receiver = Receiver::start(BOTH, intake).await;
    let chunked = [format!("{:x}\r\n", plain.len()).as_bytes(), &plain, b"\r\n0\r\n\r\n"].concat();
    let headers = [PROTOBUF, ("transfer-encoding", "chunked")];
    assert_eq!(post(receiver.http, "/v1/traces", &headers, &chunked).await.0, 200);
    assert!(receiver.intake.peak.load(Ordering::SeqCst) > plain.len() / 2);
    receiver.assert_gives_all_memory_back().await;
}

/// Guarantee: a body that does not tell its length is judged again whenever it needs more memory.
/// The rest of one for which there is no room is not read.
#[tokio::test]
async fn a_body_of_unknown_length_is_judged_as_it_grows() {
    const ROOM_BYTES: usize = 200_000;
    let refusal = Refusal::overloaded("the backlog is full");
    let intake = MockIntake { grown_refusal: Some((ROOM_BYTES, refusal)), ..MockIntake::default() };
    let receiver = Receiver::start(BOTH, intake).await;
    let chunked =
        |body: &[u8]| [format!("{:x}\r\n", body.len()).as_bytes(), body, b"\r\n0\r\n\r\n"].concat();
    let headers = [PROTOBUF, ("transfer-encoding", "chunked")];
    let (small, large) = (traces(100), traces(200_000));
    assert_eq!(post(receiver.http, "/v1/traces", &headers, &chunked(&small)).await.0, 200);
    assert_eq!(post(receiver.http, "/v1/traces", &headers, &chunked(&large)).await.0, 503);
    assert!(receiver.intake.peak.load(Ordering::SeqCst) < large.len() / 2);
    receiver.assert_gives_all_memory_back().await;
}

/// Scenario: bodies of some ten kilobytes that unpack to 64 MiB each, in every coding, on eight
/// threads at once. Guarantee: no more is unpacked than fits the memory for receiving, whatever the
/// receiver's own limit would let through.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn nothing_is_inflated_before_it_is_admitted() {
    const MEMORY: usize = 24 << 20;
    /// Memory of the clients, and of the allocator for its threads. Eight bodies would unpack to
    /// half a gigabyte.
    const BESIDE: usize = 136 << 20;
    if !is_alone("refusals::nothing_is_inflated_before_it_is_admitted") {
        return;
    }
    for keeps in [None, Some(Encoding::Gzip)] {
        let intake =
            MockIntake { memory_limit_bytes: Some(MEMORY), keeps, ..MockIntake::default() };
        let receiver = Receiver::start(BOTH, intake).await;
        let bombs = {
            let zeros = [Bytes::from(vec![0; 64 << 20])];
            let halves = packed(Encoding::Gzip, &zeros[0][..32 << 20]).repeat(2);
            [
                ("gzip", packed(Encoding::Gzip, &zeros[0])),
                ("gzip", halves),
                ("zstd", packed(Encoding::Zstd, &zeros[0])),
                (
                    "deflate",
                    compress::compress(compress::Packing::Zlib, &zeros, Some(9))
                        .expect("packs")
                        .to_vec(),
                ),
                (
                    "lz4",
                    compress::compress(compress::Packing::Lz4, &zeros, None)
                        .expect("packs")
                        .to_vec(),
                ),
            ]
        };
        let growth = Growth::from_here();
        for (coding, bomb) in &bombs {
            let posts = (0..32).map(async |_| {
                let headers = [PROTOBUF, ("content-encoding", coding)];
                let (code, ..) = post(receiver.http, "/v1/traces", &headers, bomb).await;
                assert!([413, 503].contains(&code), "{coding}: {code}");
            });
            join_all(posts).await;
        }
        let grown = growth.bytes();
        assert!(grown < MEMORY + BESIDE, "grew by {grown} bytes");
        receiver.assert_gives_all_memory_back().await;
    }
}

#[tokio::test]
async fn the_engines_other_refusals_are_final() {
    for (refusal, code, http_code) in [
        (Refusal::Invalid { reason: "x".to_owned() }, Code::InvalidArgument, 400),
        (Refusal::Rejected { reason: "x".to_owned() }, Code::InvalidArgument, 400),
        (Refusal::Failed { reason: "x".to_owned() }, Code::Unknown, 500),
        (Refusal::TooLarge { reason: "x".to_owned() }, Code::ResourceExhausted, 413),
        (Refusal::Overlaps, Code::AlreadyExists, 409),
    ] {
        let receiver = Receiver::start(
            BOTH,
            MockIntake { submit_refusal: Some(refusal), ..MockIntake::default() },
        )
        .await;
        let (status, http) = both(&receiver).await;
        assert_eq!((status.code, status.retry_delay, http.0), (code, None, http_code));
    }
}

#[tokio::test]
async fn a_signal_that_no_pipeline_takes_is_unimplemented_and_its_body_not_read() {
    let receiver = Receiver::start(
        BOTH,
        MockIntake { unrouted: Some(Signal::Traces), ..MockIntake::default() },
    )
    .await;
    let (status, (code, _, body)) = both(&receiver).await;
    assert_eq!((status.code, code), (Code::Unimplemented, 404));
    assert!(Status::decode_details(&body).is_some_and(|status| status.message.contains("traces")));
    assert_eq!(receiver.intake.admissions.load(Ordering::SeqCst), 0);
}

/// Too many passwords are being checked.
struct Busy(HeaderValue);

impl ServerAuth for Busy {
    fn authenticate<'a>(&'a self, _: &'a HeaderMap) -> BoxFuture<'a, Result<(), AuthError>> {
        Box::pin(std::future::ready(Err(AuthError::Busy)))
    }

    fn challenge(&self) -> &HeaderValue {
        &self.0
    }
}

async fn authenticated(authenticator: Arc<dyn ServerAuth>) -> Receiver {
    let text = BOTH.replace("'localhost:0'", "'localhost:0', auth: {authenticator: own}");
    let authenticators = HashMap::from([("own".to_owned(), authenticator)]);
    Receiver::start(&text, MockIntake { authenticators, ..MockIntake::default() }).await
}

/// Guarantee: a sender gets a retryable refusal if its credentials could not be checked. Clients
/// drop their data if credentials are called wrong.
#[tokio::test]
async fn a_busy_check_of_credentials_is_overload() {
    let receiver = authenticated(Arc::new(Busy(HeaderValue::from_static("Basic")))).await;
    let (status, (code, head, _)) = both(&receiver).await;
    assert_eq!(status.code, Code::Unavailable);
    assert_eq!(status.retry_delay, Some(Duration::from_secs(1)));
    assert_eq!((code, head.contains("retry-after: 1")), (503, true), "{head}");
}

/// Guarantee: without credentials no request is admitted, however large it says it is.
#[tokio::test]
async fn authentication_comes_first() {
    let (options, _) =
        sluice_config::read_text("extensions.bearertokenauth", "token: secret", Config::read);
    let server = BearerServer::new(&options).expect("good options");
    let receiver = authenticated(Arc::new(server)).await;
    let (status, (code, head, _)) = both(&receiver).await;
    assert_eq!((status.code, code), (Code::Unauthenticated, 401));
    assert!(head.contains("www-authenticate: bearer"), "{head}");
    assert_eq!(receiver.intake.admissions.load(Ordering::SeqCst), 0);
    let good = ("authorization", "Bearer secret");
    let other = ("authorization", "Bearer other");
    let mut client = connect_h2(receiver.grpc).await;
    for differing in [[good, other], [other, good]] {
        let status = unary(&mut client, Signal::Traces, &differing, &framed(0, &traces(1))).await;
        assert_eq!(status.code, Code::Unauthenticated);
        let [first, second] = differing;
        assert_eq!(
            post(receiver.http, "/v1/traces", &[PROTOBUF, first, second], &traces(1)).await.0,
            401
        );
    }
    assert_eq!(receiver.intake.admissions.load(Ordering::SeqCst), 0);
    for repeated in [&[good][..], &[good, good]] {
        assert!(unary(&mut client, Signal::Traces, repeated, &framed(0, &traces(1))).await.is_ok());
        let headers = [&[PROTOBUF], repeated].concat();
        assert_eq!(post(receiver.http, "/v1/traces", &headers, &traces(1)).await.0, 200);
    }
}

#[tokio::test]
async fn too_large_is_final_and_says_so_before_the_body_is_read() {
    let text = "protocols: {grpc: {endpoint: 'localhost:0', max_recv_msg_size_mib: 1}, http: {endpoint: 'localhost:0', max_request_body_size: 1MiB}}";
    let receiver = Receiver::start(text, MockIntake::default()).await;
    let mut client = connect_h2(receiver.grpc).await;
    let large = traces(5000);
    assert!(large.len() > 1 << 20);
    for (headers, body) in [
        (vec![], framed(0, &large)),
        (vec![("grpc-encoding", "gzip")], framed(1, &packed(Encoding::Gzip, &large))),
    ] {
        let status = unary(&mut client, Signal::Traces, &headers, &body).await;
        assert_eq!((status.code, status.retry_delay), (Code::ResourceExhausted, None), "{status}");
    }
    let gzip = packed(Encoding::Gzip, &large);
    assert_eq!(
        post(receiver.http, "/v1/traces", &[PROTOBUF, ("content-encoding", "gzip")], &gzip).await.0,
        413
    );
    // All of it sent before the answer is read: it must not be lost in a reset.
    assert_eq!(post(receiver.http, "/v1/traces", &[PROTOBUF], &large.repeat(4)).await.0, 413);
    // Announced, and not a byte of it sent.
    let head = "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1048577\r\n\r\n";
    let (code, _, body) = exchange(receiver.http, head.as_bytes()).await;
    assert_eq!(code, 413);
    assert!(String::from_utf8_lossy(&body).contains(r#""code":8"#), "{body:?}");
    assert!(receiver.intake.taken().is_empty());
    receiver.assert_gives_all_memory_back().await;
    receiver.assert_serves_others().await;
}

#[tokio::test]
async fn what_is_not_otlp_is_invalid_and_the_reason_is_told() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let mut client = connect_h2(receiver.grpc).await;
    let truncated = &traces(3)[..200];
    for (headers, body) in [
        (vec![], framed(0, truncated)),
        (vec![], framed(0, b"\xff\xff\xff\xff")),
        (vec![], framed(7, &traces(1))),
        (vec![], framed(1, &traces(1))),
        (vec![], [framed(0, &traces(1)), framed(0, &traces(1))].concat()),
        (vec![], b"\0\0\0".to_vec()),
        (vec![], Vec::new()),
        (vec![], framed(0, &traces(9))[..300].to_vec()),
        (vec![("grpc-encoding", "gzip")], framed(1, &traces(1))),
        (vec![("grpc-encoding", "gzip")], framed(1, &packed(Encoding::Gzip, &traces(9))[..100])),
        (vec![("grpc-encoding", "zstd")], framed(1, &packed(Encoding::Zstd, &traces(9))[..100])),
    ] {
        let status = unary(&mut client, Signal::Traces, &headers, &body).await;
        assert_eq!(
            (status.code, status.message.is_empty()),
            (Code::InvalidArgument, false),
            "{headers:?} {status}"
        );
    }
    let (code, head, body) = post(receiver.http, "/v1/traces", &[PROTOBUF], truncated).await;
    assert_eq!(code, 400);
    assert!(head.contains("content-type: application/x-protobuf"));
    assert_eq!(
        Status::decode_details(&body).map(|status| status.code),
        Some(Code::InvalidArgument)
    );
    let (code, head, body) =
        post(receiver.http, "/v1/traces", &[JSON], b"{\"resourceSpans\":[{}").await;
    assert_eq!(code, 400);
    assert!(head.contains("content-type: application/json"));
    assert!(String::from_utf8_lossy(&body).contains(r#""code":3"#), "{body:?}");
    assert!(receiver.intake.taken().is_empty());
    receiver.assert_gives_all_memory_back().await;
    receiver.assert_serves_others().await;
}

#[tokio::test]
async fn unknown_encodings_are_refused_with_the_known_ones() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let mut client = connect_h2(receiver.grpc).await;
    let request = grpc_request(Signal::Traces.grpc_path(), &[("grpc-encoding", "br")]);
    let (status, head) = call(&mut client, request, &framed(1, &traces(1))).await;
    assert_eq!(status.code, Code::Unimplemented);
    assert_eq!(head.headers["grpc-accept-encoding"], "identity,gzip,zstd,snappy");
    for coding in ["br", "compress", "gzip, gzip"] {
        let (code, head, _) =
            post(receiver.http, "/v1/traces", &[PROTOBUF, ("content-encoding", coding)], b"x")
                .await;
        assert_eq!(code, 415, "{coding}");
        assert!(head.contains("accept-encoding: identity, gzip, zstd"), "{head}");
    }
    let repeated = [PROTOBUF, ("content-encoding", "gzip"), ("content-encoding", "gzip")];
    assert_eq!(post(receiver.http, "/v1/traces", &repeated, b"x").await.0, 415);
    let differing = [("grpc-encoding", "gzip"), ("grpc-encoding", "zstd")];
    assert_eq!(
        unary(&mut client, Signal::Traces, &differing, b"").await.code,
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn other_types_methods_and_paths_are_told_apart() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    for content_type in ["text/plain", "application/grpc", "application/x-protobuffer", ""] {
        let code = post(receiver.http, "/v1/traces", &[("content-type", content_type)], &traces(1))
            .await
            .0;
        assert_eq!(code, 415, "{content_type}");
    }
    for (other, code) in [(JSON, 415), (PROTOBUF, 200)] {
        assert_eq!(
            post(receiver.http, "/v1/metrics", &[PROTOBUF, other], b"").await.0,
            code,
            "{other:?}"
        );
    }
    assert_eq!(post(receiver.http, "/v1/trace", &[PROTOBUF], &traces(1)).await.0, 404);
    let get = b"GET /v1/traces HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let (code, head, _) = exchange(receiver.http, get).await;
    assert_eq!(code, 405);
    assert!(head.contains("allow: post"), "{head}");
    let head = "POST /v1/traces HTTP/1.0\r\ncontent-type: application/x-protobuf\r\n";
    let without_length = [head.as_bytes(), b"\r\n", &traces(1)].concat();
    assert_eq!(exchange(receiver.http, &without_length).await.0, 411);
    let empty = format!("{head}content-length: 0\r\n\r\n");
    assert_eq!(exchange(receiver.http, empty.as_bytes()).await.0, 200);
    let mut client = connect_h2(receiver.grpc).await;
    let (status, _) =
        call(&mut client, grpc_request("/some.Service/Method", &[]), &framed(0, b"")).await;
    assert_eq!(status.code, Code::Unimplemented);
    let request = grpc_request(Signal::Traces.grpc_path(), &[("content-type", "application/json")]);
    assert_eq!(call(&mut client, request, b"{}").await.1.status, 415);
    let differing = [("content-type", "application/grpc"), ("content-type", "application/json")];
    let request = grpc_request(Signal::Traces.grpc_path(), &differing);
    assert_eq!(call(&mut client, request, &framed(0, b"")).await.1.status, 415);
    assert_eq!(receiver.counters.unknown_requests.load(Ordering::Relaxed), 5);
    assert!(receiver.intake.taken().is_empty());
    receiver.assert_serves_others().await;
}

/// The codes of all answers over one connection that carries `bytes`, until the server closes it.
/// `ends`: nothing more will come.
async fn codes(address: SocketAddr, bytes: &[u8], ends: bool) -> Vec<u16> {
    let mut socket = TcpStream::connect(address).await.expect("connects");
    socket.write_all(bytes).await.expect("is sent");
    if ends {
        socket.shutdown().await.expect("is open");
    }
    let mut answer = String::new();
    timeout(Duration::from_secs(10), socket.read_to_string(&mut answer))
        .await
        .expect("is closed")
        .expect("is text");
    answer.split("HTTP/1.1 ").skip(1).map(|head| head[..3].parse().expect("a code")).collect()
}

/// Scenario: HTTP/1 requests whose length can be understood in two ways, or that end before it;
/// each that is whole has another one behind it, to an unknown path. Guarantee: ambiguous or
/// incomplete requests are refused or, with chunks, read by them; in each of these cases the
/// connection ends, so that nothing within a body is ever taken for a request.
#[tokio::test]
async fn bodies_that_end_in_two_places_end_the_connection() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let json = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"x"}]}]}]}"#;
    let length = json.len();
    let chunk = format!("{length:x}\r\n{json}\r\n");
    let chunked = format!("{chunk}0\r\n\r\n");
    let own = format!("content-length: {length}");
    let shorter = format!("content-length: {}", length - 1);
    let longer = format!("content-length: {}", length + 1);
    let listed = format!("content-length: {length}, {length}");
    let signed = format!("content-length: +{length}");
    let te = "transfer-encoding: chunked";
    let next = "GET /next HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let mut accepted = 0;
    for (headers, body, is_cut_off, expected) in [
        ([&own, ""], json, false, &[200, 404][..]),
        ([&own, &own], json, false, &[200, 404]),
        ([&own, &shorter], json, false, &[400]),
        ([&shorter, &own], json, false, &[400]),
        ([&listed, ""], json, false, &[400]),
        ([&signed, ""], json, false, &[400]),
        ([te, ""], &chunked, false, &[200, 404]),
        ([&shorter, te], &chunked, false, &[200]),
        ([te, &shorter], &chunked, false, &[200]),
        (["transfer-encoding: chunked, identity", ""], &chunked, false, &[400]),
        ([te, ""], "x\r\n", false, &[400]),
        ([&longer, ""], json, true, &[400]),
        ([te, ""], &chunk, true, &[400]),
        ([te, ""], &chunk[..length], true, &[400]),
    ] {
        let headers: String = headers
            .iter()
            .filter(|header| !header.is_empty())
            .map(|header| format!("{header}\r\n"))
            .collect();
        let request = format!(
            "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{headers}\r\n{body}"
        );
        let request = if is_cut_off { request } else { request + next };
        assert_eq!(
            codes(receiver.http, request.as_bytes(), is_cut_off).await,
            expected,
            "{request}"
        );
        accepted += usize::from(expected[0] == 200);
        assert_eq!(receiver.intake.taken().len(), accepted, "{request}");
    }
    receiver.assert_gives_all_memory_back().await;
    receiver.assert_serves_others().await;
}

/// Guarantee: an HTTP/2 request whose DATA is not as long as it says is reset and not taken; its
/// connection goes on.
#[tokio::test]
async fn a_content_length_that_is_not_the_datas_resets_the_stream() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let (message, plain) = (framed(0, &traces(1)), traces(1));
    for (address, path, content_type, body) in [
        (receiver.grpc, Signal::Traces.grpc_path(), "application/grpc", &message),
        (receiver.http, Signal::Traces.http_path(), PROTOBUF.1, &plain),
    ] {
        let client = connect_h2(address).await;
        let send = async |length: usize| {
            let headers = [("content-type", content_type), ("content-length", &length.to_string())];
            let mut ready = client.clone().ready().await.expect("is open");
            let (response, mut stream) =
                ready.send_request(grpc_request(path, &headers), false).expect("is sent");
            stream.send_data(body.clone().into(), true).expect("is sent");
            response.await.map(|head| head.status().as_u16()).map_err(|error| error.reason())
        };
        for length in [body.len() - 1, body.len() + 1] {
            assert_eq!(
                send(length).await,
                Err(Some(h2::Reason::PROTOCOL_ERROR)),
                "{path} {length}"
            );
        }
        assert!(receiver.intake.taken().is_empty());
        assert_eq!(send(body.len()).await, Ok(200));
        assert!(receiver.intake.accepted.lock().expect("is not poisoned").pop().is_some());
    }
    receiver.assert_gives_all_memory_back().await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let text = format!("protocols: {{http: {{endpoint: '{}'}}}}", receiver.http);
    let config = config(&text);
    let error = config
        .bind(BindContext { id: "otlp", ..BindContext::default() })
        .await
        .err()
        .expect("cannot start");
    let sentence = error.to_string();
    assert!(sentence.starts_with("http: "), "{sentence}");
    assert!(
        sentence.contains(&receiver.http.to_string()) && sentence.contains("another process"),
        "{sentence}"
    );
}
