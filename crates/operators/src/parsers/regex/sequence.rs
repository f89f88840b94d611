//! Regular expressions that are sequences: texts, repeated characters, groups, parts that may be
//! missing and alternatives of these, from the start of the text. Most expressions for log lines
//! are.
//!
//! The general engine finds the groups of an ambiguous expression with a state for each byte and
//! place of the expression, which was half of the time of a line. A sequence is walked, one pass
//! over the text: where the next part cannot begin with a repeated character, there is nothing to
//! come back for. Otherwise the other lengths are tried in the order of their priority, and after
//! too many trials the general engine is asked, whose time is bounded:
//! `docs/decisions/043-expressions-that-are-sequences.md`.

use regex_syntax::hir::{Capture, Class, Hir, HirKind, Look, Repetition};

/// Parts of an expression at most.
const PARTS_MAX: usize = 256;
/// Trials after which the general engine is asked.
const TRIALS_MAX: u32 = 256;

/// The bytes that a character may begin with or consist of.
type Bytes = [bool; 256];

#[derive(Clone, Debug)]
pub(super) struct Sequence(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    Text(Box<[u8]>),
    Run(Run),
    /// The place is noted.
    Slot(usize),
    /// The next part, or else the one with this number. Slots of both ways have no place before.
    Either {
        other: usize,
        is_other_first: bool,
        slots: (usize, usize),
    },
    Go(usize),
    End,
}

#[derive(Clone, Debug)]
struct Run {
    bytes: Box<Bytes>,
    /// A byte that ends the run, if it is the only one.
    until: Option<u8>,
    /// Characters.
    min: usize,
    max: usize,
    is_greedy: bool,
    /// No other length than the longest can match.
    is_certain: bool,
}

/// Too many trials.
struct Undecided;

impl Sequence {
    /// Nothing if the expression, in the syntax of [`regex`], is no sequence.
    pub(super) fn of(expression: &str) -> Option<Sequence> {
        let hir = regex_syntax::parse(expression).ok()?;
        let HirKind::Concat(parts) = hir.kind() else { return None };
        let [start, rest @ ..] = &parts[..] else { return None };
        if !matches!(start.kind(), HirKind::Look(Look::Start)) {
            return None;
        }
        let mut sequence = Sequence(vec![Part::Slot(0)]);
        for part in rest {
            sequence.push(part)?;
        }
        sequence.0.push(Part::Slot(1));
        let firsts = sequence.first_bytes();
        for (part, follows) in sequence.0.iter_mut().zip(&firsts[1..]) {
            if let Part::Run(run) = part {
                let both = |(one, other): (&bool, &bool)| *one && *other;
                run.is_certain = !run.bytes.iter().zip(follows).any(both);
            }
        }
        Some(sequence)
    }

    fn push(&mut self, hir: &Hir) -> Option<()> {
        if self.0.len() >= PARTS_MAX {
            return None;
        }
        match hir.kind() {
            HirKind::Empty => {}
            HirKind::Literal(literal) => self.0.push(Part::Text(literal.0.clone())),
            HirKind::Class(_) => self.0.push(Part::Run(Run::of(hir, 1, Some(1), true)?)),
            HirKind::Look(Look::End) => self.0.push(Part::End),
            HirKind::Look(_) => return None,
            HirKind::Capture(Capture { index, sub, .. }) => {
                self.0.push(Part::Slot(*index as usize * 2));
                self.push(sub)?;
                self.0.push(Part::Slot(*index as usize * 2 + 1));
            }
            HirKind::Concat(parts) => {
                for part in parts {
                    self.push(part)?;
                }
            }
            HirKind::Repetition(Repetition { min, max, greedy, sub }) => {
                if let Some(run) = Run::of(sub, *min, *max, *greedy) {
                    self.0.push(Part::Run(run));
                } else if (*min, *max) == (0, Some(1)) {
                    self.optional(sub, !greedy)?;
                } else {
                    return None;
                }
            }
            HirKind::Alternation(parts) => self.alternatives(parts)?,
        }
        Some(())
    }

    /// A part that may be missing.
    fn optional(&mut self, part: &Hir, is_other_first: bool) -> Option<()> {
        let place = self.0.len();
        self.0.push(Part::End);
        self.push(part)?;
        self.0[place] = self.either(place, self.0.len(), is_other_first);
        Some(())
    }

    fn alternatives(&mut self, parts: &[Hir]) -> Option<()> {
        let (last, before) = parts.split_last()?;
        let mut ways = Vec::new();
        for part in before {
            let place = self.0.len();
            self.0.push(Part::End);
            self.push(part)?;
            self.0.push(Part::End);
            ways.push((place, self.0.len()));
        }
        self.push(last)?;
        for (place, other) in ways {
            self.0[place] = self.either(place, other, false);
            self.0[other - 1] = Part::Go(self.0.len());
        }
        Some(())
    }

    /// The choice between the parts behind `place` and those from `other` on. All parts behind it
    /// belong to one way or the other, so far.
    fn either(&self, place: usize, other: usize, is_other_first: bool) -> Part {
        let noted = self.0[place..].iter().filter_map(|part| match part {
            Part::Slot(slot) => Some(*slot),
            _ => None,
        });
        let (first, last) = noted
            .fold((usize::MAX, 0), |(first, last), slot| (first.min(slot), last.max(slot + 1)));
        Part::Either { other, is_other_first, slots: (first.min(last), last) }
    }

    /// The bytes with which a match of the parts from each one on can begin: all if it can be
    /// empty, none if the text has to be at its end.
    fn first_bytes(&self) -> Vec<Bytes> {
        let mut firsts = vec![[true; 256]; self.0.len() + 1];
        // Each part is followed by later ones only.
        for (index, part) in self.0.iter().enumerate().rev() {
            let mut bytes = [false; 256];
            match part {
                Part::End => {}
                Part::Text(text) => bytes[usize::from(text[0])] = true,
                Part::Run(run) => {
                    bytes = *run.bytes;
                    if run.min == 0 {
                        add(&mut bytes, &firsts[index + 1]);
                    }
                }
                Part::Slot(_) => bytes = firsts[index + 1],
                Part::Go(to) => bytes = firsts[*to],
                Part::Either { other, .. } => {
                    bytes = firsts[*other];
                    add(&mut bytes, &firsts[index + 1]);
                }
            }
            firsts[index] = bytes;
        }
        firsts
    }

    /// Whether the text matches, with the places of groups. Nothing if that takes too many trials.
    pub(super) fn matches(&self, text: &[u8], slots: &mut [Option<usize>]) -> Option<bool> {
        slots.fill(None);
        Walk { parts: &self.0, text, slots, trials: 0 }.walk(0, 0).ok()
    }
}

fn add(bytes: &mut Bytes, more: &Bytes) {
    bytes.iter_mut().zip(more).for_each(|(own, more)| *own |= more);
}

impl Run {
    /// Repetitions of a character. Nothing if it is something else, or if bytes do not tell which
    /// characters are meant.
    fn of(hir: &Hir, min: u32, max: Option<u32>, is_greedy: bool) -> Option<Run> {
        let mut bytes = Box::new([false; 256]);
        let has_wide = match hir.kind() {
            HirKind::Literal(literal) if literal.0.len() == 1 && literal.0[0].is_ascii() => {
                bytes[usize::from(literal.0[0])] = true;
                false
            }
            HirKind::Class(Class::Unicode(class)) => {
                let mut wide = 0;
                for range in class.iter() {
                    let (start, end) = (range.start() as u32, range.end() as u32);
                    (start..=end.min(0x7f)).for_each(|byte| bytes[byte as usize] = true);
                    wide += (end + 1).saturating_sub(start.max(0x80));
                }
                // Surrogates are no characters.
                let all = 0x0011_0000 - 0x80;
                if wide > 0 && wide != all && wide + 0x800 != all {
                    return None;
                }
                wide > 0
            }
            _ => return None,
        };
        let is_counted = !matches!((min, max), (0 | 1, None));
        if has_wide && is_counted && (min, max) != (1, Some(1)) && (min, max) != (0, Some(1)) {
            return None;
        }
        bytes[0x80..].fill(has_wide);
        let mut outside = (0..=u8::MAX).filter(|byte| !bytes[usize::from(*byte)]);
        let until = outside.next().filter(|_| outside.next().is_none() && max.is_none());
        let max = max.map_or(usize::MAX, |max| max as usize);
        Some(Run { bytes, until, min: min as usize, max, is_greedy, is_certain: false })
    }

    /// The end of the longest run from a place on, and the end of the shortest one if there is any.
    fn ends(&self, text: &[u8], at: usize) -> (usize, Option<usize>) {
        let rest = &text[at..];
        let longest = match self.until {
            Some(byte) => memchr::memchr(byte, rest).unwrap_or(rest.len()),
            None => {
                let limit = if self.max > 1 { rest.len().min(self.max) } else { one(rest) };
                let run = rest[..limit].iter().take_while(|byte| self.bytes[usize::from(**byte)]);
                run.count()
            }
        };
        let shortest = if self.min == 1 { one(rest) } else { self.min };
        (
            at + longest,
            (shortest <= longest && (self.min == 0 || longest > 0)).then(|| at + shortest),
        )
    }
}

/// Length of the first character.
fn one(text: &[u8]) -> usize {
    let wide = text.iter().skip(1).take_while(|byte| is_within(**byte)).count();
    if text.is_empty() { 0 } else { 1 + wide }
}

/// Whether a byte of UTF-8 is not the first one of a character.
fn is_within(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

struct Walk<'w> {
    parts: &'w [Part],
    text: &'w [u8],
    slots: &'w mut [Option<usize>],
    trials: u32,
}

impl Walk<'_> {
    /// Whether the parts from this one on match from this place on.
    fn walk(&mut self, mut part: usize, mut at: usize) -> Result<bool, Undecided> {
        let (parts, text) = (self.parts, self.text);
        while let Some(next) = parts.get(part) {
            part += 1;
            match next {
                Part::Text(wanted) if text[at..].starts_with(wanted) => at += wanted.len(),
                Part::End if at == text.len() => {}
                Part::Text(_) | Part::End => return Ok(false),
                Part::Slot(slot) => self.slots[*slot] = Some(at),
                Part::Go(to) => part = *to,
                Part::Run(run) => {
                    let (longest, shortest) = run.ends(text, at);
                    let Some(shortest) = shortest else { return Ok(false) };
                    if !run.is_certain && shortest < longest {
                        return self.lengths(part, shortest, longest, run.is_greedy);
                    }
                    at = longest;
                }
                Part::Either { other, is_other_first, slots: (first, last) } => {
                    let (one, two) = if *is_other_first { (*other, part) } else { (part, *other) };
                    self.slots[*first..*last].fill(None);
                    self.try_once()?;
                    if self.walk(one, at)? {
                        return Ok(true);
                    }
                    self.slots[*first..*last].fill(None);
                    part = two;
                }
            }
        }
        Ok(true)
    }

    /// Tries the ends of a run.
    fn lengths(
        &mut self,
        part: usize,
        shortest: usize,
        longest: usize,
        is_greedy: bool,
    ) -> Result<bool, Undecided> {
        let (mut low, mut high) = (shortest, longest);
        loop {
            let end = if is_greedy { high } else { low };
            if !self.text.get(end).is_some_and(|byte| is_within(*byte)) {
                self.try_once()?;
                if self.walk(part, end)? {
                    return Ok(true);
                }
            }
            if low == high {
                return Ok(false);
            }
            if is_greedy {
                high -= 1;
            } else {
                low += 1;
            }
        }
    }

    fn try_once(&mut self) -> Result<(), Undecided> {
        self.trials += 1;
        if self.trials > TRIALS_MAX { Err(Undecided) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
