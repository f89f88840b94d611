//! Names of segment files.

use std::fmt;

const SEGMENT_EXTENSION: &str = ".seg";

/// Names are ordered as their frames are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// No frame in the file has a lower offset.
    pub first_offset: u64,
    /// Above 0 if a failed write left a file of this offset: `-1`, `-2`, … before the extension.
    pub attempt: u32,
}

impl SegmentName {
    /// None for the name of another kind of file.
    pub fn parse(file_name: &str) -> Option<Self> {
        let stem = file_name.strip_suffix(SEGMENT_EXTENSION)?;
        let (offset, attempt) = match stem.split_once('-') {
            Some((offset, attempt)) => (offset, attempt.parse().ok()?),
            None => (stem, 0),
        };
        let name = SegmentName { first_offset: u64::from_str_radix(offset, 16).ok()?, attempt };
        // Only one spelling counts; otherwise two files could be the same segment.
        (name.to_string() == file_name).then_some(name)
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.first_offset)?;
        if self.attempt > 0 {
            write!(formatter, "-{}", self.attempt)?;
        }
        formatter.write_str(SEGMENT_EXTENSION)
    }
}
