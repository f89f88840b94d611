//! `filelog`: reads log files, as the Collector's `file_log` does.
//!
//! A file is its own queue. Its lines go through these steps, on a thread of the receiver's own:
//!
//! 1. memory is asked for, before anything is read (`reader`);
//! 2. `sluice_tail` finds the file, tells which content it has, and cuts records off;
//! 3. records become log records of one request (`lines`: operators come between here);
//! 4. the request is submitted with its range of the file, and reading goes on when deliveries
//!    want more;
//! 5. the checkpoint of a file is its lowest offset that is not resolved (`progress`).

mod attributes;
mod clock;
mod config;
mod header;
mod lines;
mod metrics;
mod operators;
mod progress;
mod reader;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use sluice_config::Kind;
use sluice_flow::BoxFuture;
use sluice_tail::{Checkpoint, Known, Tail};
use tokio_util::sync::CancellationToken;

use crate::receiver::{
    BindContext, BoundReceiver, Checkpoints, ReceiverConfig, ReceiverContext, ReceiverCounters,
    ReceiverError, ReceiverKind, StartedReceiver, Streams,
};

pub use config::FilelogConfig;
pub use metrics::Counters;

use self::clock::Clock;
use self::header::Headers;
use self::lines::Lines;
use self::progress::Progress;
use self::reader::Reader;

pub(crate) const KIND: ReceiverKind = ReceiverKind::new(
    Kind::new("filelog", "Reads log files that grow and rotate").aliases(&["file_log"]),
    |fields| Box::new(FilelogConfig::read(fields)),
)
.metrics(|| metrics::METRICS.describe());

/// The receiver before may take longer than a reload waits: a full disk is slow to answer.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(30);

impl ReceiverConfig for FilelogConfig {
    fn has_senders(&self) -> bool {
        false
    }

    fn checkpoints(&self) -> Checkpoints<'_> {
        match &self.storage {
            Some(storage) => Checkpoints::In(storage),
            None => Checkpoints::WithTelemetry,
        }
    }

    fn bind<'a>(
        &'a self,
        context: BindContext<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, ReceiverError>> {
        Box::pin(async move {
            let path = context.checkpoint.map(ToOwned::to_owned);
            let opened = tokio::task::spawn_blocking(move || {
                path.map(|path| Checkpoint::open(&path, PREDECESSOR_PATIENCE)).transpose()
            });
            let opened = opened.await.map_err(ReceiverError::failed)?;
            let (checkpoint, known) = match opened.map_err(ReceiverError::failed)? {
                Some((checkpoint, known)) => (Some(checkpoint), known),
                None => (None, None),
            };
            let (id, config, seed) = (context.id.to_owned(), self.clone(), seed(&context));
            Ok(Box::new(Bound { id, config, seed, checkpoint, known }) as Box<dyn BoundReceiver>)
        })
    }
}

/// Changes with all that decides, beside its bytes, which records are made of a file.
fn seed(context: &BindContext<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (context.fingerprint, env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    hasher.finish()
}

struct Bound {
    id: String,
    config: FilelogConfig,
    seed: u64,
    checkpoint: Option<Checkpoint>,
    known: Option<Vec<Known>>,
}

impl BoundReceiver for Bound {
    fn serve(self: Box<Self>, mut context: ReceiverContext) -> Box<dyn StartedReceiver> {
        let Bound { id, config, seed, checkpoint, known } = *self;
        let counters = context.take_counters::<Counters>().unwrap_or_default();
        let (stop, streams, ingress) = (CancellationToken::new(), context.streams, context.ingress);
        let (ended, end) = tokio::sync::oneshot::channel();
        let runtime = tokio::runtime::Handle::current();
        let parts = (stop.clone(), Arc::clone(&counters));
        let run = move || {
            // The streams go on where they were read to, behind the checkpoint.
            let known = if streams.is_empty() { known } else { Some(Vec::new()) };
            let clock = Clock::new(config.rate);
            let mut tail = Tail::new(config.options.clone(), known, clock.now());
            let progress = Progress::new(&mut tail, checkpoint, streams);
            let lines = Lines::new(&config);
            let charset = config.options.splitter.charset;
            let (stop, counters) = parts;
            let headers = config.header.map(|it| Headers::new(it, charset, Arc::clone(&counters)));
            let mut reader =
                Reader::new(tail, progress, lines, config.files, ingress, counters, stop);
            (reader.headers, reader.seed, reader.clock) = (headers, seed, clock);
            let _ = ended.send(runtime.block_on(reader.run()));
        };
        if let Err(error) = std::thread::Builder::new().name("filelog".to_owned()).spawn(run) {
            tracing::error!(receiver = id, %error, "no thread for this receiver: no file is read");
        }
        Box::new(Running { counters, stop, end })
    }
}

struct Running {
    counters: Arc<Counters>,
    stop: CancellationToken,
    end: tokio::sync::oneshot::Receiver<Streams>,
}

impl StartedReceiver for Running {
    fn counters(&self) -> Arc<dyn ReceiverCounters> {
        Arc::clone(&self.counters) as _
    }

    fn shutdown(self: Box<Self>) -> BoxFuture<'static, Streams> {
        Box::pin(async move {
            self.stop.cancel();
            self.end.await.unwrap_or_default()
        })
    }
}
