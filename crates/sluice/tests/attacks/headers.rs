//! Headers, which a peer can make large and which wait with their requests.

use std::time::Duration;

use sluice_otlp::Signal;
use tokio::time::sleep;

use crate::peers::{
    AGAIN_AFTER, begin, connect, frame, log_of, post_for_ever, send_frames, status,
};
use crate::scene::{CONNECTIONS_TOTAL, DEAD_LOGS, Scene};
use crate::{Target, withstand};

withstand!(
    many_streams_with_large_headers in DEAD_LOGS.refuses(&[("reason", "overloaded")], 50.0),
    many_streams_with_many_headers in DEAD_LOGS.refuses(&[("reason", "overloaded")], 50.0),
    metadata_headers in Scene { config: PASSED_ON, ..DEAD_LOGS }.reaches(
        "sluice_backlog_pool_bytes", &[], 20e6,
    ),
    paths_in_the_table_of_headers in DEAD_LOGS
        .reaches("sluice_receiver_unknown_requests_total", &[], 200.0),
    sizes_of_the_table_of_headers in DEAD_LOGS
        .reaches(CONNECTIONS_TOTAL, &[("event", "failed")], 100.0),
    header_blocks_without_an_end in DEAD_LOGS
        .reaches(CONNECTIONS_TOTAL, &[("event", "accepted")], 500.0),
);

/// Of the 16 KiB that a request's headers may have.
const HEADER_BYTES: usize = 12_000;

/// As many streams as a connection may have, each of which waits for its body.
async fn many_streams_with(target: Target, headers: Vec<(String, String)>) {
    const CONNECTIONS: usize = 48;
    const STREAMS: usize = 250;
    let headers = &headers;
    let attackers = (0..CONNECTIONS).map(|_| async move {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        let Some(client) = connect(target.grpc).await else { return };
        let streams = (0..STREAMS).map(|_| async {
            while let Some((response, _stream)) = begin(&client, Signal::Traces, &headers).await {
                status(response).await;
                sleep(AGAIN_AFTER).await;
            }
        });
        futures_util::future::join_all(streams).await;
    });
    futures_util::future::join_all(attackers).await;
}

async fn many_streams_with_large_headers(target: Target) {
    many_streams_with(target, vec![("x-large".to_owned(), "x".repeat(HEADER_BYTES))]).await;
}

/// Many headers with hardly any text in each.
async fn many_streams_with_many_headers(target: Target) {
    let headers = (0..400).map(|index| (format!("x{index}"), String::new()));
    many_streams_with(target, headers.collect()).await;
}

/// The backend of logs gets the header of the attack: else nothing would keep it.
const PASSED_ON: &str = "extensions:
  headers_setter: {headers: [{action: upsert, key: x-large, from_context: x-large}]}
exporters: {otlp/dead: {auth: {authenticator: headers_setter}}}
service: {extensions: [health_check, headers_setter]}";

/// Small requests with large headers, which become metadata of data that cannot be delivered.
async fn metadata_headers(target: Target) {
    let header = format!("x-large: {}\r\n", "x".repeat(HEADER_BYTES));
    post_for_ever(target, 8, &header, log_of(2)).await;
}

/// Requests that end at once, each after a long frame of unknown type in the same buffer. Their
/// paths enter the table of headers, which keeps them for as long as the connection lives.
async fn paths_in_the_table_of_headers(target: Target) {
    const CONNECTIONS: usize = 200;
    const ENTRIES: u32 = 105;
    const HEADERS: u8 = 1;
    const END_STREAM_AND_HEADERS: u8 = 5;
    // POST, http, and a path by its name.
    const BLOCK: [u8; 5] = [0x83, 0x86, 0x44, 1, b'/'];
    let filler = frame(0xee, 0, 0, &vec![0; 16 << 10]);
    let requests = (0..ENTRIES).flat_map(|index| {
        let request = frame(HEADERS, END_STREAM_AND_HEADERS, 2 * index + 1, &BLOCK);
        [filler.clone(), request].concat()
    });
    send_frames(target, CONNECTIONS, requests.collect(), AGAIN_AFTER).await;
}

/// Header blocks that say the size of the table some thousand times.
async fn sizes_of_the_table_of_headers(target: Target) {
    const HEADERS: u8 = 1;
    const END_STREAM_AND_HEADERS: u8 = 5;
    let block = [vec![0x20; 16_000], vec![0x83, 0x86, 0x84]].concat();
    let requests = (0..100_u32)
        .flat_map(|index| frame(HEADERS, END_STREAM_AND_HEADERS, 2 * index + 1, &block));
    send_frames(target, 8, requests.collect(), Duration::from_millis(20)).await;
}

/// Literal fields with names of two letters and without values: some of them take as much as a
/// connection once they are decoded.
pub(crate) fn small_fields(fields: usize) -> Vec<u8> {
    let letters = || b'a'..=b'z';
    let names = letters().flat_map(|first| letters().map(move |second| [first, second]));
    names.take(fields).flat_map(|[first, second]| [0, 2, first, second, 0]).collect()
}

/// Header blocks that no further frame ends.
async fn header_blocks_without_an_end(target: Target) {
    const CONNECTIONS: usize = 2_400;
    const HEADERS: u8 = 1;
    let block = [&[0x83, 0x86, 0x04, 2, b'/', b'x'][..], &small_fields(470)].concat();
    send_frames(target, CONNECTIONS, frame(HEADERS, 0, 1, &block), AGAIN_AFTER).await;
}
