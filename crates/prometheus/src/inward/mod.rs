//! Remote write to OTLP.
//!
//! `message` reads the series of a request in place, in either version. `groups` says which
//! resource, scope and metric each belongs to, `points` writes their points, and `memory` keeps
//! what earlier requests told: types of metrics (1.0) and attributes of targets (`target_info`).
//!
//! The mapping is the Collector's (`prometheusremotewritereceiver`). Differences:
//!
//! - Both versions are taken.
//! - Series of classic histograms and of summaries are kept, each as a gauge of its own: they may
//!   stand in several requests, so that no histogram can be made of them. The Collector drops them.
//! - A request with series at fault is taken but for these; the Collector takes nothing of it.
//! - Exemplars in series of their own, as Prometheus sends them, find the points of their series.

mod groups;
mod histogram;
mod memory;
mod message;
mod points;

use sluice_otlp::Malformed;

pub use memory::Memory;

use crate::settings::Version;
use groups::Groups;

/// A request that was read.
#[derive(Debug, Default)]
pub struct Read {
    /// An encoded request of OTLP metrics.
    pub request: Vec<u8>,
    pub written: WrittenCounts,
    /// Series, samples and histograms that were left out, and the first reason.
    pub invalid: u64,
    pub reason: Option<&'static str>,
}

/// Numbers that a sender of 2.0 is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenCounts {
    pub samples: u64,
    pub histograms: u64,
    pub exemplars: u64,
}

/// Why a request cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("the request is larger than {limit_bytes} bytes as OTLP")]
    TooLarge { limit_bytes: usize },
    #[error("not a valid remote write request: {0}")]
    Malformed(#[from] Malformed),
}

impl Read {
    fn refuse(&mut self, reason: &'static str) {
        self.invalid += 1;
        self.reason.get_or_insert(reason);
    }
}

/// Memory that [`read`] takes beside the message and the request, in sizes of the message.
pub const READING_FACTOR: usize = 8;

/// Reads an uncompressed message of remote write. The request has at most `limit_bytes`.
///
/// # Errors
/// [`ReadError`] if it is no such message, or becomes too large.
pub fn read(
    version: Version,
    message: &[u8],
    memory: &Memory,
    limit_bytes: usize,
) -> Result<Read, ReadError> {
    let mut read = Read::default();
    let mut groups = Groups::default();
    let symbols = match version {
        Version::V1 => {
            message::read_metadata(message, memory)?;
            Vec::new()
        }
        Version::V2 => message::symbols(message)?,
    };
    message::each_series(version, message, &symbols, |series| {
        match groups.add(version, &series, memory, &mut read.written) {
            Ok(()) => {}
            Err(reason) => read.refuse(reason),
        }
    })?;
    groups.write(version, message, &symbols, memory, limit_bytes, &mut read)?;
    Ok(read)
}
