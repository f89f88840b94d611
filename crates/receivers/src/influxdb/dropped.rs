//! Lines that the pipelines refused, with the requests that they had become.

use std::fmt;

/// Ranges of lines that are kept.
const KEPT: usize = 16;

/// The lines of a body that were refused.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    pub points: u64,
    /// The first and the last line of each request, one behind the other.
    ranges: Vec<(u64, u64)>,
    /// There are further ranges.
    has_more: bool,
}

impl Dropped {
    /// A request of these lines, of which some may be at fault or empty.
    pub(super) fn add(&mut self, points: u32, first: u64, last: u64) {
        self.points += u64::from(points);
        let has_room = self.ranges.len() < KEPT;
        match self.ranges.last_mut() {
            Some((_, end)) if !self.has_more && *end + 1 == first => *end = last,
            _ if has_room => self.ranges.push((first, last)),
            _ => self.has_more = true,
        }
    }
}

/// The lines, as `lines 1 to 500, 801 to 900`.
impl fmt::Display for Dropped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.ranges.iter().enumerate() {
            let before = if index == 0 { "lines" } else { "," };
            write!(formatter, "{before} {first} to {last}")?;
        }
        formatter.write_str(if self.has_more { " and others" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_one_behind_the_other_are_one_range() {
        let mut dropped = Dropped::default();
        dropped.add(2, 1, 2);
        dropped.add(5, 3, 9);
        dropped.add(1, 11, 11);
        assert_eq!((dropped.to_string().as_str(), dropped.points), ("lines 1 to 9, 11 to 11", 8));
        (0..100).for_each(|index| dropped.add(1, 20 + 2 * index, 20 + 2 * index));
        let text = dropped.to_string();
        assert!(text.ends_with(", 46 to 46 and others") && dropped.points == 108, "{text}");
    }
}
