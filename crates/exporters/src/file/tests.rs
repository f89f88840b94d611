use std::path::Path;

use sluice_flow::Outcome;

use crate::testing::{exporter, kind, one_span, send};

fn text(path: &Path, more: &str) -> String {
    format!("path: '{}'\n{more}", path.display())
}

/// Scenario: requests as JSON lines, appended or begun anew. Guarantee: a line a request, each of them whole.
#[tokio::test]
async fn json_lines() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("deep/er/traces.json");
    for (append, expected) in [("false", 2), ("true", 4), ("false", 2)] {
        let exporter = exporter("file", &text(&path, &format!("create_directory: true\nappend: {append}")));
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

/// Scenario: protobuf, bare and compressed. Guarantee: each message stands after its length and is what was sent.
#[tokio::test]
async fn messages_after_their_lengths() {
    let directory = tempfile::tempdir().expect("a directory");
    for compression in ["", "zstd"] {
        let path = directory.path().join(format!("traces{compression}.bin"));
        let exporter = exporter("file", &text(&path, &format!("format: proto\ncompression: '{compression}'")));
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
                _ => sluice_net::compress::decompress(sluice_otlp::Encoding::Zstd, message, 1 << 20)
                    .expect("unpacks")
                    .to_vec(),
            };
            assert_eq!(message, one_span());
        }
        assert!(rest.is_empty());
    }
}

/// Scenario: more than the rotation allows is written. Guarantee: files within their size, at most the configured number of
/// old ones, every line whole, and strangers' files untouched.
#[tokio::test]
async fn rotation() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("traces.json");
    let stranger = directory.path().join("traces-of-somebody.json");
    std::fs::write(&stranger, "mine").expect("writes");
    let exporter = exporter("file", &text(&path, "rotation: {max_megabytes: 1, max_backups: 2}"));
    let large = vec![one_span(); 4000];
    let request = exporter.pack(sluice_otlp::Signal::Traces, 4000, large, std::sync::Arc::default()).expect("packs");
    assert!(request.len_bytes < 1 << 20);
    for _ in 0..12 {
        assert_eq!(exporter.send(&request).await, Outcome::Delivered);
    }
    let files: Vec<_> =
        std::fs::read_dir(directory.path()).expect("lists").map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(files.len(), 4, "{files:?}");
    assert_eq!(std::fs::read_to_string(&stranger).expect("reads"), "mine");
    for file in files.iter().filter(|file| **file != stranger) {
        let content = std::fs::read_to_string(file).expect("reads");
        assert!(content.len() <= 1 << 20 && content.ends_with('\n'), "{file:?}");
        assert!(content.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{file:?}");
    }
}

/// Scenario: the disk is full. Guarantee: told to come again.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk() {
    let exporter = exporter("file", "path: /dev/full\nappend: true");
    assert_eq!(kind(&send(&*exporter).await), "retry");
}
