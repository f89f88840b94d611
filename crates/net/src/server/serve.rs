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

use super::activity::Activity;
use super::connection::{Context, is_due, serve_connection};
use super::counters::ServerCounters;
use super::listener::Listener;
use super::open::Port;
use super::{Handler, Serving};

/// Connections that a port accepts in an interval for each core, at most. Thousands that come at
/// once would keep those that are open waiting until all have been looked at.
const ACCEPTED_AT_ONCE: usize = 8;
const ACCEPT_INTERVAL: Duration = Duration::from_millis(1);
/// The wait after `accept` failed for want of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Pause between two warnings of a port that connections find no room.
const CROWDED_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Serves a port until `shutdown`; then stops accepting, asks all connections to go, waits for
/// requests in flight, at most `drain_timeout`, and cuts off the rest. Returns when every
/// connection is closed.
pub async fn serve(listener: Listener, serving: Serving, handler: impl Handler) {
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
            tracing::warn!(
                "{} connections were closed because there was no room for all; {} (such warnings \
                 are at least {CROWDED_WARNING_INTERVAL:?} apart)",
                crowded_out - warned_of,
                options.if_crowded
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

struct AcceptPace {
    most: usize,
    left: usize,
    began: Instant,
}

impl AcceptPace {
    fn new(cores: usize, now: Instant) -> Self {
        let most = ACCEPTED_AT_ONCE * cores;
        AcceptPace { most, left: most, began: now }
    }

    /// When the next connection may be accepted, if this was the last one of its interval.
    fn note_accepted(&mut self, now: Instant) -> Option<Instant> {
        if now - self.began >= ACCEPT_INTERVAL {
            (self.left, self.began) = (self.most, now);
        }
        self.left = self.left.saturating_sub(1);
        (self.left == 0).then(|| self.began + ACCEPT_INTERVAL)
    }
}

/// The peer was gone before it was accepted.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: thousands of connections that come at once are spread over time; those that come
    /// one by one do not wait.
    #[test]
    fn a_burst_of_connections_is_spread() {
        let began = Instant::now();
        let (mut pace, mut now) = (AcceptPace::new(2, began), began);
        for _ in 0..100 * 2 * ACCEPTED_AT_ONCE {
            now = pace.note_accepted(now).unwrap_or(now);
        }
        assert_eq!(now - began, 100 * ACCEPT_INTERVAL);
        for _ in 0..100 {
            now += ACCEPT_INTERVAL;
            assert_eq!(pace.note_accepted(now), None);
        }
    }
}
