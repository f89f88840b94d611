//! The tables beside this file.

use std::collections::BTreeMap;

use crate::whole::Place;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Valid,
    Invalid,
}

/// A line of `verdicts.txt`.
pub(crate) struct Entry {
    pub(crate) place: Place,
    /// The parts that are invalid. `invalid`: all.
    invalid: Vec<&'static str>,
}

impl Entry {
    pub(crate) fn verdict_of(&self, part: &str) -> Verdict {
        let is_invalid = self.invalid.iter().any(|it| *it == "invalid" || *it == part);
        if is_invalid { Verdict::Invalid } else { Verdict::Valid }
    }
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// By file.
pub(crate) fn verdicts() -> BTreeMap<String, Entry> {
    let entry = |line: &'static str| {
        let mut words = line.split_whitespace();
        let (file, place) = words.next().zip(words.next()).expect("a file and a place");
        let place = Place::parse(place);
        let invalid = if place == Place::None { Vec::new() } else { words.collect() };
        (file.to_owned(), Entry { place, invalid })
    };
    lines(include_str!("verdicts.txt")).map(entry).collect()
}

/// `exceptions.txt`: what Sluice says of a part, against the Collector.
pub(crate) struct Exceptions(BTreeMap<&'static str, Verdict>);

impl Exceptions {
    pub(crate) fn read() -> Self {
        let entry = |line: &'static str| {
            let (name, rest) = line.split_once(' ').expect("a name");
            let (verdict, reason) = rest.trim_start().split_once(' ').expect("a verdict");
            assert!(reason.trim().len() > 20, "{name} needs a reason");
            match verdict {
                "refused" => (name, Verdict::Invalid),
                "accepted" => (name, Verdict::Valid),
                other => panic!("{name}: `{other}` is neither `accepted` nor `refused`"),
            }
        };
        Exceptions(lines(include_str!("exceptions.txt")).map(entry).collect())
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<Verdict> {
        self.0.remove(name)
    }

    /// Entries that nothing had, except those of another table.
    pub(crate) fn unused(self, other: &str) -> impl Iterator<Item = String> {
        let left = self.0.into_keys().filter(move |name| !name.contains(other));
        left.map(|name| format!("{name} is in exceptions.txt, but not judged"))
    }
}

pub(crate) struct Case {
    /// `cases.txt#PLACE:TITLE`.
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) text: String,
}

/// `cases.txt`: configurations, each after a line `## PLACE: TITLE`.
pub(crate) fn cases() -> Vec<Case> {
    let blocks = include_str!("cases.txt").split("## ").skip(1);
    let case = |block: &str| {
        let (head, text) = block.split_once('\n').expect("a head line");
        let (place, title) = head.split_once(": ").expect("a place and a title");
        let (name, text) = (format!("cases.txt#{place}:{title}"), text.to_owned());
        Case { name: name.replace(' ', "-"), place: Place::parse(place), text }
    };
    blocks.map(case).collect()
}
