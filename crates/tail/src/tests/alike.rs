//! Files that are equal as a whole, not only at their beginning.

use super::*;

/// The lines of a file, about as many bytes as asked for.
fn content(bytes: usize) -> String {
    (0..=bytes / 8).map(|index| format!("line{index:03}\n")).collect()
}

/// Each line was read this many times.
fn assert_times(scene: &Scene, content: &str, times: u32) {
    for line in content.lines() {
        assert_eq!(scene.read.get(line), Some(&times), "{line} of {} bytes", content.len());
    }
}

/// Scenario: two files are equal, with less or more than a fingerprint; they are renamed, also to
/// each other's names, while the agent runs and while it does not. Guarantee: each is read once,
/// and goes on by itself.
#[test]
fn equal_files_are_read_once_each() {
    for (bytes, restarts) in [(100, false), (100, true), (3000, false), (3000, true)] {
        let mut scene = Scene::new("*", |_| ());
        let all = content(bytes);
        scene.append("a.log", &all);
        scene.append("b.log", &all);
        scene.settle();
        assert_times(&scene, &all, 2);
        for round in 0..2 {
            if restarts {
                scene.stop();
            }
            scene.rename("a.log", "c.log");
            scene.rename("b.log", "a.log");
            scene.rename("c.log", "b.log");
            if restarts {
                scene.start();
            }
            scene.pass(Duration::from_secs(20));
            assert_times(&scene, &all, 2);
            scene.append("a.log", format!("a{round}\n"));
            scene.append("b.log", format!("b{round}\n"));
            scene.settle();
            for name in ["a", "b"] {
                assert_eq!(scene.read.get(&format!("{name}{round}")), Some(&1), "{bytes}");
            }
        }
        assert_times(&scene, &all, 2);
    }
}

/// Scenario: a file comes that is equal to one that is there, under a name that might be that of
/// its copy. Guarantee: it is read when the other one has not been truncated for ten seconds.
#[test]
fn an_equal_file_with_the_name_of_a_copy_is_read_later() {
    let mut scene = Scene::new("*", |_| ());
    let all = content(3000);
    scene.append("a.log", &all);
    scene.settle();
    scene.append("a.log.1", &all);
    scene.pass(Duration::from_secs(5));
    assert_times(&scene, &all, 1);
    scene.pass(Duration::from_secs(15));
    assert_times(&scene, &all, 2);
    scene.stop();
    scene.start();
    scene.pass(Duration::from_secs(20));
    assert_times(&scene, &all, 2);
}

/// Scenario: a file is removed while the agent does not run, and another one, under another name,
/// has the same bytes. Guarantee: with a whole fingerprint it is taken for the first one, which has
/// moved, and is read on; with less it is another file.
#[test]
fn a_file_that_is_equal_to_one_that_is_gone() {
    for (bytes, times) in [(3000, 1), (100, 2)] {
        let mut scene = Scene::new("*", |_| ());
        let all = content(bytes);
        scene.append("a.log", &all);
        scene.settle();
        scene.stop();
        // Made before the other is removed: it has another inode.
        scene.append("z.log", &all);
        fs::remove_file(scene.path("a.log")).expect("is removed");
        scene.append("z.log", "more\n");
        scene.start();
        scene.pass(Duration::from_secs(20));
        assert_times(&scene, &all, times);
        assert_eq!(scene.read.get("more"), Some(&1));
    }
}

/// Scenario: a job writes the same report each night; the one before was renamed, to a name that is
/// not meant, and is there. Guarantee: it is read each night, also if the agent was restarted.
#[test]
fn a_file_that_is_equal_to_a_renamed_one_is_another_file() {
    for (wait, restarts) in [(1, false), (36, false), (36, true)] {
        let mut scene = Scene::new("*.log", |_| ());
        let report = content(3000);
        scene.append("job.log", &report);
        scene.settle();
        scene.rename("job.log", "job.log.1");
        scene.pass(Duration::from_secs(wait));
        if restarts {
            scene.stop();
        }
        scene.append("job.log", &(report.clone() + "second night ends\n"));
        if restarts {
            scene.start();
        }
        scene.pass(Duration::from_secs(16));
        assert_times(&scene, &report, 2);
        assert_eq!(scene.read.get("second night ends"), Some(&1));
    }
}

/// Scenario: the same, but the copy of a removed file is plain. Guarantee: it is not read again.
#[test]
fn a_plain_copy_of_a_removed_file_is_not_read_again() {
    let mut scene = Scene::new("*.log", |_| ());
    let all = content(3000);
    scene.append("a.log", &all);
    scene.settle();
    scene.rename("a.log", "a.log.tmp");
    scene.pass(Duration::from_secs(2));
    fs::copy(scene.path("a.log.tmp"), scene.path("a-1.log")).expect("is copied");
    scene.pass(Duration::from_secs(2));
    fs::remove_file(scene.path("a.log.tmp")).expect("is removed");
    scene.pass(Duration::from_secs(100));
    assert_times(&scene, &all, 1);
    scene.append("a-1.log", "more\n");
    scene.settle();
    assert_eq!(scene.read.get("more"), Some(&1));
}

/// Scenario: a renamed file whose writer goes on, and others in its directory that begin alike.
/// Guarantee: none waits for it, as none has its bytes.
#[test]
fn likes_of_a_renamed_file_that_grows_are_read() {
    let mut scene = Scene::new("*.log", |_| ());
    let head = format!("{}\n", "column ".repeat(200));
    scene.append("x.log", &(head.clone() + &"old\n".repeat(5000)));
    scene.settle();
    scene.rename("x.log", "x.log.1");
    for name in ["x", "y", "z"] {
        scene.append(&format!("{name}.log"), format!("{head}{name}\n"));
    }
    scene.append("x.log.1", "still old\n");
    scene.pass(Duration::from_secs(1));
    assert!(["x", "y", "z"].iter().all(|name| scene.read.get(*name) == Some(&1)));
    assert_eq!(scene.read["still old"], 1);
}

/// Scenario: two files get the same line again and again, and one has the name of the other's copy.
/// Guarantee: it waits for ten seconds, not for as long as it grows.
#[test]
fn a_file_that_grows_as_a_like_one_waits_for_ten_seconds() {
    let mut scene = Scene::new("*.log", |_| ());
    scene.append("app.log", "tick\n".repeat(5000));
    scene.settle();
    for second in 1..=14 {
        scene.append("app.log", "tick\n");
        scene.append("app-2.log", "tick\n");
        scene.pass(Duration::from_secs(1));
        assert!(second > 9 || scene.read["tick"] == 5000 + second, "{second} s");
    }
    assert_eq!(scene.read["tick"], 5028);
}

/// Scenario: the rest of a copy comes, and the original is truncated, between two looks at the
/// copy. Guarantee: the copy is not read again.
#[test]
fn a_copy_that_is_whole_between_two_looks_is_not_read_again() {
    let mut scene = Scene::new("*", |_| ());
    let all = content(3000);
    scene.append("a.log", &all);
    scene.settle();
    let (half, rest) = all.split_at(all.len() / 2);
    scene.append("a.log.1", half);
    scene.pass(Duration::from_secs(1));
    scene.append("a.log.1", rest);
    let file = fs::File::options().write(true).open(scene.path("a.log")).expect("opens");
    file.set_len(0).expect("is truncated");
    scene.pass(Duration::from_secs(100));
    assert_times(&scene, &all, 1);
}

/// Scenario: a file is copied for longer than ten seconds, and truncated then. Guarantee: the copy
/// is not read again.
#[test]
fn a_copy_that_takes_long_is_not_read_again() {
    let mut scene = Scene::new("*", |_| ());
    let part: String = (0..16 << 10).map(|line| format!("{line:0127}\n")).collect();
    let whole = part.repeat(15);
    scene.append("a.log", &whole);
    scene.settle();
    assert_eq!(scene.read.len(), 16 << 10);
    for _ in 0..15 {
        scene.append("a.log.1", &part);
        scene.pass(Duration::from_secs(1));
    }
    let file = fs::File::options().write(true).open(scene.path("a.log")).expect("opens");
    file.set_len(0).expect("is truncated");
    scene.append("a.log", "new\n");
    scene.pass(Duration::from_secs(20));
    assert_eq!(scene.read.remove("new"), Some(1));
    assert!(scene.read.values().all(|times| *times == 15));
}

/// Scenario: a file is truncated, which is seen, and grows again, with the same lines, beyond the
/// place that was reached; the agent may be restarted between. Guarantee: all of it is read.
#[test]
fn a_content_that_was_truncated_is_not_found_again_in_its_file() {
    for restarts in [false, true] {
        let mut scene = Scene::new("*", |_| ());
        scene.append("a.log", "tick\n".repeat(1000));
        scene.settle();
        let file = fs::File::options().write(true).open(scene.path("a.log")).expect("opens");
        file.set_len(0).expect("is truncated");
        scene.settle();
        if restarts {
            scene.stop();
        }
        scene.append("a.log", "tick\n".repeat(1500));
        if restarts {
            scene.start();
        }
        scene.settle();
        assert_eq!(scene.read["tick"], 2500, "{restarts}");
    }
}
