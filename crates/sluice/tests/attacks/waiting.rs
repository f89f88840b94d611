//! Requests that wait to be admitted, and the data behind them.

use std::time::Duration;

use sluice_otlp::Signal;
use tokio::time::timeout;

use crate::headers::small_fields;
use crate::peers::{AGAIN_AFTER, frame, log_of, post, post_head, prefix, send_frames};
use crate::scene::DEAD_LOGS;
use crate::{Target, withstand};

withstand!(
    trailers in DEAD_LOGS.refuses(&[("reason", "overloaded")], 50.0),
    data_between_long_frames in DEAD_LOGS.refuses(&[("reason", "overloaded")], 20.0),
);

const DATA: u8 = 0;
/// Less than a window.
const ANNOUNCED: usize = 60_000;

/// Sends data for the dead backend until requests of any size have to wait.
async fn fill(target: Target) {
    const AT_ONCE: Duration = Duration::from_millis(100);
    for letters in [1 << 20, 16 << 10, 256, 1] {
        let body = log_of(letters);
        let head = post_head(Signal::Logs, "", body.len());
        let mut accepted = 0;
        while timeout(AT_ONCE, post(target.http, &head, &body)).await == Ok(Some(200)) {
            accepted += 1;
            assert!(accepted < 2_000, "requests of {letters} letters never wait");
        }
    }
}

/// Once requests have to wait: opens this many connections with this many calls each. Every call
/// announces a length, and then sends these frames.
async fn wait_before(
    target: Target,
    connections: usize,
    calls: u32,
    announced: usize,
    behind: impl Fn(u32) -> Vec<u8>,
) {
    const HEADERS: u8 = 1;
    const END_HEADERS: u8 = 4;
    fill(target).await;
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let path = [vec![0x83, 0x86, 0x04], text(Signal::Logs.grpc_path())].concat();
    let content_type = [vec![0x0f, 0x10], text("application/grpc")].concat();
    let te = [vec![0x00], text("te"), text("trailers")].concat();
    let head = [path, content_type, te].concat();
    let calls = (0..calls).map(|index| 2 * index + 1).flat_map(|stream| {
        let begun = frame(DATA, 0, stream, &prefix(0, announced));
        [frame(HEADERS, END_HEADERS, stream, &head), begun, behind(stream)].concat()
    });
    send_frames(target, connections, calls.collect(), AGAIN_AFTER).await;
}

/// As many as trailers may have: with more the connection would end.
const TRAILER_FIELDS: usize = 64;

async fn trailers(target: Target) {
    const END_STREAM_AND_HEADERS: u8 = 5;
    let fields = small_fields(TRAILER_FIELDS);
    wait_before(target, 48, 60, 1, |stream| frame(1, END_STREAM_AND_HEADERS, stream, &fields))
        .await;
}

async fn data_between_long_frames(target: Target) {
    let filler = frame(0xee, 0, 0, &[0; 16 << 10]);
    let parted = |stream| [frame(DATA, 0, stream, &[7; 256]), filler.clone()].concat();
    wait_before(target, 150, 1, ANNOUNCED, |stream| parted(stream).repeat(100)).await;
}
