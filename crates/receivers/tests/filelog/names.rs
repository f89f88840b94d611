//! Names of what is read again, by which another Sluice knows what it has had.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::harness::{Engine, Scene, until};

const PARSED: &str = "poll_interval: 50ms, operators: [\
    {type: regex_parser, regex: '^(?P<kind>[a-z]+)'}, \
    {type: filter, expr: 'attributes.kind == \"no\"'}, \
    {type: move, from: attributes.kind, to: resource.kind}]";

async fn named(options: &str) -> Scene {
    let engine = Engine { names: AtomicBool::new(true), ..Engine::default() };
    engine.holds.store(true, Ordering::SeqCst);
    Scene::start_with(options, engine).await
}

impl Scene {
    fn stored(&self) -> BTreeMap<String, u32> {
        self.engine.gateway.lock().expect("is whole").stored.clone()
    }

    fn repeated_and_unnamed(&self) -> (usize, usize) {
        let gateway = self.engine.gateway.lock().expect("is whole");
        (gateway.repeated_requests, gateway.unnamed_records)
    }

    async fn until_stored(&self, count: usize) {
        until(&format!("{count} lines are stored"), || self.stored().len() >= count).await;
        // All that was read again has come.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Scenario: lines come a few at a time, nothing is resolved, and the process is killed again and
/// again. Guarantee: they are stored once, as they are and behind operators that drop lines and
/// make several resources.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_are_read_again_are_stored_once() {
    for options in ["poll_interval: 50ms", PARSED] {
        let mut scene = named(options).await;
        let mut count = 0;
        for round in 0..4 {
            for step in 0..3 {
                for kind in ["a", "b", "no", "a"] {
                    let file = ["x", "y"][step % 2];
                    scene.append(file, &format!("{kind} {round} {step} {count}\n"));
                    count += usize::from(kind != "no" || options != PARSED);
                }
                scene.until_stored(count).await;
            }
            scene.kill().await;
            scene.serve().await;
        }
        scene.append("x", "a last\n");
        scene.until_stored(count + 1).await;
        let (repeated, unnamed) = scene.repeated_and_unnamed();
        assert!(scene.stored().values().all(|times| *times == 1), "{:?}", scene.stored());
        assert!(repeated >= 20 && unnamed == 0, "{repeated} repeated, {unnamed} unnamed");
    }
}

/// Scenario: an operator that drops lines is taken out after a kill. Guarantee: the lines that it
/// dropped are stored, although they are in ranges that were sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_other_options_keep_are_stored() {
    let mut scene = named(PARSED).await;
    scene.append("x", "a 1\nno 2\na 3\nno 4\n");
    scene.until_stored(2).await;
    scene.kill().await;
    scene.options = "poll_interval: 50ms".to_owned();
    scene.serve().await;
    scene.until_stored(4).await;
}

/// Scenario: a file is written anew after a kill. Guarantee: what it has now is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_of_a_file_that_was_written_anew_are_stored() {
    let mut scene = named("poll_interval: 50ms").await;
    scene.append("x", "a 1\na 2\na 3\n");
    scene.until_stored(3).await;
    scene.kill().await;
    std::fs::write(scene.path("x"), "a 1\nb 2\na 3\n").expect("is written");
    scene.serve().await;
    scene.until_stored(4).await;
    assert!(scene.stored().contains_key("b 2"));
}

/// Scenario: a file is written anew while no process runs, and later it gets a line that it had at
/// the same place before. Guarantee: that line is stored, as it is another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_content_has_no_names_of_the_one_before() {
    let mut scene = named("poll_interval: 50ms").await;
    for (count, line) in ["a 1\n", "like\n"].iter().enumerate() {
        scene.append("x", line);
        scene.until_stored(count + 1).await;
    }
    scene.kill().await;
    std::fs::write(scene.path("x"), "b 1\n").expect("is written");
    scene.serve().await;
    scene.until_stored(3).await;
    // The checkpoint has it.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    scene.kill().await;
    scene.append("x", "like\n");
    scene.serve().await;
    until("the line is stored again", || scene.stored()["like"] == 2).await;
}

/// Scenario: an operator drops lines by chance, and the process is killed again and again.
/// Guarantee: a name stands for the same lines for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_chance_keeps_have_names_of_their_own() {
    let options = "poll_interval: 50ms, \
        operators: [{type: filter, expr: 'true', drop_ratio: 0.5}]";
    let mut scene = named(options).await;
    for round in 0..8 {
        let text: String = (0..4).map(|step| format!("{round} {step}\n")).collect();
        scene.append("x", &text);
        // The engine asserts it.
        tokio::time::sleep(Duration::from_millis(300)).await;
        scene.kill().await;
        scene.serve().await;
    }
    scene.engine.holds.store(false, Ordering::SeqCst);
    scene.append("x", "last\n");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(scene.engine.gateway.lock().is_ok(), "a name stood for other lines");
    assert!(scene.stored().len() > 4);
}

/// Scenario: an operator holds the first lines of a record when the process is killed. Guarantee:
/// requests that depend on it have no name, and every line is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_several_ranges_have_no_name() {
    let options = "poll_interval: 50ms, operators: [{type: recombine, combine_field: body, \
        is_first_entry: 'body startsWith \"-\"', force_flush_period: 1h}]";
    let mut scene = named(options).await;
    for step in 0..5 {
        scene.append("x", &format!("- {step}\n"));
        if step > 0 {
            scene.until_stored(step).await;
        }
        scene.append("x", "more\n");
    }
    scene.kill().await;
    scene.serve().await;
    scene.append("x", "- last\n");
    scene.until_stored(5).await;
    let (repeated, unnamed) = scene.repeated_and_unnamed();
    assert!(repeated == 0 && unnamed >= 9, "{repeated} repeated, {unnamed} unnamed");
    assert!(scene.stored().contains_key("- 4\nmore"), "{:?}", scene.stored());
}

/// Guarantee: without an exporter that names what it sends, nothing is noted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_noted_unless_it_is_of_use() {
    for names in [true, false] {
        let mut scene = named("poll_interval: 50ms").await;
        scene.engine.names.store(names, Ordering::SeqCst);
        scene.append("x", "1\n2\n");
        scene.until_stored(2).await;
        scene.stop().await;
        let text = std::fs::read_to_string(scene.checkpoint()).expect("is there");
        assert_eq!(text.contains(" sent "), names, "{text}");
    }
}

/// Scenario: a reload and then a kill while all is under way. Guarantee: lines are stored once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_outlive_a_reload() {
    let mut scene = named("poll_interval: 50ms").await;
    for line in 0..3 {
        scene.append("x", &format!("{line}\n"));
        scene.until_stored(line + 1).await;
    }
    scene.streams = scene.stop().await;
    scene.serve().await;
    scene.append("x", "3\n");
    scene.until_stored(4).await;
    scene.kill().await;
    scene.serve().await;
    scene.append("x", "4\n");
    scene.until_stored(5).await;
    assert!(scene.stored().values().all(|times| *times == 1), "{:?}", scene.stored());
    assert_eq!(scene.repeated_and_unnamed(), (4, 0));
}

/// Scenario: requests are refused and lost at random, files rotate, some are cut off and written
/// anew with like lines, and the process is killed. Guarantee: no line is lost, and a name stands
/// for the same records for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_line_is_lost_whatever_happens() {
    for options in ["poll_interval: 10ms", PARSED] {
        let mut scene = named(options).await;
        for chances in [&scene.engine.refusals, &scene.engine.drops, &scene.engine.delays] {
            (chances as &AtomicU64).store(15, Ordering::SeqCst);
        }
        let mut all = 0;
        for round in 0..6 {
            for step in 0..20 {
                for _ in 0..fastrand::u32(1..4) {
                    scene.append(["x", "y"][step % 2], &format!("a {all} \n\n"));
                    all += 1;
                }
                tokio::time::sleep(Duration::from_millis(fastrand::u64(0..60))).await;
                if fastrand::u32(..8) == 0 {
                    scene.engine.release();
                    scene.engine.holds.store(true, Ordering::SeqCst);
                }
            }
            scene.kill().await;
            for name in ["x", "y"] {
                match fastrand::u32(..3) {
                    0 => std::fs::rename(scene.path(name), scene.path(&format!("{name}.{round}")))
                        .expect("is renamed"),
                    1 => {
                        // As many bytes, of which some are others.
                        let text = std::fs::read_to_string(scene.path(name)).expect("is there");
                        let anew = text.replacen("a ", "b ", 1);
                        std::fs::write(scene.path(name), anew).expect("is written");
                    }
                    _ => {}
                }
            }
            scene.serve().await;
        }
        for chances in [&scene.engine.refusals, &scene.engine.drops, &scene.engine.delays] {
            (chances as &AtomicU64).store(0, Ordering::SeqCst);
        }
        let is_there = |number: i32| {
            let stored = scene.stored();
            ["a", "b"].iter().any(|kind| stored.contains_key(&format!("{kind} {number}")))
        };
        until("all lines are stored", || (0..all).all(is_there)).await;
        let (repeated, _) = scene.repeated_and_unnamed();
        assert!(repeated > 0, "{repeated}: the test is about lines that are read again");
    }
}
