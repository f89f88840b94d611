//! Files that go away before they are read to their end: kept as far as possible, else counted.

use super::*;

impl Scene {
    /// Looks for files while nothing may be read.
    fn look(&mut self) {
        let now = self.now;
        self.tail().look(now);
        self.tail().open_waiting(now);
    }

    /// Another tail goes on where one was.
    fn start_with(
        &mut self,
        contents: Vec<(FileId, Known, Vec<Mark>)>,
        left: Vec<(FileId, fs::File)>,
    ) {
        self.known = Some(Vec::new());
        self.start();
        let mut left: std::collections::HashMap<FileId, fs::File> = left.into_iter().collect();
        for (id, known, begun) in contents {
            let now = self.now;
            let new = self.tail().remember(known, begun);
            if let Some(open) = left.remove(&id) {
                self.tail().follow(new, open, now);
            }
        }
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).expect("is removed");
    }

    fn lost(&mut self) -> (u64, u64) {
        let counts = self.tail().counts;
        (counts.lost_files, counts.lost_bytes)
    }
}

/// Scenario: new files are removed before it is their turn, while others are open that are read to
/// their end. Guarantee: each is read.
#[test]
fn new_files_that_are_removed_before_their_turn_are_read() {
    let mut scene = Scene::new("*.log", |options| options.max_open = 8);
    let old: Vec<String> = (0..12).map(|index| format!("old{index}")).collect();
    let new: Vec<String> = (0..4).map(|index| format!("new{index}")).collect();
    old.iter().for_each(|name| scene.append(&format!("{name}.log"), format!("{name}\n")));
    scene.settle();
    assert_eq!(scene.tail().open_files(), 8);
    new.iter().for_each(|name| scene.append(&format!("{name}.log"), format!("{name}\n")));
    scene.look();
    assert_eq!(scene.tail().open_files(), 8);
    new.iter().for_each(|name| scene.remove(&format!("{name}.log")));
    scene.look();
    scene.settle();
    let all: Vec<&str> = old.iter().chain(&new).map(String::as_str).collect();
    scene.assert_read(&all);
    assert_eq!(scene.lost(), (0, 0));
}

/// Scenario: the same with more new files than may be open. Guarantee: as many are opened as may
/// be; of those that are removed half are kept, and the others are counted.
#[test]
fn new_files_are_opened_as_far_as_there_is_room() {
    let mut scene = Scene::new("*.log", |options| options.max_open = 4);
    scene.settle();
    let names: Vec<String> = (0..10).map(|index| format!("{index}.log")).collect();
    names.iter().for_each(|name| scene.append(name, format!("{name}\n")));
    scene.look();
    scene.look();
    assert_eq!(scene.tail().open_files(), 4);
    names.iter().for_each(|name| scene.remove(name));
    scene.look();
    scene.settle();
    assert_eq!((scene.read.len(), scene.lost()), (2, (8, 8 * 6)));
}

/// Scenario: a file that waits for its turn cannot be opened. Guarantee: it is tried again as
/// seldom as in its turn.
#[test]
fn a_file_that_cannot_be_opened_is_not_tried_at_each_look() {
    let mut scene = Scene::new("*.log", |_| ());
    scene.settle();
    scene.append("a.log", "a1\n");
    scene.look();
    let path = scene.path("a.log");
    let id = *scene.tail().by_path.get(&*path).expect("is found");
    scene.tail().close(id);
    scene.remove("a.log");
    // A loop: lacking rights would not stop a test that runs as root.
    std::os::unix::fs::symlink(&path, &path).expect("is linked");
    for _ in 0..5 {
        let now = scene.now;
        scene.tail().open_waiting(now);
    }
    assert_eq!(scene.tail().counts.failed, 1);
}

/// Scenario: files go away while no process runs: all of one was read, a part of another, and one
/// was renamed. Guarantee: the one that is not read to its end is counted, once, also if another
/// file has its inode.
#[test]
fn unread_files_that_vanish_while_no_process_runs_are_counted() {
    let mut scene = Scene::new("*", |_| ());
    ["read", "unread", "renamed"].iter().for_each(|name| scene.append(name, format!("{name}\n")));
    scene.settle();
    scene.append("unread", "more\nand more\n");
    scene.append("renamed", "more of renamed\n");
    scene.tail().note_sizes();
    scene.stop();
    ["read", "unread"].iter().for_each(|name| scene.remove(name));
    scene.rename("renamed", "renamed.1");
    scene.append("new", "new\n");
    scene.start();
    scene.pass(Duration::from_secs(20));
    assert_eq!(scene.lost(), (0, 0));
    scene.pass(Duration::from_secs(60));
    assert_eq!(scene.lost(), (1, 14));
    scene.assert_read(&["read", "unread", "renamed", "more of renamed", "new"]);
    scene.stop();
    scene.start();
    scene.pass(Duration::from_secs(100));
    assert_eq!(scene.lost(), (0, 0));
}

/// Scenario: compressed files are removed, more than are kept: first some that were read, then some
/// that were not. Guarantee: the file is counted, and no bytes, as its length is not known.
#[test]
fn compressed_files_that_go_away_unread_are_counted() {
    let mut scene = Scene::new("*.gz", |options| options.max_open = 2);
    scene.settle();
    let write = |scene: &Scene, names: [&str; 2]| {
        for name in names {
            let packed = gzip(format!("{name}\n").as_bytes());
            fs::write(scene.path(name), packed).expect("is written");
        }
    };
    write(&scene, ["a.gz", "b.gz"]);
    scene.settle();
    ["a.gz", "b.gz"].iter().for_each(|name| scene.remove(name));
    scene.pass(Duration::from_secs(60));
    assert_eq!(scene.lost(), (0, 0));
    write(&scene, ["c.gz", "d.gz"]);
    scene.look();
    ["c.gz", "d.gz"].iter().for_each(|name| scene.remove(name));
    scene.look();
    assert_eq!(scene.lost(), (1, 0));
}

/// Guarantee: it is known how many bytes were not read.
#[test]
fn unread_bytes_are_those_of_files_that_are_there() {
    let mut scene = Scene::new("*", |_| ());
    scene.append("a", "a1\n");
    fs::write(scene.path("b.gz"), gzip(b"b1\n")).expect("is written");
    scene.settle();
    assert_eq!(scene.tail().unread_bytes(), 0);
    scene.append("a", "a2\n");
    scene.append("c", "c1\nc2\n");
    scene.look();
    scene.tail().note_sizes();
    assert_eq!(scene.tail().unread_bytes(), 9);
    scene.settle();
    assert_eq!(scene.tail().unread_bytes(), 0);
}

/// Scenario: a compressed file is damaged, and removed; then another file comes that begins in the
/// same directory. Guarantee: the other one is read, and the damaged one is closed and counted.
#[test]
fn a_damaged_file_that_is_removed_is_closed_and_keeps_no_other_from_being_read() {
    let mut scene = Scene::new("*", |_| ());
    fs::write(scene.path("bad.gz"), b"\x1f\x8bno such data").expect("is written");
    scene.settle();
    scene.remove("bad.gz");
    scene.settle();
    scene.append("healthy.log", "h1\n");
    scene.pass(Duration::from_secs(5));
    scene.assert_read(&["h1"]);
    scene.pass(Duration::from_secs(100));
    assert_eq!(scene.tail().open_files(), 1);
    assert_eq!(scene.lost(), (1, 0));
}

/// Scenario: files are open that were removed, and another tail takes this one's place. Guarantee:
/// it reads them to their end.
#[test]
fn removed_files_can_be_followed_by_another_tail() {
    let mut scene = Scene::new("*.log", |_| ());
    scene.append("a.log", "a1\n");
    scene.append("b.log", "b1\n");
    scene.settle();
    scene.append("a.log", "a2\n");
    scene.remove("a.log");
    scene.look();
    let mut before = scene.tail.take().expect("it runs");
    let (contents, left): (Vec<_>, _) = (before.contents().collect(), before.take_left());
    assert_eq!((left.len(), before.open_files()), (1, 1));
    scene.start_with(contents, left);
    scene.settle();
    scene.assert_read(&["a1", "a2", "b1"]);
    scene.pass(Duration::from_secs(100));
    assert_eq!((scene.tail().open_files(), scene.lost()), (1, (0, 0)));
}

/// Scenario: a pipe without a writer is where a file was. Guarantee: it is opened without waiting.
#[test]
fn a_pipe_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("runs");
    assert!(made.success());
    let opened = crate::open::open_file(&path).expect("opens");
    assert!(!opened.metadata().expect("is known").is_file());
}

/// Scenario: files come while nothing may be read, and another tail takes this one's place: one was
/// removed before, one is removed between, one is there and one is excluded by then. Guarantee: all
/// that are meant are read, once.
#[test]
fn files_without_a_turn_are_handed_over() {
    let mut scene = Scene::new("*.log", |_| ());
    scene.append("old.log", "old\n");
    scene.append("old2.log", "old2\n");
    scene.settle();
    let names = ["before.log", "between.log", "there.log", "excluded.log"];
    names.iter().for_each(|name| scene.append(name, format!("{name}\n")));
    scene.append("old.log", "more\n");
    scene.append("old2.log", "more2\n");
    scene.look();
    scene.remove("before.log");
    scene.look();
    let mut before = scene.tail.take().expect("it runs");
    before.note_sizes();
    let (contents, left): (Vec<_>, _) = (before.contents().collect(), before.take_left());
    assert_eq!(left.len(), 6);
    ["between.log", "old.log"].iter().for_each(|name| scene.remove(name));
    let pattern = scene.path("excluded.log");
    scene.options.exclude = vec![Glob::new(&pattern.display().to_string()).expect("a pattern")];
    scene.start_with(contents, left);
    scene.settle();
    let expected = ["old", "old2", "more", "more2", "before.log", "between.log", "there.log"];
    scene.assert_read(&expected);
    scene.append("there.log", "last\n");
    scene.pass(Duration::from_secs(100));
    scene.assert_read(&[&expected[..], &["last"]].concat());
    assert_eq!((scene.tail().open_files(), scene.lost()), (2, (0, 0)));
}

/// Scenario: a file is removed before it has had its turn, and the process ends; another file may
/// get its inode. Guarantee: the next process counts it as lost, and reads the other one.
#[test]
fn files_without_a_turn_are_counted_after_an_end() {
    for reuses in [false, true] {
        let mut scene = Scene::new("*.log", |_| ());
        scene.settle();
        scene.append("a.log", "a line that is lost\n");
        scene.look();
        scene.remove("a.log");
        scene.look();
        scene.stop();
        let known = scene.known.as_mut().expect("was written");
        assert_eq!((known.len(), known[0].unread), (1, 20));
        scene.append("b.log", "b\n");
        if reuses {
            let metadata = fs::metadata(scene.path("b.log")).expect("is there");
            scene.known.as_mut().expect("was written")[0].inode = Inode::of(&metadata);
        }
        scene.start();
        scene.pass(Duration::from_secs(40));
        scene.assert_read(&["b"]);
        assert_eq!(scene.lost(), (1, 20));
        scene.stop();
        assert_eq!(scene.known.as_ref().map(Vec::len), Some(1), "it is counted once");
    }
}
