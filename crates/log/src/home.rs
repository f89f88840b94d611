//! Where and as what a log is kept.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::Disk;

#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: PathBuf,
    pub(crate) cursors_directory: PathBuf,
    /// Where segments are written anew before they take the place of others.
    pub(crate) rewrite_directory: PathBuf,
    pub(crate) name: String,
    pub(crate) log_id: u128,
    pub(crate) segment_bytes: u64,
    pub(crate) keep_interval: Duration,
}
