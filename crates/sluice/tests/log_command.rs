//! `sluice log` over directories that a log has left: its output matches the files, it changes only
//! what it reports, and nothing is lost.

mod log_directory;
#[path = "../../log/tests/support/mounted.rs"]
mod mounted;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use log_directory::{
    DEAD, HEALTHY, LogDirectory, Stored, append, close, command, name_in_json, run, segments,
};
use mounted::{FileSystem, Mounted};
use serde_json::Value;
use sluice_log::Subscription;
use sluice_log::dead_letters;
use sluice_log::disk::DirectoryLock;
use sluice_otlp::Encoding;

fn names(backlog: &[(u64, String)]) -> Vec<&str> {
    backlog.iter().map(|(_, name)| name.as_str()).collect()
}

/// Guarantee: frames, items, age and dead letters of each delivery are listed, for people and for
/// programs.
#[test]
fn a_directory_is_listed() {
    let directory = LogDirectory::filled();
    let before = directory.contents();
    let listed: Value = serde_json::from_str(&directory.run("ls", &["--json"]).ok()).expect("JSON");
    let traces = &listed["logs"][0];
    assert_eq!(
        (&traces["signal"], traces["segments"].as_array().map(Vec::len)),
        (&"traces".into(), Some(1))
    );
    let [dead, healthy] = [0, 1].map(|index| &traces["deliveries"][index]);
    assert_eq!((&dead["name"], &healthy["name"]), (&DEAD.into(), &HEALTHY.into()));
    assert_eq!((&dead["waiting"]["frames"], &dead["waiting"]["items"]), (&10.into(), &10.into()));
    assert_eq!(
        (&healthy["waiting"]["frames"], &healthy["dead_letters"]["frames"]),
        (&2.into(), &3.into())
    );
    assert_eq!(dead["oldest"], "2023-11-14T22:13:20.000Z");
    assert!(dead["oldest_age_s"].as_u64().is_some_and(|age_s| age_s > 86_400), "{dead}");

    let table = directory.run("ls", &[]).ok();
    assert!(table.starts_with("traces: 1 segment, "), "{table}");
    let row = |name: &str| {
        table.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{table}"))
    };
    assert!(row(DEAD).contains(" 10 ") && !row(DEAD).contains("3 ("), "{table}");
    assert!(row(HEALTHY).contains("3 (3 items)"), "{table}");
    assert!(!table.contains("Configured"), "{table}");
    assert!(directory.contents() == before, "listing changes nothing");
}

/// Scenario: the configuration names one of two deliveries. Guarantee: the other one is marked,
/// with the command that drops its backlog.
#[test]
fn a_delivery_that_is_not_configured_any_more_is_marked() {
    let directory = LogDirectory::filled();
    let config = "yaml:{receivers: {otlp: {protocols: {grpc: {}}}}, exporters: {otlp/healthy: \
                  {endpoint: \"localhost:4317\"}}, \
                  service: {pipelines: {traces: {receivers: [otlp], exporters: [otlp/healthy]}}}}";
    let table = directory.run("ls", &["--config", config]).ok();
    let row = |name: &str| {
        table.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{table}"))
    };
    assert!(row(HEALTHY).trim_end().ends_with("yes"), "{table}");
    assert!(row(DEAD).contains("no: kept until `sluice log drop`"), "{table}");
}

/// Guarantee: ranges that a policy dropped are listed with offsets and counts.
#[test]
fn what_a_policy_dropped_is_listed() {
    let directory = LogDirectory::empty();
    let log = directory.open();
    let id = log.subscribe(Subscription { limit_bytes: 3_000, ..Subscription::new(DEAD) });
    for index in 0..10 {
        append(&log, Stored::new(&format!("span {index}"), Encoding::Identity), &[id]);
    }
    let (dropped, _) = log.drop_oldest_unread(id);
    assert!(dropped.frames >= 4, "{dropped:?}");
    close(&log, &[id]);
    let listed: Value = serde_json::from_str(&directory.run("ls", &["--json"]).ok()).expect("JSON");
    let delivery = &listed["logs"][0]["deliveries"][0];
    let range = &delivery["dropped_ranges"][0];
    assert_eq!(range["dropped"]["frames"], dropped.frames);
    assert_eq!((&range["first"], &range["last"]), (&0.into(), &(dropped.frames - 1).into()));
    assert_eq!(delivery["dropped"]["items"], dropped.items);
    assert_eq!(delivery["waiting"]["frames"], 10 - dropped.frames);
    let table = directory.run("ls", &[]).ok();
    let text =
        format!("dropped: {DEAD}: {0} frames ({0} items) between offsets 0 and", dropped.frames);
    assert!(table.contains(&text), "{table}");
}

/// Guarantee: every frame is shown once, with the deliveries for which it waits; filters apply;
/// bodies are the telemetry, whatever the encoding.
#[test]
fn frames_are_shown() {
    let directory = LogDirectory::filled();
    let json = |arguments: &[&str]| -> Vec<Value> {
        let out = directory.run("show", arguments).ok();
        out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let all = json(&["--json"]);
    assert_eq!(
        all.iter().map(|frame| frame["offset"].as_u64()).collect::<Vec<_>>(),
        (0..10).map(Some).collect::<Vec<_>>()
    );
    assert_eq!((&all[0]["encoding"], &all[2]["encoding"]), (&"identity".into(), &"zstd".into()));
    assert_eq!((&all[0]["receiver"], &all[0]["items"]), (&"otlp/in".into(), &1.into()));
    assert_eq!(all[0]["for"].as_array().map(Vec::len), Some(2));
    assert_eq!(all[0]["waits_for"], serde_json::json!([DEAD]));
    assert_eq!(all[4]["waits_for"], serde_json::json!([HEALTHY, DEAD]));
    let offsets = |arguments: &[&str]| {
        json(arguments).iter().filter_map(|frame| frame["offset"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(offsets(&["--json", "--from", "7"]), [7, 8, 9]);
    assert_eq!(offsets(&["--json", "--delivery", "traces -> otlp/healthy"]), [4, 9]);
    assert_eq!(offsets(&["--json", "--delivery", HEALTHY, "--from", "5"]), [9]);
    let limited = directory.run("show", &["--json", "--from", "3", "--limit", "2"]);
    assert!(limited.err.contains("--from 5"), "{limited:?}");
    assert_eq!(limited.ok().lines().count(), 2);

    let bodies = directory.run("show", &["--body"]).ok();
    let expected: Vec<_> = (0..10).map(|index| format!("span {index}")).collect();
    assert_eq!(bodies.lines().map(name_in_json).collect::<Vec<_>>(), expected);
    let table = directory.run("show", &["--signal", "traces"]).ok();
    assert_eq!(table.lines().filter(|line| line.contains("otlp/in")).count(), 10, "{table}");
    assert!(directory.run("show", &["--signal", "logs"]).failed().contains("no log of logs"));
}

/// Guarantee: dead letters are listed with time and reason, and their telemetry can be read.
#[test]
fn dead_letters_are_listed_with_their_reasons() {
    let directory = LogDirectory::filled();
    let table = directory.run("dead-letters", &[]).ok();
    assert!(table.starts_with(&format!("{HEALTHY}\n")), "{table}");
    assert_eq!(
        table.lines().filter(|line| line.contains("span has no name")).count(),
        3,
        "{table}"
    );
    assert!(table.contains("2023-11-14T22:13:21.000Z"), "{table}");
    let bodies =
        directory.run("dead-letters", &["--delivery", HEALTHY, "--body", "--from", "1"]).ok();
    assert_eq!(bodies.lines().map(name_in_json).collect::<Vec<_>>(), ["refused 1", "refused 2"]);
    let json = directory.run("dead-letters", &["--json", "--limit", "1"]).ok();
    let letter: Value = serde_json::from_str(&json).expect("one line of JSON");
    assert_eq!((&letter["number"], &letter["reason"]), (&0.into(), &"span has no name".into()));
    assert_eq!(directory.run("dead-letters", &["--delivery", DEAD]).ok(), "no dead letters\n");
}

/// Guarantee: the file gets one line for each letter or frame, is readable by its owner only and is
/// not overwritten; the directory stays as it was.
#[test]
fn letters_and_backlogs_are_written_to_a_file() {
    use std::os::unix::fs::PermissionsExt;
    let directory = LogDirectory::filled();
    let before = directory.contents();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let file = elsewhere.path().join("letters.jsonl");
    let file = file.to_str().expect("a name");
    directory.run("replay", &["--delivery", HEALTHY, "--to-file", file]).ok();
    let read = |file: &str| {
        std::fs::read_to_string(file).expect("text").lines().map(name_in_json).collect::<Vec<_>>()
    };
    assert_eq!(read(file), ["refused 0", "refused 1", "refused 2"]);
    assert_eq!(std::fs::metadata(file).expect("a file").permissions().mode() & 0o777, 0o600);
    let again = directory.run("replay", &["--delivery", HEALTHY, "--to-file", file]).failed();
    assert!(again.contains(file) && again.contains("exists already"), "{again}");
    assert_eq!(read(file).len(), 3);

    let backlog =
        directory.run("replay", &["--delivery", HEALTHY, "--backlog", "--to-file", "-"]).ok();
    assert_eq!(backlog.lines().map(name_in_json).collect::<Vec<_>>(), ["span 4", "span 9"]);
    let two = directory
        .run("replay", &["--delivery", DEAD, "--backlog", "--to-file", "-", "--limit", "2"])
        .ok();
    assert_eq!(two.lines().map(name_in_json).collect::<Vec<_>>(), ["span 0", "span 1"]);
    assert!(directory.contents() == before, "reading changes nothing");
}

/// Guarantee: with --remove exactly the letters that are in the file are removed.
#[test]
fn letters_are_removed_once_they_are_in_a_file() {
    let directory = LogDirectory::filled();
    let piped =
        directory.run("replay", &["--delivery", HEALTHY, "--remove", "--to-file", "-"]).failed();
    assert!(piped.contains("durable"), "{piped}");
    assert_eq!(directory.run("dead-letters", &["--body"]).ok().lines().count(), 3);
    let elsewhere = tempfile::tempdir().expect("a directory");
    let file = elsewhere.path().join("letters.jsonl");
    let arguments = [
        "--delivery",
        HEALTHY,
        "--remove",
        "--limit",
        "2",
        "--to-file",
        file.to_str().expect("a name"),
    ];
    directory.run("replay", &arguments).ok();
    assert_eq!(std::fs::read_to_string(&file).expect("text").lines().count(), 2);
    let left = directory.run("dead-letters", &["--body"]).ok();
    assert_eq!(left.lines().map(name_in_json).collect::<Vec<_>>(), ["refused 2"]);
    assert_eq!(names(&directory.backlog(HEALTHY)), ["span 4", "span 9"]);
}

/// Guarantee: letters are appended unchanged to the backlog of their delivery only, and are no dead
/// letters any more.
#[test]
fn letters_go_back_to_their_delivery() {
    let directory = LogDirectory::filled();
    let said =
        directory.run("replay", &["--delivery", "traces->otlp/healthy", "--limit", "2"]).ok();
    assert!(said.contains("2 dead letters (2 items)"), "{said}");
    let left = directory.run("dead-letters", &["--body"]).ok();
    assert_eq!(left.lines().map(name_in_json).collect::<Vec<_>>(), ["refused 2"]);
    let backlog = directory.backlog(HEALTHY);
    assert_eq!(names(&backlog), ["span 4", "span 9", "refused 0", "refused 1"]);
    assert!(backlog.is_sorted() && backlog[2].0 >= 10, "{backlog:?}");
    assert_eq!(directory.backlog(DEAD).len(), 10);
    directory.run("replay", &["--delivery", HEALTHY]).ok();
    assert_eq!(
        names(&directory.backlog(HEALTHY)),
        ["span 4", "span 9", "refused 0", "refused 1", "refused 2"]
    );
    assert_eq!(directory.run("dead-letters", &[]).ok(), "no dead letters\n");
    directory.run("verify", &[]).ok();
}

/// Scenario: a delivery that never had a cursor on disk, because its backend is quick, has dead
/// letters. Guarantee: after replay they wait for it at the next start.
#[test]
fn letters_go_back_to_a_delivery_that_has_no_cursor() {
    let directory = LogDirectory::empty();
    directory.bury("traces → otlp/quick", &["refused".to_owned()], "no");
    assert_eq!(directory.run("show", &["--delivery", "traces → otlp/quick", "--json"]).ok(), "");
    directory.run("replay", &["--delivery", "traces → otlp/quick"]).ok();
    assert_eq!(names(&directory.backlog("traces → otlp/quick")), ["refused"]);
}

/// Scenario: the command is killed again and again, at moments from its start to its end.
/// Guarantee: at the end every letter is in the backlog, at least once.
#[test]
fn a_replay_that_is_killed_loses_nothing() {
    let directory = LogDirectory::empty();
    let all: Vec<_> = (0..400).map(|index| format!("{index} {}", "x".repeat(20_000))).collect();
    directory.bury(DEAD, &all, "no");
    let mut killed = 0;
    for attempt in 0..12 {
        let mut child = command("replay", &directory.path, &["--delivery", DEAD, "--limit", "100"])
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        std::thread::sleep(Duration::from_millis(3 * attempt));
        child.kill().expect("killed");
        killed += u32::from(!child.wait().expect("it ended").success());
    }
    directory.run("replay", &["--delivery", DEAD]).ok();
    assert_eq!(directory.run("dead-letters", &[]).ok(), "no dead letters\n");
    let mut replayed: Vec<_> = directory.backlog(DEAD).into_iter().map(|(_, name)| name).collect();
    let with_duplicates = replayed.len();
    replayed.sort();
    replayed.dedup();
    assert_eq!(
        replayed.len(),
        all.len(),
        "{with_duplicates} with duplicates, killed {killed} times"
    );
    assert!(killed > 0, "no attempt was killed before it had ended");
}

/// Scenario: the disk has no space for a second copy of the letters; later it has. Guarantee: the
/// command reports that and keeps the letters; repeated, it replays every one.
#[test]
fn a_replay_to_a_full_disk_keeps_the_letters() {
    let Some(disk) = Mounted::new(FileSystem::Tmpfs { mib: 32, inodes: 1000 }) else { return };
    let directory = LogDirectory::inside(tempfile::tempdir_in(disk.path()));
    let all: Vec<_> = (0..400).map(|index| format!("{index} {}", "x".repeat(20_000))).collect();
    directory.bury(DEAD, &all, "no");
    let ballast = disk.fill_but(6 << 20);
    let full = directory.run("replay", &["--delivery", DEAD]).failed();
    assert!(
        full.contains("No space left") && full.contains("the dead letters are kept: free space"),
        "{full}"
    );
    let kept = directory.run("dead-letters", &["--json", "--limit", "1000"]).ok();
    assert_eq!(kept.lines().count(), all.len());
    drop(ballast);
    directory.run("replay", &["--delivery", DEAD]).ok();
    assert_eq!(directory.run("dead-letters", &[]).ok(), "no dead letters\n");
    let mut replayed: Vec<_> = directory.backlog(DEAD).into_iter().map(|(_, name)| name).collect();
    replayed.sort();
    replayed.dedup();
    assert_eq!(replayed.len(), all.len());
}

/// Guarantee: a whole directory passes; damage ends with 1 and names file and position; the other
/// frames can still be shown.
#[test]
fn damage_is_found_and_named() {
    let directory = LogDirectory::filled();
    let whole = directory.run("verify", &[]).ok();
    assert!(
        whole.starts_with("checked 2 segments") && whole.contains("13 whole frames"),
        "{whole}"
    );
    assert!(whole.trim_end().ends_with("no damage"), "{whole}");

    let segment = directory.segment();
    let mut bytes = std::fs::read(&segment).expect("a segment");
    let payload = log_directory::request("span 4");
    let at = bytes
        .windows(payload.len())
        .position(|window| window == payload)
        .expect("frame 4 is not compressed");
    bytes[at + 3] ^= 1;
    std::fs::write(&segment, &bytes).expect("written");
    let report = directory.run("verify", &[]);
    assert_eq!(report.code, Some(1), "{report:?}");
    let line = report.out.lines().find(|line| line.starts_with("damaged: ")).expect("a line");
    assert!(
        line.contains(segment.to_str().expect("a name")) && line.contains("1 frame damaged"),
        "{line}"
    );
    let position = line
        .split("from position ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok());
    assert!(position.is_some_and(|position| position < at && at - position < 256), "{at}: {line}");

    let shown = directory.run("show", &["--body"]);
    assert!(shown.err.contains("skipped 1 damaged frame and"), "{shown:?}");
    assert_eq!(shown.ok().lines().count(), 9);
}

/// Scenario: the segment is renamed by hand. Guarantee: all commands name it, and `repair` gives it
/// its own name, unless a file has that name.
#[test]
fn a_renamed_segment_is_named_and_gets_its_name_back() {
    let directory = LogDirectory::filled();
    let segment = directory.segment();
    let whole = directory.run("show", &["--body"]).ok();
    let other = segment.with_file_name("00000000000000ff.seg");
    std::fs::rename(&segment, &other).expect("renamed");
    let name = segment.file_name().expect("a name").to_string_lossy();
    let says = format!("{}: was renamed or copied: it is the segment {name}", other.display());
    for (command, code) in [("ls", 0), ("show", 0), ("verify", 1)] {
        let ran = directory.run(command, &[]);
        let is_named = ran.out.contains(&says) || ran.err.contains(&says);
        assert!(is_named && ran.code == Some(code), "{command}: {ran:?}");
    }
    std::fs::write(&segment, b"of the operator").expect("a file");
    let blocked = directory.run("repair", &["--yes"]).ok();
    let by = format!("{} exists; move one of them", segment.display());
    assert!(blocked.contains(&by) && blocked.contains(&format!("it is {name}")), "{blocked}");
    std::fs::remove_file(&segment).expect("removed");
    let repaired = directory.run("repair", &["--yes"]).ok();
    assert!(repaired.starts_with(&format!("put back: {}", other.display())), "{repaired}");
    assert!(!other.exists());
    assert_eq!(directory.run("show", &["--body"]).ok(), whole);
}

/// Guarantee: a damaged list of cursor files and damaged dead letters are named by `ls`, with what
/// happens; the letters also when they are listed.
#[test]
fn damage_beside_the_segments_is_listed_with_its_file() {
    let directory = LogDirectory::filled();
    let list = directory.traces().join("cursors.list");
    std::fs::write(&list, b"no list").expect("written");
    let letters = dead_letters::directory_of(&directory.traces(), HEALTHY);
    let letters = segments(&letters).remove(0);
    let mut bytes = std::fs::read(&letters).expect("a segment");
    let last = bytes.iter().rposition(|byte| *byte != 0).expect("a letter");
    bytes[last] ^= 1;
    std::fs::write(&letters, bytes).expect("written");
    let listed = directory.run("ls", &[]).ok();
    for says in [
        format!("unreadable: {}: the list of cursor files is damaged; the next", list.display()),
        format!("in {}: they are skipped, and the file is kept", letters.display()),
    ] {
        assert!(listed.contains(&says), "{says}: {listed}");
    }
    let shown = directory.run("dead-letters", &[]);
    let says = format!("sluice: {}: skipped ", letters.display());
    assert!(shown.err.contains(&says), "{shown:?}");
}

/// Scenario: a cursor file is unreadable or gone. Guarantee: it is named, hides nothing else, and
/// the backlog on disk is kept until it is dropped by hand.
#[test]
fn a_lost_cursor_keeps_what_is_on_disk() {
    for is_removed in [false, true] {
        let directory = LogDirectory::filled();
        let cursors = std::fs::read_dir(directory.traces().join("cursors")).expect("a folder");
        let mut paths = cursors.map(|entry| entry.expect("an entry").path());
        let cursor = paths.find(|path| path.to_string_lossy().contains("dead")).expect("a cursor");
        let lost = format!("{}.damaged", cursor.file_name().expect("a name").to_string_lossy());
        let said = if is_removed {
            std::fs::remove_file(&cursor).expect("removed");
            lost.clone()
        } else {
            let len = std::fs::metadata(&cursor).expect("a file").len();
            std::fs::write(&cursor, vec![0xa5; len as usize]).expect("written");
            format!("{}: both slots", cursor.display())
        };
        let report = directory.run("verify", &[]);
        assert_eq!(report.code, Some(1), "{report:?}");
        assert!(report.out.contains(&said), "{report:?}");

        let everything: Vec<_> = (0..10).map(|index| format!("span {index}")).collect();
        // Before and after a start, which sets the file aside.
        for _ in 0..2 {
            let listed = directory.run("ls", &[]).ok();
            assert!(listed.contains("lost cursor: ") && listed.contains(&lost), "{listed}");
            assert!(listed.contains(HEALTHY) && !listed.contains(DEAD), "{listed}");
            let arguments = ["--delivery", &lost, "--backlog", "--to-file", "-"];
            let kept = directory.run("replay", &arguments).ok();
            assert_eq!(kept.lines().map(name_in_json).collect::<Vec<_>>(), everything);
            assert_eq!(names(&directory.backlog(HEALTHY)), ["span 4", "span 9"]);
        }
        assert_eq!(directory.run("verify", &[]).code, Some(1), "it is still lost");
        let replayed = directory.run("replay", &["--delivery", &lost]).failed();
        assert!(replayed.contains("--backlog --to-file"), "{replayed}");
        directory.run("drop", &["--delivery", &lost, "--yes"]).ok();
        assert!(!directory.run("ls", &[]).ok().contains("lost cursor"));
        assert_eq!(names(&directory.backlog(HEALTHY)), ["span 4", "span 9"]);
        directory.run("verify", &[]).ok();
    }
}

/// Guarantee: without --yes nothing is deleted; with it exactly the named backlog is deleted, and
/// the disk space that only it needed is freed.
#[test]
fn a_backlog_is_given_up_by_an_explicit_command_only() {
    let directory = LogDirectory::filled();
    let before = directory.contents();
    let asked = directory.run("drop", &["--delivery", DEAD]).failed();
    assert!(
        asked.contains("nothing was changed") && asked.contains("10 frames, 10 items"),
        "{asked}"
    );
    assert!(directory.contents() == before);

    let said = directory.run("drop", &["--delivery", DEAD, "--yes"]).ok();
    assert!(said.contains(DEAD) && said.contains("10 frames, 10 items"), "{said}");
    let listed = directory.run("ls", &[]).ok();
    assert!(listed.contains(HEALTHY) && !listed.contains(DEAD), "{listed}");
    assert_eq!(names(&directory.backlog(HEALTHY)), ["span 4", "span 9"]);
    let unknown = directory.run("drop", &["--delivery", DEAD, "--yes"]).failed();
    assert!(unknown.contains(&format!("it has: '{HEALTHY}'")), "{unknown}");

    directory.run("drop", &["--delivery", HEALTHY, "--yes"]).ok();
    assert_eq!(
        segments(&directory.traces()),
        Vec::<std::path::PathBuf>::new(),
        "no delivery needs a segment"
    );
    let said = directory.run("drop", &["--delivery", HEALTHY, "--dead-letters", "--yes"]).ok();
    assert!(said.contains("3 frames, 3 items"), "{said}");
    assert_eq!(directory.run("dead-letters", &[]).ok(), "no dead letters\n");
}

/// Scenario: another process owns the directory. Guarantee: commands that change something refuse,
/// name the process and the remedy, and change nothing; commands that only read work.
#[test]
fn a_directory_in_use_can_be_read_and_not_changed() {
    let directory = LogDirectory::filled();
    let _lock = DirectoryLock::acquire(&directory.path).expect("ours");
    let before = directory.contents();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let file = elsewhere.path().join("letters.jsonl");
    let file = file.to_str().expect("a name");
    let changing: [(&str, &[&str]); 4] = [
        ("replay", &["--delivery", HEALTHY]),
        ("replay", &["--delivery", HEALTHY, "--to-file", file, "--remove"]),
        ("drop", &["--delivery", DEAD, "--yes"]),
        ("drop", &["--delivery", HEALTHY, "--dead-letters", "--yes"]),
    ];
    for (name, arguments) in changing {
        let refused = directory.run(name, arguments).failed();
        let owner = format!("in use by the process {}", std::process::id());
        assert!(refused.contains(&owner) && refused.contains("kill "), "{refused}");
        assert!(refused.contains(directory.path.to_str().expect("a name")), "{refused}");
    }
    assert!(!Path::new(file).exists());
    let reading: [(&str, &[&str]); 5] = [
        ("ls", &[]),
        ("show", &[]),
        ("dead-letters", &[]),
        ("verify", &[]),
        ("replay", &["--delivery", HEALTHY, "--to-file", file]),
    ];
    for (name, arguments) in reading {
        directory.run(name, arguments).ok();
    }
    assert!(directory.contents() == before);
}

/// Guarantee: errors name the argument to give instead.
#[test]
fn errors_name_the_path_and_the_remedy() {
    let missing = run("ls", Path::new("/nowhere/sluice"), &[]).failed();
    assert!(
        missing.contains("/nowhere/sluice") && missing.contains("`buffer.directory`"),
        "{missing}"
    );
    let elsewhere = tempfile::tempdir().expect("a directory");
    let empty = run("verify", elsewhere.path(), &[]).failed();
    assert!(empty.contains("has no log") && empty.contains("`buffer.directory`"), "{empty}");
    let directory = LogDirectory::filled();
    let inside = run("show", &directory.traces(), &[]).failed();
    assert!(
        inside.contains(&format!("give the directory above it: {}", directory.path.display())),
        "{inside}"
    );
    let unknown = directory
        .run("replay", &["--delivery", "traces → otlp/unknown", "--to-file", "-"])
        .failed();
    assert!(unknown.contains(&format!("it has: '{DEAD}', '{HEALTHY}'")), "{unknown}");
    assert!(directory.run("replay", &["--delivery", DEAD]).failed().contains("no dead letters"));
}

/// Scenario: `sluice log show --body | head -1`. Guarantee: it ends without an error when its
/// reader has ended.
#[test]
fn output_that_nobody_reads_any_more_is_no_error() {
    let directory = LogDirectory::empty();
    let all: Vec<_> = (0..100).map(|index| format!("{index} {}", "x".repeat(20_000))).collect();
    directory.bury(DEAD, &all, "no");
    let mut child = command("dead-letters", &directory.path, &["--body"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::with_capacity(1, child.stdout.take().expect("its output"))
        .read_line(&mut line)
        .expect("a line");
    assert!(name_in_json(line.trim_end()).starts_with("0 xxx"));
    let ended = child.wait_with_output().expect("it ends");
    assert!(
        ended.status.success() && ended.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
}
