//! Every refusal is the one that makes OTLP clients do the right thing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluice_flow::Refusal;
use sluice_net::auth::server::{Authenticator, BearerOptions};
use sluice_net::grpc::{Code, Status};
use sluice_otlp::{Encoding, Signal};
use sluice_receivers::otlp::{Authenticators, RefusedReason, StartError, Transport};

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
    let refusal = Refusal::Retry { delay: Duration::from_millis(1200), reason: "memory is spent".to_owned() };
    for (admit_refusal, accept_refusal, items) in [(Some(refusal.clone()), None, 0), (None, Some(refusal), 3)] {
        let intake = MockIntake { admit_refusal, accept_refusal, ..MockIntake::default() };
        let receiver = Receiver::start(BOTH, intake).await;
        let (status, (code, head, body)) = both(&receiver).await;
        let expected = Status::new(Code::Unavailable, "memory is spent").with_retry_delay(Duration::from_millis(1200));
        assert_eq!(status, expected);
        assert_eq!(code, 503);
        assert!(head.contains("retry-after: 2"), "{head}");
        assert_eq!(Status::decode_details(&body), Some(expected));
        let counters = receiver.running.counters.requests.of(Signal::Traces, Transport::Http);
        assert_eq!(counters.refused_requests(RefusedReason::Overloaded), 1);
        assert_eq!(counters.refused_items.load(Ordering::Relaxed), items);
        receiver.assert_gives_all_memory_back().await;
    }
}

#[tokio::test]
async fn the_engines_other_refusals_are_final() {
    for (refusal, code, http_code) in [
        (Refusal::Invalid { reason: "x".to_owned() }, Code::InvalidArgument, 400),
        (Refusal::Rejected { reason: "x".to_owned() }, Code::InvalidArgument, 400),
        (Refusal::Unrouted, Code::Unimplemented, 404),
    ] {
        let receiver =
            Receiver::start(BOTH, MockIntake { accept_refusal: Some(refusal), ..MockIntake::default() }).await;
        let (status, http) = both(&receiver).await;
        assert_eq!((status.code, status.retry_delay, http.0), (code, None, http_code));
    }
}

#[tokio::test]
async fn a_signal_that_no_pipeline_takes_is_unimplemented_and_its_body_not_read() {
    let receiver = Receiver::start(BOTH, MockIntake { unrouted: Some(Signal::Traces), ..MockIntake::default() }).await;
    let (status, (code, _, body)) = both(&receiver).await;
    assert_eq!((status.code, code), (Code::Unimplemented, 404));
    assert!(Status::decode_details(&body).is_some_and(|status| status.message.contains("traces")));
    assert_eq!(receiver.intake.admissions.load(Ordering::SeqCst), 0);
}

/// Guarantee: without credentials nothing is admitted, however large it says it is.
#[tokio::test]
async fn authentication_comes_first() {
    let options = BearerOptions {
        header: "authorization".to_owned(),
        scheme: "Bearer".to_owned(),
        tokens: vec!["secret".to_owned()],
        file: None,
        reload_interval: None,
    };
    let authenticator = Some(Arc::new(Authenticator::bearer(options).expect("good options")));
    let authenticators = Authenticators { grpc: authenticator.clone(), http: authenticator };
    let receiver = Receiver::start_with(config(BOTH), MockIntake::default(), authenticators).await;
    let (status, (code, head, _)) = both(&receiver).await;
    assert_eq!((status.code, code), (Code::Unauthenticated, 401));
    assert!(head.contains("www-authenticate: bearer"), "{head}");
    assert_eq!(receiver.intake.admissions.load(Ordering::SeqCst), 0);
    let good = ("authorization", "Bearer secret");
    let mut client = connect_h2(receiver.grpc).await;
    assert!(unary(&mut client, Signal::Traces, &[good], &framed(0, &traces(1))).await.is_ok());
    assert_eq!(post(receiver.http, "/v1/traces", &[PROTOBUF, good], &traces(1)).await.0, 200);
}

#[tokio::test]
async fn too_large_is_final_and_says_so_before_the_body_is_read() {
    let text = "protocols: {grpc: {endpoint: 'localhost:0', max_recv_msg_size_mib: 1}, http: {endpoint: 'localhost:0', max_request_body_size: 1MiB}}";
    let receiver = Receiver::start(text, MockIntake::default()).await;
    let mut client = connect_h2(receiver.grpc).await;
    let large = traces(5000);
    assert!(large.len() > 1 << 20);
    for (headers, body) in
        [(vec![], framed(0, &large)), (vec![("grpc-encoding", "gzip")], framed(1, &packed(Encoding::Gzip, &large)))]
    {
        let status = unary(&mut client, Signal::Traces, &headers, &body).await;
        assert_eq!((status.code, status.retry_delay), (Code::ResourceExhausted, None), "{status}");
    }
    let gzip = packed(Encoding::Gzip, &large);
    assert_eq!(post(receiver.http, "/v1/traces", &[PROTOBUF, ("content-encoding", "gzip")], &gzip).await.0, 413);
    // All of it sent before the answer is read: it must not be lost in a reset.
    assert_eq!(post(receiver.http, "/v1/traces", &[PROTOBUF], &large.repeat(4)).await.0, 413);
    // Announced, and not a byte of it sent.
    let head =
        "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1048577\r\n\r\n";
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
        assert_eq!((status.code, status.message.is_empty()), (Code::InvalidArgument, false), "{headers:?} {status}");
    }
    let (code, head, body) = post(receiver.http, "/v1/traces", &[PROTOBUF], truncated).await;
    assert_eq!(code, 400);
    assert!(head.contains("content-type: application/x-protobuf"));
    assert_eq!(Status::decode_details(&body).map(|status| status.code), Some(Code::InvalidArgument));
    let (code, head, body) = post(receiver.http, "/v1/traces", &[JSON], b"{\"resourceSpans\":[{}").await;
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
        let (code, head, _) = post(receiver.http, "/v1/traces", &[PROTOBUF, ("content-encoding", coding)], b"x").await;
        assert_eq!(code, 415, "{coding}");
        assert!(head.contains("accept-encoding: identity, gzip, zstd"), "{head}");
    }
    let repeated = [PROTOBUF, ("content-encoding", "gzip"), ("content-encoding", "gzip")];
    assert_eq!(post(receiver.http, "/v1/traces", &repeated, b"x").await.0, 415);
    let differing = [("grpc-encoding", "gzip"), ("grpc-encoding", "zstd")];
    assert_eq!(unary(&mut client, Signal::Traces, &differing, b"").await.code, Code::InvalidArgument);
}

#[tokio::test]
async fn other_types_methods_and_paths_are_told_apart() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    for content_type in ["text/plain", "application/grpc", "application/x-protobuffer", ""] {
        let code = post(receiver.http, "/v1/traces", &[("content-type", content_type)], &traces(1)).await.0;
        assert_eq!(code, 415, "{content_type}");
    }
    assert_eq!(post(receiver.http, "/v1/trace", &[PROTOBUF], &traces(1)).await.0, 404);
    let get = b"GET /v1/traces HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let (code, head, _) = exchange(receiver.http, get).await;
    assert_eq!(code, 405);
    assert!(head.contains("allow: post"), "{head}");
    let mut client = connect_h2(receiver.grpc).await;
    let (status, _) = call(&mut client, grpc_request("/some.Service/Method", &[]), &framed(0, b"")).await;
    assert_eq!(status.code, Code::Unimplemented);
    let request = grpc_request(Signal::Traces.grpc_path(), &[("content-type", "application/json")]);
    assert_eq!(call(&mut client, request, b"{}").await.1.status, 415);
    assert_eq!(receiver.running.counters.requests.unknown_requests.load(Ordering::Relaxed), 4);
    assert!(receiver.intake.taken().is_empty());
    receiver.assert_serves_others().await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let text = format!("protocols: {{http: {{endpoint: '{}'}}}}", receiver.http);
    let intake = Arc::new(Shared(Arc::default()));
    let started =
        sluice_receivers::otlp::start(config(&text), intake, Authenticators::default(), receiver.shutdown.clone());
    let error = started.await.err().expect("cannot start");
    assert!(matches!(error, StartError::Bind { protocol: "http", .. }));
    let sentence = error.to_string();
    assert!(sentence.contains(&receiver.http.to_string()) && sentence.contains("another process"), "{sentence}");
}
