use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use proptest::prelude::*;

use super::*;
use crate::{Head, Inode, Mark};

const NO_PATIENCE: Duration = Duration::ZERO;

fn sent() -> impl Strategy<Value = Sent> {
    (any::<u128>(), any::<u64>(), 0_u64..1000, 1_u64..1000, any::<u32>()).prop_map(
        |(run, number, start, len, sum)| {
            let name = crate::Name { run, number };
            Sent { name, start, end: start + len, sum }
        },
    )
}

fn known() -> impl Strategy<Value = Known> {
    let sent = prop::collection::vec(sent(), 0..3);
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    (numbers, any::<bool>(), any::<u32>(), prop::collection::vec(1_u8.., 1..20), sent).prop_map(
        |((device, number, offset, lead, hash), is_within, len, path, sent)| Known {
            inode: Inode { device, number },
            path: PathBuf::from(OsString::from_vec(path)),
            head: Head { len, hash },
            mark: Mark { offset, records: offset / 2, lead, is_within },
            sent,
            unread: lead % 3,
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        known().prop_map(|known| Change::Content(Known { sent: Vec::new(), ..known })),
        sent().prop_map(Change::Sent),
        Just(Change::Gone),
    ]
}

fn write_whole(checkpoint: &Checkpoint, text: &str) -> io::Result<()> {
    let write = Write::Whole(text.to_owned());
    checkpoint.begin(&write).and_then(|()| checkpoint.finish(&write))
}

proptest! {
    #[test]
    fn a_checkpoint_is_read_as_it_was_written(
        known in prop::collection::vec(known(), 0..5),
        flipped in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let text = encode(&known);
        prop_assert_eq!(decode(text.as_bytes()), Ok(known));
        let mut damaged = text.clone().into_bytes();
        let at = flipped.index(damaged.len());
        damaged[at] ^= 1;
        prop_assert!(decode(&damaged).is_err());
        prop_assert!(decode(&text.as_bytes()[..cut.index(text.len())]).is_err());
    }

    /// Scenario: changes are appended, and the last bytes are missing, or a byte is another.
    /// Guarantee: the checkpoint is that of the parts that are whole. A part whose end is damaged
    /// takes the next one with it.
    #[test]
    fn changes_that_are_not_whole_are_left_out(
        first in prop::collection::vec(known(), 0..4),
        parts in prop::collection::vec(
            prop::collection::vec((0_u64..6, change()), 1..4), 1..4),
        cut in any::<prop::sample::Index>(),
        flips in any::<bool>(),
    ) {
        let mut text = encode(&first).into_bytes();
        let mut ends = vec![text.len()];
        for part in &parts {
            let mut added = String::new();
            for (number, change) in part {
                match change {
                    Change::Content(known) => add_line(&mut added, *number, Some(known)),
                    Change::Sent(sent) => add_sent(&mut added, *number, sent),
                    Change::Gone => add_line(&mut added, *number, None),
                }
            }
            add_sum(&mut added);
            text.extend_from_slice(added.as_bytes());
            ends.push(text.len());
        }
        let at = ends[0] + cut.index(text.len() - ends[0] + 1);
        let broken = ends.iter().position(|end| at < *end).unwrap_or(ends.len());
        let (length, is_broken) = (text.len(), at < text.len());
        if !flips {
            text.truncate(at);
        } else if is_broken {
            text[at] ^= 1;
        }
        let read = read(&text).expect("the first part is whole");
        let without = |left_out: std::ops::Range<usize>| {
            let parts = (1..).zip(&parts).filter(|(index, _)| !left_out.contains(index));
            state_of(&first, parts.flat_map(|(_, part)| part))
        };
        let found = sorted(&read.known);
        if !flips {
            prop_assert_eq!(found, without(broken..ends.len()));
            let torn_bytes = at - ends[broken.min(ends.len()) - 1];
            prop_assert_eq!((read.torn_bytes, read.damaged_bytes), (torn_bytes, 0));
        } else {
            let is_alone = found == without(broken..broken + 1);
            prop_assert!(is_alone || found == without(broken..broken + 2));
            let lost = length - ends[broken.min(ends.len()) - 1];
            prop_assert_eq!(read.torn_bytes + read.damaged_bytes > 0, is_broken);
            prop_assert!(read.torn_bytes + read.damaged_bytes <= lost);
        }
    }
}

/// The checkpoint that the changes make, in the order of the lines.
fn state_of<'c>(first: &[Known], changes: impl Iterator<Item = &'c (u64, Change)>) -> Vec<Known> {
    let mut now: BTreeMap<u64, Known> = (0..).zip(first.iter().cloned()).collect();
    for (number, change) in changes {
        match change {
            Change::Content(known) => {
                let before = now.remove(number).map(|it| it.sent).unwrap_or_default();
                let end = known.mark.offset;
                let sent = before.into_iter().filter(|it| it.end > end).collect();
                now.insert(*number, Known { sent, ..known.clone() });
            }
            Change::Sent(sent) => {
                now.entry(*number).and_modify(|it| it.sent.push(*sent));
            }
            Change::Gone => {
                now.remove(number);
            }
        }
    }
    sorted(&now.into_values().collect::<Vec<_>>())
}

fn sorted(known: &[Known]) -> Vec<Known> {
    let mut known = known.to_vec();
    known.sort_by_key(Known::to_line);
    known
}

/// Scenario: of several parts that were appended one in the middle is damaged. Guarantee: the later
/// ones count, and the damaged file is kept.
#[test]
fn a_part_that_is_damaged_is_left_out_and_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("checkpoint");
    let known = |offset: u64| Known {
        inode: Inode { device: 1, number: 2 },
        path: PathBuf::from("/a"),
        head: Head { len: 3, hash: 4 },
        mark: Mark { offset, ..Mark::default() },
        sent: Vec::new(),
        unread: 0,
    };
    let mut text = encode(&[known(1)]);
    let damaged_at = text.len();
    for offset in [2, 3, 4] {
        let mut part = String::new();
        add_line(&mut part, 0, Some(&known(offset)));
        add_sum(&mut part);
        text.push_str(&part);
    }
    let mut bytes = text.into_bytes();
    bytes[damaged_at + 3] ^= 1;
    fs::write(&path, &bytes).expect("is written");
    let (_, found) = Checkpoint::open(&path, NO_PATIENCE).expect("opens");
    assert_eq!(found.expect("is read")[0].mark.offset, 4);
    assert_eq!(fs::read(beside(&path, ".unusable")).expect("is kept"), bytes);
}

#[test]
fn a_checkpoint_of_the_first_version_is_read() {
    let body = "sluice-tail 1\n1 2 3 4 5 0 6 7 /a%20b\n8 9 0 0 0 1 0 0 /c\n";
    let text = format!("{body}crc32c {:08x}\n", crc32c::crc32c(body.as_bytes()));
    let known = decode(text.as_bytes()).expect("is read");
    let paths: Vec<_> = known.iter().map(|it| it.path.display().to_string()).collect();
    assert_eq!((paths, known[0].mark.offset), (vec!["/a b".to_owned(), "/c".to_owned()], 3));
}

/// Scenario: a checkpoint that is damaged, and one of a newer version. Guarantee: each is put
/// aside, and a new one can be written.
#[test]
fn a_checkpoint_that_cannot_be_used_is_kept_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("below/checkpoint");
    let open = || Checkpoint::open(&path, NO_PATIENCE);
    let contents = ["sluice-tail 3\nx\ncrc32c 00000000\n", "sluice-tail 4\n", "", "other"];
    let endings = [".unusable", ".unusable.2", ".unusable.3", ".unusable.4"];
    for (content, ending) in contents.into_iter().zip(endings) {
        let (checkpoint, known) = open().expect("opens");
        assert_eq!(known, None);
        write_whole(&checkpoint, content).expect("is written");
        drop(checkpoint);
        let (checkpoint, known) = open().expect("opens");
        assert_eq!(known, None);
        assert!(fs::read(beside(&path, ending)).expect("is there") == content.as_bytes());
        assert!(!path.exists());
        drop(checkpoint);
    }
    let (checkpoint, _) = open().expect("opens");
    write_whole(&checkpoint, &encode(&[])).expect("is written");
    drop(checkpoint);
    assert_eq!(open().expect("opens").1, Some(Vec::new()));
    let error = Checkpoint::open(&path.join("below"), NO_PATIENCE).expect_err("is below a file");
    assert!(error.contains("cannot make the directory"), "{error}");
}

/// Scenario: the checkpoint is in use, by this process or by another one. Guarantee: only the end
/// of the former is waited for, and for a bounded time.
#[test]
fn a_checkpoint_in_use_is_waited_for_if_this_process_uses_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("checkpoint");
    let (held, _) = Checkpoint::open(&path, NO_PATIENCE).expect("opens");
    let error = Checkpoint::open(&path, NO_PATIENCE).expect_err("is in use");
    assert!(error.contains("configured before"), "{error}");
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(held);
    });
    let opened = Checkpoint::open(&path, Duration::from_secs(60));
    let (_held, _) = opened.expect("opens once it is free");
    ends.join().expect("ends");
    fs::write(beside(&path, ".lock"), "0").expect("is written");
    let start = Instant::now();
    let error = Checkpoint::open(&path, Duration::from_secs(60)).expect_err("is in use");
    assert!(error.contains("another process") && start.elapsed().as_secs() < 30, "{error}");
}

/// Scenario: ranges are sent, also while the checkpoint is written anew, and the process is killed
/// at any time. Guarantee: they are known, in either file.
#[test]
fn ranges_that_are_sent_are_known_whenever_a_kill_comes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("checkpoint");
    let content = Known { path: "/a".into(), ..Known::default() };
    let text = |number| {
        let name = crate::Name { run: 1, number };
        let sent = Sent { name, start: number * 10, end: number * 10 + 10, sum: 5 };
        let mut text = String::new();
        add_sent(&mut text, 0, &sent);
        add_sum(&mut text);
        text
    };
    let has = |numbers: &[u64]| {
        let known = decode(&fs::read(&path).expect("is there")).expect("is a checkpoint");
        let sent: Vec<u64> = known[0].sent.iter().map(|it| it.name.number).collect();
        assert_eq!(sent, numbers);
    };
    let (checkpoint, _) = Checkpoint::open(&path, NO_PATIENCE).expect("opens");
    let is_refused = !checkpoint.can_append() && checkpoint.append(&text(0)).is_err();
    assert!(is_refused, "its contents have no numbers yet");
    let whole = Write::Whole(encode(std::slice::from_ref(&content)));
    write_whole(&checkpoint, &encode(std::slice::from_ref(&content))).expect("is written");
    has(&[]);
    checkpoint.append(&text(1)).expect("is appended");
    has(&[1]);
    let content = Known {
        sent: decode(&fs::read(&path).expect("is there")).expect("is a checkpoint")[0].sent.clone(),
        ..content
    };
    let again = Write::Whole(encode(std::slice::from_ref(&content)));
    checkpoint.begin(&again).expect("begins");
    checkpoint.append(&text(2)).expect("is appended");
    has(&[1, 2]);
    checkpoint.finish(&again).expect("is written");
    has(&[1, 2]);
    checkpoint.append(&text(3)).expect("is appended");
    has(&[1, 2, 3]);
    // A whole one has all that its text had, and nothing of before.
    checkpoint.begin(&whole).and_then(|()| checkpoint.finish(&whole)).expect("is written");
    has(&[]);
}

/// Scenario: an append fails, and a part of it may be there. Guarantee: nothing is appended behind
/// it, where it would not be read, until the checkpoint is whole again.
#[test]
fn nothing_is_appended_behind_what_may_be_torn() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("checkpoint");
    let (checkpoint, _) = Checkpoint::open(&path, NO_PATIENCE).expect("opens");
    write_whole(&checkpoint, &encode(&[])).expect("is written");
    checkpoint.growing().file = Some(File::open(&path).expect("opens, to be read only"));
    assert!(checkpoint.append("x").is_err());
    assert!(!checkpoint.can_append() && checkpoint.append("x").is_err());
    write_whole(&checkpoint, &encode(&[])).expect("is written");
    checkpoint.append("x").expect("is appended");
    assert!(fs::read(&path).expect("is there").ends_with(b"\nx"));
}

#[test]
fn a_checkpoint_of_an_older_release_is_read() {
    let known = Known { path: "/a".into(), ..Known::default() };
    for version in [1, 2] {
        let number = if version == 1 { "" } else { "7 " };
        let mut text = format!("sluice-tail {version}\n{number}{}\n", known.to_line());
        add_sum(&mut text);
        assert_eq!(decode(text.as_bytes()), Ok(vec![known.clone()]));
    }
}

/// Guarantee: only its owner reads the checkpoint, and what is left of a release before.
#[test]
fn a_checkpoint_is_its_owners() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("checkpoint");
    let mode = |path: &Path| fs::metadata(path).expect("is there").permissions().mode() & 0o777;
    fs::write(beside(&path, ".new"), "").expect("is written");
    let (checkpoint, _) = Checkpoint::open(&path, NO_PATIENCE).expect("opens");
    write_whole(&checkpoint, &encode(&[])).expect("is written");
    assert_eq!((mode(&path), mode(&beside(&path, ".lock"))), (0o600, 0o600));
}

/// Scenario: the file system has no locks left. Guarantee: no other process is blamed.
#[test]
fn a_failure_to_lock_is_told_as_such() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("checkpoint");
    let failed = lock(&path, NO_PATIENCE, |_| Err(Errno::NOLCK)).expect_err("fails");
    assert!(failed.starts_with("cannot lock the checkpoint with"), "{failed}");
    let interrupted = std::cell::Cell::new(true);
    let twice = |_: &File| if interrupted.replace(false) { Err(Errno::INTR) } else { Ok(()) };
    assert!(lock(&path, NO_PATIENCE, twice).is_ok());
}

/// Scenario: a damaged checkpoint cannot be copied. Guarantee: nothing of the copy is left.
#[test]
fn a_copy_that_fails_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("checkpoint");
    let told = copy_aside(&path, |to| {
        to.write_all(b"a part of it")?;
        Err(Errno::NOSPC.into())
    });
    assert!(told.contains("No space left"), "{told}");
    assert_eq!(fs::read_dir(folder.path()).expect("is listed").count(), 0);
    let told = copy_aside(&path, |to| to.write_all(b"all"));
    assert_eq!(told, beside(&path, ".unusable").display().to_string());
}
