//! Small bodies that are large once inflated.

use bytes::Bytes;
use sluice_net::compress;
use sluice_otlp::{Encoding, Signal};

use crate::peers::{
    begin, connect, log_of, post, post_for_ever, post_head, post_so_for_ever, prefix, status,
};
use crate::scene::{DEAD_LOGS, Scene, slow};
use crate::{Target, withstand};

withstand!(
    zstd_bombs in DEAD_LOGS.refuses(&[("reason", "never_fits")], 20.0),
    deflate_bombs in DEAD_LOGS.refuses(&[("reason", "never_fits")], 20.0),
    lz4_bombs in DEAD_LOGS.refuses(&[("reason", "never_fits")], 20.0),
    bombs_of_several_gzip_members in DEAD_LOGS.refuses(&[("reason", "never_fits")], 20.0),
    gzip_bombs_that_fit in Scene { faults: slow, ..DEAD_LOGS }
        .reaches("sluice_receiver_accepted_requests_total", &[("signal", "logs")], 10.0),
    // Each left half of its length beside a few bytes of protobuf.
    json_with_blanks in DEAD_LOGS
        .reaches("sluice_receiver_accepted_requests_total", &[("signal", "logs")], 400.0),
    gzip_members_without_number in DEAD_LOGS.refuses(&[("reason", "unsupported_encoding")], 20.0),
    requests_that_never_fit in DEAD_LOGS.refuses(&[("reason", "never_fits")], 10.0),
);

/// They are taken, and inflated for a backend that takes none compressed.
async fn gzip_bombs_that_fit(target: Target) {
    const FITTING_BYTES: usize = 3 << 20;
    let zeros = [Bytes::from(log_of(FITTING_BYTES))];
    let bomb = compress::compress(Encoding::Gzip, &zeros, None).expect("packs").to_vec();
    post_packed(target, "gzip", bomb).await;
}

/// They are taken, and wait for the dead backend as what little they are in protobuf.
async fn json_with_blanks(target: Target) {
    const JSON: &str =
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityNumber":9}]}]}]}"#;
    let json = [Bytes::from(JSON.to_owned() + &" ".repeat(1 << 20))];
    let body = compress::compress(Encoding::Gzip, &json, None).expect("packs").to_vec();
    let head = post_head(Signal::Logs, "content-encoding: gzip\r\n", body.len());
    let head = head.replace("application/x-protobuf", "application/json");
    post_so_for_ever(target, AT_ONCE, head, body).await;
}

const INFLATED_BYTES: usize = 60 << 20;
const AT_ONCE: usize = 32;

async fn post_packed(target: Target, coding: &str, body: Vec<u8>) {
    post_for_ever(target, AT_ONCE, &format!("content-encoding: {coding}\r\n"), body).await;
}

fn zeros() -> [Bytes; 1] {
    [Bytes::from(log_of(INFLATED_BYTES))]
}

async fn deflate_bombs(target: Target) {
    let bomb =
        compress::compress(compress::Packing::Zlib, &zeros(), Some(9)).expect("packs").to_vec();
    post_packed(target, "deflate", bomb).await;
}

async fn lz4_bombs(target: Target) {
    let bomb = compress::compress(compress::Packing::Lz4, &zeros(), None).expect("packs").to_vec();
    post_packed(target, "lz4", bomb).await;
}

async fn bombs_of_several_gzip_members(target: Target) {
    let log = log_of(INFLATED_BYTES);
    let members = log.chunks(1 << 20).map(|part| {
        compress::compress(Encoding::Gzip, &[Bytes::copy_from_slice(part)], None)
            .expect("packs")
            .to_vec()
    });
    post_packed(target, "gzip", members.flatten().collect()).await;
}

/// Each member costs time, however little is in it.
async fn gzip_members_without_number(target: Target) {
    let member = compress::compress(Encoding::Gzip, &[Bytes::new()], None).expect("packs");
    post_packed(target, "gzip", member.repeat(20_000)).await;
}

async fn zstd_bombs(target: Target) {
    let bomb = compress::compress(Encoding::Zstd, &zeros(), None).expect("packs").to_vec();
    post_packed(target, "zstd", bomb).await;
}

/// Each is refused for good, not with a retryable status.
async fn requests_that_never_fit(target: Target) {
    let body = compress::compress(Encoding::Gzip, &zeros(), None).expect("packs").to_vec();
    let head = post_head(Signal::Logs, "content-encoding: gzip\r\n", body.len());
    let client = connect(target.grpc).await.expect("is let in");
    loop {
        assert_eq!(post(target.http, &head, &body).await, Some(413));
        let headers = [("grpc-encoding", "gzip")];
        let (response, mut stream) =
            begin(&client, Signal::Logs, &headers).await.expect("is begun");
        let message = Bytes::from([&prefix(1, body.len())[..], &body].concat());
        stream.send_data(message, true).expect("is sent");
        // The gateway ends before the attack does.
        let Some(status) = status(response).await else { return };
        // RESOURCE_EXHAUSTED, which without RetryInfo is final.
        assert_eq!(status, "8");
    }
}
