//! Sends dead letters to their delivery again: appends them to the log for the next start.
//!
//! Invariant: a letter is removed only after its frame is durable in the log. After an interruption
//! the letters are in place; repeating the command may deliver some twice.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sluice_engine::stored::charge_bytes;
use sluice_log::disk::RealDisk;
use sluice_log::{Charge, Keep, Log, OpenOptions, StoredRecord, Subscription};

use super::{StoredDelivery, letters, progress};
use crate::log::frames::{readable, report_damage};
use crate::output;
use crate::text;

/// The most bytes that wait in memory for the disk.
const UNWRITTEN_LIMIT_BYTES: u64 = 16 << 20;
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Time for the log to recover by itself: space may become free.
const TROUBLE_PATIENCE: Duration = Duration::from_secs(3);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Small, because its space is reserved at once: the disk may be nearly full.
const SEGMENT_LEN_BYTES: u64 = 4 << 20;

pub(super) fn run(delivery: &StoredDelivery, limit: u64) -> Result<ExitCode> {
    if delivery.cursor.is_none() {
        bail!(
            "{}: this is a lost cursor, not a delivery; --backlog --to-file writes what is kept \
             for it",
            delivery.name
        );
    }
    let mut reader = letters(delivery)?;
    let options = OpenOptions {
        flush_after: Duration::ZERO,
        segment_bytes: SEGMENT_LEN_BYTES,
        ..OpenOptions::new(Arc::new(RealDisk), &delivery.log.path, delivery.log.signal.as_str())
    };
    let (log, _) = Log::<StoredRecord>::open(options)?;
    let id = log.subscribe(Subscription::new(&delivery.name));
    let (mut appended, mut items, mut below) = (0, 0, 0);
    let bar = progress();
    while appended < limit
        && let Some((letter, _)) = readable(|| reader.next_letter())?
    {
        appended += 1;
        items += letter.charge.items;
        below = letter.offset + 1;
        wait_written(&log, UNWRITTEN_LIMIT_BYTES)?;
        // The charge that the engine would compute. That of a letter differs.
        let charge = Charge { bytes: charge_bytes(letter.payload.len()), ..letter.charge };
        log.append(Arc::new(letter), charge, &Arc::from([id]));
        bar.inc(1);
    }
    wait_written(&log, 0)?;
    log.unsubscribe(id, Keep::Backlog);
    let unwritten = log.close(CLOSE_TIMEOUT);
    bar.finish_and_clear();
    if unwritten.frames > 0 {
        let (frames, why) = (unwritten.frames, and_why(&log));
        bail!("{frames} of {appended} frames could not be written{why}");
    }
    report_damage(&reader.damaged());
    if appended > 0 {
        delivery.remove_letters(below)?;
    }
    let (letters, items) = (text::counted(appended, "dead letter"), text::counted(items, "item"));
    let name = &delivery.name;
    output::print(&format!("{letters} ({items}) will go to {name} again at the next start\n"))
}

/// Waits until at most this much waits in memory for the disk. An error if the disk does not work.
fn wait_written(log: &Log<StoredRecord>, left_bytes: u64) -> Result<()> {
    let mut trouble_since = None;
    while log.unwritten_bytes() > left_bytes {
        if log.trouble().is_none() {
            trouble_since = None;
        } else if trouble_since.get_or_insert_with(Instant::now).elapsed() > TROUBLE_PATIENCE {
            bail!("cannot write the log{}", and_why(log));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// The reason, and the remedy.
fn and_why(log: &Log<StoredRecord>) -> String {
    let reason = log.trouble().map_or(String::new(), |trouble| format!(": {}", trouble.reason));
    format!(
        "{reason}; the dead letters are kept: free space or repair the disk, and repeat the \
         command (some may then be delivered twice)"
    )
}
