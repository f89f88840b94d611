//! `lines`: a receiver that fetches. Reads the lines of files, one log record a line, and counts
//! them.
//!
//! For tests: it shows what a receiver needs beside this folder (a line in a list of kinds) and
//! what the door promises one that can read its data again. Its checkpoint is the lowest unresolved
//! offset of each file. It has no queue: a chunk is read once there is memory for it, and is in the
//! log before the next one is read.

mod checkpoint;
mod reader;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_config::{Fields, Kind};
use sluice_flow::BoxFuture;
use sluice_receivers::{
    BindContext, BoundReceiver, ReceiverConfig, ReceiverContext, ReceiverCounters, ReceiverError,
    ReceiverKind, StartedReceiver,
};
use sluice_telemetry::exposition::Exposition;
use sluice_telemetry::row;
use sluice_telemetry::table::Table;

use self::checkpoint::Checkpoint;
use self::reader::Reader;
use crate::started::Started;

pub(crate) const KIND: ReceiverKind =
    ReceiverKind::new(Kind::new("lines", "Reads lines of files"), |fields| {
        Box::new(Config::read(fields))
    });

#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// A path whose last part may contain one `*`.
    include: PathBuf,
    checkpoint: PathBuf,
}

impl Config {
    fn read(fields: &mut Fields<'_>) -> Config {
        Config {
            include: fields
                .required_string("include", "The files: a path whose last part may hold a `*`.")
                .into(),
            checkpoint: fields.required_string("checkpoint", "Where offsets are kept.").into(),
        }
    }
}

/// Bytes and lines that were read. Grows only.
#[derive(Debug, Default)]
struct Counters {
    read_bytes: AtomicU64,
    read_lines: AtomicU64,
}

const METRICS: Table<Counters> = Table {
    title: "Receiver lines",
    labels: &["receiver"],
    metrics: &[
        row!(Counter "lines_read" in "bytes",
            |it: &Counters| it.read_bytes.load(Ordering::Relaxed) as f64,
            "Bytes of lines that were read."),
        row!(Counter "lines_read_lines",
            |it: &Counters| it.read_lines.load(Ordering::Relaxed) as f64,
            "Lines that were read."),
    ],
};

impl ReceiverCounters for Counters {
    fn write(&self, receiver: &str, exposition: &mut Exposition<'_>) {
        exposition.write(&METRICS, &[receiver], self);
    }
}

impl ReceiverConfig for Config {
    fn has_senders(&self) -> bool {
        false
    }

    fn bind<'a>(
        &'a self,
        _context: BindContext<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, ReceiverError>> {
        Box::pin(async move {
            let checkpoint = Checkpoint::load(&self.checkpoint).map_err(ReceiverError::failed)?;
            let bound: Box<dyn BoundReceiver> =
                Box::new(Bound { include: self.include.clone(), checkpoint });
            Ok(bound)
        })
    }
}

struct Bound {
    include: PathBuf,
    checkpoint: Checkpoint,
}

impl BoundReceiver for Bound {
    fn serve(self: Box<Self>, context: ReceiverContext) -> Box<dyn StartedReceiver> {
        let counters = Arc::new(Counters::default());
        let ReceiverContext { ingress, streams, .. } = context;
        let reader = Reader::new(self.include, self.checkpoint, streams, ingress, counters.clone());
        Box::new(Started::new(counters, |stop| reader.run(stop)))
    }
}
