//! A directory as a process leaves it, and the command that looks into it.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use sluice_engine::stored;
use sluice_log::dead_letters::{DeadLetter, DeadLetters};
use sluice_log::disk::{Disk, RealDisk};
use sluice_log::format::Refusal;
use sluice_log::{
    Charge, CursorId, Keep, Log, Next, OpenOptions, Record, RecordFacts, StoredRecord,
    Subscription, Undecodable,
};
use sluice_net::compress;
use sluice_otlp::{Encoding, Signal};

pub(crate) const HEALTHY: &str = "traces → otlp/healthy";
pub(crate) const DEAD: &str = "traces → otlp/dead";
/// 2023-11-14T22:13:20Z.
pub(crate) const RECEIVED_UNIX_NS: u64 = 1_700_000_000_000_000_000;
/// Enough for events that are immediate on an idle machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A stored record: an export request with one span of this name.
pub(crate) struct Stored {
    facts: RecordFacts,
    metadata: Vec<u8>,
    pub(crate) payload: Bytes,
}

impl Stored {
    pub(crate) fn new(name: &str, encoding: Encoding) -> Stored {
        let request = request(name);
        let facts = RecordFacts {
            received_unix_ns: RECEIVED_UNIX_NS,
            encoding: stored::encoding_code(encoding),
            flags: stored::flags(Signal::Traces),
            uncompressed_len_bytes: request.len() as u32,
        };
        let payload = match encoding {
            Encoding::Identity => request,
            encoding => compress::compress(encoding, &[request], None).expect("compressed"),
        };
        Stored { facts, metadata: metadata(), payload }
    }

    /// The name of its span.
    pub(crate) fn name(&self) -> String {
        let encoding = stored::encoding_of(self.facts.encoding).expect("a known encoding");
        span_name(&compress::decompress(encoding, &self.payload, 1 << 24).expect("whole"))
    }
}

impl Record for Stored {
    fn facts(&self) -> RecordFacts {
        self.facts
    }

    fn encode_metadata(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(&self.metadata);
    }

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn decode(stored: StoredRecord) -> Result<Self, Undecodable> {
        assert_eq!(stored.metadata, metadata(), "metadata is kept as it was");
        assert_eq!(stored.charge.bytes, stored::charge_bytes(stored.payload.len()));
        Ok(Stored {
            facts: stored.facts,
            metadata: stored.metadata.to_vec(),
            payload: stored.payload,
        })
    }

    fn durable(&self) {}
}

fn metadata() -> Vec<u8> {
    let mut metadata = Vec::new();
    stored::encode("otlp/in", &[7], &Default::default(), &mut metadata);
    metadata
}

/// An export request with one span.
pub(crate) fn request(name: &str) -> Bytes {
    let span = Span {
        name: name.to_owned(),
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        ..Span::default()
    };
    let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
    Bytes::from(ExportTraceServiceRequest { resource_spans }.encode_to_vec())
}

fn span_name(request: &[u8]) -> String {
    let request = ExportTraceServiceRequest::decode(request).expect("a request");
    request.resource_spans[0].scope_spans[0].spans[0].name.clone()
}

/// The name of the span of a line of OTLP JSON.
pub(crate) fn name_in_json(line: &str) -> String {
    let request =
        sluice_otlp::json::from_json(Signal::Traces, line.as_bytes(), 1 << 24).expect("OTLP JSON");
    span_name(&request)
}

/// A directory with the log of traces.
pub(crate) struct LogDirectory {
    _temporary: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

impl LogDirectory {
    pub(crate) fn empty() -> LogDirectory {
        LogDirectory::inside(tempfile::tempdir())
    }

    /// In a temporary folder, wherever that was made.
    pub(crate) fn inside(temporary: std::io::Result<tempfile::TempDir>) -> LogDirectory {
        let temporary = temporary.expect("a directory");
        let path = temporary.path().join("sluice");
        std::fs::create_dir(&path).expect("a directory");
        LogDirectory { _temporary: temporary, path }
    }

    /// Frames 0 to 9, of which the healthy delivery has resolved all but the frames 4 and 9, and
    /// the dead one none; three dead letters of the healthy one.
    pub(crate) fn filled() -> LogDirectory {
        let directory = LogDirectory::empty();
        let log = directory.open();
        let [healthy, dead] = [HEALTHY, DEAD].map(|name| log.subscribe(Subscription::new(name)));
        for index in 0..10 {
            append(
                &log,
                Stored::new(&format!("span {index}"), Encoding::ALL[index % 4]),
                &[healthy, dead],
            );
        }
        // A frame that is resolved before it is written is not written.
        let deadline = Instant::now() + PATIENCE;
        while log.unwritten_bytes() > 0 {
            assert!(Instant::now() < deadline, "{:?}", log.trouble());
            std::thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..10 {
            let (offset, _) = next(&log, healthy).expect("a frame");
            if offset != 4 && offset != 9 {
                log.resolve(healthy, offset);
            }
        }
        close(&log, &[healthy, dead]);
        directory.bury(
            HEALTHY,
            &["refused 0", "refused 1", "refused 2"].map(str::to_owned),
            "span has no name",
        );
        directory
    }

    pub(crate) fn traces(&self) -> PathBuf {
        self.path.join("traces")
    }

    pub(crate) fn open(&self) -> Log<Stored> {
        let options = OpenOptions {
            flush_after: Duration::ZERO,
            segment_bytes: 1 << 20,
            ..OpenOptions::new(Arc::new(RealDisk) as Arc<dyn Disk>, self.traces(), "traces")
        };
        Log::open(options).expect("a log").0
    }

    /// Adds dead letters.
    pub(crate) fn bury(&self, delivery: &str, names: &[String], reason: &str) {
        std::fs::create_dir_all(self.traces()).expect("a folder");
        let mut letters = DeadLetters::open(Arc::new(RealDisk), &self.traces(), delivery, 64 << 20)
            .expect("letters");
        let refusal = Refusal {
            refused_unix_ns: RECEIVED_UNIX_NS + 1_000_000_000,
            code: 0,
            reason: reason.to_owned(),
        };
        // Letters that are to take space are not compressed.
        let encoding =
            |name: &str| if name.len() > 1000 { Encoding::Identity } else { Encoding::Zstd };
        let stored: Vec<_> = names.iter().map(|name| Stored::new(name, encoding(name))).collect();
        let new = |stored: &Stored| DeadLetter {
            refusal: refusal.clone(),
            facts: RecordFacts { received_unix_ns: RECEIVED_UNIX_NS, ..stored.facts },
            items: 1,
            metadata: stored.metadata.clone(),
            payload: stored.payload.clone(),
        };
        letters.append(&stored.iter().map(new).collect::<Vec<_>>()).expect("durable");
    }

    /// The backlog of a delivery: offsets and names of the spans, as the next start finds them.
    pub(crate) fn backlog(&self, delivery: &str) -> Vec<(u64, String)> {
        let log = self.open();
        let id = log.subscribe(Subscription::new(delivery));
        let mut backlog = Vec::new();
        while let Some((offset, stored)) = next(&log, id) {
            backlog.push((offset, stored.name()));
        }
        close(&log, &[id]);
        backlog
    }

    /// Every file with its content, but for the lock.
    pub(crate) fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut contents = BTreeMap::new();
        let mut folders = vec![self.path.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.ends_with("lock") {
                    contents.insert(path.clone(), std::fs::read(&path).expect("a file"));
                }
            }
        }
        contents
    }

    /// The only segment of the traces.
    pub(crate) fn segment(&self) -> PathBuf {
        let mut segments = segments(&self.traces());
        assert_eq!(segments.len(), 1, "{segments:?}");
        segments.remove(0)
    }

    /// Runs `sluice log COMMAND DIRECTORY …`.
    pub(crate) fn run(&self, command: &str, arguments: &[&str]) -> Ran {
        run(command, &self.path, arguments)
    }
}

pub(crate) fn segments(folder: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut segments: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "seg")).collect();
    segments.sort();
    segments
}

pub(crate) fn append(log: &Log<Stored>, stored: Stored, readers: &[CursorId]) {
    let charge = Charge { bytes: stored::charge_bytes(stored.payload.len()), items: 1 };
    log.append(Arc::new(stored), charge, &Arc::from(readers));
}

/// Leaves the backlogs of the readers behind.
pub(crate) fn close(log: &Log<Stored>, readers: &[CursorId]) {
    for &id in readers {
        log.unsubscribe(id, Keep::Backlog);
    }
    assert_eq!(log.close(PATIENCE).frames, 0, "{:?}", log.trouble());
}

/// The next frame, None if there is none.
pub(crate) fn next(log: &Log<Stored>, id: CursorId) -> Option<(u64, Arc<Stored>)> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match log.read(id) {
            Next::Entry(offset, stored) => return Some((offset, stored)),
            Next::Empty => return None,
            Next::Loading | Next::Full if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1))
            }
            other => panic!("{other:?} for {PATIENCE:?}", other = std::mem::discriminant(&other)),
        }
    }
}

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// The standard output of a command that succeeded.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// The standard error of a command that failed.
    pub(crate) fn failed(self) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        self.err
    }
}

pub(crate) fn command(name: &str, directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(["log", name]).arg(directory).args(arguments);
    command
}

pub(crate) fn run(name: &str, directory: &Path, arguments: &[&str]) -> Ran {
    let Output { status, stdout, stderr } =
        command(name, directory, arguments).output().expect("sluice runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ran { code: status.code(), out: text(stdout), err: text(stderr) }
}
