//! Names of segment files: `<first offset in 16 hex digits>.seg`, with `.damaged` behind it for
//! files that were set aside.

use std::fmt;

use crate::cursor_file::DAMAGED_EXTENSION;

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

/// File names for setting a segment aside, in the order in which they are tried: an older file of
/// the same name is never replaced.
pub fn names_aside(file_name: &str) -> impl Iterator<Item = String> + '_ {
    let further = (2..).map(move |number: u32| format!("{file_name}{DAMAGED_EXTENSION}-{number}"));
    std::iter::once(format!("{file_name}{DAMAGED_EXTENSION}")).chain(further)
}

/// The name that a file had before it was set aside. None for the name of another kind of file.
pub fn name_before(file_name: &str) -> Option<SegmentName> {
    let (before, number) = file_name.split_once(DAMAGED_EXTENSION)?;
    let is_number =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    let is_ours = number.is_empty() || number.strip_prefix('-').is_some_and(is_number);
    SegmentName::parse(before).filter(|_| is_ours)
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
    fn a_file_that_was_set_aside_is_known_by_its_name() {
        let name = SegmentName { first_offset: 255, attempt: 2 };
        let before = name.to_string();
        for aside in names_aside(&before).take(3) {
            assert_eq!(SegmentName::parse(&aside), None, "{aside}: it is no segment of the log");
            assert_eq!(name_before(&aside), Some(name));
        }
        for foreign in
            ["a.cursor.damaged", "00000000000000ff.seg", "00000000000000ff.seg.damaged-x"]
        {
            assert_eq!(name_before(foreign), None, "{foreign}");
        }
    }

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
