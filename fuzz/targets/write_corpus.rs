//! Writes the corpus that is committed: a few inputs of every shape for each target, always the
//! same.

#[path = "../../crates/otlp/tests/support/mod.rs"]
mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use fastrand::Rng;
use flate2::{Compress, Compression, FlushCompress};
use http::HeaderMap;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use prost::Message as _;
use sluice_net::compress::{Packing, compress};
use sluice_net::grpc::status::{Code, GRPC_MESSAGE, GRPC_STATUS, GRPC_STATUS_DETAILS, Status};
use sluice_otlp::json::to_json;
use sluice_otlp::{Encoding, Signal};

use support::decoded::unknown_fields;
use support::generate::{Shape, wire_request};
use support::rewrite::Freedoms;

/// Inputs of more bytes than this make fuzzing slow and the repository large.
const INPUT_LIMIT_BYTES: usize = 900;

fn main() {
    let requests = requests();
    for (signal, name, request) in &requests {
        let first =
            Signal::ALL.iter().position(|known| known == signal).expect("a known signal") as u8;
        for (target, variant) in
            [("scan", 0), ("edit", 0), ("json_out", 0), ("split", 14), ("split", 3)]
        {
            write(target, &format!("{name}-{variant}"), &prefixed(first + 3 * variant, request));
        }
        let mut json = Vec::new();
        to_json(*signal, request, 1 << 20, &mut json).expect("a generated request can be written");
        write("json_in", name, &prefixed(first, &json));
    }
    let (_, _, sample) = &requests[0];
    write_packed(sample);
    write_deflated(sample);
    write_frames(sample);
    write_answers();
    write_texts();
}

/// Requests in all wire forms, small and large, of each signal.
fn requests() -> Vec<(Signal, String, Vec<u8>)> {
    let mut runner = TestRunner::deterministic();
    let mut requests = Vec::new();
    let shape = Shape { odd_ids: false, ..Shape::ANY };
    for signal in Signal::ALL {
        let with_groups = Freedoms { unknown_fields: true, ..Freedoms::NONE };
        for (form, freedoms, numbers) in
            [("plain", Freedoms::NONE, 4), ("free", Freedoms::ALL, 4), ("groups", with_groups, 1)]
        {
            let strategy = wire_request(signal, shape, freedoms);
            for number in 1..=numbers {
                let least = 120 * number;
                let request = std::iter::repeat_with(|| {
                    strategy.new_tree(&mut runner).expect("a request").current()
                })
                .filter(|request| form != "groups" || groups(signal, request) > 1)
                .find(|request| (least..INPUT_LIMIT_BYTES).contains(&request.len()))
                .expect("some request has the size");
                requests.push((signal, format!("{signal}-{form}-{number}"), request));
            }
        }
    }
    requests
}

fn groups(signal: Signal, request: &[u8]) -> usize {
    const GROUP: u8 = 3;
    unknown_fields(signal, request)
        .iter()
        .filter(|((_, field), _)| field.wire_type == GROUP)
        .map(|(_, times)| times)
        .sum()
}

fn write_packed(sample: &[u8]) {
    let repeated = Bytes::from(b"resource.attribute".repeat(200));
    let sample = Bytes::copy_from_slice(sample);
    for (name, content) in [("empty", Bytes::new()), ("request", sample), ("repeated", repeated)] {
        let content = [content];
        let pack = |encoding| compress(encoding, &content, None).expect("it can be packed");
        for (target, packed) in [
            ("gunzip", pack(Encoding::Gzip)),
            ("unzstd", pack(Encoding::Zstd)),
            ("unsnappy", pack(Encoding::Snappy)),
            ("inflate", compress(Packing::Zlib, &content, None).expect("it can be packed")),
            ("unlz4", compress(Packing::Lz4, &content, None).expect("it can be packed")),
        ] {
            write(target, name, &packed);
            write(target, &format!("{name}-twice"), &[&packed[..], &packed[..]].concat());
            write(target, &format!("{name}-cut"), &packed[..packed.len() / 2]);
        }
    }
}

/// Streams of all kinds of blocks.
fn write_deflated(sample: &[u8]) {
    for level in [0, 1, 9] {
        write("inflate", &format!("level-{level}"), &deflated(level, &[sample]));
        let parts: Vec<&[u8]> = sample.chunks(300).collect();
        write("inflate", &format!("flushed-{level}"), &deflated(level, &parts));
    }
    write("inflate", "fixed-codes", &deflated(9, &[b"too short for codes of its own, its own"]));

    // Each byte occurs half as often as the one before.
    let mut rng = Rng::with_seed(0);
    let skewed: Vec<u8> = (0..6000).map(|_| rng.u64(1 << 12..).leading_zeros() as u8).collect();
    write("inflate", "long-codes", &deflated(9, &[&skewed]));

    // Long enough for several blocks with codes of their own.
    let mut text = String::new();
    while text.len() < 42_000 {
        write!(text, "http.request.header.{}={:x};", rng.u8(..40), rng.u32(..))
            .expect("a string takes it");
    }
    write("inflate", "long", &deflated(6, &[text.as_bytes()]));
    let packed = compress(Encoding::Gzip, &[Bytes::from(text)], None).expect("it can be packed");
    assert!(packed.len() > 9 << 10, "{}", packed.len());
    write("gunzip", "long", &packed);
}

/// Packs as a zlib stream; its parts share neither codes nor matches.
fn deflated(level: u32, parts: &[&[u8]]) -> Vec<u8> {
    let mut packer = Compress::new(Compression::new(level), true);
    let mut stream = Vec::with_capacity(32 << 10);
    let (last, others) = parts.split_last().expect("a part");
    for part in others {
        packer.compress_vec(part, &mut stream, FlushCompress::Full).expect("it can be packed");
    }
    packer.compress_vec(last, &mut stream, FlushCompress::Finish).expect("it can be packed");
    stream
}

fn write_frames(sample: &[u8]) {
    let frame = |flag: u8, len: usize, message: &[u8]| {
        let mut input = vec![3, flag];
        input.extend_from_slice(&(len as u32).to_be_bytes());
        input.extend_from_slice(message);
        input
    };
    write("grpc_frame", "empty", &frame(0, 0, b""));
    write("grpc_frame", "message", &frame(0, sample.len(), sample));
    write("grpc_frame", "compressed", &frame(1, sample.len(), sample));
    write("grpc_frame", "truncated", &frame(0, sample.len() + 1, sample));
    write("grpc_frame", "trailing", &frame(0, sample.len() - 1, sample));
    write("grpc_frame", "claims-too-much", &frame(0, usize::MAX, sample));

    let retry_delay = Some(std::time::Duration::from_millis(1500));
    let status = Status { retry_delay, ..Status::new(Code::Unavailable, "the queue is full") };
    write("grpc_status", "retry-info", &status.encode_details());
    write(
        "grpc_status",
        "plain",
        &Status::new(Code::InvalidArgument, "malformed").encode_details(),
    );
}

fn write_answers() {
    let (proto, json, headers, token) = (0, 1, 2, 3);
    let refused = ExportTracePartialSuccess {
        rejected_spans: 1 << 40,
        error_message: "no \u{fc}".to_owned(),
    };
    let warning = ExportTracePartialSuccess { rejected_spans: 0, error_message: "slow".to_owned() };
    for (name, partial) in [("proto-refused", refused), ("proto-warning", warning)] {
        let answer = ExportTraceServiceResponse { partial_success: Some(partial) };
        write("answers", name, &prefixed(proto, &answer.encode_to_vec()));
    }
    const JSON: [&str; 3] = [
        r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"bad\n"}}"#,
        r#"{"partial_success":{"rejected_log_records":3,"error_message":null}}"#,
        r#"{"partialSuccess":{"rejectedDataPoints":-1,"errorMessage":"slow"}}"#,
    ];
    for (number, text) in JSON.iter().enumerate() {
        write("answers", &format!("json-{}", number + 1), &prefixed(json, text.as_bytes()));
    }
    const TOKENS: [&str; 4] = [
        r#"{"access_token":"2YotnFZFEjr1zCsicMWpAA","token_type":"example","expires_in":3600,"example_parameter":"example_value"}"#,
        r#"{"access_token":"abc","token_type":"bearer","expires_in":"0.5"}"#,
        r#"{"access_token":"a\u0000b","expires_in":1e300,"token_type":""}"#,
        r#"{"access_token":"abc","expires_in":-1,"token_type":7}"#,
    ];
    for (number, text) in TOKENS.iter().enumerate() {
        write("answers", &format!("token-{}", number + 1), &prefixed(token, text.as_bytes()));
    }
    let retry_delay = Some(std::time::Duration::from_millis(1500));
    let status = Status::new(Code::Unavailable, "100 % of the queue: \u{fc}");
    for (name, status) in
        [("status-plain", status.clone()), ("status-retry-info", Status { retry_delay, ..status })]
    {
        let mut map = HeaderMap::new();
        status.write_to(&mut map);
        let lines = [GRPC_STATUS, GRPC_MESSAGE, GRPC_STATUS_DETAILS]
            .map(|name| map.get(name).map_or(&b""[..], |value| value.as_bytes()));
        write("answers", name, &prefixed(headers, &lines.join(&b'\n')));
    }
    write("answers", "status-malformed", &prefixed(headers, b"99\n%+1%zz%F\nCA4===="));
}

fn write_texts() {
    const JSON: [&str; 6] = [
        r#"{"resourceLogs":null,"a":[1,-2.5e3,{"b":"\ud83d\ude00"}]}"#,
        r#"{"resource_logs":[{"scope_logs":[{"log_records":[{"severity_number":"SEVERITY_NUMBER_INFO"}]}]}]}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":1e3,"body":{"bytesValue":"-_8"}}]}]}]}"#,
        r#"{"resourceLogs":[{"schemaUrl":"a","schemaUrl":""}],"resourceLogs":[{}]}"#,
        r#"{"resourceLogs":[{"resource":{"attributes":[{"key":"a","value":{"doubleValue":"NaN"}}]}}]}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"traceId":"5B8EFFF798038103D269B633813FC60C"}]}]}]}"#,
    ];
    for (number, json) in JSON.iter().enumerate() {
        write("json_in", &format!("dialect-{}", number + 1), &prefixed(2, json.as_bytes()));
    }

    const CONFIGURATIONS: [&str; 5] = [
        "receivers:\n  otlp:\n    protocols: { grpc: { endpoint: localhost:${env:PORT} } }\nexporters:\n  otlp/a:\n    \
         endpoint: a:4317\n  otlp/b: { endpoint: ${env:B:-b:4317} }\nservice:\n  pipelines:\n    traces/x: { receivers: \
         [otlp], exporters: [otlp/a, otlp/b] }\n",
        "a: &anchor { b: [1, 2.5, true, ~, \"x\\n\"] }\nc: *anchor\nd:\n  <<: *anchor\n  e: |\n    text\n    more\n",
        "receivers: ${file:other.yaml}\nexporters: ${env:LIST}\nservice: ${env:NESTED}\nx: $$literal\n",
        "receivers:\n  otlp:\n  otlp:\nservice:\n  pipelines:\n    traces: { receivers: [oltp], exporters: [] }\n",
        "{a: [",
    ];
    for (number, text) in CONFIGURATIONS.iter().enumerate() {
        write("config", &format!("file-{}", number + 1), text.as_bytes());
    }
}

fn prefixed(first: u8, content: &[u8]) -> Vec<u8> {
    [&[first], content].concat()
}

fn write(target: &str, name: &str, input: &[u8]) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&directory).expect("the corpus can be written");
    fs::write(directory.join(name), input).expect("the corpus can be written");
}
