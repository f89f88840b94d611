//! Reads files turn by turn, at the pace that the door sets.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluice_flow::source::{ArrivedBody, Ingress, Positions, Refusal, Request};
use sluice_otlp::Signal;
use sluice_receivers::Streams;
use tokio_util::sync::CancellationToken;

use super::Counters;
use super::checkpoint::Checkpoint;
use crate::records::encode;

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// A chunk, its lines one by one, and their encoding: a record costs its text and a few hundred
/// bytes.
const CHUNK_MEMORY_BYTES: usize = 16 * CHUNK_BYTES;
/// Pause before files that had nothing new are looked at again.
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct Reader {
    include: PathBuf,
    checkpoint: Checkpoint,
    /// By path: streams of files that were not found yet.
    streams: Streams,
    ingress: Arc<dyn Ingress>,
    counters: Arc<Counters>,
    files: Vec<OpenFile>,
}

struct OpenFile {
    path: PathBuf,
    name: String,
    file: File,
    /// The offset at which reading goes on.
    offset: u64,
    positions: Positions,
}

impl Reader {
    pub(super) fn new(
        include: PathBuf,
        checkpoint: Checkpoint,
        streams: Streams,
        ingress: Arc<dyn Ingress>,
        counters: Arc<Counters>,
    ) -> Reader {
        Reader { include, checkpoint, streams, ingress, counters, files: Vec::new() }
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) -> Streams {
        loop {
            self.find_files();
            let mut progressed = false;
            for index in 0..self.files.len() {
                tokio::select! {
                    () = stop.cancelled() => break,
                    read = self.read(index) => match read {
                        Ok(read) => progressed |= read,
                        Err(Refusal::Retry { delay, .. }) => tokio::time::sleep(delay).await,
                        Err(_) => tokio::time::sleep(PAUSE).await,
                    },
                }
            }
            self.keep_checkpoint();
            if stop.is_cancelled() {
                let read = self.files.into_iter().map(|file| (key(&file.path), file.positions));
                return self.streams.positions.into_iter().chain(read).collect();
            }
            if !progressed {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    fn find_files(&mut self) {
        let (Some(folder), Some(pattern)) = (self.include.parent(), self.include.file_name())
        else {
            return;
        };
        let pattern = pattern.to_string_lossy();
        let (before, after) = pattern.split_once('*').unwrap_or((&pattern, ""));
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_meant = name.len() >= before.len() + after.len()
                && name.starts_with(before)
                && name.ends_with(after);
            if !is_meant || self.files.iter().any(|file| file.name == name) {
                continue;
            }
            let path = folder.join(&name);
            if let Ok(file) = File::open(&path) {
                let from_checkpoint = || Positions::starting_at(self.checkpoint.of(&name));
                let positions =
                    self.streams.positions.remove(&key(&path)).unwrap_or_else(from_checkpoint);
                let offset = positions.end();
                self.files.push(OpenFile { path, name, file, offset, positions });
            }
        }
    }

    /// Reads the next lines of a file and submits them. False if there are none.
    async fn read(&mut self, index: usize) -> Result<bool, Refusal> {
        let OpenFile { file, offset, positions, .. } = &mut self.files[index];
        if positions.is_interrupted() {
            *offset = positions.rewind();
        }
        if file.metadata().map_or(0, |metadata| metadata.len()) <= *offset {
            return Ok(false);
        }
        let Some(route) = self.ingress.route(Signal::Logs) else { return Ok(false) };
        let mut permit = route.admit(CHUNK_MEMORY_BYTES, &ArrivedBody::default()).await?;
        let mut chunk = vec![0; CHUNK_BYTES];
        let length = file.read_at(&mut chunk, *offset).unwrap_or(0);
        let Some(end) = chunk[..length].iter().rposition(|byte| *byte == b'\n') else {
            return Ok(false);
        };
        chunk.truncate(end + 1);
        let (payload, items) = encode(&chunk);
        permit.grow_to(payload.bytes.len())?;
        let end = *offset + chunk.len() as u64;
        let position = Some(positions.begin(*offset..end));
        *offset = end;
        self.counters.read_bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        self.counters.read_lines.fetch_add(u64::from(items), Ordering::Relaxed);
        drop(chunk);
        // If it is refused, its position is dropped, and the next turn reads it again.
        let mut receipt =
            route.submit(Request { position, ..Request::new(payload, items) }, permit)?;
        receipt.paced().await;
        Ok(true)
    }

    fn keep_checkpoint(&mut self) {
        let resolved = |file: &OpenFile| (file.name.clone(), file.positions.lowest_unresolved());
        let offsets: BTreeMap<String, u64> = self.files.iter().map(resolved).collect();
        self.checkpoint.set(offsets).expect("the checkpoint can be written");
    }
}

/// The name of a file's stream, whatever pattern has found it.
fn key(path: &Path) -> String {
    path.display().to_string()
}
