//! The life of a receiver: options, then bound, then running. A kind is its folder, which
//! implements these traits, and its line in the list of `lib.rs`. Nothing here knows a receiver.

use std::any::Any;
use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use sluice_config::{ComponentKind, ComponentKinds};
use sluice_flow::source::{Ingress, Positions};
use sluice_flow::{BoxFuture, Tally};
use sluice_net::auth::client::ClientAuths;
use sluice_net::auth::server::ServerAuth;
use sluice_net::server::{Listener, Listening, ServerResources};
use sluice_telemetry::exposition::Exposition;
use sluice_telemetry::table::TableDoc;

/// A kind of receivers, with the table of the metrics that it exposes.
pub type ReceiverKind = ComponentKind<Box<dyn ReceiverConfig>, fn() -> TableDoc>;
/// A list of kinds of receivers.
pub type ReceiverKinds = ComponentKinds<Box<dyn ReceiverConfig>, fn() -> TableDoc>;

/// The state that a receiver that fetches leaves to the one that follows it, by stream. A stream's
/// name is that of the source, whatever the receiver's options: a whole path, a URL.
#[derive(Debug, Default)]
pub struct Streams {
    pub positions: HashMap<String, Positions>,
    /// Open files of streams that are no longer where they were found, or may be removed any time.
    pub files: HashMap<String, std::fs::File>,
}

impl FromIterator<(String, Positions)> for Streams {
    fn from_iter<I: IntoIterator<Item = (String, Positions)>>(streams: I) -> Streams {
        Streams { positions: streams.into_iter().collect(), files: HashMap::new() }
    }
}

/// The directory of a receiver's checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoints<'a> {
    /// It has none.
    None,
    /// That of the extension of this name.
    In(&'a str),
    /// That of telemetry on disk. Without one the checkpoint is kept in memory only.
    WithTelemetry,
}

/// The options of one receiver.
pub trait ReceiverConfig: Send + Sync {
    /// Names of the extensions that decide who may send.
    fn authenticators(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Names of the extensions that authenticate the requests by which it fetches.
    fn client_authenticators(&self) -> Vec<&str> {
        Vec::new()
    }

    /// The addresses that it listens on.
    fn listening(&self) -> Vec<Listening<'_>> {
        Vec::new()
    }

    /// Whether it knows requests of another Sluice by their ranges.
    fn knows_ranges(&self) -> bool {
        false
    }

    /// Whether senders wait for answers. False for a receiver that fetches, or whose protocol has
    /// no answers: under `ack: delivered` it has no sender for a backend's final refusal, so that
    /// the items concerned become dead letters.
    fn has_senders(&self) -> bool {
        true
    }

    /// Whether it reads again what is not resolved: at a reload it begins only when the one before
    /// has ended, and at the end it is told last.
    fn fetches(&self) -> bool {
        !self.has_senders()
    }

    /// Differs when files that its options name, and that were read with them, have other contents:
    /// at a reload it is not the same then.
    fn files_fingerprint(&self) -> u64 {
        0
    }

    /// Files that it may have open, beside its connections.
    fn open_files(&self) -> usize {
        0
    }

    /// Whether a part of the memory limit is its own, beside that of requests:
    /// [`BindContext::memory_bytes`].
    fn keeps_memory(&self) -> bool {
        false
    }

    /// Where it keeps its checkpoint.
    fn checkpoints(&self) -> Checkpoints<'_> {
        Checkpoints::None
    }

    /// Acquires everything that can fail: ports, certificates, checkpoints. Ports come from the
    /// context if it has the same addresses. Nothing is served or read yet. At a reload, one with
    /// senders binds before its predecessor ends, one that fetches only after that.
    fn bind<'a>(
        &'a self,
        context: BindContext<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, ReceiverError>>;
}

/// Input of [`ReceiverConfig::bind`] beside the receiver's options.
#[derive(Clone, Copy, Default)]
pub struct BindContext<'a> {
    /// The component's name, under which it stores its files: `otlp/in`.
    pub id: &'a str,
    /// Listeners of receivers that end.
    pub held: &'a [Listener],
    /// The file of its checkpoint, in a directory that is made if it is missing.
    pub checkpoint: Option<&'a Path>,
    /// Its own part of the memory limit, if it [`ReceiverConfig::keeps_memory`].
    pub memory_bytes: usize,
    /// Changes with the receiver's options, also from process to process.
    pub fingerprint: u64,
}

/// A receiver that cannot fail to start any more.
pub trait BoundReceiver: Send {
    /// Runs inside the calling runtime until [`StartedReceiver::shutdown`].
    fn serve(self: Box<Self>, context: ReceiverContext) -> Box<dyn StartedReceiver>;
}

/// Access to the engine for a receiver.
pub struct ReceiverContext {
    pub ingress: Arc<dyn Ingress>,
    /// At least those that [`ReceiverConfig::authenticators`] names.
    pub authenticators: HashMap<String, Arc<dyn ServerAuth>>,
    /// At least those that [`ReceiverConfig::client_authenticators`] names.
    pub client_authenticators: ClientAuths,
    /// `user-agent` of requests: `sluice/0.1.0`.
    pub user_agent: &'static str,
    /// Resources that all receivers share.
    pub resources: ServerResources,
    /// Of the receiver whose place this one takes, maybe of another kind: they go on counting.
    pub counters: Option<Arc<dyn ReceiverCounters>>,
    /// The streams of the receiver of this name before. It goes on at [`Positions::end`], rather
    /// than at its checkpoint: frames under way are not read again.
    pub streams: Streams,
}

impl ReceiverContext {
    /// The counters of the receiver before, if it counts in the same way.
    pub(crate) fn take_counters<C: ReceiverCounters>(&mut self) -> Option<Arc<C>> {
        let counters: Arc<dyn Any + Send + Sync> = self.counters.take()?;
        counters.downcast().ok()
    }
}

/// A receiver that runs.
pub trait StartedReceiver: Send + Sync {
    /// Protocols and addresses, as bound.
    fn addresses(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Its listeners. The ports stay open while these are kept.
    fn listeners(&self) -> Vec<Listener> {
        Vec::new()
    }

    fn counters(&self) -> Arc<dyn ReceiverCounters>;

    /// Takes nothing more. Requests in flight end, within the receiver's grace period. Returns its
    /// streams, for the one that takes its place.
    fn shutdown(self: Box<Self>) -> BoxFuture<'static, Streams>;
}

/// The counters of a receiver.
pub trait ReceiverCounters: Any + Send + Sync {
    /// The receiver's rows of `/metrics`. `receiver` is its id.
    fn write(&self, receiver: &str, exposition: &mut Exposition<'_>);

    /// Items that the engine has taken from it, by name, for the ledger. None: it does not count
    /// by name.
    fn received(&self) -> Option<&Tally> {
        None
    }
}

/// Why a receiver cannot start.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct ReceiverError {
    pub reason: String,
    /// It may succeed once the `held` listeners are closed.
    pub waits_for_held: bool,
}

impl ReceiverError {
    pub fn failed(reason: impl Display) -> Self {
        ReceiverError { reason: reason.to_string(), waits_for_held: false }
    }
}
