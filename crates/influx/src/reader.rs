//! A body in pieces.

use memchr::memchr;

use crate::extent::Extent;
use crate::fault::Faults;
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

/// Reads the lines of a body, whose pieces may be cut anywhere.
pub struct Reader {
    parser: Parser,
    limits: Limits,
    /// The beginning of a line whose end is in a piece to come.
    cut: Vec<u8>,
    extent: Extent,
    /// The rest of a line that is too long is left out.
    is_skipping: bool,
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
            extent: Extent::default(),
            is_skipping: false,
            lines: 0,
            faults: Faults::default(),
        }
    }

    /// Reads a piece: `each` gets every line that ends in it and is not at fault.
    pub fn read(&mut self, piece: &[u8], mut each: impl FnMut(&Line<'_>)) {
        let mut at = self.resume(piece, &mut each);
        while at < piece.len() {
            match self.parser.parse(piece, at, false) {
                Step::Line { places, next } if next - at <= self.limits.line_bytes => {
                    each(&self.parser.line_at(piece, places));
                    self.lines += 1;
                    at = next;
                }
                Step::Blank { next } if next - at <= self.limits.line_bytes => {
                    self.lines += 1;
                    at = next;
                }
                _ => at = self.odd(piece, at, &mut each),
            }
        }
    }

    /// The body has ended: what is left is a line.
    pub fn finish(mut self, mut each: impl FnMut(&Line<'_>)) -> Faults {
        let cut = std::mem::take(&mut self.cut);
        if !cut.is_empty() {
            self.whole(&cut, &mut each);
        }
        self.faults
    }

    /// The faults so far.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Bytes of the body that the reader holds.
    pub fn held_bytes(&self) -> usize {
        self.cut.len()
    }

    /// Reads the rest of a line that was cut; answers where the next one starts.
    fn resume(&mut self, piece: &[u8], each: &mut impl FnMut(&Line<'_>)) -> usize {
        if self.is_skipping {
            return self.skip(piece, 0);
        }
        if self.cut.is_empty() {
            return 0;
        }
        let room = self.limits.line_bytes - self.cut.len();
        let found = self.extent.find(&piece[..piece.len().min(room)]);
        match found {
            Some(len) => {
                let mut cut = std::mem::take(&mut self.cut);
                cut.extend_from_slice(&piece[..len]);
                self.whole(&cut, each);
                cut.clear();
                self.cut = cut;
                len
            }
            None if piece.len() <= room => {
                self.cut.extend_from_slice(piece);
                piece.len()
            }
            None => {
                let mut cut = std::mem::take(&mut self.cut);
                cut.extend_from_slice(&piece[..room]);
                self.too_long(&cut);
                self.skip(piece, room)
            }
        }
    }

    /// A line at `at` that is cut, at fault, or too long; answers where the next one starts.
    #[cold]
    fn odd(&mut self, piece: &[u8], at: usize, each: &mut impl FnMut(&Line<'_>)) -> usize {
        let rest = &piece[at..];
        let within = &rest[..rest.len().min(self.limits.line_bytes)];
        self.extent = Extent::default();
        match self.extent.find(within) {
            Some(len) => {
                self.whole(&rest[..len], each);
                at + len
            }
            None if within.len() == rest.len() => {
                self.cut.extend_from_slice(rest);
                piece.len()
            }
            None => {
                self.too_long(within);
                self.skip(piece, at + within.len())
            }
        }
    }

    /// Reads a line, all of which is there.
    fn whole(&mut self, line: &[u8], each: &mut impl FnMut(&Line<'_>)) {
        self.lines += 1;
        match self.parser.parse(line, 0, true) {
            Step::Line { places, .. } => each(&self.parser.line_at(line, places)),
            Step::Blank { .. } => {}
            Step::Stop(stop) => self.faults.add(self.lines, line, stop.reason()),
        }
    }

    fn too_long(&mut self, beginning: &[u8]) {
        self.lines += 1;
        let limit = self.limits.line_bytes;
        let reason = format!("a line is longer than {limit} bytes");
        self.faults.add(self.lines, beginning, reason.into());
        self.is_skipping = true;
    }

    /// Leaves out all up to the next line break: quotes of a line that is left out say nothing.
    fn skip(&mut self, piece: &[u8], from: usize) -> usize {
        match memchr(b'\n', &piece[from..]) {
            Some(len) => {
                self.is_skipping = false;
                from + len + 1
            }
            None => piece.len(),
        }
    }
}
