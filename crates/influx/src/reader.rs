//! A body in pieces.

use memchr::{memchr, memchr_iter};

use crate::extent::Extent;
use crate::fault::{Faults, Reason};
use crate::line::Line;
use crate::parse::{Parser, Step};
use crate::precision::Precision;

/// Bounds of a body's lines.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Length of a line, with its line break. A reader holds at most that much of a body.
    pub line_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { line_bytes: 1 << 20 }
    }
}

/// The fate of a line that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Taken,
    /// There is no room for it: it is shown again.
    Later,
    /// It is a fault, for this reason.
    Refused(&'static str),
}

/// Fields of a line, and bytes of a line that was cut, for which memory is kept.
const KEPT_FIELDS: usize = 128;
const KEPT_CUT_BYTES: usize = 8 << 10;

/// Strings of a line that is left out reach over so many lengths of a line, and no further than in
/// InfluxDB, whose bodies have 25 MB (`max-body-size`). Beyond that, quotes are unbalanced.
const STRING_LINES: usize = 24;
const STRING_BYTES: usize = 25_000_000;

/// A line that is left out, and whose end is to come.
struct LeftOut {
    /// Bytes in which its strings have to end.
    strings_bytes: usize,
    /// Line breaks in its strings.
    breaks: usize,
}

/// Reads the lines of a body, whose pieces may be cut anywhere.
pub struct Reader {
    parser: Parser,
    limits: Limits,
    /// The beginning of a line whose end is in a piece to come.
    cut: Vec<u8>,
    /// All of the cut line is there, and it was not taken yet.
    is_whole: bool,
    extent: Extent,
    left_out: Option<LeftOut>,
    /// Lines that have ended.
    lines: u64,
    faults: Faults,
}

impl Reader {
    pub fn new(precision: Precision, limits: Limits) -> Reader {
        Reader {
            parser: Parser::new(precision),
            limits,
            cut: Vec::new(),
            is_whole: false,
            extent: Extent::default(),
            left_out: None,
            lines: 0,
            faults: Faults::default(),
        }
    }

    /// Reads a piece: `each` gets every line that ends in it and is not at fault.
    pub fn read(&mut self, piece: &[u8], mut each: impl FnMut(&Line<'_>)) {
        let stopped = self.read_until(piece, |line| {
            each(line);
            Verdict::Taken
        });
        debug_assert!(stopped.is_none(), "every line is taken");
    }

    /// As [`Reader::read`], up to a line that is not taken. Answers how many bytes of the piece are
    /// done with then; the next call gets the others, or none, and shows that line again.
    pub fn read_until(
        &mut self,
        piece: &[u8],
        mut each: impl FnMut(&Line<'_>) -> Verdict,
    ) -> Option<usize> {
        let mut at = match self.resume(piece, &mut each) {
            Ok(at) => at,
            Err(stopped) => return Some(stopped),
        };
        while at < piece.len() {
            match self.parser.parse(piece, at, false) {
                Step::Line { places, next } if next - at <= self.limits.line_bytes => {
                    match each(&self.parser.line_at(piece, places)) {
                        Verdict::Taken => {}
                        Verdict::Later => return Some(at),
                        Verdict::Refused(reason) => {
                            self.faults.add(self.lines + 1, &piece[at..next], reason.into());
                        }
                    }
                    self.lines += 1;
                    at = next;
                }
                Step::Blank { next } if next - at <= self.limits.line_bytes => {
                    self.lines += 1;
                    at = next;
                }
                _ => match self.odd(piece, at, &mut each) {
                    Some(next) => at = next,
                    None => return Some(at),
                },
            }
        }
        None
    }

    /// The body has ended: what is left is a line.
    pub fn finish(mut self, mut each: impl FnMut(&Line<'_>)) -> Faults {
        self.finish_until(|line| {
            each(line);
            Verdict::Taken
        });
        self.faults
    }

    /// As [`Reader::finish`]. False: the line that is left was not taken, and is shown again.
    pub fn finish_until(&mut self, mut each: impl FnMut(&Line<'_>) -> Verdict) -> bool {
        let cut = std::mem::take(&mut self.cut);
        if !cut.is_empty() && !self.whole(&cut, &mut each) {
            self.cut = cut;
            return false;
        }
        self.is_whole = false;
        self.end_left_out();
        true
    }

    /// Makes a line that is cut, or was cut and not taken, a fault for this reason: it is left out.
    /// False: there is none.
    pub fn refuse_cut(&mut self, reason: &'static str) -> bool {
        if self.cut.is_empty() {
            return false;
        }
        let cut = std::mem::take(&mut self.cut);
        match std::mem::take(&mut self.is_whole) {
            true => self.fault(&cut, reason.into()),
            false => self.leave_out(&cut, reason.into()),
        }
        true
    }

    /// Lines that have ended.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The faults so far.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Bytes of the body that the reader holds.
    pub fn held_bytes(&self) -> usize {
        self.cut.capacity()
    }

    /// Whether the pieces so far end with a line's end.
    pub fn is_between_lines(&self) -> bool {
        self.cut.is_empty()
    }

    /// The most that [`Reader::held_bytes`] can be behind a piece of this length.
    pub fn most_held_bytes(&self, piece_len: usize) -> usize {
        let twice = (self.cut.len() + piece_len).saturating_mul(2);
        twice.min(self.limits.line_bytes).max(self.cut.capacity())
    }

    /// Gives memory back that an unusual line took.
    pub fn trim(&mut self) {
        // The room of a line that grows is never twice its length: see `keep`.
        let most = KEPT_CUT_BYTES.max(2 * self.cut.len());
        if self.cut.capacity() > most {
            self.cut.shrink_to(KEPT_CUT_BYTES);
        }
        self.parser.trim(KEPT_FIELDS);
    }

    /// Adds to the line that is cut. The room doubles, up to the longest line.
    fn keep(&mut self, bytes: &[u8]) {
        let (len, capacity) = (self.cut.len() + bytes.len(), self.cut.capacity());
        if len > capacity {
            let room = len.max((2 * capacity).min(self.limits.line_bytes));
            self.cut.reserve_exact(room - self.cut.len());
        }
        self.cut.extend_from_slice(bytes);
    }

    /// Reads the rest of a line that was cut; answers where the next one starts. An error is how
    /// much was read before a line that was not taken.
    fn resume(
        &mut self,
        piece: &[u8],
        each: &mut impl FnMut(&Line<'_>) -> Verdict,
    ) -> Result<usize, usize> {
        if self.left_out.is_some() {
            return Ok(self.skip(piece, 0));
        }
        if self.is_whole {
            return self.offer_cut(0, each);
        }
        if self.cut.is_empty() {
            return Ok(0);
        }
        let room = self.limits.line_bytes - self.cut.len();
        let found = self.extent.find(&piece[..piece.len().min(room)]);
        match found {
            Some(len) => {
                self.keep(&piece[..len]);
                self.offer_cut(len, each)
            }
            None if piece.len() <= room => {
                self.keep(piece);
                Ok(piece.len())
            }
            None => {
                self.keep(&piece[..room]);
                let cut = std::mem::take(&mut self.cut);
                self.too_long(&cut);
                Ok(self.skip(piece, room))
            }
        }
    }

    /// Shows a line that was cut, all of which is there. Both results are `len`.
    fn offer_cut(
        &mut self,
        len: usize,
        each: &mut impl FnMut(&Line<'_>) -> Verdict,
    ) -> Result<usize, usize> {
        let mut cut = std::mem::take(&mut self.cut);
        self.is_whole = !self.whole(&cut, each);
        if !self.is_whole {
            cut.clear();
        }
        self.cut = cut;
        if self.is_whole { Err(len) } else { Ok(len) }
    }

    /// A line at `at` that is cut, at fault, or too long; answers where the next one starts.
    /// `None`: it was not taken.
    #[cold]
    fn odd(
        &mut self,
        piece: &[u8],
        at: usize,
        each: &mut impl FnMut(&Line<'_>) -> Verdict,
    ) -> Option<usize> {
        let rest = &piece[at..];
        let within = &rest[..rest.len().min(self.limits.line_bytes)];
        self.extent = Extent::default();
        match self.extent.find(within) {
            Some(len) => self.whole(&rest[..len], each).then_some(at + len),
            None if within.len() == rest.len() => {
                self.keep(rest);
                Some(piece.len())
            }
            None => {
                self.too_long(within);
                Some(self.skip(piece, at + within.len()))
            }
        }
    }

    /// Reads a line, all of which is there. False: it was not taken.
    fn whole(&mut self, line: &[u8], each: &mut impl FnMut(&Line<'_>) -> Verdict) -> bool {
        match self.parser.parse(line, 0, true) {
            Step::Line { places, .. } => match each(&self.parser.line_at(line, places)) {
                Verdict::Taken => {}
                Verdict::Later => return false,
                Verdict::Refused(reason) => self.faults.add(self.lines + 1, line, reason.into()),
            },
            Step::Blank { .. } => {}
            Step::Stop(stop) => self.faults.add(self.lines + 1, line, stop.reason()),
        }
        self.lines += 1;
        true
    }

    fn too_long(&mut self, beginning: &[u8]) {
        let limit = self.limits.line_bytes;
        self.leave_out(beginning, format!("a line is longer than {limit} bytes").into());
    }

    fn fault(&mut self, line: &[u8], reason: Reason) {
        self.lines += 1;
        self.faults.add(self.lines, line, reason);
    }

    /// Makes a line that begins like this a fault. Its rest, which is to come, is left out.
    fn leave_out(&mut self, beginning: &[u8], reason: Reason) {
        let strings_bytes = self.limits.line_bytes.saturating_mul(STRING_LINES).min(STRING_BYTES);
        let breaks = memchr_iter(b'\n', beginning).count();
        self.left_out = Some(LeftOut { strings_bytes, breaks });
        self.fault(beginning, reason);
    }

    /// Leaves out the rest of a line, with the line breaks in its strings: the lines of a text are
    /// none of the body's. Quotes that do not end hide what follows, as in InfluxDB, up to a bound.
    fn skip(&mut self, piece: &[u8], from: usize) -> usize {
        let mut at = from;
        while let Some(left_out) = &mut self.left_out
            && at < piece.len()
        {
            let rest = &piece[at..];
            if left_out.strings_bytes == 0 {
                let Some(len) = memchr(b'\n', rest) else { return piece.len() };
                self.end_left_out();
                return at + len + 1;
            }
            let within = &rest[..rest.len().min(left_out.strings_bytes)];
            let end = self.extent.find(within);
            let skipped = &within[..end.map_or(within.len(), |end| end - 1)];
            left_out.breaks += memchr_iter(b'\n', skipped).count();
            left_out.strings_bytes -= within.len();
            at += end.unwrap_or(within.len());
            if end.is_some() {
                self.end_left_out();
            }
        }
        at
    }

    /// The line that is left out, if there is one, has ended. Its fault says what else it has cost.
    fn end_left_out(&mut self) {
        let Some(LeftOut { breaks: breaks @ 1.., .. }) = self.left_out.take() else { return };
        let note = match self.extent.is_in_string() {
            true => format!(": unbalanced quotes, with {breaks} line breaks behind them"),
            false => format!(", with {breaks} line breaks in quotes"),
        };
        self.faults.add_to_last(self.lines, &note);
    }
}
