//! SIGINT and SIGTERM: what was measured until then is reported.

use anyhow::Result;
use sluice_load_test::live;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// As shells say it of a program that SIGINT ended.
pub(super) const INTERRUPTED: u8 = 130;

/// True as soon as this process is asked to end. The second time it ends at once, and its subjects with it.
pub(super) fn interruption() -> Result<watch::Receiver<bool>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if sender.send_replace(true) {
                live::restore();
                std::process::exit(i32::from(INTERRUPTED));
            }
            live::note("interrupted: the load ends, what was measured is reported");
        }
    });
    Ok(receiver)
}
