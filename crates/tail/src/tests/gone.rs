//! Files that are renamed, removed and deleted.

use super::*;

const QUIET: Duration = Duration::from_millis(500);

/// Scenario: a file is renamed to a name that is not meant, its writer pauses for minutes, and goes
/// on. Guarantee: it is read on, until its name is gone too.
#[test]
fn a_renamed_file_is_followed_while_it_has_a_name() {
    let mut scene = Scene::new("*.log", |_| ());
    scene.append("a.log", "a1\n");
    scene.settle();
    scene.rename("a.log", "a.log.1");
    scene.pass(Duration::from_secs(600));
    scene.append("a.log.1", "a2\n");
    scene.pass(Duration::from_secs(11));
    scene.assert_read(&["a1", "a2"]);
    fs::remove_file(scene.path("a.log.1")).expect("is removed");
    scene.pass(Duration::from_secs(60));
    assert_eq!((scene.tail().open_files(), scene.tail().counts.closed), (0, 0));
}

/// Scenario: a file that was renamed is still there. Its compressed copy is meant, and so is a new
/// file whose only line so far is the first one of it. Guarantee: the copy is not read again, and
/// the line is read.
#[test]
fn copies_and_likes_of_renamed_files_do_not_wait_for_ever() {
    let mut scene = Scene::new("*.{log,gz}", |_| ());
    let text = "the line of each start\n".to_owned() + &"x\n".repeat(1000);
    scene.append("a.log", &text);
    scene.settle();
    scene.rename("a.log", "a.log.1");
    scene.pass(Duration::from_secs(10));
    scene.append("a.log", "the line of each start\n");
    scene.pass(Duration::from_secs(60));
    assert_eq!(scene.read["the line of each start"], 2);
    scene.append("a.log.1", "last\n");
    scene.pass(Duration::from_secs(100));
    fs::write(scene.path("a.log.1.gz"), gzip((text + "last\n").as_bytes())).expect("is written");
    scene.pass(Duration::from_secs(100));
    assert_eq!((scene.read["x"], scene.read["last"]), (1000, 1));
    assert_eq!(scene.read["the line of each start"], 2);
}

/// Scenario: more files are renamed than are followed. Guarantee: they are read to their end, some
/// are closed then, and these are counted.
#[test]
fn renamed_files_that_are_closed_are_counted() {
    let mut scene = Scene::new("*.log", |options| options.max_open = 8);
    let names: Vec<String> = (0..6).map(|index| format!("{index}.log")).collect();
    for name in &names {
        scene.append(name, format!("{name} 1\n"));
    }
    scene.settle();
    for name in &names {
        scene.append(name, format!("{name} 2\n"));
        scene.rename(name, &format!("{name}.1"));
    }
    scene.pass(Duration::from_secs(100));
    assert_eq!(scene.read.len(), 12);
    let counts = scene.tail().counts;
    assert_eq!((counts.closed, counts.lost_files), (2, 0));
    assert_eq!(scene.tail().open_files(), 4);
}

/// Scenario: links lead to files that are renamed beside each other, as those of containers, and
/// only few files are open. Guarantee: what was not read before is read.
#[test]
fn files_behind_links_are_followed_to_other_names_beside_them() {
    let mut scene = Scene::new("containers/*.log", |options| options.max_open = 2);
    fs::create_dir_all(scene.path("containers")).expect("is made");
    let names: Vec<String> = (0..6).map(|index| format!("pods/{index}")).collect();
    for (index, pod) in names.iter().enumerate() {
        fs::create_dir_all(scene.path(pod)).expect("is made");
        scene.append(&format!("{pod}/0.log"), format!("{index} a\n"));
        let (target, link) = (format!("{pod}/0.log"), format!("containers/{index}.log"));
        std::os::unix::fs::symlink(scene.path(&target), scene.path(&link)).expect("is linked");
    }
    scene.pass(Duration::from_secs(1));
    for (index, pod) in names.iter().enumerate() {
        scene.append(&format!("{pod}/0.log"), format!("{index} b\n"));
        scene.rename(&format!("{pod}/0.log"), &format!("{pod}/0.log.20260101"));
        scene.append(&format!("{pod}/0.log"), format!("{index} c\n"));
    }
    scene.pass(Duration::from_secs(2));
    let expected: Vec<String> =
        (0..6).flat_map(|index| ["a", "b", "c"].map(|it| format!("{index} {it}"))).collect();
    scene.assert_read(&expected.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(scene.tail().counts.lost_files, 0);
}

/// Scenario: hundreds of files come and go. Guarantee: nothing is kept of each beyond its bound.
#[test]
fn lists_of_open_files_do_not_grow_with_the_files_that_were_open() {
    let mut scene = Scene::new("*", |_| ());
    for round in 0..300 {
        let name = format!("{round}");
        scene.append(&name, format!("{round}\n"));
        scene.settle();
        fs::remove_file(scene.path(&name)).expect("is removed");
        scene.pass(Duration::from_secs(31));
    }
    assert_eq!(scene.read.len(), 300);
    let (open, away) = (scene.tail().open.len(), scene.tail().away.len());
    assert!(open < 100 && away < 20, "{open} open, {away} away");
}

#[test]
fn files_are_deleted_once_they_are_resolved() {
    let mut scene = Scene::new("*", |options| options.deletes_after = Some(QUIET));
    scene.append("a", "a1\n");
    scene.append("b", "b1\nb2");
    scene.pass(Duration::from_secs(3));
    scene.assert_read(&["a1", "b1"]);
    assert!(!scene.path("a").exists() && scene.path("b").exists());
}

/// Scenario: a file that is read to its end is still written to. Guarantee: it is deleted when
/// nothing came for a poll interval, a compressed one only when it is complete.
#[test]
fn files_that_are_being_written_are_not_deleted() {
    let mut scene = Scene::new("*", |options| options.deletes_after = Some(QUIET));
    let packed = gzip("a line that is packed\n".repeat(5000).as_bytes());
    let write = |scene: &Scene, bytes: &[u8]| {
        let mut file = fs::File::options().create(true).append(true).open(scene.path("a.gz"));
        file.as_mut().expect("opens").write_all(bytes).expect("is written");
    };
    write(&scene, &packed[..packed.len() - 3]);
    scene.append("b", "b1\n");
    scene.pass(Duration::from_millis(100));
    scene.append("b", "b2\n");
    scene.pass(Duration::from_millis(400));
    assert!(scene.path("b").exists());
    scene.pass(Duration::from_secs(10));
    assert!(scene.path("a.gz").exists() && !scene.path("b").exists());
    write(&scene, &packed[packed.len() - 3..]);
    scene.pass(Duration::from_secs(10));
    assert!(!scene.path("a.gz").exists());
    assert_eq!(scene.read.remove("a line that is packed"), Some(5000));
    scene.assert_read(&["b1", "b2"]);
}

/// Scenario: a writer pauses until its file is deleted, and goes on. Guarantee: all of it is read,
/// and the file is closed once nothing comes for long.
#[test]
fn a_file_is_read_on_when_its_writer_goes_on_after_the_deletion() {
    let mut scene = Scene::new("*", |options| options.deletes_after = Some(QUIET));
    let mut writer = fs::File::create(scene.path("a")).expect("is created");
    for line in ["a1\n", "a2\n", "a3\n"] {
        writer.write_all(line.as_bytes()).expect("is written");
        scene.pass(Duration::from_secs(10));
        assert!(!scene.path("a").exists());
    }
    scene.assert_read(&["a1", "a2", "a3"]);
    scene.pass(Duration::from_secs(60));
    assert_eq!(scene.tail().open_files(), 0);
}

/// Scenario: equal files are put at a path again and again. Guarantee: each is read and deleted.
#[test]
fn equal_files_are_read_and_deleted_each_time() {
    let mut scene = Scene::new("*", |options| options.deletes_after = Some(QUIET));
    for _ in 0..3 {
        scene.append("a", "a1\n");
        scene.pass(Duration::from_secs(3));
        assert!(!scene.path("a").exists());
    }
    assert_eq!(scene.read["a1"], 3);
}

/// Scenario: the kernel tells no changes. Guarantee: files without news are looked at seldom, their
/// next line is found within ten poll intervals, and one right behind it within one.
#[test]
fn files_without_news_are_looked_at_seldom() {
    let mut scene = Scene::new("*", |options| options.watches = false);
    scene.append("a", "a1\n");
    scene.pass(Duration::from_secs(3600));
    let is_soon = |scene: &mut Scene| {
        let now = scene.now;
        scene.tail().files.values().any(|file| file.look_at < now + Duration::from_secs(1))
    };
    for _ in 0..20 {
        if is_soon(&mut scene) {
            scene.pass(Duration::from_millis(200));
        }
    }
    assert!(!is_soon(&mut scene), "it is looked at each time");
    scene.append("a", "a2\n");
    scene.pass(Duration::from_millis(400));
    scene.assert_read(&["a1"]);
    scene.pass(Duration::from_secs(2));
    scene.assert_read(&["a1", "a2"]);
    scene.append("a", "a3\n");
    scene.pass(Duration::from_millis(400));
    scene.assert_read(&["a1", "a2", "a3"]);
}

/// Scenario: many compressed files are longer than their turns. Guarantee: those that have begun go
/// on where their last turn ended, until they are read; the others begin then.
#[test]
fn compressed_files_that_have_begun_are_read_before_others_begin() {
    let mut scene = Scene::new("*", |_| ());
    let text: String = (0..1000).map(|line| format!("{line}\n")).collect();
    let length = text.len() as u64 + 8;
    for file in 0..20 {
        scene.append(&format!("{file}.gz"), gzip(format!("file {file:02}\n{text}").as_bytes()));
    }
    let (mut begun, mut lines) = (BTreeSet::new(), 0);
    for _ in 0..2000 {
        let now = scene.now;
        scene.tail().look(now);
        let Some(id) = scene.tail().next(now) else {
            scene.now += Duration::from_millis(200);
            continue;
        };
        let Some(id) = scene.tail().turn(id, now) else { continue };
        let (mut is_over, mut end) = (false, 0);
        for _ in 0..2 {
            is_over = is_over || scene.tail().fill(id, 1000, now) == Turn::Over;
            scene.tail().begin_range(id);
            while !is_over && scene.tail().line(id).is_some() {
                lines += 1;
            }
            end = scene.tail().end_range(id);
            scene.tail().resolved(id, end);
        }
        scene.tail().end_turn(id, is_over);
        if is_over || end == length {
            begun.remove(&id);
        } else {
            begun.insert(id);
        }
        assert!(begun.len() <= 8, "{begun:?}");
    }
    assert_eq!(lines, 20_020);
}
