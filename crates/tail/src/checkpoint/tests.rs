use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use proptest::prelude::*;

use super::*;
use crate::{Head, Inode, Mark};

const NO_PATIENCE: Duration = Duration::ZERO;

fn known() -> impl Strategy<Value = Known> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    (numbers, any::<bool>(), any::<u32>(), prop::collection::vec(1_u8.., 1..20)).prop_map(
        |((device, number, offset, lead, hash), is_within, len, path)| Known {
            inode: Inode { device, number },
            path: PathBuf::from(OsString::from_vec(path)),
            head: Head { len, hash },
            mark: Mark { offset, records: offset / 2, lead, is_within },
            unread: lead % 3,
        },
    )
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

    /// Scenario: changes are appended, and the last bytes are missing or others. Guarantee: the
    /// checkpoint is that of the last part that is whole.
    #[test]
    fn changes_that_are_torn_are_left_out(
        first in prop::collection::vec(known(), 0..4),
        parts in prop::collection::vec(
            prop::collection::vec((0_u64..6, prop::option::of(known())), 1..4), 1..4),
        cut in any::<prop::sample::Index>(),
        flips in any::<bool>(),
    ) {
        let mut text = encode(&first).into_bytes();
        let mut now: HashMap<u64, Known> = (0..).zip(first).collect();
        let mut states = vec![(text.len(), now.clone())];
        for part in parts {
            let mut added = String::new();
            for (number, known) in part {
                add_line(&mut added, number, known.as_ref());
                match known {
                    Some(known) => drop(now.insert(number, known)),
                    None => drop(now.remove(&number)),
                }
            }
            add_sum(&mut added);
            text.extend_from_slice(added.as_bytes());
            states.push((text.len(), now.clone()));
        }
        let at = states[0].0 + cut.index(text.len() - states[0].0 + 1);
        if !flips {
            text.truncate(at);
        } else if at < text.len() {
            text[at] ^= 1;
        }
        let (whole, expected) = states.iter().rev().find(|(end, _)| *end <= at).expect("a state");
        let (read, length) = read(&text).expect("the first part is whole");
        prop_assert_eq!(length, *whole);
        let sorted = |known: &mut dyn Iterator<Item = &Known>| {
            let mut lines: Vec<String> = known.map(Known::to_line).collect();
            lines.sort();
            lines
        };
        prop_assert_eq!(sorted(&mut read.iter()), sorted(&mut expected.values()));
    }
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
    for content in ["sluice-tail 2\nx\ncrc32c 00000000\n", "sluice-tail 3\n", "", "other"] {
        let (checkpoint, known) = open().expect("opens");
        assert_eq!(known, None);
        checkpoint.save(content).expect("is written");
        drop(checkpoint);
        let (checkpoint, known) = open().expect("opens");
        assert_eq!(known, None);
        assert!(fs::read(beside(&path, ".unusable")).expect("is there") == content.as_bytes());
        assert!(!path.exists());
        drop(checkpoint);
    }
    let (checkpoint, _) = open().expect("opens");
    checkpoint.save(&encode(&[])).expect("is written");
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
