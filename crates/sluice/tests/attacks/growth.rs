//! Requests that are small on the wire, and of which far more would be made if it were made at
//! once: by cuts, by processors, by the search for refused items, as text.

use std::time::Duration;

use sluice_load_test::Faults;
use sluice_net::compress;
use sluice_net::grpc::Code;
use sluice_otlp::{Encoding, Signal};

use crate::gateway::{Gateway, alone, eventually, faulty_backend, refusing};
use crate::peers::{field, post, post_for_ever, post_head};
use crate::scene::{DEAD_LOGS, ON_DISK, Scene};
use crate::{LIMIT_MIB, THREADS, Target, config, withstand};

const REQUESTS: &str = "sluice_delivery_requests_total";
const SENT_ITEMS: &str = "otelcol_exporter_sent_log_records_total";

withstand!(
    headers_in_each_part in Scene { faults: discarding, config: CUT, ..DEAD_LOGS }
        .reaches("sluice_delivery_sent_bytes_total", &[("pipeline", "logs")], 100e6),
    attributes_on_each_record in Scene { config: INSERT, ..DEAD_LOGS }
        .refuses(&[("reason", "never_fits")], 1.0),
    attributes_on_each_record_behind_the_log in
        Scene { faults: discarding, config: INSERT_BEHIND, ..DEAD_LOGS }
        .reaches(SENT_ITEMS, &[("pipeline", "logs/own")], 500e3),
    large_requests_behind_the_log_of_many_pipelines in
        Scene { faults: discarding, config: MANY_BEHIND, ..DEAD_LOGS }
        .reaches(SENT_ITEMS, &[("pipeline", "logs/8")], 3.0),
    large_requests_for_many_pipelines_whose_backend_is_dead in
        Scene { config: MANY_BEHIND, ..DEAD_LOGS }
        .reaches(REQUESTS, &[("exporter", "otlp/dead"), ("outcome", "retry")], 3.0),
    records_that_are_refused in Scene { faults: refusing_all, ..DEAD_LOGS }
        .reaches(REQUESTS, &[("outcome", "rejected")], 20.0),
    records_that_are_refused_on_disk in
        Scene { faults: refusing_all, config: ON_DISK, ..DEAD_LOGS }
        .reaches(REQUESTS, &[("outcome", "rejected")], 20.0),
    records_as_text in Scene { config: TEXT, ..DEAD_LOGS }
        .reaches(SENT_ITEMS, &[("pipeline", "logs")], 1e6),
    letters_that_json_writes_as_six in Scene { config: JSON_FILE, ..DEAD_LOGS }
        .reaches("sluice_delivery_dead_letter_items_total", &[("reason", "too_large")], 1.0),
);

fn discarding() -> Faults {
    Faults { discard: true, ..Faults::default() }
}

fn refusing_all() -> Faults {
    refusing(1.0, Code::InvalidArgument)
}

const CUT: &str = "
processors: {batch: {send_batch_size: 100, send_batch_max_size: 100, timeout: 200ms}}
service: {pipelines: {logs: {processors: [batch]}}}";

/// Each record becomes eighty times as large, for each of the actions.
macro_rules! insert {
    ($($key:literal)*) => {
        concat!(
            "
processors:
  attributes:
    actions:",
            $(
                "
      - key: ", $key, "
        value: VVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVV
        action: insert",
            )*
            "\n"
        )
    };
}

/// Few records with much on each: a record costs a debug build more time than a byte.
const INSERT: &str = concat!(
    insert!("a" "b" "c" "d" "e" "f" "g" "h" "i" "j" "k" "l" "m" "n" "o" "p" "q" "r" "s" "t"),
    "service: {pipelines: {logs: {processors: [attributes]}}}"
);

const INSERT_BEHIND: &str = concat!(
    insert!("region.of.the.gateway"),
    "service:
  pipelines:
    logs/own: {receivers: [otlp], processors: [attributes], exporters: [otlp/dead]}"
);

/// Pipelines with a processor each. Behind the log each makes a request of its own.
macro_rules! many_behind {
    ($($number:literal)*) => {
        concat!(
            "processors:",
            $("\n  attributes/", $number,
              ": {actions: [{key: k, value: ", $number, ", action: insert}]}",)*
            "\nservice:\n  pipelines:",
            $("\n    logs/", $number, ": {receivers: [otlp], processors: [attributes/", $number,
              "], exporters: [otlp/dead]}",)*
        )
    };
}

const MANY_BEHIND: &str =
    many_behind!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24);

const TEXT: &str = "
exporters:
  debug:
    verbosity: detailed
    use_internal_logger: false
    output_paths: [/dev/null]
    sampling_initial: 1000
service: {pipelines: {logs: {exporters: [debug]}}}";

const JSON_FILE: &str = "
exporters: {file: {path: '${env:DIRECTORY}/logs.json'}}
service: {pipelines: {logs: {exporters: [file]}}}";

/// A request with one resource, whose attribute is this long, and empty records.
fn records(attribute_bytes: usize, records: usize) -> Vec<u8> {
    let value = field(2, &field(1, &vec![b'x'; attribute_bytes]));
    let resource = field(1, &field(1, &[field(1, b"a"), value].concat()));
    let scope = field(2, &b"\x12\x00".repeat(records));
    field(1, &[resource, scope].concat())
}

fn gzip(body: Vec<u8>) -> Vec<u8> {
    compress::compress(Encoding::Gzip, &[body.into()], None).expect("packs").to_vec()
}

async fn post_packed(target: Target, body: Vec<u8>) {
    post_for_ever(target, 2, "content-encoding: gzip\r\n", gzip(body)).await;
}

async fn headers_in_each_part(target: Target) {
    post_packed(target, records(1 << 20, 500_000)).await;
}

async fn attributes_on_each_record(target: Target) {
    post_packed(target, records(0, 100_000)).await;
}

async fn attributes_on_each_record_behind_the_log(target: Target) {
    post_packed(target, records(0, 1_000_000)).await;
}

async fn large_requests_behind_the_log_of_many_pipelines(target: Target) {
    post_packed(target, records(3 << 20, 3)).await;
}

async fn large_requests_for_many_pipelines_whose_backend_is_dead(target: Target) {
    post_packed(target, records(3 << 20, 3)).await;
}

async fn records_that_are_refused(target: Target) {
    post_packed(target, records(1 << 20, 2_000_000)).await;
}

async fn records_that_are_refused_on_disk(target: Target) {
    post_packed(target, records(1 << 20, 2_000_000)).await;
}

async fn records_as_text(target: Target) {
    post_packed(target, records(0, 1_000_000)).await;
}

async fn letters_that_json_writes_as_six(target: Target) {
    let text = field(5, &field(1, &vec![1; 12 << 20]));
    post_packed(target, field(1, &field(2, &field(2, &text)))).await;
}

/// Scenario: such a request is acknowledged from disk while the backend is dead, and the process is
/// killed. Guarantee: the next start stays within the memory limit and delivers all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_on_disk_does_not_end_each_start() {
    const RECORDS: usize = 20_000;
    let _alone = alone().await;
    let directory = tempfile::tempdir().expect("a directory");
    let on_disk = format!("{CUT}\nbuffer: {{directory: '${{env:DIRECTORY}}', ack: durable}}");
    let scene = Scene { config: on_disk.leak(), ..DEAD_LOGS };
    let dead = faulty_backend(Faults::dead()).await;
    let start = async |backend| {
        let options = scene.options(THREADS[0], backend, directory.path());
        Gateway::start_with(&config(backend, backend), options).await
    };
    let gateway = start(&dead).await;
    let body = gzip(records(1 << 20, RECORDS));
    let head = post_head(Signal::Logs, "content-encoding: gzip\r\n", body.len());
    assert_eq!(post(gateway.http, &head, &body).await, Some(200));
    gateway.kill().await;
    let backend = faulty_backend(discarding()).await;
    let gateway = start(&backend).await;
    let sent = async || gateway.metric(SENT_ITEMS, &[("pipeline", "logs")]).await;
    let is_sent = async || sent().await >= RECORDS as f64;
    assert!(eventually(Duration::from_secs(60), is_sent).await, "{} of {RECORDS}", sent().await);
    gateway.assert_memory_within(LIMIT_MIB);
}
