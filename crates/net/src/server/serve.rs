//! The accept loop of a port, and its end.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::accept_pace::AcceptPace;
use super::activity::Activity;
use super::connection::{Context, Http, Speak, is_due, serve_connection};
use super::counters::ServerCounters;
use super::listener::Listener;
use super::open::Port;
use super::stream::Plain;
use super::{Handler, Serving, StreamHandler};

/// The wait after `accept` failed for want of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Pause between two warnings of a port that connections find no room.
const CROWDED_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Serves HTTP on a port until `shutdown`; then stops accepting, asks all connections to go, waits
/// for requests in flight, at most `drain_timeout`, and cuts off the rest. Returns when every
/// connection is closed.
pub async fn serve(listener: Listener, serving: Serving, handler: impl Handler) {
    serve_speaking(listener, serving, Http(handler)).await;
}

/// As [`serve`], for another protocol.
pub async fn serve_streams(listener: Listener, serving: Serving, handler: impl StreamHandler) {
    serve_speaking(listener, serving, Plain(handler)).await;
}

async fn serve_speaking(listener: Listener, serving: Serving, handler: impl Speak) {
    let connections = TaskTracker::new();
    let cut_off = CancellationToken::new();
    let context = Arc::new(Context { serving, handler, tls_warned_at: Mutex::default(), cut_off });
    let Serving { options, tls, counters, resources, shutdown } = &context.serving;
    let counted = Arc::clone(counters);
    let port = Port::new(tls.is_some(), counted, options.max_connections, options.evicted_after);
    let (mut warned_at, mut warned_of) = (None, counters.crowded_out());
    let mut accept_warned_at = None;
    let cores = available_parallelism().map_or(1, NonZero::get);
    let mut pace = AcceptPace::new(cores, Instant::now());
    loop {
        let crowded_out = counters.crowded_out();
        if crowded_out > warned_of && is_due(&mut warned_at, CROWDED_WARNING_INTERVAL) {
            let budget = &resources.connections.budget;
            let of_files = budget.max_connections_reached(CROWDED_WARNING_INTERVAL).map(|max| {
                format!(
                    "the limit on open files allows {max}: raise it (`ulimit -Hn`, LimitNOFILE)"
                )
            });
            tracing::warn!(
                "{} connections were closed because there was no room for all; {} (such warnings \
                 are at least {CROWDED_WARNING_INTERVAL:?} apart)",
                crowded_out - warned_of,
                of_files.as_deref().unwrap_or(options.if_crowded)
            );
            warned_of = crowded_out;
        }
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => {
                ServerCounters::count(&counters.accepted);
                let open = &resources.connections;
                let activity = Arc::new(Activity::new(&open.budget));
                if let Some(place) = open.try_open(&port, &activity, Instant::now()) {
                    let context = Arc::clone(&context);
                    connections.spawn(async move {
                        serve_connection(socket, peer, activity, context).await;
                        drop(place);
                    });
                } else {
                    // The client sees an orderly end and tries again.
                    ServerCounters::count(&counters.refused);
                    drop(socket);
                }
                if let Some(until) = pace.note_accepted(Instant::now()) {
                    tokio::time::sleep_until(until).await;
                }
            }
            Err(error) => {
                ServerCounters::count(&counters.accept_errors);
                if !concerns_one_connection(&error) {
                    resources.connections.evict_longest_idle(Instant::now());
                    if is_due(&mut accept_warned_at, CROWDED_WARNING_INTERVAL) {
                        tracing::warn!(%error, "cannot accept connections for the moment");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(options.drain_timeout, connections.wait()).await.is_err() {
        context.cut_off.cancel();
        connections.wait().await;
    }
}

/// The peer was gone before it was accepted.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
