//! Cuts a content into records.

use regex::bytes::Regex;

use crate::charset::Charset;

/// The longest row whose quotes do not end.
const OPEN_ROW_BYTES: usize = 64 << 10;

/// Where a record ends.
#[derive(Clone, Debug)]
pub enum Boundary {
    LineFeed,
    /// A line feed, but none within the quotes of a row of CSV. An object of JSON is a line. Of
    /// quotes that do not end, 64 KiB are a record; at the end of a file their first line is.
    Row,
    /// Before the next match. The record keeps the match with which it begins, unless omitted.
    Start {
        pattern: Regex,
        omit: bool,
    },
    /// Behind a match, which the record keeps unless omitted.
    End {
        pattern: Regex,
        omit: bool,
    },
    /// Nowhere but at the end of what is there.
    None,
}

#[derive(Clone, Debug)]
pub struct Splitter {
    pub boundary: Boundary,
    pub charset: Charset,
    /// The longest record, in bytes of the file.
    pub max_bytes: usize,
    /// The rest of a longer record is left out; else it is the next record.
    pub truncates: bool,
    pub keeps_leading: bool,
    pub keeps_trailing: bool,
}

/// The next part of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Bytes up to the next part.
    pub consumed: usize,
    /// The record's place: nothing if the part is left out.
    pub text: Option<(usize, usize)>,
    /// The next part is the rest of this record, which is left out.
    pub is_within: bool,
}

/// Whether more will come behind the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// There is more in the file.
    Open,
    /// The file has no more now.
    Here,
    /// And has had none for so long that what is there is a record.
    Flush,
    /// Nothing will come any more: what is there is the last record.
    Last,
}

impl End {
    /// The bytes that are there are a record, also without its end.
    pub fn flushes(self) -> bool {
        matches!(self, End::Flush | End::Last)
    }
}

impl Splitter {
    /// Cuts the first part off. `None`: more bytes are needed, [`Splitter::window_bytes`] at most.
    /// `is_within`: the bytes begin within a record whose rest is left out.
    pub fn next(&self, bytes: &[u8], end: End, is_within: bool) -> Option<Cut> {
        // Half of a unit waits for its other half: behind it nothing could be read.
        let bytes = &bytes[..bytes.len() - bytes.len() % self.charset.unit()];
        if bytes.is_empty() {
            return None;
        }
        if is_within {
            return self.rest(bytes, end);
        }
        let found = self.boundary(bytes, end);
        let (start, stop, consumed) = match found {
            Some(found) => found,
            None if bytes.len() >= self.max_bytes => {
                let cut = self.charset.cut(bytes, self.max_bytes);
                let text = self.trimmed(bytes, 0, cut);
                return Some(Cut { consumed: cut, text, is_within: self.truncates });
            }
            None if end.flushes() => (0, bytes.len(), bytes.len()),
            None => return None,
        };
        if stop - start > self.max_bytes {
            let cut = start + self.charset.cut(&bytes[start..stop], self.max_bytes);
            let text = self.trimmed(bytes, start, cut);
            let consumed = if self.truncates { consumed } else { cut };
            return Some(Cut { consumed, text, is_within: false });
        }
        Some(Cut { consumed, text: self.trimmed(bytes, start, stop), is_within: false })
    }

    /// Enough bytes to cut a part off.
    pub fn window_bytes(&self) -> usize {
        self.max_bytes.saturating_add(self.charset.unit() + 4)
    }

    /// Leaves the rest of a record out.
    fn rest(&self, bytes: &[u8], end: End) -> Option<Cut> {
        let consumed = match &self.boundary {
            Boundary::Start { pattern, .. } => self.start(pattern, bytes, 0).map(|found| found.0),
            Boundary::Row => memchr::memchr(b'\n', bytes).map(|at| at + 1),
            _ => self.boundary(bytes, end).map(|(_, _, consumed)| consumed),
        };
        match consumed {
            Some(consumed) => Some(Cut { consumed, text: None, is_within: false }),
            None if bytes.len() >= self.max_bytes || end.flushes() => {
                Some(Cut { consumed: bytes.len(), text: None, is_within: true })
            }
            None => None,
        }
    }

    /// The first record and the bytes to the next one.
    fn boundary(&self, bytes: &[u8], end: End) -> Option<(usize, usize, usize)> {
        match &self.boundary {
            Boundary::LineFeed => {
                let stop = self.charset.line_feed(bytes)?;
                Some(self.line(bytes, stop))
            }
            Boundary::Row => Some(self.line(bytes, end_of_row(bytes, end)?)),
            Boundary::Start { pattern, omit } => {
                let (start, stop) = self.start(pattern, bytes, 0)?;
                if start > 0 {
                    return Some((0, start, start));
                }
                // A match that follows at once belongs to the first one.
                let mut from = stop;
                let next = loop {
                    match self.start(pattern, bytes, from).filter(|_| from < bytes.len()) {
                        Some((next, _)) if next > stop => break next,
                        Some((_, behind)) => from = behind.max(from + 1),
                        None if end == End::Last => break bytes.len(),
                        None => return None,
                    }
                };
                Some((if *omit { stop } else { 0 }, next, next))
            }
            Boundary::End { pattern, omit } => {
                let (mut start, mut stop) = self.find(pattern, bytes, 0)?;
                // A match of nothing ends no record of nothing.
                if stop == 0 {
                    (start, stop) = self.find(pattern, bytes, 1)?;
                }
                // The match may go on in what follows.
                let is_sure = stop < bytes.len() || end != End::Open;
                is_sure.then_some((0, if *omit { start } else { stop }, stop))
            }
            Boundary::None => {
                let is_whole = end != End::Open && bytes.len() < self.max_bytes;
                is_whole.then_some((0, bytes.len(), bytes.len()))
            }
        }
    }

    /// A record that ends with the line feed at `stop`.
    fn line(&self, bytes: &[u8], stop: usize) -> (usize, usize, usize) {
        let unit = self.charset.unit();
        let before = stop.checked_sub(unit).map(|at| self.charset.ascii(&bytes[at..]));
        let text = if before == Some(Some(b'\r')) { stop - unit } else { stop };
        (0, text, stop + unit)
    }

    /// The first match from a place on at which a record begins. A match of nothing at the end of
    /// what is there may be none, or within a character, once more has come.
    fn start(&self, pattern: &Regex, bytes: &[u8], from: usize) -> Option<(usize, usize)> {
        self.find(pattern, bytes, from).filter(|(start, _)| *start < bytes.len())
    }

    /// The first match from a place on.
    fn find(&self, pattern: &Regex, bytes: &[u8], from: usize) -> Option<(usize, usize)> {
        if matches!(self.charset, Charset::Utf8 | Charset::Utf8Raw | Charset::Nop) {
            return match_at(pattern, bytes, from);
        }
        let text = self.charset.decode(bytes);
        let place = |at: usize| self.charset.place(bytes, &text, at);
        let mut at = 0;
        while let Some((first, last)) = match_at(pattern, &text, at) {
            let start = place(first);
            if start >= from {
                return Some((start, place(last)));
            }
            at = last.max(at + 1);
        }
        None
    }

    fn trimmed(&self, bytes: &[u8], mut start: usize, mut stop: usize) -> Option<(usize, usize)> {
        if self.charset == Charset::Nop {
            return Some((start, stop));
        }
        let unit = self.charset.unit();
        let is_space = |at: usize| {
            matches!(self.charset.ascii(&bytes[at..]), Some(b' ' | b'\t' | b'\r' | b'\n'))
        };
        while !self.keeps_trailing && stop >= start + unit && is_space(stop - unit) {
            stop -= unit;
        }
        while !self.keeps_leading && start + unit <= stop && is_space(start) {
            start += unit;
        }
        Some((start, stop))
    }
}

/// The first match from a place on. A match of nothing is never within a character.
fn match_at(pattern: &Regex, text: &[u8], mut from: usize) -> Option<(usize, usize)> {
    while from <= text.len() {
        let found = pattern.find_at(text, from)?;
        let is_within = text.get(found.start()).is_some_and(|byte| byte & 0xc0 == 0x80);
        if !(found.is_empty() && is_within) {
            return Some((found.start(), found.end()));
        }
        from = found.end() + 1;
    }
    None
}

/// The line feed that ends a row.
fn end_of_row(bytes: &[u8], end: End) -> Option<usize> {
    let mut feeds = memchr::memchr_iter(b'\n', bytes);
    let first = feeds.next()?;
    let has_open_quote = |part: &[u8]| memchr::memchr_iter(b'"', part).count() % 2 == 1;
    if bytes[0] == b'{' || !has_open_quote(&bytes[..first]) {
        return Some(first);
    }
    let mut last = first;
    for stop in feeds {
        if has_open_quote(&bytes[last..stop]) || stop >= OPEN_ROW_BYTES {
            return Some(stop);
        }
        last = stop;
    }
    end.flushes().then_some(first)
}

#[cfg(test)]
mod tests;
