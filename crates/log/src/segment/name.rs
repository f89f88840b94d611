//! Names of segment files: `<first offset in 16 hex digits>.seg`.

use std::fmt;

use crate::aside::name_before;

const EXTENSION: &str = ".seg";

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
        let stem = file_name.strip_suffix(EXTENSION)?;
        let (offset, attempt) = match stem.split_once('-') {
            Some((offset, attempt)) => (offset, attempt.parse().ok()?),
            None => (stem, 0),
        };
        let name = SegmentName { first_offset: u64::from_str_radix(offset, 16).ok()?, attempt };
        // Only one spelling counts; otherwise two files could be the same segment.
        (name.to_string() == file_name).then_some(name)
    }
}

/// The name that a segment had before it was set aside. None for the name of another kind of file.
pub(crate) fn segment_before(file_name: &str) -> Option<SegmentName> {
    name_before(file_name).and_then(SegmentName::parse)
}

impl fmt::Display for SegmentName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.first_offset)?;
        if self.attempt > 0 {
            write!(formatter, "-{}", self.attempt)?;
        }
        formatter.write_str(EXTENSION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_order_as_their_frames_and_have_one_spelling() {
        let names = [(0, 0), (0, 1), (0, 10), (9, 0), (255, 2), (u64::MAX, u32::MAX)]
            .map(|(first_offset, attempt)| SegmentName { first_offset, attempt });
        assert!(names.is_sorted());
        for name in names {
            assert_eq!(SegmentName::parse(&name.to_string()), Some(name));
        }
        assert_eq!(names[4].to_string(), "00000000000000ff-2.seg");
        for foreign in [
            "0.seg",
            "00000000000000FF.seg",
            "00000000000000ff-0.seg",
            "00000000000000ff-02.seg",
            "lock",
        ] {
            assert_eq!(SegmentName::parse(foreign), None, "{foreign}");
        }
    }
}
