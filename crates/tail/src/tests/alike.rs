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
            scene.append("a.log", &format!("a{round}\n"));
            scene.append("b.log", &format!("b{round}\n"));
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
