//! Operators between the files and the engine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::harness::{Engine, Scene, until};

pub(crate) const CONTAINER: &str = "poll_interval: 50ms, \
    operators: [{type: container, add_metadata_from_filepath: false}]";

pub(crate) fn part(stream: &str, tag: &str, text: &str) -> String {
    format!("2026-01-02T03:04:05.000000006Z {stream} {tag} {text}\n")
}

/// Scenario: a record is a sequence of lines, and nothing comes behind the last one. Guarantee: it
/// arrives after its time, with the time and severity that operators read, and is not read again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_combined_and_parsed() {
    let options = "poll_interval: 50ms, include_file_name: false, operators: [\
        {type: recombine, combine_field: body, is_first_entry: 'body matches \"^[{]\"', \
         force_flush_period: 300ms}, \
        {type: json_parser, timestamp: {parse_from: attributes.at, layout: '%Y-%m-%d'}, \
         severity: {parse_from: attributes.level}}, \
        {type: remove, field: body}]";
    let mut scene = Scene::start(options).await;
    scene.append("a", "{\"at\": \"2026-01-02\",\n\"level\":\n\"warn\"}\n");
    scene.until_lines(1).await;
    scene.restart().await;
    scene.append("a", "{\"at\": \"2026-01-03\", \"level\": \"error\"}\n");
    scene.until_lines(2).await;
    let records = scene.engine.records.lock().expect("is whole");
    let figures: Vec<_> =
        records.iter().map(|it| (it.time_unix_nano, it.severity_number)).collect();
    const DAY_NS: u64 = 86_400_000_000_000;
    assert_eq!(figures, [(20_455 * DAY_NS, 13), (20_456 * DAY_NS, 17)]);
}

/// Scenario: the first part of a line of one stream waits for its end, lines of another stream
/// behind it arrive, and the receiver ends where nothing is taken any more. Guarantee: the next one
/// reads from the first part on, and the line arrives whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_waits_for_its_end_holds_the_checkpoint_back() {
    let mut scene = Scene::start(CONTAINER).await;
    let first = part("stdout", "P", "one-");
    scene.append("a", &(part("stderr", "F", "before") + &first + &part("stderr", "F", "other")));
    scene.until_lines(2).await;
    // A second, so that a checkpoint is written.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    scene.engine.is_closed.store(true, Ordering::SeqCst);
    scene.stop().await;
    scene.engine.is_closed.store(false, Ordering::SeqCst);
    scene.append("a", &part("stdout", "F", "two"));
    scene.serve().await;
    until("the line arrives", || scene.engine.lines().contains_key("one-two")).await;
    let lines = scene.engine.lines();
    assert_eq!(lines.keys().collect::<Vec<_>>(), ["before", "one-two", "other"]);
    assert_eq!(lines["one-two"], 1);
}

/// Scenario: a line of which the first part has come is behind many others of one request, and the
/// receiver ends, or is replaced, where nothing is taken any more. Guarantee: the next one reads
/// again from that part on, and nothing before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_before_a_part_that_waits_are_not_read_again() {
    for is_reload in [false, true] {
        let mut scene = Scene::start(CONTAINER).await;
        let mut text: String =
            (0..500).map(|index| part("stdout", "F", &format!("{index}"))).collect();
        text += &part("stdout", "P", "one-");
        scene.append("a", &text);
        scene.until_lines(500).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        scene.engine.is_closed.store(true, Ordering::SeqCst);
        let streams = scene.stop().await;
        if is_reload {
            scene.streams = streams;
        }
        scene.engine.is_closed.store(false, Ordering::SeqCst);
        scene.serve().await;
        scene.append("a", &part("stdout", "F", "two"));
        until("the line arrives", || scene.engine.lines().contains_key("one-two")).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(scene.engine.count(), 501, "reload: {is_reload}");
    }
}

/// Scenario: lines of two streams come in parts, mixed, in several files. The engine refuses and
/// loses some requests, and the receiver is restarted. Guarantee: each line arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_in_parts_arrive_whatever_happens() {
    let (refusals, drops) = (AtomicU64::new(20), AtomicU64::new(10));
    let engine = Engine { refusals, drops, ..Engine::default() };
    let mut scene = Scene::start_with(CONTAINER, engine).await;
    let mut expected = Vec::new();
    for round in 0..40 {
        for file in ["a", "b", "c"] {
            let name = |stream| format!("{file} {stream} {round}");
            let [out, err] = ["stdout", "stderr"].map(name);
            let text = part("stdout", "P", &format!("{out}-"))
                + &part("stderr", "P", &format!("{err}-"))
                + &part("stderr", "P", "middle-")
                + &part("stdout", "F", "end")
                + &part("stderr", "F", "end");
            scene.append(file, &text);
            expected.extend([format!("{out}-end"), format!("{err}-middle-end")]);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        if round % 10 == 9 {
            scene.restart().await;
        }
    }
    until("all lines arrive", || {
        let lines = scene.engine.lines();
        expected.iter().all(|line| lines.contains_key(line))
    })
    .await;
    assert_eq!(scene.counters.operator_errors.load(Ordering::Relaxed), 0);
}

/// Scenario: half of the records are no JSON. Guarantee: `on_error` says what becomes of them, and
/// they are counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_of_operators_are_counted_and_handled_as_configured() {
    for (on_error, arrives) in [("send", 200), ("drop_quiet", 100)] {
        let options = format!(
            "poll_interval: 50ms, operators: [{{type: json_parser, on_error: {on_error}}}]"
        );
        let scene = Scene::start(&options).await;
        let lines: String =
            (0..100).map(|index| format!("{{\"n\": {index}}}\nno {index}\n")).collect();
        scene.append("a", &lines);
        scene.until_lines(arrives).await;
        until("failures are counted", || {
            scene.counters.operator_errors.load(Ordering::Relaxed) == 100
        })
        .await;
        let dropped = scene.counters.dropped_records.load(Ordering::Relaxed);
        assert_eq!((scene.engine.count(), dropped), (arrives, 200 - arrives as u64));
    }
}

/// Scenario: a filter drops far more lines than fit into a request. Guarantee: reading goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_are_filtered_out_do_not_stop_the_reading() {
    let options = "poll_interval: 50ms, operators: [{type: filter, expr: 'body matches \"^d\"'}]";
    let scene = Scene::start(options).await;
    scene.append("a", &("d\n".repeat(20_000) + "keep\n"));
    scene.until_lines(1).await;
    assert_eq!(scene.engine.lines().keys().collect::<Vec<_>>(), ["keep"]);
}

/// Scenario: a record waits for its time, far ahead, in memory. Guarantee: no memory is asked for
/// it meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_are_not_due_ask_for_no_memory() {
    let options = "poll_interval: 50ms, operators: [{type: recombine, combine_field: body, \
        is_first_entry: 'body == \"first\"', force_flush_period: 60s}]";
    let mut scene = Scene::start(options).await;
    scene.append("a", "first\nfirst\nheld\n");
    scene.until_lines(1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let admissions = scene.engine.admissions.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(scene.engine.admissions.load(Ordering::SeqCst), admissions);
    scene.stop().await;
    assert_eq!(scene.engine.count(), 2, "it leaves at the end");
}

/// Scenario: parts of two streams of one file wait for their ends. One ends, and its request is not
/// resolved; then the other ends, and its request is. Guarantee: the checkpoint stays before the
/// first part of both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_waits_for_all_requests_with_its_records() {
    let mut scene = Scene::start(CONTAINER).await;
    scene.append("a", &(part("stdout", "P", "one-") + &part("stderr", "P", "two-")));
    tokio::time::sleep(Duration::from_millis(300)).await;
    scene.engine.holds.store(true, Ordering::SeqCst);
    scene.append("a", &part("stdout", "F", "end"));
    scene.until_lines(1).await;
    let unresolved = std::mem::take(&mut *scene.engine.held.lock().expect("is whole"));
    scene.engine.holds.store(false, Ordering::SeqCst);
    scene.append("a", &part("stderr", "F", "end"));
    scene.until_lines(2).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    scene.stop().await;
    drop(unresolved);
    scene.serve().await;
    until("both are read again", || scene.engine.lines().get("one-end") == Some(&2)).await;
}
