//! Names of ranges that are read again.

use std::collections::HashMap;

use super::*;

const SEED: u64 = 5;

/// The meaning of a name: the file's content, a place in it, and the lines from there.
type Range = (u64, Vec<String>);

/// Reads ranges and gives them names, as a receiver does.
#[derive(Default)]
struct Names {
    of: HashMap<Name, Range>,
    /// Lines that were sent under a name that they had before.
    again: usize,
}

impl Scene {
    /// Reads what is there in ranges of so many lines, and sends it. Resolves nothing. Returns the
    /// names, and whether each is new.
    fn send(&mut self, names: &mut Names, lines: usize, seed: u64) -> Vec<(Name, bool)> {
        let (mut sent, now) = (Vec::new(), self.now);
        self.tail().look(now);
        while let Some(id) = self.tail().next(now) {
            let tail = self.tail();
            let Some(id) = tail.turn(id, now) else { continue };
            while tail.fill(id, WINDOW_BYTES, now) != Turn::Over {
                let start = tail.begin_range(id);
                tail.sum_range(id, seed);
                let mut texts = Vec::new();
                while texts.len() < lines
                    && let Some(line) = tail.line(id)
                {
                    texts.push(String::from_utf8_lossy(line.text).into_owned());
                }
                let (range, items) = (start..tail.end_range(id), texts.len());
                if items == 0 {
                    continue;
                }
                let (named, is_new) = tail.name(id, &range, items as u32).expect("it has a name");
                sent.push((named.name, is_new));
                names.again += if is_new { 0 } else { items };
                let range = (start, texts);
                let before = names.of.entry(named.name).or_insert_with(|| range.clone());
                assert_eq!(*before, range, "a name stands for one range for ever");
            }
            tail.end_turn(id, true);
        }
        self.pass_time();
        sent
    }

    fn pass_time(&mut self) {
        self.now += Duration::from_secs(1);
    }

    /// The process ends, and another one starts, at the lowest range that is not resolved: here at
    /// the beginnings of all files.
    fn kill(&mut self) {
        let tail = self.tail();
        let ids: Vec<FileId> = tail.contents().map(|(id, ..)| id).collect();
        for id in ids {
            tail.rewind(id, 0);
        }
        self.stop();
        self.start();
    }
}

fn scene() -> (Scene, Names) {
    (Scene::new("*", |_| ()), Names::default())
}

/// Scenario: lines come a few at a time, with empty ones between, are sent and not resolved when
/// the process is killed. Guarantee: read again, together with all that came since, they have the
/// names that they had, and what is new has others.
#[test]
fn ranges_that_are_read_again_have_their_names() {
    let (mut scene, mut names) = scene();
    let mut before = Vec::new();
    for text in ["a1\na2\n", "\n\n", "a3\n\n", "a4\na5\na6\na7\n\n\n", "\na8\npart", "ial\n"] {
        scene.append("a", text);
        before.extend(scene.send(&mut names, 3, SEED));
    }
    assert!(before.iter().all(|(_, is_new)| *is_new));
    assert_eq!(before.len(), 6);
    for round in 0..3 {
        scene.kill();
        scene.append("a", format!("new {round}\n"));
        let mut again = scene.send(&mut names, 3, SEED);
        let new = again.pop().expect("something is new");
        assert!(new.1 && again.iter().all(|(_, is_new)| !is_new), "{again:?}");
        let known: Vec<Name> = again.iter().map(|(name, _)| *name).collect();
        assert_eq!(known, before.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        before.push(new);
    }
}

/// Scenario: a file is written anew between two looks, as long as before and with the same first
/// and last lines. Guarantee: what differs has new names.
#[test]
fn a_range_with_other_bytes_has_another_name() {
    let (mut scene, mut names) = scene();
    // Longer than the fingerprint.
    let first = "first".repeat(300);
    scene.append("a", format!("{first}\none\ntwo\nlast\n"));
    scene.send(&mut names, 1, SEED);
    scene.kill();
    fs::write(scene.path("a"), format!("{first}\none\nTWO\nlast\n")).expect("is written");
    let again: Vec<bool> =
        scene.send(&mut names, 1, SEED).into_iter().map(|(_, is_new)| is_new).collect();
    assert_eq!(again, [false, false, true, false]);
}

/// Scenario: a power cut takes the last lines of a file, of which some had been sent, and as many
/// like ones come in their place. Guarantee: these have new names.
#[test]
fn lines_in_the_place_of_ones_that_were_lost_have_other_names() {
    let (mut scene, mut names) =
        (Scene::new("*", |options| options.head_bytes = 8), Names::default());
    scene.append("a", "first line\nlike\nlike\n");
    assert_eq!(scene.send(&mut names, 1, SEED).len(), 3);
    let tail = scene.tail();
    let (id, ..) = tail.contents().next().expect("there is one");
    tail.resolved(id, 16);
    scene.stop();
    fs::write(scene.path("a"), "first line\n").expect("is written");
    scene.start();
    scene.send(&mut names, 1, SEED);
    assert_eq!(scene.tail().counts.shortened, 1);
    scene.append("a", "like\nlike\n");
    let new = scene.send(&mut Names::default(), 1, SEED);
    let is_new: Vec<bool> = new.iter().map(|(_, is_new)| *is_new).collect();
    assert_eq!(is_new, [true, true]);
}

/// Scenario: the options change so that other records, or as many other ones, are made of a range.
/// Guarantee: it has another name.
#[test]
fn a_range_of_which_something_else_is_made_has_another_name() {
    let (mut scene, mut names) = scene();
    scene.append("a", "1\n2\n3\n4\n");
    let first = scene.send(&mut names, 4, SEED);
    scene.kill();
    let other = scene.send(&mut Names::default(), 4, SEED + 1);
    assert!(other.iter().all(|(name, is_new)| *is_new && first[0].0 != *name));
    // Of the same bytes so many items are made.
    scene.append("b", "b\n");
    scene.now += Duration::from_secs(60);
    let (now, tail) = (scene.now, scene.tail.as_mut().expect("it runs"));
    tail.look(now);
    let id = loop {
        let id = tail.next(now).expect("there is a new file");
        if tail.path(id).is_some_and(|path| path.ends_with("b")) {
            break tail.turn(id, now).expect("can be read");
        }
    };
    let mut name = |items| {
        assert_eq!(tail.fill(id, WINDOW_BYTES, now), Turn::Lines);
        let start = tail.begin_range(id);
        tail.sum_range(id, SEED);
        assert!(tail.line(id).is_some());
        let range = start..tail.end_range(id);
        let (sent, is_new) = tail.name(id, &range, items).expect("it has a name");
        tail.rewind(id, start);
        (sent.name, is_new)
    };
    let (one, other) = (name(1), name(2));
    assert!(one.1 && other.1 && one.0 != other.0);
    assert_eq!(name(2), (other.0, false));
}

/// Scenario: a range is cut otherwise when it is read again. Guarantee: it has another name, and
/// ranges behind it have their own ones.
#[test]
fn a_range_that_is_cut_otherwise_has_another_name() {
    let (mut scene, mut names) = scene();
    scene.append("a", "1\n2\n3\n4\n5\n6\n");
    let first = scene.send(&mut names, 3, SEED);
    scene.kill();
    let again = scene.send(&mut names, 2, SEED);
    let is_new: Vec<bool> = again.iter().map(|(_, is_new)| *is_new).collect();
    assert_eq!((first.len(), is_new), (2, vec![true, true, true, true]));
    scene.kill();
    let again = scene.send(&mut names, 3, SEED);
    assert!(again.iter().all(|(_, is_new)| !is_new), "it is cut as the last time: {again:?}");
}

/// Scenario: at random files grow, are rotated, truncated and written anew, ranges are resolved,
/// and the process is killed, with its last checkpoint or an older one. Guarantee: a name stands
/// for the same lines for ever.
#[test]
fn a_name_stands_for_the_same_lines_whatever_happens() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut again = 0;
    for _ in 0..60 {
        let (mut scene, mut names) = scene();
        let mut older = None;
        for step in 0..40 {
            let name = ["a", "b"][random.usize(..2)];
            match random.u32(..12) {
                0..5 => {
                    let text = ["x\n", "yy\n", "\n", "zzz", "x\nx\n"][random.usize(..5)];
                    scene.append(name, text);
                }
                5 => {
                    let text = ["x\n", "x\nyy\n", "", "yy\nx\n"][random.usize(..4)];
                    fs::write(scene.path(name), text).expect("is written");
                }
                6 if scene.path(name).exists() => scene.rename(name, &format!("{name}.{step}")),
                7 => {
                    let tail = scene.tail();
                    let all: Vec<_> = tail.contents().collect();
                    for (id, _, begun) in all.into_iter().filter(|(.., begun)| !begun.is_empty()) {
                        tail.resolved(id, begun[random.usize(..begun.len())].offset);
                    }
                }
                8 => {
                    let tail = scene.tail();
                    let all: Vec<_> = tail.contents().collect();
                    for (id, _, begun) in all.into_iter().filter(|(.., begun)| !begun.is_empty()) {
                        tail.rewind(id, begun[random.usize(..begun.len())].offset);
                    }
                }
                9 => {
                    scene.stop();
                    if random.bool() && older.is_some() {
                        scene.known = older.clone();
                    }
                    scene.start();
                }
                10 => older = Some(scene.tail().known()),
                _ => {}
            }
            let lines = random.usize(1..4);
            scene.send(&mut names, lines, SEED);
        }
        again += names.again;
    }
    assert!(again > 500, "{again}: the test is about names that are given again");
}

/// Scenario: for hours ranges are sent and resolved. Guarantee: the checkpoint is written anew
/// before it is long, and seldom.
#[test]
fn ranges_that_are_sent_do_not_make_a_checkpoint_long() {
    let (mut scene, mut names) = scene();
    scene.append("a", "a\n");
    scene.send(&mut names, 1, SEED);
    let mut journal = Journal::default();
    assert!(matches!(journal.next(scene.tail()), Some(Write::Whole(_))));
    let (id, ..) = scene.tail().contents().next().expect("there is one");
    let (mut length, mut longest, mut wholes, mut all) = (0, 0, 0, 0);
    for number in 0..50_000 {
        let name = Name { run: u128::MAX, number };
        let sent = Sent { name, start: 1 << 40, end: 1 << 41, sum: 7 };
        let text = journal.sent(scene.tail(), id, &sent).expect("it is begun");
        (length, all) = (length + text.len(), all + text.len());
        if number % 500 == 0 {
            let end = scene.tail().contents().next().map_or(0, |(_, known, _)| known.mark.offset);
            scene.tail().resolved(id, end);
            scene.append("a", "a\n");
            scene.send(&mut names, 1, SEED);
            match journal.next(scene.tail()) {
                Some(Write::Whole(text)) => (wholes, length) = (wholes + 1, text.len()),
                Some(Write::Changes(text)) => length += text.len(),
                None => {}
            }
        }
        longest = longest.max(length);
    }
    assert!(longest < 1_200_000 && all > 4_000_000, "{longest} of {all} bytes");
    assert!((3..7).contains(&wholes), "{wholes}");
}
