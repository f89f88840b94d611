//! The ranges of a request, and their text in its header.
//!
//! `1;<source>:<range>,<range>;<source>:…`, all numbers in hexadecimal. A range is
//! `<gap>+<length>`: the gap is counted from the end of the range before, or from zero. Both are a
//! number of frames or, with a dot, of frames and items: `5` or `5.2`.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::ops::Range;

use super::Place;

const VERSION: &str = "1";
/// Longest header that is sent: servers and proxies take at least twice as much.
const SENT_LIMIT_BYTES: usize = 2048;
/// A header that is received may have this many ranges, of all its sources.
const RECEIVED_LIMIT: usize = 4096;

/// Memory of a source beside its ranges, here and in the window, which does not forget it before
/// the request ends.
const SOURCE_BYTES: usize = 528;

/// A delivery of a log: its frames have places in common. A hash of the log, whose id is new
/// whenever its offsets begin anew, and of the delivery with all that it does to a frame. It tells
/// nothing of either: a backend cannot name what other deliveries send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(pub u128);

/// Ranges of items by their sources: not empty, in order, disjoint and not adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(pub(super) BTreeMap<Source, Vec<Range<Place>>>);

/// The ranges do not fit into a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangesTooLong;

/// The text is not that of ranges, or of a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Ranges {
    pub fn new(ranges: impl IntoIterator<Item = (Source, Range<Place>)>) -> Ranges {
        let mut all = BTreeMap::<Source, Vec<Range<Place>>>::new();
        for (source, range) in ranges.into_iter().filter(|(_, range)| !range.is_empty()) {
            let known = all.entry(source).or_default();
            match known.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => known.push(range),
            }
        }
        for ranges in all.values_mut() {
            ranges.sort_unstable_by_key(|range| range.start);
            ranges.dedup_by(|next, before| {
                let touches = next.start <= before.end;
                if touches {
                    before.end = before.end.max(next.end);
                }
                touches
            });
        }
        Ranges(all)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Source, &Range<Place>)> {
        self.0.iter().flat_map(|(source, ranges)| ranges.iter().map(|range| (*source, range)))
    }

    /// Whether they have some place in common.
    pub fn overlaps(&self, other: &Ranges) -> bool {
        self.iter().any(|(source, range)| {
            let of_source = other.0.get(&source).into_iter().flatten();
            of_source.into_iter().any(|it| it.start < range.end && range.start < it.end)
        })
    }

    /// The ranges of each source.
    pub fn into_sources(self) -> impl Iterator<Item = Ranges> {
        self.0.into_iter().map(|of_source| Ranges([of_source].into()))
    }

    /// Memory that they occupy, about.
    pub fn memory_bytes(&self) -> usize {
        self.0.len() * SOURCE_BYTES + self.len() * size_of::<Range<Place>>()
    }

    pub fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text for a header.
    pub fn to_header(&self) -> Result<String, RangesTooLong> {
        // Not even the shortest text would fit.
        if self.len() * 4 > SENT_LIMIT_BYTES {
            return Err(RangesTooLong);
        }
        let text = self.to_string();
        if text.len() > SENT_LIMIT_BYTES { Err(RangesTooLong) } else { Ok(text) }
    }

    pub fn parse(text: &str) -> Result<Ranges, Malformed> {
        let mut groups = text.split(';');
        if groups.next() != Some(VERSION) {
            return Err(Malformed);
        }
        let (mut all, mut count) = (BTreeMap::new(), 0);
        for group in groups {
            let (source, ranges) = parse_group(group, RECEIVED_LIMIT - count).ok_or(Malformed)?;
            count += ranges.len();
            if all.insert(source, ranges).is_some() {
                return Err(Malformed);
            }
        }
        if all.is_empty() { Err(Malformed) } else { Ok(Ranges(all)) }
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(VERSION)?;
        for (Source(source), ranges) in &self.0 {
            write!(formatter, ";{source:032x}")?;
            let (mut end, mut separator) = (0, ':');
            for range in ranges {
                formatter.write_char(separator)?;
                write_length(formatter, range.start.0 - end)?;
                formatter.write_char('+')?;
                write_length(formatter, range.end.0 - range.start.0)?;
                (end, separator) = (range.end.0, ',');
            }
        }
        Ok(())
    }
}

fn write_length(formatter: &mut fmt::Formatter<'_>, length: u128) -> fmt::Result {
    write!(formatter, "{:x}", length >> 32)?;
    let items = length as u32;
    if items > 0 { write!(formatter, ".{items:x}") } else { Ok(()) }
}

fn parse_group(group: &str, limit: usize) -> Option<(Source, Vec<Range<Place>>)> {
    let (source, list) = group.split_once(':')?;
    let source = digits(source).filter(|digits| digits.len() == 32)?;
    let source = u128::from_str_radix(source, 16).ok()?;
    let (mut ranges, mut end) = (Vec::<Range<Place>>::new(), 0_u128);
    for range in list.split(',') {
        let (gap, length) = range.split_once('+')?;
        let (gap, length) = (parse_length(gap)?, parse_length(length)?);
        // Ranges that touch are one.
        if ranges.len() == limit || length == 0 || (gap == 0 && !ranges.is_empty()) {
            return None;
        }
        let start = end + gap;
        end = start + length;
        if end > Place::behind(u64::MAX).0 {
            return None;
        }
        ranges.push(Place(start)..Place(end));
    }
    Some((Source(source), ranges))
}

fn parse_length(text: &str) -> Option<u128> {
    let (frames, items) = text.split_once('.').unwrap_or((text, "0"));
    let frames = u64::from_str_radix(digits(frames)?, 16).ok()?;
    let items = u32::from_str_radix(digits(items)?, 16).ok()?;
    Some(Place::new(frames, items).0)
}

/// Without the signs that the standard library takes.
fn digits(text: &str) -> Option<&str> {
    text.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(first: u64, last: u64) -> Range<Place> {
        Place::new(first, 0)..Place::behind(last)
    }

    #[test]
    fn the_text_is_that_of_the_documentation() {
        let part = Place::new(20, 1)..Place::new(20, 4);
        let ranges = [(Source(1), frames(9, 12)), (Source(1), part), (Source(2), frames(0, 0))];
        let text = Ranges::new(ranges).to_string();
        let (one, two) = ("00000000000000000000000000000001", "00000000000000000000000000000002");
        assert_eq!(text, format!("1;{one}:9+4,7.1+0.3;{two}:0+1"));
    }

    #[test]
    fn ranges_that_touch_or_overlap_are_one() {
        let given = [frames(3, 3), frames(1, 2), frames(2, 4), frames(9, 9)];
        let ranges = Ranges::new(given.map(|range| (Source(1), range)));
        let of_log: Vec<_> = ranges.iter().map(|(_, range)| range.clone()).collect();
        assert_eq!(of_log, [frames(1, 4), frames(9, 9)]);
    }

    /// Guarantee: the header stays within what every server takes.
    #[test]
    fn ranges_that_make_a_long_header_are_not_sent() {
        let many = |count| Ranges::new((0..count).map(|at| (Source(1), frames(2 * at, 2 * at))));
        assert_eq!(many(400).to_header().map(|text| text.len() <= SENT_LIMIT_BYTES), Ok(true));
        assert_eq!(many(600).to_header(), Err(RangesTooLong));
        assert_eq!(many(400_000).to_header(), Err(RangesTooLong));
    }

    #[test]
    fn what_is_not_the_text_of_ranges_is_refused() {
        let good = Ranges::new([(Source(1), frames(1, 1))]).to_string();
        assert!(Ranges::parse(&good).is_ok());
        let key = &good[..good.len() - "1+1".len()];
        for bad in [
            String::new(),
            "1".to_owned(),
            "1;".to_owned(),
            good.replacen('1', "2", 1),
            format!("{key}1+0"),
            format!("{key}1"),
            format!("{key}+1+1"),
            format!("{key}1+1,0+1"),
            format!("{key}ffffffffffffffff+ffffffffffffffff"),
            format!("{key}1+1;{}", &key[2..]),
            format!("{good};{}", &good[2..]),
            format!("{key}{}", "1+1,".repeat(5000) + "1+1"),
        ] {
            assert_eq!(Ranges::parse(&bad), Err(Malformed), "{}", &bad[..bad.len().min(80)]);
        }
    }

    proptest! {
        #[test]
        fn all_ranges_come_back_from_their_text(
            given in prop::collection::vec((0u128..3, any::<u32>(), 0u32..9, 1u64..1 << 36), 1..40)
        ) {
            let ranges = given.iter().map(|&(log, offset, item, length)| {
                let start = Place::new(offset.into(), item);
                (Source(log), start..Place(start.0 + u128::from(length)))
            });
            let ranges = Ranges::new(ranges);
            prop_assert_eq!(Ranges::parse(&ranges.to_string()), Ok(ranges));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9a-f.:;,+1]{0,120}") {
            let key = "1;00000000000000000000000000000001:";
            for text in [text.clone(), format!("{key}{text}")] {
                if let Ok(ranges) = Ranges::parse(&text) {
                    prop_assert_eq!(Ranges::parse(&ranges.to_string()), Ok(ranges));
                }
            }
        }
    }
}
