//! Checkpoints: after an end, after a crash, at a reload.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::harness::{Scene, until};

/// Scenario: nothing of what is read is resolved; then some is, and the process ends. Guarantee:
/// the next one reads what was not resolved, and only that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_stands_before_what_is_not_resolved() {
    let mut scene = Scene::start("poll_interval: 50ms").await;
    scene.append("a", "1\n");
    scene.until_lines(1).await;
    scene.engine.holds.store(true, Ordering::SeqCst);
    scene.append("a", "2\n");
    scene.append("b", "3\n");
    scene.until_lines(3).await;
    scene.restart().await;
    scene.until_lines(5).await;
    scene.engine.release();
    scene.restart().await;
    scene.append("a", "4\n");
    scene.until_lines(6).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let expected =
        [("1", 1), ("2", 2), ("3", 2), ("4", 1)].map(|(it, times)| (it.to_owned(), times));
    assert_eq!(scene.engine.lines().into_iter().collect::<Vec<_>>(), expected);
}

/// Scenario: the process is killed. Guarantee: the checkpoint on disk is about a second old, and
/// whole: nothing is lost, and what is older is not read again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_is_written_about_once_a_second() {
    let mut scene = Scene::start("poll_interval: 50ms").await;
    scene.append("a", "1\n");
    scene.until_lines(1).await;
    let offset = || std::fs::read_to_string(scene.checkpoint()).unwrap_or_default();
    until("a checkpoint is written", || offset().contains(" 2 1 ")).await;
    let written = std::fs::read(scene.checkpoint()).expect("is there");
    scene.append("a", "2\n");
    scene.until_lines(2).await;
    scene.stop().await;
    std::fs::write(scene.checkpoint(), written).expect("is put back");
    scene.serve().await;
    scene.until_lines(3).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(scene.engine.lines()["1"], 1);
}

/// Scenario: the receiver is replaced at a reload while all is under way. Guarantee: nothing is
/// read again, and the checkpoint waits for what the former receiver has read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_reads_nothing_again() {
    let mut scene = Scene::start("poll_interval: 50ms").await;
    scene.engine.holds.store(true, Ordering::SeqCst);
    scene.append("a", "1\n2\n");
    scene.append("b", "3\n");
    scene.until_lines(3).await;
    for _ in 0..3 {
        scene.streams = scene.stop().await;
        assert_eq!(scene.streams.positions.len(), 2);
        scene.serve().await;
    }
    scene.append("a", "4\n");
    scene.until_lines(4).await;
    // A crash now: nothing of it is resolved.
    scene.stop().await;
    let known = std::fs::read(scene.checkpoint()).expect("is there");
    let known = sluice_tail::decode(&known).expect("is whole");
    assert!(known.iter().all(|it| it.mark.offset == 0), "{known:?}");
    assert!(scene.engine.lines().values().all(|times| *times == 1));
}

/// Scenario: the receiver before does not end for a while, and the next one starts. Guarantee: it
/// waits for the checkpoint.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_is_waited_for_while_the_receiver_before_ends() {
    let mut scene = Scene::start("poll_interval: 50ms").await;
    scene.append("a", "1\n");
    scene.until_lines(1).await;
    scene.stop().await;
    let held = sluice_tail::Checkpoint::open(&scene.checkpoint(), Duration::ZERO).expect("opens");
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        drop(held);
    });
    scene.serve().await;
    ends.join().expect("ends");
    scene.append("a", "2\n");
    scene.until_lines(2).await;
    assert!(scene.engine.lines().values().all(|times| *times == 1));
}

/// Scenario: the checkpoint is damaged. Guarantee: it is kept aside, and files are read from where
/// `start_at` says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_checkpoint_is_kept_aside() {
    let mut scene = Scene::start("poll_interval: 50ms").await;
    scene.append("a", "1\n");
    scene.until_lines(1).await;
    scene.stop().await;
    std::fs::write(scene.checkpoint(), "sluice-tail 1\ndamaged").expect("is written");
    scene.serve().await;
    scene.until_lines(2).await;
    assert!(scene.folder.path().join("checkpoints/filelog.unusable").exists());
}

/// Scenario: nothing is taken, files are removed that are open, and the receiver is replaced at a
/// reload of other options. Guarantee: all their lines arrive once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_keeps_files_that_were_removed() {
    let mut scene = Scene::start("poll_interval: 50ms").await;
    scene.append("a", "a1\n");
    scene.append("b", "b1\n");
    scene.until_lines(2).await;
    scene.engine.is_closed.store(true, Ordering::SeqCst);
    scene.append("a", "a2\n");
    tokio::time::sleep(Duration::from_millis(300)).await;
    std::fs::remove_file(scene.path("a")).expect("is removed");
    tokio::time::sleep(Duration::from_millis(300)).await;
    scene.streams = scene.stop().await;
    assert_eq!(scene.streams.files.len(), 1);
    scene.options = "poll_interval: 50ms, attributes: {other: option}".to_owned();
    scene.serve().await;
    scene.engine.is_closed.store(false, Ordering::SeqCst);
    scene.append("b", "b2\n");
    scene.until_lines(4).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let lines = scene.engine.lines();
    assert_eq!(lines, ["a1", "a2", "b1", "b2"].map(|line| (line.to_owned(), 1)).into());
}

/// Scenario: nothing is taken, files come and are removed before they have had a turn, and the
/// receiver is replaced at a reload. Guarantee: all their lines arrive once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_keeps_files_that_had_no_turn() {
    let mut scene = Scene::start("poll_interval: 50ms").await;
    scene.append("a", "a1\n");
    scene.until_lines(1).await;
    scene.engine.refuses_after_ms.store(600_000, Ordering::SeqCst);
    scene.engine.is_closed.store(true, Ordering::SeqCst);
    scene.append("a", "a2\n");
    tokio::time::sleep(Duration::from_millis(300)).await;
    scene.append("b", "b1\n");
    scene.append("c", "c1\n");
    until("they are open", || scene.counters.open_files.load(Ordering::Relaxed) == 3).await;
    ["b", "c"].iter().for_each(|it| std::fs::remove_file(scene.path(it)).expect("is removed"));
    tokio::time::sleep(Duration::from_millis(500)).await;
    scene.streams = scene.stop().await;
    assert_eq!(scene.streams.files.len(), 3);
    scene.engine.is_closed.store(false, Ordering::SeqCst);
    scene.serve().await;
    scene.until_lines(4).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let lines = scene.engine.lines();
    assert_eq!(lines, ["a1", "a2", "b1", "c1"].map(|line| (line.to_owned(), 1)).into());
    assert_eq!(scene.counters.lost_files.load(Ordering::Relaxed), 0);
}

/// Scenario: a file was truncated and has the same lines again, more than before, and the receiver
/// is replaced at reloads. Guarantee: it goes on in the present content.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_tells_the_contents_of_a_truncated_file_apart() {
    let mut scene = Scene::start("poll_interval: 50ms").await;
    scene.append("a", &"x\n".repeat(100));
    scene.until_lines(100).await;
    let file = std::fs::File::options().write(true).open(scene.path("a")).expect("opens");
    file.set_len(0).expect("is truncated");
    scene.append("a", &"x\n".repeat(50));
    scene.until_lines(150).await;
    scene.append("a", &"x\n".repeat(150));
    scene.until_lines(300).await;
    for round in 1..=8 {
        scene.streams = scene.stop().await;
        scene.serve().await;
        scene.append("a", "x\n");
        scene.until_lines(300 + round).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(scene.engine.count(), 300 + round);
    }
}
