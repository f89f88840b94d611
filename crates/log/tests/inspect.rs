//! A directory is inspected and verified without changing it, whatever state it is in.

mod support;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sluice_log::cursors::{CURSORS_DIRECTORY, CursorFile, file_name};
use sluice_log::dead_letters::{DeadLetter, DeadLetters};
use sluice_log::disk::Disk;
use sluice_log::format::{CursorState, Refusal};
use sluice_log::inspect::{Finding, overview, verify};
use sluice_log::{Holding, RecordFacts};
use support::faulty_disk::{FaultyDisk, Operation};
use support::frames::{TestFrame, create, write_segment};

const ROOT: &str = "/log";
const TRACES: &str = "/log/traces";

fn holding(frames: u64, items: u64, bytes: u64) -> Holding {
    Holding { frames, items, bytes }
}

/// Two segments of traces with offsets 0..8 and 8..12, two readers, one dead letter.
fn filled() -> FaultyDisk {
    let disk = FaultyDisk::new(1);
    let mut writer = create(&disk, Path::new(TRACES), 0, 1 << 16);
    for offset in 0..8 {
        writer.append(&TestFrame::new(offset, 100).as_ref()).unwrap();
    }
    writer.seal().unwrap();
    let mut writer = create(&disk, Path::new(TRACES), 8, 1 << 16);
    for offset in 8..12 {
        writer.append(&TestFrame::new(offset, 100).as_ref()).unwrap();
    }
    writer.sync().unwrap();
    let cursors = Path::new(TRACES).join(CURSORS_DIRECTORY);
    disk.make_directory(&cursors);
    // Every frame is for the reader 1, every third one for the reader 2.
    for (id, floor, head, held) in [(1, 5, 10, holding(5, 50, 500)), (2, 0, 0, holding(0, 0, 0))] {
        let state = CursorState {
            id,
            name: format!("reader {id}"),
            floor,
            head,
            held,
            ..CursorState::default()
        };
        CursorFile::create(&disk, &cursors.join(file_name(&state.name)), &state).unwrap();
    }
    let mut letters =
        DeadLetters::open(Arc::new(disk.clone()), Path::new(TRACES), "reader 1", 1 << 20).unwrap();
    let refusal = Refusal { refused_unix_ns: 1, code: 3, reason: "no".to_owned() };
    let letter = DeadLetter {
        refusal,
        facts: RecordFacts {
            received_unix_ns: 1,
            uncompressed_len_bytes: 4,
            ..RecordFacts::default()
        },
        items: 9,
        metadata: Vec::new(),
        payload: Bytes::from_static(b"data"),
    };
    letters.append(&[letter]).unwrap();
    disk.make_directory(Path::new("/log/metrics/cursors"));
    disk.make_directory(Path::new("/log/lost+found"));
    disk
}

#[test]
fn everything_is_listed_and_nothing_is_changed() {
    let disk = filled();
    let before = disk.contents();
    let (syncs, writes) =
        (disk.counts().of(Operation::SyncData), disk.counts().of(Operation::Write));
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let logs = overview(&shared, Path::new(ROOT)).unwrap();
    assert_eq!(logs.iter().map(|log| log.name.as_str()).collect::<Vec<_>>(), ["metrics", "traces"]);
    let traces = &logs[1];
    assert_eq!(traces.segments.len(), 2);
    assert_eq!(traces.segments[0].info.as_ref().unwrap().footer.unwrap().frames, 8);
    assert_eq!(traces.segments[1].info.as_ref().unwrap().footer, None);
    // Frames that the state counts, and the frames 10 and 11 that were written since.
    assert_eq!(traces.cursors[0].held, holding(7, 50 + 11 + 12, 500 + 400));
    assert_eq!(traces.cursors[1].held, holding(4, 1 + 4 + 7 + 10, 800));
    let letters = &traces.dead_letters[0];
    assert_eq!((letters.delivery.as_str(), letters.held), ("reader 1", holding(1, 9, 4)));
    assert_eq!(disk.contents(), before);
    assert_eq!(
        (disk.counts().of(Operation::SyncData), disk.counts().of(Operation::Write)),
        (syncs, writes)
    );
}

/// Guarantee: a damaged list of cursor files is told by the listing and by `verify`, with its name
/// and what happens.
#[test]
fn a_damaged_list_of_cursor_files_is_told() {
    let disk = filled();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let told = || overview(&shared, Path::new(ROOT)).unwrap().remove(1).damaged_list;
    assert!(told().is_none());
    let list = Path::new(TRACES).join("cursors.list");
    disk.put(&list, b"no list");
    let says = told().expect("told").to_string();
    let begins = format!("{}: the list of cursor files is damaged; the next start", list.display());
    assert!(says.starts_with(&begins), "{says}");
    let findings = verify(&disk, Path::new(ROOT), &mut |_, _| {}).unwrap().findings;
    assert!(matches!(&findings[0], Finding::Unreadable(error) if error.to_string() == says));
}

#[test]
fn a_whole_directory_is_verified_with_progress() {
    let disk = filled();
    let mut seen = Vec::new();
    let verification =
        verify(&disk, Path::new(ROOT), &mut |done, total| seen.push((done, total))).unwrap();
    assert!(verification.findings.is_empty(), "{:?}", verification.findings);
    assert_eq!((verification.segments, verification.cursors, verification.frames), (3, 3, 13));
    assert_eq!(verification.items, (1..=12).sum::<u64>() + 9);
    assert!(seen.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    assert_eq!(seen.last(), Some(&(verification.bytes, verification.bytes)));
}

#[test]
fn each_kind_of_damage_is_found_where_it_is() {
    let first = Path::new(TRACES).join("0000000000000000.seg");
    let second = Path::new(TRACES).join("0000000000000008.seg");
    let cursor = Path::new(TRACES).join(CURSORS_DIRECTORY).join(file_name("reader 1"));
    let findings =
        |disk: &FaultyDisk| verify(disk, Path::new(ROOT), &mut |_, _| {}).unwrap().findings;

    let disk = filled();
    disk.flip_bit(&first, (4096 + 64 + 20) * 8);
    match &findings(&disk)[..] {
        [finding @ Finding::DamagedSegment { path, position, damage, is_sealed: true }] => {
            assert_eq!(
                (path, *position, damage.frames, finding.is_loss()),
                (&first, 4096, 1, true)
            );
        }
        other => panic!("{other:?}"),
    }
    let disk = filled();
    disk.flip_bit(&cursor, 100);
    let found = findings(&disk);
    assert!(matches!(&found[..], [it @ Finding::DamagedCursor { slots: 1, .. }] if !it.is_loss()));
    let disk = filled();
    disk.put(&second, &[1; 20_000]);
    let found = findings(&disk);
    assert!(matches!(&found[..], [it @ Finding::Unreadable(_)] if it.is_loss()));
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let logs = overview(&shared, Path::new(ROOT)).unwrap();
    assert!(logs[1].segments[1].info.is_err(), "the rest is listed all the same");
    // A frame of a sealed segment was overwritten with zeros. Before another frame that is damage,
    // and so it is behind the last one if the footer tells of a frame there.
    let frame_len = TestFrame::new(0, 100).as_ref().frame_len_bytes() as usize;
    for frame in [0, 1, 6, 7] {
        let position = 4096 + frame * frame_len;
        let disk = filled();
        let mut bytes = disk.contents().into_iter().find(|(path, _)| *path == first).unwrap().1;
        bytes[position..position + frame_len].fill(0);
        disk.put(&first, &bytes);
        let found = findings(&disk);
        let is_expected = match &found[..] {
            [Finding::DamagedSegment { damage, .. }] => damage.regions == 1,
            _ => false,
        };
        assert!(is_expected, "at {position}: {found:?}");
    }
}

/// Guarantee: a block that the disk refuses costs the list only the frames from there to the end of
/// its segment.
#[test]
fn a_segment_with_a_bad_block_is_listed_with_the_others() {
    let disk = filled();
    disk.spoil(&Path::new(TRACES).join("0000000000000000.seg"), 4_096).expect("a block");
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let traces = &overview(&shared, Path::new(ROOT)).unwrap()[1];
    assert_eq!(traces.cursors[0].held, holding(7, 50 + 11 + 12, 500 + 400));
    assert_eq!(traces.cursors[1].held, holding(1, 10, 200));
    let findings = verify(&disk, Path::new(ROOT), &mut |_, _| {}).unwrap().findings;
    assert!(matches!(&findings[..], [Finding::Unreadable(_)]), "{findings:?}");
}

#[test]
fn a_segment_that_vanishes_while_one_looks_is_no_error() {
    let disk = filled();
    let vanishing = disk.clone();
    let mut is_first = true;
    verify(&disk, Path::new(ROOT), &mut |_, _| {
        if std::mem::take(&mut is_first) {
            vanishing.remove_file(&Path::new(TRACES).join("0000000000000008.seg")).unwrap();
        }
    })
    .unwrap();
    write_segment(&disk, Path::new("/log/logs"), &[TestFrame::new(0, 1)], 1);
    assert_eq!(verify(&disk, Path::new(ROOT), &mut |_, _| {}).unwrap().segments, 3);
}
