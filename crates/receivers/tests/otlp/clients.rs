//! Clients that mean well: tonic over gRPC, plain HTTP.

use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use prost::Message;
use sluice_net::compress;
use sluice_otlp::{Encoding, Signal};
use sluice_receivers::otlp::Transport;
use std::sync::atomic::Ordering;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;

use crate::support::*;

const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");

/// Scenario: tonic exports all three signals, plain and compressed. Guarantee: the engine gets
/// exactly the requests that were sent.
#[tokio::test]
async fn tonic_exports_every_signal_in_every_encoding() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let channel =
        Channel::from_shared(format!("http://{}", receiver.grpc)).expect("a URI").connect_lazy();
    let encodings = [None, Some(CompressionEncoding::Gzip), Some(CompressionEncoding::Zstd)];
    for encoding in encodings {
        let mut traces = TraceServiceClient::new(channel.clone());
        let mut metrics = MetricsServiceClient::new(channel.clone());
        let mut logs = LogsServiceClient::new(channel.clone());
        if let Some(encoding) = encoding {
            traces = traces.send_compressed(encoding);
            metrics = metrics.send_compressed(encoding);
            logs = logs.send_compressed(encoding);
        }
        assert_eq!(
            traces
                .export(trace_request(7))
                .await
                .expect("is accepted")
                .into_inner()
                .partial_success,
            None
        );
        metrics.export(metrics_request(5)).await.expect("is accepted");
        logs.export(logs_request(3)).await.expect("is accepted");
    }
    let expected = [
        (Signal::Traces, 7, trace_request(7).encode_to_vec()),
        (Signal::Metrics, 5, metrics_request(5).encode_to_vec()),
        (Signal::Logs, 3, logs_request(3).encode_to_vec()),
    ];
    let taken = receiver.intake.taken();
    assert_eq!(taken.len(), 9);
    for (accepted, (signal, items, bytes)) in taken.iter().zip(expected.iter().cycle()) {
        assert_eq!((accepted.signal, accepted.items), (*signal, *items));
        assert_eq!(
            (accepted.payload.encoding, &accepted.payload.bytes[..]),
            (Encoding::Identity, &bytes[..])
        );
        assert!(
            accepted.metadata.peer.as_deref().is_some_and(|peer| peer.starts_with("127.0.0.1:"))
        );
    }
    let counters = receiver.counters.of(Signal::Traces, Transport::Grpc);
    assert_eq!(counters.accepted_items.load(Ordering::Relaxed), 21);
    assert_eq!(counters.accepted_requests.load(Ordering::Relaxed), 3);
    receiver.assert_gives_all_memory_back().await;
}

/// Guarantee: gRPC takes each encoding that it names in grpc-accept-encoding, snappy in either
/// format; a message that is not marked as compressed is taken as it is.
#[tokio::test]
async fn grpc_takes_every_encoding_that_it_names() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let mut client = connect_h2(receiver.grpc).await;
    let (_, head) = call(
        &mut client,
        grpc_request(Signal::Traces.grpc_path(), &[("grpc-encoding", "br")]),
        b"",
    )
    .await;
    let named = head.headers["grpc-accept-encoding"].to_str().expect("is text");
    let plain = traces(4);
    for name in named.split(',') {
        let encoding = Encoding::from_name(name).expect("is known");
        let mut messages = vec![framed(0, &plain)];
        match encoding {
            Encoding::Identity => {}
            Encoding::Snappy => {
                let block =
                    compress::compress_snappy_block(&[plain.clone().into()]).expect("packs");
                messages.extend([framed(1, &block), framed(1, &packed(encoding, &plain))]);
            }
            _ => messages.push(framed(1, &packed(encoding, &plain))),
        }
        for message in messages {
            let status =
                unary(&mut client, Signal::Traces, &[("grpc-encoding", name)], &message).await;
            assert!(status.is_ok(), "{name}: {status}");
            let accepted = receiver.intake.taken().pop().expect("was handed in");
            assert_eq!((accepted.items, &accepted.payload.bytes[..]), (4, &plain[..]), "{name}");
        }
    }
    assert_eq!(receiver.intake.taken().len(), 8);
}

/// Scenario: the engine passes gzip on. Guarantee: it gets the sender's bytes untouched; several
/// members, which not every backend reads, it gets inflated.
#[tokio::test]
async fn compressed_bytes_are_handed_in_verbatim_where_the_engine_keeps_them() {
    let intake = MockIntake { keeps: Some(Encoding::Gzip), ..MockIntake::default() };
    let receiver = Receiver::start(BOTH, intake).await;
    let plain = traces(100);
    let single = packed(Encoding::Gzip, &plain);
    let double = [single.as_slice(), &packed(Encoding::Gzip, &traces(1))].concat();
    let zstd = packed(Encoding::Zstd, &plain);
    let mut client = connect_h2(receiver.grpc).await;
    for (encoding, body) in [("gzip", &single), ("gzip", &double), ("zstd", &zstd)] {
        let status =
            unary(&mut client, Signal::Traces, &[("grpc-encoding", encoding)], &framed(1, body))
                .await;
        assert!(status.is_ok(), "{status:?}");
        let headers = [PROTOBUF, ("content-encoding", encoding)];
        assert_eq!(post(receiver.http, "/v1/traces", &headers, body).await.0, 200);
    }
    let taken = receiver.intake.taken();
    for accepted in &taken[..2] {
        assert_eq!((accepted.payload.encoding, accepted.items), (Encoding::Gzip, 100));
        assert_eq!(
            (&accepted.payload.bytes[..], accepted.payload.uncompressed_len_bytes),
            (&single[..], plain.len())
        );
    }
    for accepted in &taken[2..4] {
        assert_eq!((accepted.payload.encoding, accepted.items), (Encoding::Identity, 101));
    }
    for accepted in &taken[4..] {
        assert_eq!(
            (accepted.payload.encoding, &accepted.payload.bytes[..]),
            (Encoding::Identity, &plain[..])
        );
    }
    receiver.assert_gives_all_memory_back().await;
}

/// Scenario: one name of many is not UTF-8, over both transports, plain and compressed, also where
/// the engine would pass gzip on. Guarantee: all items come in, the byte at fault is `?`, the
/// string is counted, and memory is given back. What else is wrong is refused.
#[tokio::test]
async fn one_string_that_is_not_utf8_costs_no_other_item() {
    let intake = MockIntake { keeps: Some(Encoding::Gzip), ..MockIntake::default() };
    let receiver = Receiver::start(BOTH, intake).await;
    let mut wrong = trace_request(100);
    wrong.resource_spans[0].scope_spans[0].spans[50].name = "caf? au lait".to_owned();
    let expected = wrong.encode_to_vec();
    let at = expected.windows(4).position(|it| it == b"caf?").expect("the name") + 3;
    let mut wrong = expected.clone();
    wrong[at] = 0xe9;
    let mut client = connect_h2(receiver.grpc).await;
    for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Zstd] {
        let body = match encoding {
            Encoding::Identity => wrong.clone(),
            encoding => packed(encoding, &wrong),
        };
        let flag = u8::from(encoding != Encoding::Identity);
        let headers = [("grpc-encoding", encoding.as_str())];
        let message = framed(flag, &body);
        let status = unary(&mut client, Signal::Traces, &headers, &message).await;
        assert!(status.is_ok(), "{encoding:?}: {status:?}");
        let headers = [PROTOBUF, ("content-encoding", encoding.as_str())];
        let status = post(receiver.http, "/v1/traces", &headers, &body).await.0;
        assert_eq!(status, 200, "{encoding:?}");
    }
    let cut = &wrong[..wrong.len() - 1];
    assert_eq!(post(receiver.http, "/v1/traces", &[PROTOBUF], cut).await.0, 400);
    let taken = receiver.intake.taken();
    assert_eq!(taken.len(), 6);
    for accepted in taken {
        assert_eq!((accepted.payload.encoding, accepted.items), (Encoding::Identity, 100));
        assert_eq!(&accepted.payload.bytes[..], &expected[..]);
    }
    for transport in Transport::ALL {
        let counters = receiver.counters.of(Signal::Traces, transport);
        assert_eq!(counters.repaired_strings.load(Ordering::Relaxed), 3);
        assert_eq!(counters.accepted_items.load(Ordering::Relaxed), 300);
    }
    receiver.assert_gives_all_memory_back().await;
}

#[tokio::test]
async fn http_takes_protobuf_and_json_in_every_coding_and_answers_in_kind() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let plain = traces(4);
    let zlib = compress::compress(compress::Packing::Zlib, &[plain.clone().into()], None)
        .expect("packs")
        .to_vec();
    let block = compress::compress_snappy_block(&[plain.clone().into()]).expect("packs").to_vec();
    for (coding, body) in [
        ("identity", plain.clone()),
        ("gzip", packed(Encoding::Gzip, &plain)),
        ("zstd", packed(Encoding::Zstd, &plain)),
        ("snappy", block),
        ("x-snappy-framed", packed(Encoding::Snappy, &plain)),
        ("deflate", zlib.clone()),
        ("zlib", zlib),
        (
            "lz4",
            compress::compress(compress::Packing::Lz4, &[plain.clone().into()], None)
                .expect("packs")
                .to_vec(),
        ),
    ] {
        let (code, head, body) =
            post(receiver.http, "/v1/traces", &[PROTOBUF, ("content-encoding", coding)], &body)
                .await;
        assert_eq!((code, body.len()), (200, 0), "{coding}");
        assert!(head.contains("content-type: application/x-protobuf"));
        let accepted = receiver.intake.taken().pop().expect("was handed in");
        assert_eq!((accepted.items, &accepted.payload.bytes[..]), (4, &plain[..]), "{coding}");
    }
    let json =
        br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}},{"severityNumber":9}]}]}]}"#;
    let headers = [("content-type", "application/json; charset=utf-8")];
    let (code, head, body) = post(receiver.http, "/v1/logs", &headers, json).await;
    assert_eq!((code, body.as_slice()), (200, &b"{}"[..]));
    assert!(head.contains("content-type: application/json"));
    assert_eq!(receiver.intake.taken().pop().expect("was handed in").items, 2);
    // Chunked: its length is not told.
    let chunked = [format!("{:x}\r\n", plain.len()).as_bytes(), &plain, b"\r\n0\r\n\r\n"].concat();
    let headers = [PROTOBUF, ("transfer-encoding", "chunked")];
    assert_eq!(post(receiver.http, "/v1/traces", &headers, &chunked).await.0, 200);
    assert_eq!(receiver.intake.taken().pop().expect("was handed in").items, 4);
    receiver.assert_gives_all_memory_back().await;
}

#[tokio::test]
async fn an_empty_request_is_a_success_and_is_not_submitted() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let mut client = connect_h2(receiver.grpc).await;
    assert!(unary(&mut client, Signal::Metrics, &[], &framed(0, b"")).await.is_ok());
    assert_eq!(post(receiver.http, "/v1/metrics", &[PROTOBUF], b"").await.0, 200);
    assert_eq!(
        post(receiver.http, "/v1/metrics", &[("content-type", "application/json")], b"{}").await.0,
        200
    );
    assert!(receiver.intake.taken().is_empty());
}

/// Guarantee: only headers that something downstream reads travel on, charged like the body;
/// credentials and the rest do not, however much `include_metadata` asks for.
#[tokio::test]
async fn headers_that_something_reads_travel_with_the_request_where_asked_for() {
    let text = BOTH.replace("'localhost:0'", "'localhost:0', include_metadata: true");
    let secrets = [
        ("authorization", "Bearer secret"),
        ("cookie", "secret"),
        ("x-api-key", "secret"),
        ("other", "x"),
    ];
    let tenants = [("x-tenant", "a"), ("x-tenant", "b")];
    let all = [&tenants[..], &secrets[..]].concat();
    let of_tenant = tenants.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
    for (keys, kept) in [(vec![], vec![]), (vec!["x-tenant".to_owned()], of_tenant.to_vec())] {
        let is_kept = !keys.is_empty();
        let receiver =
            Receiver::start(&text, MockIntake { metadata_keys: keys, ..MockIntake::default() })
                .await;
        let mut client = connect_h2(receiver.grpc).await;
        assert!(unary(&mut client, Signal::Traces, &all, &framed(0, &traces(1))).await.is_ok());
        let charged = receiver.intake.peak.load(Ordering::SeqCst) - traces(1).len();
        assert_eq!(charged > 0, is_kept, "{charged} bytes");
        assert_eq!(
            post(receiver.http, "/v1/traces", &[&[PROTOBUF], &all[..]].concat(), &traces(1))
                .await
                .0,
            200
        );
        let taken = receiver.intake.taken();
        assert_eq!(taken.len(), 2);
        for accepted in taken {
            assert_eq!(accepted.metadata.headers, kept);
        }
    }
}

#[tokio::test]
async fn a_message_of_many_megabytes_arrives_whole() {
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let plain = traces(60_000);
    assert!(plain.len() > 16 << 20);
    let mut client = connect_h2(receiver.grpc).await;
    assert!(unary(&mut client, Signal::Traces, &[], &framed(0, &plain)).await.is_ok());
    assert_eq!(post(receiver.http, "/v1/traces", &[PROTOBUF], &plain).await.0, 200);
    let taken = receiver.intake.taken();
    assert!(
        taken.iter().all(|accepted| accepted.items == 60_000 && accepted.payload.bytes == plain)
    );
    assert_eq!(taken.len(), 2);
    receiver.assert_gives_all_memory_back().await;
}
