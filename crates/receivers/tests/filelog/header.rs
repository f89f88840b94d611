//! Headers of files: their attributes are those of all records, and they are no records.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;

use crate::harness::{Scene, body, until};

const OPTIONS: &str = "poll_interval: 50ms, force_flush_period: 100ms, compression: auto, \
    include_file_name: false, header: {pattern: '^#', metadata_operators: [\
    {type: regex_parser, regex: '^#host:(?P<host>.*)$', if: 'body startsWith \"#host\"'}, \
    {type: regex_parser, regex: '^#ver:(?P<version>.*)$', if: 'body startsWith \"#ver:\"'}]}";

/// A record's body and attributes as one text.
fn text(record: &LogRecord) -> String {
    let attributes = record.attributes.iter().map(|attribute| {
        match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(Value::StringValue(text)) => format!(" {}={text}", attribute.key),
            other => panic!("{other:?}"),
        }
    });
    body(record) + &attributes.collect::<String>()
}

fn texts(scene: &Scene) -> Vec<String> {
    scene.engine.records.lock().expect("is whole").iter().map(text).collect()
}

/// Scenario: a header is written line by line, the last of them in two parts, long before the first
/// record. The receiver ends, and the file is compressed by then. Guarantee: every record has the
/// attributes of the whole header, and no line of it is a record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_that_grows_slowly_is_for_all_records_also_after_a_restart() {
    let mut scene = Scene::start(OPTIONS).await;
    for piece in ["#host:a\n", "#ver", ":2\r\n"] {
        scene.append("log", piece);
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    scene.append("log", "first\n#host:none\n");
    scene.until_lines(2).await;
    scene.restart().await;
    scene.append("log", "third\n");
    scene.until_lines(3).await;
    scene.stop().await;
    scene.append("log", "fourth\n");
    let packed = std::process::Command::new("gzip").arg(scene.path("log")).status();
    assert!(packed.expect("gzip runs").success());
    scene.serve().await;
    scene.until_lines(4).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let expected = ["first", "#host:none", "third", "fourth"];
    assert_eq!(texts(&scene), expected.map(|text| format!("{text} host=a version=2")));
}

/// Scenario: the engine refuses and drops requests at random, and more files than headers are kept
/// grow in turns. Guarantee: each line arrives, with the attributes of its own file's header.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_of_many_files_survive_refusals() {
    const FILES: usize = 150;
    let scene = Scene::start(OPTIONS).await;
    scene.engine.refusals.store(20, Ordering::SeqCst);
    scene.engine.drops.store(20, Ordering::SeqCst);
    for round in 0..3 {
        for file in 0..FILES {
            let header = if round == 0 { format!("#host:{file}\n") } else { String::new() };
            scene.append(&format!("{file}.log"), &format!("{header}{file} {round}\n"));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    scene.engine.refusals.store(0, Ordering::SeqCst);
    scene.engine.drops.store(0, Ordering::SeqCst);
    let line = |file, round| format!("{file} {round} host={file}");
    let expected: BTreeSet<String> =
        (0..FILES).flat_map(|file| (0..3).map(move |round| line(file, round))).collect();
    let arrived = || texts(&scene).into_iter().collect::<BTreeSet<_>>();
    until("all lines arrive", || arrived().len() >= expected.len()).await;
    assert_eq!(arrived(), expected);
}

/// Scenario: a file that has nothing but lines of a header, and one without a header and without
/// the end of a line. Guarantee: nothing comes of the first, and the other's text does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_a_header_only_and_without_one() {
    let scene = Scene::start(OPTIONS).await;
    scene.append("header", "#host:a\n#host:b");
    scene.append("none", "no end");
    scene.until_lines(1).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(texts(&scene), ["no end"]);
}
