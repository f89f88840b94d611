use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_flow::{Exporter, Outcome};

use super::FileConfig;
use crate::tests::{config, context, kind, one_span, packed, send};
use crate::{BuildError, Files};

fn text(path: &Path, more: &str) -> String {
    format!("path: '{}'\n{more}", path.display())
}

/// One of several exporters of a process.
async fn build(files: &Files, text: &str) -> Result<Arc<dyn Exporter>, BuildError> {
    let config = config("file", text);
    config.check().await?;
    config.build(&context(&sluice_net::auth::client::ClientAuths::new(), files))
}

/// The only exporter of a process.
async fn exporter(text: &str) -> Arc<dyn Exporter> {
    build(&Files::default(), text).await.expect("builds")
}

fn line_count(path: &Path) -> usize {
    std::fs::read_to_string(path).expect("reads").lines().count()
}

/// Scenario: requests as JSON lines, appended or begun anew. Guarantee: a line a request, each of
/// them whole.
#[tokio::test]
async fn json_lines() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("deep/er/traces.json");
    for (append, expected) in [("false", 2), ("true", 4), ("false", 2)] {
        let options = format!("create_directory: true\nappend: {append}");
        let exporter = exporter(&text(&path, &options)).await;
        for _ in 0..2 {
            assert_eq!(send(&*exporter).await, Outcome::Delivered);
        }
        let content = std::fs::read_to_string(&path).expect("reads");
        assert_eq!(content.lines().count(), expected, "append: {append}");
        for line in content.lines() {
            let json: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
            assert_eq!(json["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"], "work");
        }
    }
}

/// Scenario: protobuf, bare and compressed. Guarantee: each message follows its length, and has
/// exactly the bytes that were sent.
#[tokio::test]
async fn messages_after_their_lengths() {
    let directory = tempfile::tempdir().expect("a directory");
    for compression in ["", "zstd"] {
        let path = directory.path().join(format!("traces{compression}.bin"));
        let options = format!("format: proto\ncompression: '{compression}'");
        let exporter = exporter(&text(&path, &options)).await;
        assert_eq!(send(&*exporter).await, Outcome::Delivered);
        assert_eq!(send(&*exporter).await, Outcome::Delivered);
        let content = std::fs::read(&path).expect("reads");
        let mut rest = content.as_slice();
        for _ in 0..2 {
            let (length, after) = rest.split_first_chunk::<4>().expect("a length");
            let (message, after) = after.split_at(u32::from_be_bytes(*length) as usize);
            rest = after;
            let message = match compression {
                "" => message.to_vec(),
                _ => {
                    sluice_net::compress::decompress(sluice_otlp::Encoding::Zstd, message, 1 << 20)
                        .expect("unpacks")
                        .to_vec()
                }
            };
            assert_eq!(message, one_span());
        }
        assert!(rest.is_empty());
    }
}

/// Guarantee: `compression_params.level` decides how much is spent on a smaller file.
#[tokio::test]
async fn the_level_of_compression_is_kept_to() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("traces.bin");
    let [least, most] = [1, 19].map(|level| {
        format!("format: proto\ncompression: zstd\ncompression_params: {{level: {level}}}")
    });
    let bytes_at = async |options: &str| {
        let exporter = exporter(&text(&path, options)).await;
        // Words in no order: there is something to be found, at some expense.
        let word =
            |number: u64| format!("{:x} ", number.wrapping_mul(number) * 7919 % 1009 * 65_537);
        let body = (0..40_000_u64).map(word);
        let body = bytes::Bytes::from(body.collect::<String>());
        let (chunks, _) = exporter.pack(sluice_otlp::Signal::Traces, vec![body]).expect("packs");
        chunks.iter().map(bytes::Bytes::len).sum::<usize>()
    };
    assert!(bytes_at(&most).await < bytes_at(&least).await);
}

#[test]
fn contradictions_are_errors() {
    for more in [
        "compression: zstd\ncompression_params: {level: 23}",
        "flush_interval: -1s",
        "directory_permissions: '0700'",
        "create_directory: true\ndirectory_permissions: '7777'",
    ] {
        let text = text(Path::new("x"), more);
        let (_, diagnostics) = sluice_config::read_text("exporters.file", &text, FileConfig::read);
        assert!(diagnostics.has_errors(), "{more}");
    }
}

/// Scenario: more than the rotation allows is written. Guarantee: files within their size, at most
/// the configured number of old ones, every line whole, and files of other programs untouched.
#[tokio::test]
async fn rotation() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("traces.json");
    let stranger = directory.path().join("traces-of-another.json");
    std::fs::write(&stranger, "mine").expect("writes");
    let exporter = exporter(&text(&path, "rotation: {max_megabytes: 1, max_backups: 2}")).await;
    let large = vec![one_span(); 4000];
    let request = packed(&*exporter, sluice_otlp::Signal::Traces, large);
    assert!(request.len_bytes < 1 << 20);
    for _ in 0..12 {
        assert_eq!(exporter.send(&request).await, Outcome::Delivered);
    }
    let files: Vec<_> = std::fs::read_dir(directory.path())
        .expect("lists")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert_eq!(files.len(), 4, "{files:?}");
    assert_eq!(std::fs::read_to_string(&stranger).expect("reads"), "mine");
    for file in files.iter().filter(|file| **file != stranger) {
        let content = std::fs::read_to_string(file).expect("reads");
        assert!(content.len() <= 1 << 20 && content.ends_with('\n'), "{file:?}");
        assert!(
            content.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()),
            "{file:?}"
        );
    }
}

/// Scenario: a restart with rotation. Guarantee: the existing file is continued, up to its size.
#[tokio::test]
async fn rotation_goes_on_with_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("traces.json");
    for restart in 1..=3 {
        let exporter = exporter(&text(&path, "rotation: {max_megabytes: 1}")).await;
        assert_eq!(send(&*exporter).await, Outcome::Delivered);
        assert_eq!(line_count(&path), restart);
    }
    std::fs::write(&path, vec![b'\n'; 1 << 20]).expect("writes");
    let exporter = exporter(&text(&path, "rotation: {max_megabytes: 1}")).await;
    assert_eq!(send(&*exporter).await, Outcome::Delivered);
    assert_eq!(line_count(&path), 1);
}

/// Scenario: an exporter for a path is made, and its configuration refused before it writes.
/// Guarantee: the file's content stays, whether an earlier process left it or an exporter that goes
/// on writing.
#[tokio::test]
async fn only_writing_begins_a_file_anew() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("traces.json");
    std::fs::write(&path, "left\n").expect("writes");
    let files = Files::default();
    let running = build(&files, &text(&path, "")).await.expect("builds");
    drop(build(&files, &text(&path, "compression: zstd")).await.expect("builds"));
    assert_eq!(std::fs::read_to_string(&path).expect("reads"), "left\n");
    for count in 1..=2 {
        assert_eq!(send(&*running).await, Outcome::Delivered);
        drop(build(&files, &text(&path, "compression: zstd")).await.expect("builds"));
        assert_eq!(line_count(&path), count);
    }
}

/// Scenario: an exporter with other options takes the place of one at the same path, by another
/// name for it, while both have something to write; with rotation, each of them fills the file.
/// Guarantee: nothing that the process wrote is lost, and both write to the current file.
#[tokio::test]
async fn successors_write_to_the_same_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("traces.json");
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(directory.path(), &link).expect("a symlink");
    let files = Files::default();
    let old = build(&files, &text(&path, "")).await.expect("builds");
    assert_eq!(send(&*old).await, Outcome::Delivered);
    let new = build(&files, &text(&link.join("traces.json"), "")).await.expect("builds");
    for exporter in [&new, &old] {
        assert_eq!(send(&**exporter).await, Outcome::Delivered);
    }
    drop(old);
    assert_eq!(send(&*new).await, Outcome::Delivered);
    assert_eq!(line_count(&path), 4);

    let options = [1, 2].map(|backups| {
        text(&path, &format!("rotation: {{max_megabytes: 1, max_backups: {backups}}}"))
    });
    let [one, two] = options.each_ref().map(|options| build(&files, options));
    let both = [one.await.expect("builds"), two.await.expect("builds")];
    for round in 0..4 {
        let mut content = std::fs::read(&path).expect("reads");
        content.resize(1 << 20, b'\n');
        std::fs::write(&path, content).expect("writes");
        assert_eq!(send(&*both[round % 2]).await, Outcome::Delivered);
        assert_eq!(line_count(&path), 1);
        assert_eq!(send(&*both[(round + 1) % 2]).await, Outcome::Delivered);
        assert_eq!(line_count(&path), 2);
    }
}

/// Scenario: other programs rename the file, as logrotate does, or remove it, with and without a
/// successor of the exporter, and once with its directory. Guarantee: requests that count as
/// delivered are in the file at the path; without the directory none are.
#[tokio::test]
async fn a_file_that_others_move_or_remove_is_begun_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("deep/traces.json");
    let files = Files::default();
    let of = |more: &str| text(&path, &format!("create_directory: true\n{more}"));
    let mut exporter = build(&files, &of("")).await.expect("builds");
    for more in [None, None, Some("append: true"), Some("rotation: {max_megabytes: 1}"), None] {
        if let Some(more) = more {
            exporter = build(&files, &of(more)).await.expect("builds");
        }
        for count in 1..=2 {
            assert_eq!(send(&*exporter).await, Outcome::Delivered);
            assert_eq!(line_count(&path), count, "{more:?}");
        }
        let moved = path.with_extension("old");
        std::fs::rename(&path, &moved).expect("renames");
        assert_eq!(send(&*exporter).await, Outcome::Delivered);
        assert_eq!((line_count(&path), line_count(&moved)), (1, 2), "{more:?}");
        std::fs::remove_file(&path).expect("removes");
    }
    let parent = path.parent().expect("has one");
    std::fs::remove_dir_all(parent).expect("removes");
    assert_eq!(kind(&send(&*exporter).await), "misconfigured");
    std::fs::create_dir(parent).expect("is put right");
    assert_eq!(send(&*exporter).await, Outcome::Delivered);
    assert_eq!(line_count(&path), 1);
}

/// Scenario: the exporters of a path end, and another comes. Guarantee: no descriptor keeps the
/// file open meanwhile, and its content stays.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_last_exporter_lets_go_of_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("traces.json");
    let is_open = || {
        let mut open = std::fs::read_dir("/proc/self/fd").expect("lists");
        open.any(|it| std::fs::read_link(it.expect("an entry").path()).is_ok_and(|it| it == path))
    };
    let files = Files::default();
    let first = build(&files, &text(&path, "")).await.expect("builds");
    let second = build(&files, &text(&path, "compression: zstd")).await.expect("builds");
    assert_eq!(send(&*first).await, Outcome::Delivered);
    drop(first);
    assert!(is_open(), "there is another exporter");
    drop(second);
    // The writing thread may be about to end.
    for _ in 0..100 {
        if is_open() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
    assert!(!is_open());
    let again = build(&files, &text(&path, "")).await.expect("builds");
    assert_eq!(send(&*again).await, Outcome::Delivered);
    assert_eq!(line_count(&path), 2);
}

/// Scenario: the directory is missing, the path is one. Guarantee: that is known at the start, not
/// with the first request.
#[tokio::test]
async fn paths_that_cannot_be_written() {
    let directory = tempfile::tempdir().expect("a directory");
    for path in [directory.path().join("missing/traces.json"), PathBuf::from(directory.path())] {
        let Err(error) = build(&Files::default(), &text(&path, "")).await else {
            panic!("{} was taken", path.display())
        };
        let start = format!("cannot open {}: ", path.display());
        assert!(error.to_string().starts_with(&start), "{error}");
    }
}

/// Scenario: the disk is full. Guarantee: the outcome is a retry.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk() {
    let exporter = exporter("path: /dev/full").await;
    assert_eq!(kind(&send(&*exporter).await), "retry");
}

/// A named pipe.
fn pipe() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
    assert!(made.success());
    (directory, path)
}

/// Scenario: a named pipe that no process reads. Guarantee: the exporter is made nevertheless, and
/// requests are tried again until there is a reader.
#[tokio::test]
async fn a_pipe_without_a_reader() {
    let (_directory, path) = pipe();
    let exporter = exporter(&text(&path, "")).await;
    assert_eq!(kind(&send(&*exporter).await), "retry");
    let mut reader = std::fs::OpenOptions::new();
    let _reader = reader.read(true).write(true).open(&path).expect("opens");
    assert_eq!(send(&*exporter).await, Outcome::Delivered);
}

/// Scenario: the reader of a pipe stops reading in the middle of a request; that request and later
/// ones are sent again, until it reads on. Guarantee: only the request under way may arrive twice.
#[tokio::test]
async fn a_stuck_write_is_followed_only_by_those_that_are_waited_for() {
    let (_directory, path) = pipe();
    let exporter = exporter(&text(&path, "")).await;
    let mut options = std::fs::OpenOptions::new();
    let reader = options.read(true).write(true).open(&path).expect("opens");
    // More than a pipe takes.
    let request = packed(&*exporter, sluice_otlp::Signal::Traces, vec![one_span(); 4000]);
    let soon = std::time::Duration::from_millis(20);
    for _ in 0..5 {
        let sends = [exporter.send(&request), exporter.send(&request)];
        let sent = tokio::time::timeout(soon, futures_util::future::join_all(sends)).await;
        assert!(sent.is_err(), "the pipe is full");
    }
    let (line, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = std::io::BufReader::new(reader);
        while std::io::BufRead::skip_until(&mut reader, b'\n').is_ok_and(|bytes| bytes > 0) {
            let _ = line.send(());
        }
    });
    assert_eq!(exporter.send(&request).await, Outcome::Delivered);
    assert_eq!(exporter.send(&request).await, Outcome::Delivered);
    let count = || lines.recv_timeout(std::time::Duration::from_secs(10)).is_ok();
    assert!((0..3).all(|_| count()), "the one under way and two more");
    assert!(lines.try_recv().is_err(), "what had timed out was written as well");
}

/// Guarantee: a new file cannot be read by other users, nor by the group with `rotation`, as in the
/// Collector; a file keeps the mode that it has, through rotations as well.
#[tokio::test]
async fn files_are_not_for_all_users() {
    let directory = tempfile::tempdir().expect("a directory");
    let mode = |path: &Path| std::fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    for (name, options, expected) in
        [("plain", "", 0o640), ("rotated", "rotation: {max_megabytes: 1}", 0o600)]
    {
        let path = directory.path().join(name);
        let exporter = exporter(&text(&path, options)).await;
        assert_eq!(send(&*exporter).await, Outcome::Delivered);
        // The umask of the tests may take more.
        assert_eq!(mode(&path) & !expected, 0, "{name}: {:o}", mode(&path));
        std::fs::set_permissions(&path, Permissions::from_mode(0o604)).expect("is set");
        let large = vec![one_span(); (1 << 20) / one_span().len()];
        let large = packed(&*exporter, sluice_otlp::Signal::Traces, large);
        for _ in 0..2 {
            assert_eq!(exporter.send(&large).await, Outcome::Delivered);
        }
        assert_eq!(mode(&path), 0o604, "{name}");
    }
    let files = std::fs::read_dir(directory.path()).expect("reads").count();
    assert!(files > 2, "{files}: one was rotated");
}
