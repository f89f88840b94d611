//! A model of rotation: files are written and rotated at random, the receiver ends and starts in
//! between, and every line is known by its text.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::harness::{Engine, Scene, append, until};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Renamed, as logrotate does, through several numbers.
    Rename,
    CopyTruncate,
    /// Renamed with a time, later compressed.
    Kubelet,
    /// Removed, and written to afterwards by a process that has it open.
    Remove,
    /// Another file is renamed over it.
    Replace,
    /// A link that changes its target.
    Link,
}

const KINDS: [Kind; 6] =
    [Kind::Rename, Kind::CopyTruncate, Kind::Kubelet, Kind::Remove, Kind::Replace, Kind::Link];

/// Writes and rotates one log.
struct Writer {
    kind: Kind,
    path: PathBuf,
    /// Targets of links.
    below: PathBuf,
    lines: u64,
    rotations: u64,
    /// The first line of the present file.
    first: Option<String>,
}

impl Writer {
    fn new(kind: Kind, folder: &Path) -> Writer {
        let path = folder.join("logs").join(format!("{kind:?}.log"));
        let below = folder.join("targets");
        fs::create_dir_all(&below).expect("is made");
        let mut writer = Writer { kind, path, below, lines: 0, rotations: 0, first: None };
        if kind == Kind::Link {
            writer.link();
        }
        writer
    }

    fn line(&mut self) -> String {
        self.lines += 1;
        format!("{:?} {} {}", self.kind, self.lines, "x".repeat(fastrand::usize(1..60)))
    }

    fn write(&mut self, count: usize) {
        for _ in 0..count {
            let line = self.line();
            append(&self.path, &format!("{line}\n"));
            self.first.get_or_insert(line);
        }
    }

    fn link(&mut self) {
        let target = self.below.join(format!("{}", self.rotations));
        fs::write(&target, "").expect("is made");
        let new = self.below.join("new");
        std::os::unix::fs::symlink(&target, &new).expect("is linked");
        fs::rename(new, &self.path).expect("is renamed");
    }

    fn numbered(&self, number: u64) -> PathBuf {
        self.path.with_extension(format!("log.{number}"))
    }

    /// Whether what is not read by now can be found after a restart.
    fn can_rotate_while_down(&self) -> bool {
        matches!(self.kind, Kind::Rename | Kind::CopyTruncate | Kind::Kubelet)
    }

    fn rotate(&mut self) {
        self.rotations += 1;
        self.first = None;
        match self.kind {
            Kind::Rename | Kind::CopyTruncate => {
                for number in (1..4).rev() {
                    let _ = fs::rename(self.numbered(number), self.numbered(number + 1));
                }
                if self.kind == Kind::Rename {
                    fs::rename(&self.path, self.numbered(1)).expect("is renamed");
                } else {
                    fs::copy(&self.path, self.numbered(1)).expect("is copied");
                    let file = fs::File::options().write(true).open(&self.path).expect("opens");
                    file.set_len(0).expect("is truncated");
                }
            }
            Kind::Kubelet => {
                let stamp = 20_260_101_000_000 + self.rotations;
                let last = self.path.with_extension(format!("log.{}", stamp - 1));
                if let Ok(content) = fs::read(&last) {
                    let packed = self.path.with_extension(format!("log.{}.gz", stamp - 1));
                    let part = self.below.join("part");
                    let file = fs::File::create(&part).expect("is made");
                    let mut encoder =
                        flate2::write::GzEncoder::new(file, flate2::Compression::fast());
                    encoder.write_all(&content).expect("is written");
                    encoder.finish().expect("is written");
                    fs::rename(part, packed).expect("is renamed");
                    fs::remove_file(last).expect("is removed");
                }
                let now = self.path.with_extension(format!("log.{stamp}"));
                fs::rename(&self.path, now).expect("is renamed");
            }
            Kind::Remove => {
                let file = fs::File::options().append(true).open(&self.path);
                let mut file = file.expect("opens");
                fs::remove_file(&self.path).expect("is removed");
                let line = self.line();
                writeln!(file, "{line}").expect("is written");
            }
            Kind::Replace => {
                let new = self.below.join("replacing");
                let line = self.line();
                fs::write(&new, format!("{line}\n")).expect("is written");
                fs::rename(new, &self.path).expect("is renamed");
                self.first = Some(line);
            }
            Kind::Link => self.link(),
        }
    }
}

/// Rotates each kind so many times. Files that are removed must have been seen before: the test
/// waits for their first line.
async fn rotate(rotations: u64) {
    let (refusals, delays) = (AtomicU64::new(10), AtomicU64::new(10));
    let engine = Engine { refusals, delays, ..Engine::default() };
    let mut scene = Scene::start_with("compression: auto, poll_interval: 50ms", engine).await;
    let mut writers = KINDS.map(|kind| Writer::new(kind, scene.folder.path()));
    for round in 0..rotations {
        for writer in &mut writers {
            writer.write(fastrand::usize(1..8));
        }
        let is_down = fastrand::u8(0..10) == 0;
        for writer in writers.iter().filter(|it| is_down || !it.can_rotate_while_down()) {
            let first = writer.first.clone().expect("was written");
            let seen = || scene.engine.lines().contains_key(&first);
            until(&format!("{first} arrives in round {round}"), seen).await;
        }
        if is_down {
            all_arrive(&scene, &writers).await;
            scene.stop().await;
        }
        for writer in &mut writers {
            if is_down && !writer.can_rotate_while_down() {
                // Seen by the next receiver, before it is rotated.
                writer.first = None;
                continue;
            }
            if is_down {
                writer.write(fastrand::usize(0..3));
            }
            writer.rotate();
        }
        if is_down {
            scene.serve().await;
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..30))).await;
    }
    for writer in &mut writers {
        writer.write(1);
    }
    all_arrive(&scene, &writers).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    scene.stop().await;
    let lines = scene.engine.lines();
    let doubled: Vec<_> = lines.iter().filter(|(_, times)| **times != 1).collect();
    assert!(doubled.is_empty(), "{doubled:?}");
    assert_eq!(scene.counters.lost_files.load(Ordering::Relaxed), 0);
}

/// Waits for all lines. Says which are lost.
async fn all_arrive(scene: &Scene, writers: &[Writer]) {
    let expected: u64 = writers.iter().map(|writer| writer.lines).sum();
    for _ in 0..3000 {
        if scene.engine.lines().len() as u64 >= expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let lines = scene.engine.lines();
    for writer in writers {
        let numbers: std::collections::BTreeSet<u64> = lines
            .keys()
            .filter(|line| line.starts_with(&format!("{:?} ", writer.kind)))
            .filter_map(|line| line.split(' ').nth(1)?.parse().ok())
            .collect();
        let lost: Vec<u64> = (1..=writer.lines).filter(|it| !numbers.contains(it)).collect();
        let (kind, rotations, lines) = (writer.kind, writer.rotations, writer.lines);
        assert!(lost.is_empty(), "{kind:?} lost {lost:?} of {lines}, {rotations} rotations");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_line_is_lost_or_doubled_by_rotations_and_restarts() {
    rotate(50).await;
}

/// Takes about half an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long"]
async fn torture_no_line_is_lost_or_doubled_by_many_rotations() {
    rotate(10_000).await;
}
