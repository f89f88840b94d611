//! Appends requests to a file: OTLP JSON lines, or protobuf messages after their lengths.

mod config;
mod rotate;
#[cfg(test)]
mod tests;

use std::fs::{DirBuilder, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use sluice_config::{ComponentKind, Kind};
use sluice_flow::{BoxFuture, Exporter, Outcome, PackError, Packed};
use sluice_net::compress;
use sluice_otlp::{Encoding, Signal};
use tokio::sync::oneshot;

use crate::exporter::{
    BuildContext, BuildError, ExporterConfig, LOCAL_REQUEST_LIMIT_BYTES, NamedTarget,
};
use crate::files::{self, Current, Turn};
use crate::json::{Format, JSON_PACKING_FACTOR};
use crate::sending::Sending;
use config::{FileConfig, Rotation};

pub(crate) const KIND: ComponentKind<Box<dyn ExporterConfig>> =
    ComponentKind::new(Kind::new("file", "Appends OTLP JSON or protobuf to files"), |fields| {
        Box::new(FileConfig::read(fields))
    });

/// Opening the file at a start or reload may take this long.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

impl ExporterConfig for FileConfig {
    fn sending(&self) -> &Sending {
        &self.sending
    }

    fn destinations(&self) -> Vec<NamedTarget> {
        let (text, target, tls) = (self.path.display().to_string(), None, None);
        vec![NamedTarget { option: "path", text, target, tls }]
    }

    fn check(&self) -> BoxFuture<'_, Result<(), BuildError>> {
        let config = self.clone();
        Box::pin(async move {
            let opened = tokio::task::spawn_blocking(move || config.try_open());
            let opened = tokio::time::timeout(OPEN_TIMEOUT, opened).await;
            let opened = opened.unwrap_or_else(|_| Ok(Err(io::ErrorKind::TimedOut.into())))?;
            opened.map_err(|error| format!("cannot open {}: {error}", self.path.display()).into())
        })
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
        let turn = context.files.at(&self.path);
        Ok(Arc::new(FileExporter { config: Arc::new(self.clone()), turn }))
    }
}

#[derive(Clone)]
struct FileExporter {
    config: Arc<FileConfig>,
    turn: Arc<Turn>,
}

impl FileConfig {
    /// Of a file that is created. With `rotation` as in the Collector, which lets all users read
    /// the file without it: telemetry may have secrets.
    fn file_mode(&self) -> u32 {
        if self.rotation.is_some() { 0o600 } else { 0o640 }
    }

    /// Opens without writing: the configuration may be refused while another exporter writes to it.
    fn try_open(&self) -> io::Result<()> {
        if self.create_directory {
            let directory = directory_of(&self.path);
            DirBuilder::new().recursive(true).mode(self.directory_mode).create(directory)?;
        }
        // A pipe may have no reader yet, and a reader ends when its pipe is closed again.
        let is_pipe = |it: Metadata| it.file_type().is_fifo();
        if std::fs::metadata(&self.path).is_ok_and(is_pipe) {
            return Ok(());
        }
        files::open(&self.path, self.file_mode()).map(drop)
    }
}

fn directory_of(path: &Path) -> &Path {
    let is_named = |directory: &&Path| !directory.as_os_str().is_empty();
    path.parent().filter(is_named).unwrap_or(Path::new("."))
}

impl FileExporter {
    /// Writes a whole request or nothing of it. Blocks.
    fn write(&self, current: &mut Current, request: &Packed) -> io::Result<()> {
        let path = &self.config.path;
        // After an error it is opened anew.
        let mut file = match current.file.take() {
            Some(file) if files::is_at(path, &file)? => file,
            _ => files::open(path, self.config.file_mode())?,
        };
        if !current.begun.load(Ordering::Relaxed) {
            // The content of an earlier process stays with rotation too, as in the Collector: it
            // becomes an old file later. Devices and pipes have no beginning.
            let begins_anew = !self.config.append && self.config.rotation.is_none();
            if begins_anew && file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            current.begun.store(true, Ordering::Relaxed);
        }
        let mut whole_bytes = file.metadata()?.len();
        if let Some(rotation) = &self.config.rotation
            && whole_bytes > 0
            && whole_bytes + request.len_bytes as u64
                > rotation.max_megabytes.saturating_mul(1024 * 1024)
        {
            // A mode that another program gave the file stays, as in the Collector.
            let mode = file.metadata()?.permissions().mode() & 0o777;
            rotate::rotate(path, rotation)?;
            file = files::open(path, mode)?;
            whole_bytes = 0;
        }
        if let Err(error) = request.chunks.iter().try_for_each(|it| file.write_all(it)) {
            // No half request stays.
            let _ = file.set_len(whole_bytes);
            return Err(error);
        }
        current.file = Some(file);
        Ok(())
    }
}

impl Exporter for FileExporter {
    fn pack(
        &self,
        signal: Signal,
        chunks: Vec<Bytes>,
    ) -> Result<(Vec<Bytes>, Encoding), PackError> {
        let FileConfig { format, compress, compression_level, .. } = *self.config;
        let mut chunks = format.write(signal, chunks, LOCAL_REQUEST_LIMIT_BYTES)?;
        if compress {
            let packed = compress::compress(Encoding::Zstd, &chunks, compression_level);
            chunks = vec![packed.map_err(|error| error.to_string())?];
        }
        if format == Format::Json && !compress {
            chunks.push(Bytes::from_static(b"\n"));
        } else {
            let len_bytes: usize = chunks.iter().map(Bytes::len).sum();
            let prefix = u32::try_from(len_bytes)
                .map_err(|_| "a message does not fit into 4 GiB".to_owned())?;
            chunks.insert(0, Bytes::copy_from_slice(&prefix.to_be_bytes()));
        }
        // A request is written in one piece, so that no other writer of the file comes in between.
        let whole = Bytes::from(chunks.concat());
        Ok((vec![whole], Encoding::Identity))
    }

    fn packing_bytes(&self, request_bytes: usize, _: usize) -> usize {
        let factor = if self.config.format == Format::Json { JSON_PACKING_FACTOR } else { 1 };
        request_bytes.saturating_mul(factor)
    }

    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        let (this, request) = (self.clone(), request.clone());
        Box::pin(async move {
            let mut current = this.turn.clone().lock_owned().await;
            let (answer, written) = oneshot::channel();
            tokio::task::spawn_blocking(move || {
                // If the caller has gone it is too late: the delivery sends the request again.
                if !answer.is_closed() {
                    let _ = answer.send(this.write(&mut current, &request));
                }
            });
            match written.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
                Ok(()) => Outcome::Delivered,
                Err(error) => outcome(&error),
            }
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(30)
    }
}

/// A full or failing disk may recover; a directory that is missing or closed to us does not.
fn outcome(error: &io::Error) -> Outcome {
    let reason = error.to_string();
    match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem => Outcome::Misconfigured { reason },
        _ => Outcome::RetryAfter { delay: None, reason },
    }
}
