//! Disks as yardsticks: what the machine's does by itself, and one of a known bandwidth.

mod itself;
mod limited;

pub(super) use itself::{measure_disk, measure_syncs};
pub(super) use limited::LimitedDisk;
