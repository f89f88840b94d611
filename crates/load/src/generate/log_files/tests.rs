//! The files on disk, read back.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::*;
use crate::backend::Backend;
use crate::identity::{Identity, SequenceSet, TEXT_MARK};

fn small() -> LogFiles {
    LogFiles { pods: 3, lines_per_s: Some(3_000.0), ..LogFiles::default() }
}

/// The files of every container, by folder, rotated ones first and in order.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<PathBuf>> {
    let list = |folder: &Path| {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let containers = list(root).into_iter().flat_map(|pod| list(&pod));
    containers
        .map(|container| {
            let mut files = list(&container);
            // 0.log sorts before 0.log.<time> although it is the newest.
            files.sort_by_key(|path| (path.ends_with("0.log"), path.clone()));
            (container, files)
        })
        .collect()
}

fn sequences(path: &Path) -> Vec<u64> {
    let text = fs::read_to_string(path).unwrap();
    let stamp = |line: &str| {
        let at = line.find(TEXT_MARK).unwrap() + TEXT_MARK.len();
        Identity(u64::from_str_radix(&line[at..at + 16], 16).unwrap()).sequence()
    };
    text.lines().map(stamp).collect()
}

#[tokio::test]
async fn every_pod_has_its_tree_and_what_was_written_is_what_is_reported() {
    let open = small().open().unwrap();
    let root = open.root().to_owned();
    let mut running = open.start(Vec::new());
    tokio::time::sleep(Duration::from_millis(300)).await;
    running.stop();
    let report = running.finish().await.unwrap();
    let files = files(&root);
    assert_eq!(files.len(), 3);
    let mut found = SequenceSet::default();
    for (container, files) in &files {
        let pod = container.parent().unwrap().file_name().unwrap().to_str().unwrap();
        assert!(
            pod.starts_with("log-load-test_log-load-generator-") && pod.split('_').count() == 3,
            "{pod}"
        );
        assert!(
            container.ends_with("flog") && files.len() == 1 && files[0].ends_with("0.log"),
            "{files:?}"
        );
        let sequences = sequences(&files[0]);
        assert!(
            sequences.windows(2).all(|pair| pair[1] == pair[0] + 3),
            "a pod's lines have every third number"
        );
        assert!(sequences.into_iter().all(|sequence| found.insert(sequence)));
    }
    assert!(report.accepted >= 3, "{report:?}");
    assert_eq!(
        (report.offered, found.len()),
        (report.accepted + report.never_sent, report.accepted)
    );
    assert_eq!(report.acknowledged.difference_len(&found), 0);
    drop(running);
    assert!(!root.exists(), "nothing is left");
}

#[tokio::test]
async fn overgrown_files_are_rotated_at_once_and_four_old_ones_are_kept() {
    let line_bytes = LineTemplate::new(400).bytes.len() as u64;
    let rotate_bytes = 10 * line_bytes / 4 + 5;
    let open =
        LogFiles { pods: 1, lines_per_s: Some(100_000.0), rotate_bytes, ..small() }.open().unwrap();
    let root = open.root().to_owned();
    let mut running = open.start(Vec::new());
    while running.report().accepted < 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.stop();
    let report = running.finish().await.unwrap();
    let files = files(&root);
    let files = files.values().next().unwrap();
    assert_eq!(files.len(), 5, "{files:?}");
    let kept: Vec<Vec<u64>> = files.iter().map(|file| sequences(file)).collect();
    assert!(kept[..4].iter().all(|file| file.len() == 10), "full files have ten lines: {kept:?}");
    let all: Vec<u64> = kept.concat();
    let last = report.accepted - 1;
    assert_eq!(
        (all[all.len() - 1], all.len() as u64),
        (last, last - all[0] + 1),
        "without a gap to the last line"
    );
    let names: Vec<&str> =
        files[..4].iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
    assert!(names.iter().all(|name| name.len() == "0.log.20261121-081532".len()), "{names:?}");
}

#[tokio::test]
async fn files_are_looked_at_every_so_often() {
    let shape =
        LogFiles { rotate_bytes: 1_000, rotate_every: Duration::from_millis(300), ..small() };
    // 1.4 kB a second and pod: a file is full after 0.7 s, and overgrown after 2.8 s.
    let open = LogFiles { lines_per_s: Some(10.0), ..shape }.open().unwrap();
    let root = open.root().to_owned();
    let mut running = open.start(Vec::new());
    tokio::time::sleep(Duration::from_millis(2_000)).await;
    running.stop();
    running.finish().await.unwrap();
    let files = files(&root);
    assert!(files.values().all(|files| (2..=5).contains(&files.len())), "{files:?}");
}

#[tokio::test]
async fn without_a_rate_the_writer_keeps_a_bounded_lead_and_goes_on_when_nothing_arrives() {
    let backend = Backend::healthy().await.unwrap();
    let line_bytes = LineTemplate::new(400).bytes.len() as u64;
    // Half of a file: 250 lines.
    let shape = LogFiles { pods: 1, lines_per_s: None, rotate_bytes: 500 * line_bytes, ..small() };
    let mut running = shape.open().unwrap().start(vec![backend.arrivals()]);
    let began = Instant::now();
    tokio::time::sleep(Duration::from_millis(500)).await;
    if began.elapsed() < Duration::from_millis(900) {
        assert_eq!(running.report().accepted, 250);
    }
    while running.report().accepted < 500 {
        assert!(began.elapsed() < Duration::from_secs(20), "it waits for ever");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running.stop();
    let report = running.finish().await.unwrap();
    assert_eq!((report.never_sent, report.accepted % 250), (0, 0), "{report:?}");
}

#[test]
fn what_cannot_be_written_says_why() {
    let refused = |shape: LogFiles| shape.open().err().unwrap().to_string();
    assert!(refused(LogFiles { pods: 0, ..small() }).contains("1 to 1000 pods"));
    assert!(refused(LogFiles { body_bytes: 10, ..small() }).contains("set it with -s"));
    assert!(refused(LogFiles { rotate_bytes: 100, ..small() }).contains("at least one line"));
    assert!(refused(LogFiles { rotate_bytes: 1 << 50, ..small() }).contains("set TMPDIR"));
    assert!(refused(LogFiles { lines_per_s: Some(f64::NAN), ..small() }).contains("above zero"));
}
