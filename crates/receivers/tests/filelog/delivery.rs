//! How lines are delivered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{Engine, Scene, body, until};

/// Scenario: nothing happens for a while, then a line is written. Guarantee: it arrives within a
/// tenth of a second, with the name of its file. The bound here is for busy machines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_arrives_soon_with_the_name_of_its_file() {
    let scene = Scene::start("include_file_path: true, attributes: {a: b}").await;
    scene.append("x.log", "first\n");
    scene.until_lines(1).await;
    let mut times = Vec::new();
    for index in 0..5 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let start = Instant::now();
        scene.append("x.log", "next\n");
        scene.until_lines(index + 2).await;
        times.push(start.elapsed());
    }
    assert!(*times.iter().min().expect("some") < Duration::from_millis(100), "{times:?}");
    let records = scene.engine.records.lock().expect("is whole");
    assert_eq!(body(&records[0]), "first");
    let keys: Vec<_> = records[0].attributes.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(keys, ["a", "log.file.name", "log.file.path"]);
}

/// Scenario: the engine refuses a third of the requests, and lets others wait. Guarantee: each line
/// arrives once, and all memory is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_lines_are_read_again_and_none_arrives_twice() {
    let (refusals, delays) = (AtomicU64::new(33), AtomicU64::new(20));
    let engine = Engine { refusals, delays, ..Engine::default() };
    let mut scene = Scene::start_with("poll_interval: 50ms", engine).await;
    let mut expected = 0;
    for round in 0..30 {
        for file in ["a", "b", "c"] {
            let count = fastrand::usize(1..200);
            let lines: String =
                (0..count).map(|index| format!("{file} {round} {index}\n")).collect();
            scene.append(file, &lines);
            expected += count;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    scene.until_lines(expected).await;
    scene.stop().await;
    let lines = scene.engine.lines();
    assert_eq!(lines.len(), expected);
    assert!(lines.values().all(|times| *times == 1));
    assert_eq!(scene.engine.memory_bytes.load(Ordering::SeqCst), 0);
    assert_eq!(scene.counters.accepted_records.load(Ordering::Relaxed), expected as u64);
    assert!(scene.counters.refused_requests.load(Ordering::Relaxed) > 0);
}

/// Scenario: the engine loses requests that it had taken. Guarantee: each line arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_of_requests_that_were_dropped_are_read_again() {
    let engine = Engine { drops: AtomicU64::new(30), ..Engine::default() };
    let scene = Scene::start_with("poll_interval: 50ms", engine).await;
    let mut expected = 0;
    for round in 0..50 {
        scene.append("a", &format!("{round} a\n{round} b\n"));
        expected += 2;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until("all lines arrive", || scene.engine.lines().len() == expected).await;
}

/// Scenario: one line is refused for good. Guarantee: it alone is left out, and counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_is_refused_for_good_holds_up_no_other() {
    let engine = Engine { poison: Some("poison"), ..Engine::default() };
    let scene = Scene::start_with("poll_interval: 50ms", engine).await;
    let lines: Vec<String> = (0..1000).map(|index| format!("{index}")).collect();
    scene.append("a", &(lines[..300].join("\n") + "\npoison\n" + &lines[300..].join("\n") + "\n"));
    scene.until_lines(1000).await;
    assert_eq!(scene.engine.lines().len(), 1000);
    assert_eq!(scene.counters.skipped_records.load(Ordering::Relaxed), 1);
}

/// Scenario: a large file of short lines, and one of long lines. Guarantee: the memory that is
/// asked for has a bound whatever their size, and requests are neither tiny nor huge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_and_requests_have_bounds() {
    let scene = Scene::start("max_log_size: 2MiB").await;
    scene.append("short", &"x\n".repeat(300_000));
    scene.append("long", &("y".repeat(1 << 20) + "\n").repeat(5));
    scene.until_lines(300_005).await;
    let peak = scene.engine.peak_bytes.load(Ordering::SeqCst);
    assert!(peak <= 8 << 20, "{peak} bytes");
    let requests = scene.engine.requests.load(Ordering::SeqCst);
    assert!((50..600).contains(&requests), "{requests} requests");
}

/// Scenario: the engine takes nothing for a while, and files are renamed and removed meanwhile.
/// Guarantee: their lines arrive when it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_go_away_while_nothing_is_taken_are_read_afterwards() {
    let scene = Scene::start("poll_interval: 50ms").await;
    for name in ["a", "b"] {
        scene.append(name, "1\n");
    }
    scene.until_lines(2).await;
    scene.engine.is_closed.store(true, Ordering::SeqCst);
    for name in ["a", "b"] {
        scene.append(name, &format!("{name}2\n"));
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    std::fs::remove_file(scene.path("a")).expect("is removed");
    std::fs::rename(scene.path("b"), scene.folder.path().join("b.1")).expect("is renamed");
    tokio::time::sleep(Duration::from_millis(400)).await;
    scene.engine.is_closed.store(false, Ordering::SeqCst);
    scene.until_lines(4).await;
    assert_eq!(scene.counters.lost_files.load(Ordering::Relaxed), 0);
}

/// Scenario: the engine takes nothing, and says so late; files come and are removed in less time
/// than one of them waits for its turn. Guarantee: their lines arrive when it does, and until then
/// their bytes are told as unread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_come_and_go_away_while_nothing_is_taken_are_read_afterwards() {
    let scene = Scene::start("poll_interval: 50ms").await;
    scene.engine.refuses_after_ms.store(5000, Ordering::SeqCst);
    scene.engine.is_closed.store(true, Ordering::SeqCst);
    let names: Vec<String> = (0..20).map(|index| format!("{index}.log")).collect();
    names.iter().for_each(|name| scene.append(name, &format!("{name}\n")));
    let open = || scene.counters.open_files.load(Ordering::Relaxed);
    until("all are open", || open() == 20).await;
    names.iter().for_each(|name| std::fs::remove_file(scene.path(name)).expect("is removed"));
    let unread = || scene.counters.unread_bytes.load(Ordering::Relaxed);
    until("all are unread", || unread() == 130).await;
    scene.engine.is_closed.store(false, Ordering::SeqCst);
    scene.until_lines(20).await;
    until("all are read", || unread() == 0).await;
    assert_eq!(scene.counters.lost_files.load(Ordering::Relaxed), 0);
}

/// Scenario: the engine drops requests of a file that was truncated meanwhile. Guarantee: it is
/// counted that these lines are lost, and as one file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_cannot_be_read_again_are_counted() {
    let scene = Scene::start("poll_interval: 50ms").await;
    scene.engine.holds.store(true, Ordering::SeqCst);
    for count in 1..=2 {
        scene.append("a", "one line\n");
        scene.until_lines(count).await;
    }
    std::fs::write(scene.path("a"), "new\n").expect("is written anew");
    scene.until_lines(3).await;
    scene.engine.held.lock().expect("is whole").truncate(0);
    let lost = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    until("it is counted", || lost(&scene.counters.lost_bytes) > 0).await;
    assert_eq!((lost(&scene.counters.lost_bytes), lost(&scene.counters.lost_files)), (18, 1));
}

/// Guarantee: bytes that are no text become a body of bytes with `nop`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_stay_bytes() {
    let scene = Scene::start("encoding: nop").await;
    std::fs::write(scene.path("a"), b"a\xff\0\nb").expect("is written");
    scene.until_lines(1).await;
    let records = scene.engine.records.lock().expect("is whole");
    assert_eq!(body(&records[0]), "Some(BytesValue([97, 255, 0, 10, 98]))");
}

/// Guarantee: files that are delivered are deleted, if that is wanted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_deleted_once_they_are_delivered() {
    let scene = Scene::start("poll_interval: 50ms, delete_after_read: true").await;
    scene.engine.holds.store(true, Ordering::SeqCst);
    scene.append("a", "1\n2\n");
    scene.until_lines(2).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(scene.path("a").exists(), "it is not delivered");
    scene.engine.release();
    until("the file is deleted", || !scene.path("a").exists()).await;
    assert_eq!(scene.engine.count(), 2);
}
