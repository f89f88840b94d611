//! SIGINT and SIGTERM: the measurements until then are reported.

use std::future::Future;

use anyhow::Result;
use sluice_load_test::live;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// The exit code that shells report for a program that SIGINT ended.
pub(super) const INTERRUPTED: u8 = 130;

/// From now on signals do not end this process by themselves. The receiver turns true at the first
/// signal. The future ends at the second one: then nothing more is waited for.
pub(super) fn listen() -> Result<(watch::Receiver<bool>, impl Future<Output = ()>)> {
    let mut signals = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (sender, once) = watch::channel(false);
    let twice = async move {
        either(&mut signals).await;
        live::note(
            "interrupted: the load ends, what was measured is reported; once more ends at once",
        );
        sender.send_replace(true);
        either(&mut signals).await;
    };
    Ok((once, twice))
}

async fn either((one, other): &mut (Signal, Signal)) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}
