//! Finding the groups of a match, by the regular expression itself or as a [`Sequence`].

use regex::CaptureLocations;
use sluice_config::Pattern;

use super::sequence::Sequence;

/// A pattern, with memory that is kept so that a match allocates nothing.
#[derive(Clone)]
pub(crate) struct Groups {
    pattern: Pattern,
    sequence: Option<Sequence>,
    found: Found,
    locations: CaptureLocations,
    /// Start and end of each group of a sequence, the whole first.
    slots: Vec<Option<usize>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Found {
    BySequence,
    ByPattern,
}

impl Groups {
    pub(crate) fn new(pattern: Pattern) -> Groups {
        let locations = pattern.regex().capture_locations();
        let sequence = Sequence::of(pattern.regex().as_str());
        let slots = vec![None; locations.len() * 2];
        Groups { pattern, sequence, found: Found::ByPattern, locations, slots }
    }

    /// Whether the pattern matches. Its groups are then those of the first match.
    pub(crate) fn find(&mut self, text: &str) -> bool {
        let by_sequence =
            self.sequence.as_ref().and_then(|it| it.matches(text.as_bytes(), &mut self.slots));
        if let Some(is_match) = by_sequence {
            self.found = Found::BySequence;
            return is_match;
        }
        self.found = Found::ByPattern;
        self.pattern.regex().captures_read(&mut self.locations, text).is_some()
    }

    /// The text of a group in what was found; empty if the group took no part.
    pub(crate) fn text<'t>(&self, group: usize, text: &'t str) -> &'t str {
        let place = match self.found {
            Found::BySequence => self.slots[group * 2].zip(self.slots[group * 2 + 1]),
            Found::ByPattern => self.locations.get(group),
        };
        place.map_or("", |(start, end)| &text[start..end])
    }
}
