//! Files that grow and rotate, read without an engine.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::*;

mod alike;
mod gone;
mod lost;
mod sent;
mod starts;

/// A directory, and a tail of its files whose clock the test sets.
struct Scene {
    folder: tempfile::TempDir,
    options: Options,
    tail: Option<Tail>,
    now: Instant,
    /// How often each line was read.
    read: BTreeMap<String, u32>,
    known: Option<Vec<Known>>,
}

pub(crate) fn options(folder: &Path, pattern: &str) -> Options {
    Options {
        include: vec![Glob::new(&format!("{}/{pattern}", folder.display())).expect("a pattern")],
        exclude: Vec::new(),
        exclude_older_than: None,
        ordering: None,
        starts_at_end: false,
        head_bytes: 1000,
        max_open: 16,
        poll_interval: Duration::from_millis(200),
        watches: true,
        flush_after: Duration::ZERO,
        splitter: Splitter {
            boundary: Boundary::LineFeed,
            charset: Charset::Utf8,
            max_bytes: 1 << 20,
            truncates: false,
            keeps_leading: false,
            keeps_trailing: false,
        },
        compression: Compression::Auto,
        deletes_after: None,
        locks: false,
    }
}

impl Scene {
    fn new(pattern: &str, change: impl FnOnce(&mut Options)) -> Scene {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = options(folder.path(), pattern);
        change(&mut options);
        let (read, now) = (BTreeMap::new(), Instant::now());
        let mut scene = Scene { folder, options, tail: None, now, read, known: None };
        scene.start();
        scene
    }

    fn start(&mut self) {
        self.tail = Some(Tail::new(self.options.clone(), self.known.take(), self.now));
    }

    fn stop(&mut self) {
        let known = self.tail.take().expect("it runs").known();
        self.known = Some(decode(encode(&known).as_bytes()).expect("is a checkpoint"));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn append(&self, name: &str, text: impl AsRef<[u8]>) {
        let mut file =
            fs::File::options().create(true).append(true).open(self.path(name)).expect("opens");
        file.write_all(text.as_ref()).expect("is written");
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).expect("is renamed");
    }

    fn tail(&mut self) -> &mut Tail {
        self.tail.as_mut().expect("it runs")
    }

    /// Time passes, and what can be read is read and resolved.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let now = self.now;
            self.tail().look(now);
            while let Some(id) = self.tail().next(now) {
                self.turn(id);
            }
            if self.now >= until {
                return;
            }
            let due = self.tail().next_due();
            self.now = due.clamp(now + Duration::from_millis(1), until);
        }
    }

    fn settle(&mut self) {
        self.pass(Duration::from_millis(500));
    }

    fn turn(&mut self, id: FileId) {
        let (now, tail) = (self.now, self.tail.as_mut().expect("it runs"));
        let Some(id) = tail.turn(id, now) else { return };
        let mut window_bytes = WINDOW_BYTES;
        let is_over = loop {
            match tail.fill(id, window_bytes, now) {
                Turn::Over => break true,
                Turn::Wider(bytes) => window_bytes = bytes,
                Turn::Lines => {}
            }
            tail.begin_range(id);
            while let Some(line) = tail.line(id) {
                let text = String::from_utf8_lossy(line.text).into_owned();
                *self.read.entry(text).or_default() += 1;
                tail.progressed(id, now);
            }
            let end = tail.end_range(id);
            tail.resolved(id, end);
        };
        tail.end_turn(id, is_over);
    }

    /// These lines were read, each once, and no others.
    fn assert_read(&self, lines: &[&str]) {
        let expected: BTreeMap<String, u32> =
            lines.iter().map(|it| ((*it).to_owned(), 1)).collect();
        assert_eq!(self.read, expected);
    }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).expect("is compressed");
    encoder.finish().expect("is compressed")
}

#[test]
fn files_are_read_as_they_grow_and_go_on_after_a_restart() {
    let mut scene = Scene::new("*.log", |_| ());
    scene.append("a.log", "a1\na2\na3");
    scene.append("b.txt", "b1\n");
    scene.settle();
    scene.assert_read(&["a1", "a2"]);
    scene.append("a.log", "+\na4\n");
    scene.append("c.log", "c1\n");
    scene.settle();
    scene.assert_read(&["a1", "a2", "a3+", "a4", "c1"]);
    scene.stop();
    scene.append("c.log", "c2\n");
    scene.append("d.log", "d1\n");
    scene.start();
    scene.settle();
    scene.assert_read(&["a1", "a2", "a3+", "a4", "c1", "c2", "d1"]);
}

#[test]
fn files_that_are_there_at_the_first_start_can_be_read_from_their_end() {
    let mut scene = Scene::new("*.log", |options| options.starts_at_end = true);
    scene.append("a.log", "a1\n");
    fs::write(scene.path("z.log"), gzip(b"z1\n")).expect("is written");
    scene.settle();
    scene.assert_read(&[]);
    scene.append("a.log", "a2\n");
    scene.append("b.log", "b1\n");
    scene.settle();
    scene.assert_read(&["a2", "b1"]);
    scene.stop();
    scene.append("a.log", "a3\n");
    scene.append("c.log", "c1\n");
    scene.start();
    scene.settle();
    scene.assert_read(&["a2", "a3", "b1", "c1"]);
}

/// Scenario: a file is renamed, to a name that is meant and to one that is not, while it is written
/// to, while the agent runs and while it does not.
#[test]
fn renamed_files_are_read_on() {
    for (pattern, restarts) in [("*", false), ("*.log", false), ("*", true), ("*.log", true)] {
        let mut scene = Scene::new(pattern, |_| ());
        scene.append("a.log", "a1\n");
        scene.settle();
        if restarts {
            scene.stop();
        }
        scene.append("a.log", "a2\n");
        scene.rename("a.log", "a.log.1");
        scene.append("a.log", "b1\n");
        scene.append("a.log.1", "a3\n");
        if restarts {
            scene.start();
        }
        scene.settle();
        scene.append("a.log.1", "a4\n");
        scene.pass(Duration::from_secs(1));
        if restarts && pattern == "*.log" {
            // Known by its inode only, at a path that is not meant: not found.
            assert_eq!(scene.read.get("b1"), Some(&1));
            continue;
        }
        scene.assert_read(&["a1", "a2", "a3", "a4", "b1"]);
        scene.pass(Duration::from_secs(60));
        scene.assert_read(&["a1", "a2", "a3", "a4", "b1"]);
    }
}

/// Scenario: a file is copied and truncated, with a copy that is meant; then it has the same first
/// bytes as before. Guarantee: the copy is not read again, unless it has more than was read.
#[test]
fn a_copy_is_read_on_where_its_original_was_truncated() {
    for (unread, restarts) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut scene = Scene::new("*", |_| ());
        scene.append("a.log", "head of the file, longer than a line\na1\n");
        scene.settle();
        if restarts {
            scene.stop();
        }
        if unread {
            scene.append("a.log", "a2\n");
        }
        fs::copy(scene.path("a.log"), scene.path("a.log.1")).expect("is copied");
        if !restarts {
            scene.settle();
        }
        let file = fs::File::options().write(true).open(scene.path("a.log")).expect("opens");
        file.set_len(0).expect("is truncated");
        scene.append("a.log", "head of the other\nb1\n");
        if restarts {
            scene.start();
        }
        scene.pass(Duration::from_secs(20));
        let mut expected =
            vec!["head of the file, longer than a line", "a1", "head of the other", "b1"];
        if unread {
            expected.push("a2");
        }
        scene.assert_read(&expected);
    }
}

/// Scenario: a rotated file is compressed and removed, while the agent runs and while it does not.
#[test]
fn a_rotated_file_that_is_compressed_is_not_read_again() {
    for restarts in [false, true] {
        let mut scene = Scene::new("*", |_| ());
        scene.append("0.log", "a1\n");
        scene.settle();
        if restarts {
            scene.stop();
        }
        scene.append("0.log", "a2\n");
        scene.rename("0.log", "0.log.20260101-000000");
        scene.append("0.log", "b1\n");
        if !restarts {
            scene.settle();
        }
        let content = fs::read(scene.path("0.log.20260101-000000")).expect("is there");
        let packed = scene.path("0.log.20260101-000000.gz");
        fs::write(&packed, gzip(&content)).expect("is written");
        if !restarts {
            scene.settle();
        }
        fs::remove_file(scene.path("0.log.20260101-000000")).expect("is removed");
        if restarts {
            scene.start();
        }
        scene.pass(Duration::from_secs(50));
        scene.assert_read(&["a1", "a2", "b1"]);
    }
}

/// Scenario: files begin alike, beyond the fingerprint. Guarantee: each is read.
#[test]
fn files_with_the_same_first_lines_are_told_apart() {
    let mut scene = Scene::new("*", |options| options.head_bytes = 16);
    let head = "the same header of many files\n";
    for name in ["a", "b", "c"] {
        scene.append(name, head);
        scene.append(name, format!("{name}1\n"));
    }
    scene.settle();
    assert_eq!(scene.read.remove(head.trim()), Some(3));
    scene.assert_read(&["a1", "b1", "c1"]);
    scene.stop();
    for name in ["a", "b", "c"] {
        scene.append(name, format!("{name}2\n"));
    }
    scene.start();
    scene.settle();
    scene.assert_read(&["a1", "a2", "b1", "b2", "c1", "c2"]);
}

/// Scenario: a file is removed while it has unread lines and is written to; then another file gets
/// its name, and maybe its inode.
#[test]
fn removed_files_are_read_to_their_end() {
    let mut scene = Scene::new("*", |_| ());
    for round in 0..20 {
        let mut file = fs::File::create_new(scene.path("a")).expect("is new");
        writeln!(file, "round {round}").expect("is written");
        scene.settle();
        writeln!(file, "last of {round}").expect("is written");
        fs::remove_file(scene.path("a")).expect("is removed");
        if round % 3 == 0 {
            scene.settle();
        }
        writeln!(file, "after {round}").expect("is written");
        drop(file);
        scene.pass(Duration::from_secs(if round % 2 == 0 { 1 } else { 60 }));
    }
    assert_eq!(scene.read.len(), 60);
    assert!(scene.read.values().all(|times| *times == 1), "{:?}", scene.read);
}

/// Scenario: a short file is removed, and a file elsewhere begins with the same line. Guarantee: it
/// is another file.
#[test]
fn a_short_content_that_is_gone_is_not_taken_for_another() {
    let mut scene = Scene::new("*", |_| ());
    let mut keeps = Vec::new();
    for name in ["a", "b"] {
        scene.append(name, "starting\n");
        // Its inode is not used again.
        keeps.push(fs::File::open(scene.path(name)).expect("opens"));
        scene.settle();
        fs::remove_file(scene.path(name)).expect("is removed");
        scene.pass(Duration::from_secs(60));
    }
    assert_eq!(scene.read["starting"], 2);
}

#[test]
fn directories_and_old_files_are_found_when_they_are_there() {
    let mut scene = Scene::new("later/*/*.log", |options| {
        options.exclude_older_than = Some(Duration::from_secs(3600));
    });
    scene.settle();
    fs::create_dir_all(scene.path("later/x")).expect("is made");
    scene.append("later/x/old.log", "o1\n");
    let old = fs::File::options().write(true).open(scene.path("later/x/old.log"));
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(7200);
    old.expect("opens").set_modified(long_ago).expect("is set");
    scene.append("later/x/a.log", "a1\n");
    scene.pass(Duration::from_secs(1));
    scene.assert_read(&["a1"]);
    scene.append("later/x/old.log", "o2\n");
    scene.settle();
    scene.assert_read(&["a1", "o1", "o2"]);
}

/// Scenario: only the newest of the files is meant, and each is written to once more after the next
/// one is there. Guarantee: what was begun is read to its end.
#[test]
fn files_beyond_the_first_of_an_order_are_read_to_their_end() {
    let sort_by = vec![SortBy { key: "n".into(), kind: SortKind::Numeric, ascending: false }];
    let pattern = regex::bytes::Regex::new(r"(?P<n>\d+)\.log").ok();
    let ordering = Ordering { pattern, group_by: None, top: 1, sort_by };
    let mut scene = Scene::new("*.log", |options| options.ordering = Some(ordering));
    scene.append("0.log", "never\n");
    scene.append("1.log", "1 a\n");
    scene.settle();
    scene.append("2.log", "2 a\n");
    scene.append("1.log", "1 b\n");
    scene.pass(Duration::from_secs(1));
    scene.append("1.log", "1 c\n");
    scene.pass(Duration::from_secs(1));
    scene.assert_read(&["1 a", "1 b", "1 c", "2 a"]);
}

#[test]
fn links_are_followed_to_other_targets() {
    let mut scene = Scene::new("*.log", |_| ());
    fs::create_dir(scene.path("d")).expect("is made");
    scene.append("d/1", "a1\n");
    let link = |target: &str| {
        let new = scene.path("new");
        std::os::unix::fs::symlink(scene.path(target), &new).expect("is linked");
        fs::rename(new, scene.path("x.log")).expect("is renamed");
    };
    link("d/1");
    let (a, b) = (scene.path("d/1"), scene.path("d/2"));
    scene.settle();
    scene.append("d/1", "a2\n");
    scene.settle();
    scene.assert_read(&["a1", "a2"]);
    fs::write(&b, "b1\n").expect("is written");
    std::os::unix::fs::symlink(&b, scene.path("new")).expect("is linked");
    scene.rename("new", "x.log");
    scene.append("d/1", "a3\n");
    scene.settle();
    scene.append("d/1", "a4\n");
    scene.append("d/2", "b2\n");
    scene.pass(Duration::from_secs(2));
    scene.assert_read(&["a1", "a2", "a3", "a4", "b1", "b2"]);
    assert!(a.exists());
}

#[test]
fn a_last_line_without_its_end_is_read_after_a_while() {
    let mut scene = Scene::new("*", |it| it.flush_after = Duration::from_millis(500));
    scene.append("a", "a1\na2");
    scene.pass(Duration::from_millis(300));
    scene.assert_read(&["a1"]);
    scene.append("a", "+");
    scene.pass(Duration::from_millis(400));
    scene.assert_read(&["a1"]);
    scene.pass(Duration::from_millis(700));
    scene.append("a", "a3\n");
    scene.settle();
    scene.assert_read(&["a1", "a2+", "a3"]);
}

/// Scenario: a file of UTF-16 ends within a unit for long. Guarantee: what is whole is read, the
/// file is left alone meanwhile, and nothing is lost or shifted once the rest comes.
#[test]
fn a_file_that_ends_within_a_unit_is_read_on() {
    let charset = Charset::named("utf-16le").expect("is known");
    let mut scene = Scene::new("*", |it| {
        (it.flush_after, it.splitter.charset) = (Duration::from_millis(500), charset);
    });
    scene.append("a", b"a\0\n\0b\0c");
    scene.pass(Duration::from_secs(2));
    scene.assert_read(&["a\0", "b\0"]);
    let mut files = scene.tail().files.values();
    assert!(files.all(|file| file.rare.partial.is_none()), "it is not flushed again and again");
    scene.append("a", b"\0\n\0d\0\n\0");
    scene.settle();
    scene.assert_read(&["a\0", "b\0", "c\0", "d\0"]);
}

/// Scenario: a directory outside is reached by more links than `**` follows; all but the last are
/// excluded. Guarantee: its files are read by that one.
#[test]
fn excluded_links_do_not_use_up_those_that_are_followed() {
    let far = tempfile::tempdir().expect("a folder");
    fs::write(far.path().join("x.log"), "x1\n").expect("is written");
    let mut scene = Scene::new("**/*.log", |_| {});
    let exclude = format!("{}/l*/*.log", scene.folder.path().display());
    scene.options.exclude = vec![Glob::new(&exclude).expect("a pattern")];
    for at in 0..20 {
        let link = scene.path(&format!("l{at:02}"));
        std::os::unix::fs::symlink(far.path(), link).expect("is linked");
    }
    std::os::unix::fs::symlink(far.path(), scene.path("m")).expect("is linked");
    scene.start();
    scene.settle();
    scene.assert_read(&["x1"]);
}

/// Scenario: more files than may be open, rotated out of the pattern. Guarantee: the bound holds,
/// and every file is read.
#[test]
fn no_more_files_are_open_than_allowed() {
    let mut scene = Scene::new("*.log", |options| options.max_open = 4);
    let names: Vec<String> = (0..50).map(|index| format!("{index}.log")).collect();
    for round in 0..3 {
        for name in &names {
            scene.append(name, format!("{name} {round}\n"));
        }
        scene.pass(Duration::from_secs(1));
        assert!(scene.tail().open_files() <= 4);
    }
    for name in &names {
        scene.append(name, format!("{name} last\n"));
        scene.rename(name, &format!("{name}.1"));
    }
    scene.pass(Duration::from_secs(40));
    assert!(scene.tail().open_files() <= 4);
    let counts = scene.tail().counts;
    let lost = names.len() * 4 - scene.read.len();
    assert_eq!(counts.lost_files, lost as u64, "{counts:?}");
    assert!(scene.read.values().all(|times| *times == 1));
}

#[test]
fn long_lines_widen_the_window_and_damaged_files_hurt_no_others() {
    let mut scene = Scene::new("*", |options| options.splitter.max_bytes = 4 << 20);
    let long = "x".repeat(3 << 20);
    scene.append("long", format!("{long}\nafter\n"));
    let mut damaged = gzip(b"good\n");
    let checksum = damaged.len() - 8;
    damaged[checksum] ^= 1;
    fs::write(scene.path("damaged.gz"), damaged).expect("is written");
    fs::write(scene.path("nul"), b"a\0b\n").expect("is written");
    scene.settle();
    scene.assert_read(&[&long, "after", "a\0b", "good"]);
    assert_eq!(scene.tail().counts.failed, 1);
}

/// Scenario: a writer goes on at its offset after its file was truncated: a hole is before.
#[test]
fn a_hole_before_the_first_line_is_passed() {
    use std::os::unix::fs::FileExt as _;
    let mut scene = Scene::new("*", |_| ());
    let text = "a line that was read\n".repeat(1000);
    scene.append("a", &text);
    scene.settle();
    scene.read.clear();
    let file = fs::File::options().write(true).open(scene.path("a")).expect("opens");
    file.set_len(0).expect("is truncated");
    file.write_all_at(b"new\n", text.len() as u64).expect("is written");
    scene.settle();
    scene.assert_read(&["new"]);
}

#[test]
fn a_range_is_read_again_from_where_it_began() {
    let mut scene = Scene::new("*", |_| ());
    scene.append("a", "1\n2\n3\n");
    let now = scene.now;
    let tail = scene.tail();
    tail.look(now);
    let id = tail.next(now).expect("a file");
    let id = tail.turn(id, now).expect("has lines");
    assert_eq!(tail.fill(id, WINDOW_BYTES, now), Turn::Lines);
    let mut starts = Vec::new();
    for _ in 0..3 {
        starts.push(tail.begin_range(id));
        let line = tail.line(id).expect("a line");
        assert_eq!(line.number, starts.len() as u64);
        tail.end_range(id);
    }
    assert_eq!(starts, [0, 2, 4]);
    tail.resolved(id, 2);
    assert_eq!(tail.known()[0].mark.offset, 2);
    tail.rewind(id, 4);
    assert_eq!(tail.turn(id, now), Some(id));
    assert_eq!(tail.fill(id, WINDOW_BYTES, now), Turn::Lines);
    assert_eq!(tail.line(id).map(|line| (line.text, line.number)), Some((&b"3"[..], 3)));
}
