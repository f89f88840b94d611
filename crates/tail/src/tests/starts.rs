//! Contents that were read before a start, and their checkpoint.

use super::*;

impl Scene {
    /// As after a start of the machine at which devices get other numbers.
    fn renumber_devices(&mut self) {
        self.known.iter_mut().flatten().for_each(|known| known.inode.device += 1);
    }
}

fn gone(count: u64) -> Vec<Known> {
    let known = |number: u64| Known {
        inode: Inode { device: 1, number },
        path: PathBuf::from(format!("/gone/{number}")),
        head: Head { len: 5, hash: number },
        mark: Mark { offset: 5, ..Mark::default() },
        sent: Vec::new(),
        unread: 0,
    };
    (0..count).map(known).collect()
}

/// Scenario: a directory of many files is missing at a start, as a volume that is mounted late, and
/// is back later on a device of another number. Guarantee: nothing is read again.
#[test]
fn files_of_a_volume_that_is_late_are_still_known() {
    let mut scene = Scene::new("*/*", |_| ());
    fs::create_dir(scene.path("volume")).expect("is made");
    for index in 0..1500 {
        scene.append(&format!("volume/{index}"), format!("{index}\n"));
    }
    scene.settle();
    assert_eq!(scene.read.len(), 1500);
    for renumbers in [false, true] {
        scene.stop();
        let away = scene.folder.path().with_extension("away");
        fs::rename(scene.path("volume"), &away).expect("is moved");
        scene.start();
        scene.pass(Duration::from_secs(100));
        scene.stop();
        if renumbers {
            scene.renumber_devices();
        }
        fs::rename(&away, scene.path("volume")).expect("is moved");
        scene.append("volume/7", format!("{renumbers}\n"));
        scene.start();
        scene.pass(Duration::from_secs(20));
    }
    assert_eq!(scene.read.len(), 1502);
    assert!(scene.read.values().all(|times| *times == 1));
    assert_eq!(scene.tail().counts.forgotten, 0);
}

#[test]
fn the_oldest_of_too_many_missing_files_are_forgotten_and_counted() {
    let mut scene = Scene::new("*", |_| ());
    scene.stop();
    scene.known = Some(gone(20_005));
    scene.start();
    scene.settle();
    assert_eq!(scene.tail().counts.forgotten, 5);
    let kept: BTreeSet<u64> = scene.tail().known().iter().map(|it| it.inode.number).collect();
    assert_eq!(kept.first().zip(kept.last()), Some((&5, &20_004)));
}

/// Scenario: the machine loses its power, and files their last writes. Guarantee: what is written
/// later is read, and nothing is read again.
#[test]
fn a_file_that_lost_its_end_is_read_on_there() {
    for renumbers in [false, true] {
        let mut scene = Scene::new("*", |_| ());
        let lines: Vec<String> = (0..200).map(|index| format!("line {index}")).collect();
        scene.append("a", &(lines.join("\n") + "\n"));
        scene.settle();
        scene.stop();
        if renumbers {
            scene.renumber_devices();
        }
        let file = fs::File::options().write(true).open(scene.path("a")).expect("opens");
        file.set_len(1503).expect("is cut");
        scene.start();
        scene.settle();
        scene.append("a", "new 1\nnew 2\n");
        scene.settle();
        let mut expected: Vec<&str> = lines.iter().map(String::as_str).collect();
        expected.extend(["new 1", "new 2"]);
        scene.assert_read(&expected);
        assert_eq!((scene.tail().counts.shortened, scene.tail().counts.truncated), (1, 0));
        // While it is followed, a file that becomes shorter has a new content.
        file.set_len(1100).expect("is cut");
        scene.settle();
        assert_eq!(scene.tail().counts.truncated, 1);
        assert_eq!(scene.read["line 0"], 2);
    }
}

/// Scenario: a file cannot be read when its content is compared with those that are known.
/// Guarantee: that does not make it another one.
#[test]
fn a_file_that_cannot_be_compared_is_not_taken_for_a_new_one() {
    let mut scene = Scene::new("*", |_| ());
    scene.append("a", "a1\n");
    scene.settle();
    scene.stop();
    scene.start();
    let (path, now) = (scene.path("a"), scene.now);
    let tail = scene.tail();
    let unreadable = fs::File::options().append(true).open(&path).expect("opens");
    let at = File::new(path.into(), tail.known()[0].inode, now);
    let found = tail.find_missing(&unreadable, false, b"a1\n", &at);
    assert!(found.is_err(), "{found:?}");
}

/// Scenario: a file is empty, or has one byte, when it is opened. Guarantee: it is compressed if
/// its first bytes say so when they are there.
#[test]
fn a_file_that_is_empty_when_it_is_opened_may_become_compressed() {
    let mut scene = Scene::new("*", |_| ());
    let packed = gzip(b"packed\n");
    for (name, bytes) in [("a", &b""[..]), ("b", &packed[..1]), ("c", b"")] {
        fs::write(scene.path(name), bytes).expect("is written");
    }
    scene.settle();
    for name in ["a", "b"] {
        let mut file = fs::File::options().append(true).open(scene.path(name)).expect("opens");
        let start = if name == "b" { 1 } else { 0 };
        file.write_all(&packed[start..]).expect("is written");
    }
    scene.append("c", "text\n");
    scene.settle();
    assert_eq!(scene.read.remove("packed"), Some(2));
    scene.assert_read(&["text"]);
}

/// Scenario: one of many files grows. Guarantee: the checkpoint that is written has that file, and
/// as a whole that of all.
#[test]
fn a_checkpoint_is_written_in_as_many_bytes_as_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("checkpoint");
    let open = || Checkpoint::open(&path, Duration::ZERO).expect("opens");
    let (checkpoint, _) = open();
    let mut scene = Scene::new("*", |_| ());
    for index in 0..500 {
        scene.append(&format!("{index}"), format!("{index}\n"));
    }
    scene.settle();
    let (mut journal, mut largest, mut wholes) = (Journal::default(), 0, 0);
    for round in 0..900 {
        scene.append(&format!("{}", round % 7), format!("round {round}\n"));
        if round == 500 {
            fs::remove_file(scene.path("400")).expect("is removed");
            scene.pass(Duration::from_secs(40));
        }
        let write = (0..100).find_map(|_| {
            scene.pass(Duration::from_millis(60));
            journal.next(scene.tail())
        });
        let write = write.expect("something changed");
        checkpoint.begin(&write).and_then(|()| checkpoint.finish(&write)).expect("is written");
        match write {
            Write::Whole(_) => wholes += 1,
            Write::Changes(text) => largest = largest.max(text.len()),
        }
    }
    assert!(journal.next(scene.tail()).is_none(), "nothing changed");
    assert!(largest < 4000 && (2..20).contains(&wholes), "{largest} bytes, {wholes} times");
    drop(checkpoint);
    let read = |known: Vec<Known>| {
        let mut lines: Vec<String> = known.iter().map(Known::to_line).collect();
        lines.sort();
        lines
    };
    assert_eq!(read(open().1.expect("is there")), read(scene.tail().known()));
}

/// Scenario: reading begins at the end, and a file cannot be read at the first look. Guarantee: of
/// what was there then, nothing is read later.
#[test]
fn what_was_there_at_the_first_look_is_not_read_once_it_can_be() {
    let mut scene = Scene::new("*", |options| options.starts_at_end = true);
    fs::write(scene.path("a.gz"), b"\x1f\x8bno such data").expect("is written");
    scene.settle();
    fs::write(scene.path("a.gz"), gzip(b"old line\n")).expect("is written");
    scene.pass(Duration::from_secs(10));
    scene.assert_read(&[]);
    let mut file = fs::File::options().append(true).open(scene.path("a.gz")).expect("opens");
    file.write_all(&gzip(b"new\n")).expect("is written");
    scene.pass(Duration::from_secs(10));
    scene.assert_read(&["new"]);
}

/// Scenario: the same, and the agent is restarted before the file can be read. Guarantee: what was
/// there at the first look is still not read.
#[test]
fn what_was_there_at_the_first_look_is_not_read_after_a_restart() {
    let mut scene = Scene::new("*", |options| options.starts_at_end = true);
    fs::write(scene.path("a.gz"), b"\x1f\x8bno such data").expect("is written");
    scene.settle();
    scene.stop();
    fs::write(scene.path("a.gz"), gzip(b"old line\n")).expect("is written");
    scene.start();
    scene.pass(Duration::from_secs(10));
    scene.assert_read(&[]);
    scene.append("a.gz", gzip(b"new\n"));
    scene.pass(Duration::from_secs(10));
    scene.assert_read(&["new"]);
}

/// Scenario: a file was truncated before a reload, and both of its contents are remembered.
/// Guarantee: they are in an order in which the inode has the last one.
#[test]
fn contents_of_one_inode_are_remembered_in_their_order() {
    for round in 0..8 {
        let mut scene = Scene::new("*", |_| ());
        for length in [3, 2, 1] {
            fs::write(scene.path("a"), format!("{round}\n").repeat(length)).expect("is written");
            scene.settle();
        }
        let contents: Vec<_> = scene.tail().contents().collect();
        let offsets: Vec<u64> = contents.iter().map(|(_, known, _)| known.mark.offset).collect();
        assert_eq!(offsets, [6, 4, 2]);
        scene.known = Some(Vec::new());
        scene.start();
        for (_, known, begun) in contents {
            scene.tail().remember(known, begun);
        }
        scene.append("a", "more\n");
        scene.settle();
        assert_eq!(scene.read.remove("more"), Some(1));
        assert_eq!(scene.read.remove(&round.to_string()), Some(6));
    }
}
