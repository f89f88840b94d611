//! Records that have left operators and are refused for good.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::harness::{Engine, Scene, body};
use crate::operators::{CONTAINER, part};

/// Each line is held until the next one comes, or for a while.
const HOLDING: &str = "poll_interval: 50ms, operators: [{type: recombine, combine_field: body, \
    is_first_entry: 'body matches \"^[a-z]\"', force_flush_period: 300ms}]";

fn skipped(scene: &Scene) -> u64 {
    scene.counters.skipped_records.load(Ordering::Relaxed)
}

/// Scenario: records of several files are held, are let go together as their time is over, and one
/// of them is refused for good. Guarantee: it alone is left out, and counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_record_that_is_refused_for_good_holds_up_no_other() {
    let engine = Engine { poison: Some("poison"), ..Engine::default() };
    let mut scene = Scene::start_with(HOLDING, engine).await;
    for file in ["a", "b", "c"] {
        scene.append(file, &format!("{file} first\n"));
    }
    scene.append("b", "poison\n");
    scene.until_lines(3).await;
    // All that comes later arrives too.
    for file in ["a", "b", "c"] {
        scene.append(file, &format!("{file} second\n{file} third\n"));
    }
    scene.until_lines(9).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(skipped(&scene), 1);
    let lines = scene.engine.lines();
    assert!(lines.len() == 9 && lines.values().all(|times| *times == 1), "{lines:?}");
    scene.restart().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(scene.engine.count(), 9, "the checkpoint has passed all");
    assert_eq!(scene.engine.memory_bytes.load(Ordering::SeqCst), 0);
}

/// Scenario: a record that leaves an operator with others is refused for good, in the middle of a
/// file. Guarantee: it alone is left out, and counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_of_operators_that_is_refused_for_good_holds_up_no_other() {
    let engine = Engine { poison: Some("poison\n1"), ..Engine::default() };
    let scene = Scene::start_with(&HOLDING.replace("300ms", "60s"), engine).await;
    let entries = |range: std::ops::Range<usize>| -> String {
        range.map(|index| format!("x{index}\n0\n")).collect()
    };
    scene.append("a", &(entries(0..300) + "poison\n1\n" + &entries(300..1000) + "y\n"));
    scene.until_lines(1000).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let lines = scene.engine.lines();
    let doubled: Vec<_> = lines.iter().filter(|(_, times)| **times != 1).take(5).collect();
    assert!(lines.len() == 1000 && doubled.is_empty(), "{} lines, {doubled:?}", lines.len());
    assert_eq!(skipped(&scene), 1);
}

/// Scenario: very many lines in a row are refused for good, each let go by the next. Guarantee: all
/// of them are left out, and counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_number_of_records_in_a_row_may_be_refused_for_good() {
    let engine = Engine { poison: Some("poison"), ..Engine::default() };
    let scene = Scene::start_with(HOLDING, engine).await;
    scene.append("a", &("first\n".to_owned() + &"poison\n".repeat(250) + "last\n"));
    scene.until_lines(2).await;
    assert_eq!(skipped(&scene), 250);
    let lines = scene.engine.lines();
    assert!(lines.len() == 2 && lines.values().all(|times| *times == 1), "{lines:?}");
}

/// Scenario: while the first part of a line waits for its end, every other line of another stream
/// is refused for good. Guarantee: all other lines arrive, each once, and the checkpoint waits for
/// the first part alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_are_refused_for_good_do_not_disturb_one_that_is_held() {
    let engine = Engine { poison: Some("poison"), ..Engine::default() };
    let mut scene = Scene::start_with(CONTAINER, engine).await;
    let others = |range: std::ops::Range<usize>| -> String {
        let pair =
            |index| part("stderr", "F", "poison") + &part("stderr", "F", &format!("{index}"));
        range.map(pair).collect()
    };
    scene.append("a", &(part("stdout", "P", "one-") + &others(0..150)));
    scene.append("b", &part("stdout", "F", "elsewhere"));
    scene.until_lines(151).await;
    scene.append("a", &(others(150..160) + &part("stdout", "F", "two")));
    scene.until_lines(162).await;
    assert_eq!(skipped(&scene), 160);
    let lines = scene.engine.lines();
    assert!(lines.contains_key("one-two") && lines.len() == 162, "{} lines", lines.len());
    assert!(lines.values().all(|times| *times == 1), "{lines:?}");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    scene.restart().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(scene.engine.count(), 162, "the checkpoint has passed all");
}

/// Scenario: each line becomes two records, and one of them is refused for good. Guarantee: the
/// line is left out, and reading goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_of_two_records_that_is_refused_for_good_holds_up_no_other() {
    let engine = Engine { poison: Some("poison"), ..Engine::default() };
    let options = "poll_interval: 50ms, operators: [\
        {type: noop, id: n, output: [one, two]}, \
        {type: add, id: one, field: attributes.way, value: one, output: end}, \
        {type: add, id: two, field: attributes.way, value: two, output: end}, \
        {type: noop, id: end}]";
    let scene = Scene::start_with(options, engine).await;
    scene.append("a", "1\n2\n3\npoison\n4\n5\n");
    scene.until_lines(10).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(scene.engine.count(), 10);
    assert_eq!(skipped(&scene), 2);
}

/// Scenario: a record needs more memory than a request may have. Guarantee: it is left out, and
/// reading goes on behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_too_large_for_the_memory_holds_up_no_other() {
    let engine = Engine { most_bytes: Some(560 << 10), ..Engine::default() };
    let scene = Scene::start_with(&HOLDING.replace("300ms", "60s"), engine).await;
    let large: String = (0..100).map(|_| "0".repeat(8 << 10) + "\n").collect();
    scene.append("a", &("before\n".to_owned() + "large\n" + &large + "after 1\nafter 2\n"));
    scene.until_lines(2).await;
    scene.append("a", "after 3\nend\n");
    scene.until_lines(4).await;
    let lines = scene.engine.lines();
    let starts: Vec<&str> = lines.keys().map(|line| &line[..line.len().min(7)]).collect();
    assert_eq!(starts, ["after 1", "after 2", "after 3", "before"]);
    assert_eq!(skipped(&scene), 1);
}

/// Scenario: requests with a record that is refused for good are cut, while the engine has no room
/// for every other part. Guarantee: the parts before are not sent again for that: each line comes
/// once and in order, in few requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_that_find_no_room_at_once_double_no_others() {
    for options in ["poll_interval: 50ms", "poll_interval: 50ms, operators: [{type: noop}]"] {
        let engine = Engine { poison: Some("poison"), ..Engine::default() };
        engine.refusals.store(50, Ordering::SeqCst);
        let mut scene = Scene::start_with(options, engine).await;
        let lines = |from: usize| -> String {
            (from..from + 300).map(|number| format!("{number:04}\n")).collect()
        };
        let poison = "poison\n";
        let all = [&lines(0), poison, &lines(300), poison, &lines(600)].concat();
        scene.append("a", &all);
        scene.until_lines(900).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let records = scene.engine.records.lock().expect("is whole").clone();
        let bodies: Vec<String> = records.iter().map(body).collect();
        let expected: Vec<String> = (0..900).map(|number| format!("{number:04}")).collect();
        assert!(bodies == expected, "{} lines: {options}", bodies.len());
        assert_eq!(skipped(&scene), 2);
        let requests = scene.engine.requests.load(Ordering::SeqCst);
        assert!(requests < 400, "{requests} requests");
        scene.engine.refusals.store(0, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        scene.restart().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(scene.engine.count(), 900, "the checkpoint has passed all");
    }
}

/// Scenario: the process is killed between the parts of a request, of which some were accepted.
/// Guarantee: no line is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_between_parts_loses_no_line() {
    for options in ["poll_interval: 50ms", "poll_interval: 50ms, operators: [{type: noop}]"] {
        let engine = Engine { poison: Some("poison"), ..Engine::default() };
        engine.holds.store(true, Ordering::SeqCst);
        let mut scene = Scene::start_with(options, engine).await;
        let lines = |from: usize| -> String {
            (from..from + 200).map(|number| format!("{number:04}\n")).collect()
        };
        scene.append("a", &[&lines(0), "poison\n", &lines(200)].concat());
        scene.until_lines(1).await;
        scene.engine.is_closed.store(true, Ordering::SeqCst);
        scene.engine.refuses_after_ms.store(20, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        scene.kill().await;
        scene.engine.is_closed.store(false, Ordering::SeqCst);
        scene.serve().await;
        crate::harness::until("all lines come", || scene.engine.lines().len() == 400).await;
    }
}
