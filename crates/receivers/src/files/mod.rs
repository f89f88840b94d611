//! Files that receivers read: logs, and samples of load tests.
//!
//! A file is its own queue. Its lines go through these steps, on a thread of the receiver's own:
//!
//! 1. memory is asked for, before anything is read (`reader`);
//! 2. `sluice_tail` finds the file, tells which content it has, and cuts lines off;
//! 3. the receiver makes one request of them ([`Records`]; for logs, operators come between);
//! 4. the request is submitted with its range of the file, and reading goes on when deliveries
//!    want more;
//! 5. the checkpoint of a file is its lowest offset that is not resolved (`progress`).

mod attributes;
mod clock;
mod counters;
mod header;
mod operators;
pub(crate) mod options;
mod progress;
mod reader;
mod records;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use sluice_flow::BoxFuture;
use sluice_tail::{Checkpoint, Known, Options, Tail};
use tokio_util::sync::CancellationToken;

use crate::receiver::{
    BindContext, BoundReceiver, Checkpoints, ReceiverConfig, ReceiverContext, ReceiverCounters,
    ReceiverError, StartedReceiver, Streams,
};

pub(crate) use self::attributes::{Attributes, FileAttributes};
pub use self::counters::Counters;
pub(crate) use self::header::{HEADER_TEXT, HeaderConfig};
pub(crate) use self::operators::Operators;
pub(crate) use self::records::{REQUEST_BYTES, Records};

use self::clock::Clock;
use self::header::Headers;
use self::progress::Progress;
use self::reader::Reader;

/// The receiver before may take longer than a reload waits: a full disk is slow to answer.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(30);

/// The configuration of a receiver that reads files.
pub(crate) trait FileSource: Clone + Send + Sync + 'static {
    type Counters: ReceiverCounters + Default;
    /// The kind of the receiver.
    const NAME: &'static str;

    /// The extension whose directory has the checkpoint.
    fn storage(&self) -> Option<&str>;

    fn files(&self) -> Settings;

    fn records(&self, counters: &Arc<Self::Counters>) -> Box<dyn Records>;

    /// The counters of files among those of the receiver.
    fn counters_of_files(counters: &Arc<Self::Counters>) -> Arc<Counters>;
}

/// Which files are read, and what is known of each.
pub(crate) struct Settings {
    pub(crate) options: Options,
    pub(crate) attributes: FileAttributes,
    pub(crate) header: Option<HeaderConfig>,
    /// Seconds that pass for the receiver in one.
    pub(crate) rate: u32,
}

impl<S: FileSource> ReceiverConfig for S {
    fn has_senders(&self) -> bool {
        false
    }

    fn open_files(&self) -> usize {
        self.files().options.max_open
    }

    fn checkpoints(&self) -> Checkpoints<'_> {
        self.storage().map_or(Checkpoints::WithTelemetry, Checkpoints::In)
    }

    fn bind<'a>(
        &'a self,
        context: BindContext<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, ReceiverError>> {
        Box::pin(open(context, self.clone()))
    }
}

/// Opens the checkpoint.
async fn open<S: FileSource>(
    context: BindContext<'_>,
    source: S,
) -> Result<Box<dyn BoundReceiver>, ReceiverError> {
    let path = context.checkpoint.map(ToOwned::to_owned);
    let opened = tokio::task::spawn_blocking(move || {
        path.map(|path| Checkpoint::open(&path, PREDECESSOR_PATIENCE)).transpose()
    });
    let opened = opened.await.map_err(ReceiverError::failed)?;
    let (checkpoint, known) = match opened.map_err(ReceiverError::failed)? {
        Some((checkpoint, known)) => (Some(checkpoint), known),
        None => (None, None),
    };
    let (id, seed) = (context.id.to_owned(), seed(&context));
    Ok(Box::new(Bound { id, source, seed, checkpoint, known }) as Box<dyn BoundReceiver>)
}

/// Changes with all that decides, beside its bytes, which records are made of a file.
fn seed(context: &BindContext<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (context.fingerprint, env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    hasher.finish()
}

struct Bound<S> {
    id: String,
    source: S,
    seed: u64,
    checkpoint: Option<Checkpoint>,
    known: Option<Vec<Known>>,
}

impl<S: FileSource> BoundReceiver for Bound<S> {
    fn serve(self: Box<Self>, mut context: ReceiverContext) -> Box<dyn StartedReceiver> {
        let Bound { id, source, seed, checkpoint, known } = *self;
        let counters = context.take_counters::<S::Counters>().unwrap_or_default();
        let (stop, streams, ingress) = (CancellationToken::new(), context.streams, context.ingress);
        let (ended, end) = tokio::sync::oneshot::channel();
        let runtime = tokio::runtime::Handle::current();
        let parts = (stop.clone(), Arc::clone(&counters));
        let run = move || {
            let (stop, counters) = parts;
            // The streams go on where they were read to, behind the checkpoint.
            let known = if streams.positions.is_empty() { known } else { Some(Vec::new()) };
            let Settings { options, attributes, header, rate } = source.files();
            let clock = Clock::new(rate);
            let charset = options.splitter.charset;
            let mut tail = Tail::new(options, known, clock.now());
            let progress = Progress::new(&mut tail, checkpoint, streams, clock.now());
            let records = source.records(&counters);
            let counters = S::counters_of_files(&counters);
            let headers = header.map(|it| Headers::new(it, charset, Arc::clone(&counters)));
            let mut reader =
                Reader::new(tail, progress, records, attributes, ingress, counters, stop);
            (reader.headers, reader.seed, reader.clock) = (headers, seed, clock);
            let _ = ended.send(runtime.block_on(reader.run()));
        };
        if let Err(error) = std::thread::Builder::new().name(S::NAME.to_owned()).spawn(run) {
            tracing::error!(receiver = id, %error, "no thread for this receiver: no file is read");
        }
        Box::new(Running { counters, stop, end })
    }
}

struct Running<C> {
    counters: Arc<C>,
    stop: CancellationToken,
    end: tokio::sync::oneshot::Receiver<Streams>,
}

impl<C: ReceiverCounters> StartedReceiver for Running<C> {
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
