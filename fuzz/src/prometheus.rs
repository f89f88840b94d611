//! Remote write, out and in. The first byte of an input chooses the version and what the rest is: a
//! message of remote write, or a request of OTLP metrics.

use sluice_otlp::{Signal, scan};
use sluice_prometheus::inward::{Memory, ReadError, read};
use sluice_prometheus::{CustomBuckets, Settings, Version, write};

const LIMIT_BYTES: usize = 1 << 16;

pub fn check_remote_write(data: &[u8]) {
    let Some((&choice, input)) = data.split_first() else { return };
    let version = if choice & 1 == 0 { Version::V1 } else { Version::V2 };
    let custom_buckets =
        [CustomBuckets::Classic, CustomBuckets::Both][usize::from(choice >> 2 & 1)];
    let settings =
        Settings { version, custom_buckets, limit_bytes: LIMIT_BYTES, ..Settings::default() };
    match choice & 2 == 0 {
        true => check_read(&settings, input),
        false => check_write(&settings, input),
    }
}

/// A request that is read is valid and bounded, and all of its points can be written.
fn check_read(settings: &Settings, message: &[u8]) {
    let memory = Memory::default();
    let Ok(found) = read(settings.version, message, &memory, LIMIT_BYTES) else { return };
    // One point may go beyond the limit.
    assert!(found.request.len() <= 2 * LIMIT_BYTES + message.len());
    let items = match scan(Signal::Metrics, &found.request) {
        Ok(items) => u64::from(items),
        Err(error) => return assert!(error.is_text(), "{error}"),
    };
    let target_info = found.written.samples + found.written.histograms - items;
    assert!(target_info <= found.written.samples);
    let Ok(written) = write(settings, &found.request) else { return };
    assert_eq!(written.counts.points, items);
}

/// A message that is written is bounded, and can be read without a fault of its own.
fn check_write(settings: &Settings, request: &[u8]) {
    let Ok(written) = write(settings, request) else { return };
    let message = written.parts.concat();
    assert!(message.len() <= 17 * LIMIT_BYTES + 2 * request.len());
    if scan(Signal::Metrics, request).is_err() {
        return;
    }
    let memory = Memory::default();
    let found = match read(settings.version, &message, &memory, 64 * LIMIT_BYTES) {
        // Each point has all labels, of which remote write 2.0 has the numbers only.
        Err(ReadError::TooLarge { .. }) => return,
        found => found.expect("what was written can be read"),
    };
    let (counts, back) = (written.counts, found.written);
    assert!(back.samples <= counts.samples && back.histograms <= counts.histograms);
}
