//! Finds the parts of a request one after another, keeping the exact size that each would have when
//! encoded. A part is a place in the request: it takes memory of its own only once it is encoded.

use std::ops::Range;

use bytes::Bytes;

use super::SplitLimits;
use super::node::{Node, Place};
use crate::Signal;
use crate::wire::{Result, varint_len, write_varint};

/// An element that was opened: its header goes into every part that contains something of it. The
/// outermost one is the request.
#[derive(Clone)]
pub(super) struct Level {
    pub(super) node: Node,
    pub(super) header: Bytes,
    /// Where its next child is found.
    pub(super) place: Place,
    /// Bytes of the content in the current part: the header and the complete elements within.
    pub(super) content_bytes: usize,
    /// Its number among the elements that are begun in the current part, if it is one.
    pub(super) begun: Option<usize>,
    /// Bytes of its header and of those around it, if it may have so many elements that its parts
    /// must not consist of little else.
    pub(super) long_header_bytes: Option<usize>,
}

/// A place in the request between two elements.
#[derive(Clone)]
pub(super) struct Position {
    /// The open elements, outermost first; none at the end.
    pub(super) levels: Vec<Level>,
    /// The next child of the innermost one, with its items, if it was looked at.
    pub(super) next: Option<(Node, u32)>,
}

/// The parts of a request, or of a part of one. Yields nothing after an error.
#[derive(Clone)]
pub struct Parts {
    pub(super) request: Bytes,
    pub(super) limits: SplitLimits,
    pub(super) position: Position,
    /// Elements from here on are not meant.
    pub(super) end: usize,
    /// Items of the request if it is within the limits.
    pub(super) whole: Option<u32>,
}

/// A part of a request.
#[derive(Clone)]
pub struct PartRef {
    pub(super) request: Bytes,
    pub(super) limits: SplitLimits,
    pub(super) start: Position,
    pub(super) end: usize,
    /// Bytes of the content of each element that is begun in it.
    pub(super) begun_bytes: Vec<usize>,
    /// Elements to copy, in order; none if they are in too many places to note them all.
    pub(super) copies: Option<Vec<Range<usize>>>,
    pub sizes: Sizes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Spans, metric points or log records.
    pub items: u32,
    /// Length once it is encoded.
    pub len_bytes: usize,
    /// Of headers that were copied for this part and those behind it.
    pub copied_bytes: usize,
}

/// Takes the elements of a part, in order.
trait Sink {
    fn begin(&mut self, number: usize, tag: u8, header: &[u8]);
    fn conclude(&mut self, number: usize, content_bytes: usize);
    fn copy(&mut self, range: &Range<usize>);
}

/// Places that a part notes: elements beside each other are one. There is mostly one for each open
/// element.
const COPIES_MAX: usize = 8;

/// The largest share of a part that repeated headers may have: 7 of 8 bytes.
const HEADER_SHARE_MAX: (usize, usize) = (7, 8);
/// Unless all their repetitions together are no longer than this.
const REPEATED_MAX_BYTES: usize = 1 << 20;
/// An element with a header from this length on shares no part with others.
const ALONE_BYTES: usize = 64 << 10;
/// Of an element: its tag and its length.
const ELEMENT_MIN_BYTES: usize = 2;

#[derive(Default)]
struct Measure {
    begun_bytes: Vec<usize>,
    copies: Vec<Range<usize>>,
    /// There are more copies than are noted.
    is_scattered: bool,
}

impl Sink for Measure {
    fn begin(&mut self, _: usize, _: u8, _: &[u8]) {
        self.begun_bytes.push(0);
    }

    fn conclude(&mut self, number: usize, content_bytes: usize) {
        self.begun_bytes[number] = content_bytes;
    }

    fn copy(&mut self, range: &Range<usize>) {
        let is_full = self.copies.len() == COPIES_MAX;
        match self.copies.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            Some(last) if is_full => (self.is_scattered, *last) = (true, range.clone()),
            _ => self.copies.push(range.clone()),
        }
    }
}

struct Write<'a> {
    request: &'a [u8],
    begun_bytes: &'a [usize],
    out: Vec<u8>,
}

impl Sink for Write<'_> {
    fn begin(&mut self, number: usize, tag: u8, header: &[u8]) {
        if tag != 0 {
            self.out.push(tag);
            write_varint(&mut self.out, self.begun_bytes[number] as u64);
        }
        self.out.extend_from_slice(header);
    }

    fn conclude(&mut self, _: usize, _: usize) {}

    fn copy(&mut self, range: &Range<usize>) {
        self.out.extend_from_slice(&self.request[range.clone()]);
    }
}

impl Level {
    /// `around_bytes`: of the headers of the elements around it.
    fn open(node: Node, bytes: &[u8], around_bytes: usize) -> Result<Level> {
        let header = Bytes::from(node.header(bytes)?);
        let (place, content_bytes) = (Place::default(), header.len());
        let header_bytes = around_bytes + content_bytes;
        let elements_max = (node.content_bytes() - header.len()) / ELEMENT_MIN_BYTES;
        let is_long = is_repeated_much(header_bytes, elements_max);
        let long_header_bytes = is_long.then_some(header_bytes);
        Ok(Level { node, header, place, content_bytes, begun: None, long_header_bytes })
    }

    /// Its parts have no elements from behind it: these must not suffer for its header.
    fn goes_alone(&self) -> bool {
        self.long_header_bytes.is_some() && self.header.len() >= ALONE_BYTES
    }
}

/// Whether headers are long once each element has a copy of its own.
fn is_repeated_much(header_bytes: usize, elements: usize) -> bool {
    header_bytes.saturating_mul(elements) > REPEATED_MAX_BYTES
}

/// The least length of a part of which so long a header is not nearly all.
fn len_beside(header_bytes: usize) -> usize {
    let (share, whole) = HEADER_SHARE_MAX;
    header_bytes.saturating_mul(whole) / share
}

impl Parts {
    pub(super) fn new(signal: Signal, request: &Bytes, limits: SplitLimits) -> Result<Parts> {
        let limits = SplitLimits { max_items: limits.max_items.max(1), ..limits };
        let root = Node::request(request, signal);
        let items = root.items(request)?;
        let fits = limits.allow(request.len(), items);
        let position = Position { levels: vec![Level::open(root, request, 0)?], next: None };
        let (request, end, whole) = (request.clone(), request.len(), fits.then_some(items));
        Ok(Parts { request, limits, position, end, whole })
    }

    /// True if no part is left.
    pub fn is_over(&self) -> bool {
        self.position.levels.is_empty()
    }

    /// Bytes of the headers that the next part may share with those before it: copies.
    pub fn header_bytes(&self) -> usize {
        self.position.levels.iter().map(|level| level.header.len()).sum()
    }

    /// Whether an element of `len` bytes and `items` items can be added within the limits.
    fn takes(&self, so_far: u32, len: usize, items: u32) -> bool {
        so_far as usize + items as usize <= self.limits.max_items
            && self.len_with(len) <= self.max_bytes()
    }

    /// The limit of the current part. Headers that are about as long as the limit raise it: parts
    /// within it would hardly have anything else.
    fn max_bytes(&self) -> usize {
        let long_header_bytes = self.position.levels.last().and_then(|it| it.long_header_bytes);
        self.limits.max_bytes.max(long_header_bytes.map_or(0, len_beside))
    }

    /// Length of the current part if `added` bytes came into the innermost element.
    fn len_with(&self, added: usize) -> usize {
        let mut len = added;
        for (depth, level) in self.position.levels.iter().enumerate().rev() {
            len = len.saturating_add(level.content_bytes);
            if depth > 0 {
                len = len.saturating_add(1 + varint_len(len));
            }
        }
        len
    }

    fn next_child(&mut self) -> Result<Option<(Node, u32)>> {
        if let Some(next) = self.position.next.take() {
            return Ok(Some(next));
        }
        let Some(Level { node, place, .. }) = self.position.levels.last_mut() else {
            return Ok(None);
        };
        let child = node.next_child(&self.request, place)?;
        Ok(child.filter(|(child, _)| child.whole.start < self.end))
    }

    /// Opens the elements with which the next part begins, so that all parts of one share its
    /// header. Returns the bytes of headers that this copied.
    fn open_next(&mut self) -> Result<usize> {
        let mut copied_bytes = 0;
        while !self.position.levels.is_empty() {
            let Some((child, items)) = self.next_child()? else {
                self.position.levels.pop();
                continue;
            };
            // An element that cannot be opened goes alone, however large it is.
            if self.takes(0, child.len(), items) || child.is_item || items == 0 {
                self.position.next = Some((child, items));
                break;
            }
            let around_bytes = self.position.levels.iter().map(|it| it.header.len()).sum();
            let level = Level::open(child, &self.request, around_bytes)?;
            copied_bytes += level.header.len();
            self.position.levels.push(level);
        }
        Ok(copied_bytes)
    }

    /// Passes over the elements of the next part. Its items and its length; nothing at the end.
    fn pass(&mut self, sink: &mut impl Sink) -> Result<Option<(u32, usize)>> {
        let (mut items, mut begun, mut is_empty) = (0, 0, true);
        while !self.position.levels.is_empty() {
            let Some((child, child_items)) = self.next_child()? else {
                if self.position.levels.len() == 1 {
                    let len_bytes = self.position.levels[0].content_bytes;
                    self.position.levels.clear();
                    return Ok((!is_empty).then_some((items, len_bytes)));
                }
                self.conclude(self.position.levels.len() - 1, sink);
                let ended = self.position.levels.pop();
                if !is_empty && ended.is_some_and(|it| it.goes_alone()) {
                    return Ok(Some((items, self.end_part(sink))));
                }
                continue;
            };
            if !is_empty && !self.takes(items, child.len(), child_items) {
                self.position.next = Some((child, child_items));
                return Ok(Some((items, self.end_part(sink))));
            }
            for level in self.position.levels.iter_mut().filter(|level| level.begun.is_none()) {
                sink.begin(begun, level.node.tag_or_none(), &level.header);
                level.begun = Some(begun);
                begun += 1;
            }
            sink.copy(&child.whole);
            if let Some(level) = self.position.levels.last_mut() {
                level.content_bytes += child.whole.len();
            }
            items += child_items;
            is_empty = false;
        }
        Ok(None)
    }

    /// Concludes the current part. The open elements go on in the next one. Returns its length.
    fn end_part(&mut self, sink: &mut impl Sink) -> usize {
        for depth in (1..self.position.levels.len()).rev() {
            self.conclude(depth, sink);
        }
        let len_bytes = self.position.levels[0].content_bytes;
        for level in &mut self.position.levels {
            level.content_bytes = level.header.len();
            level.begun = None;
        }
        len_bytes
    }

    /// Writes down how long an element became, and adds it to the one around it.
    fn conclude(&mut self, depth: usize, sink: &mut impl Sink) {
        let Level { begun, content_bytes, .. } = self.position.levels[depth];
        if let Some(number) = begun {
            sink.conclude(number, content_bytes);
            let whole_bytes = 1 + varint_len(content_bytes) + content_bytes;
            self.position.levels[depth - 1].content_bytes += whole_bytes;
        }
    }

    fn next_part(&mut self) -> Result<Option<PartRef>> {
        let (request, limits) = (self.request.clone(), self.limits);
        let whole = self.whole.take();
        let copied_bytes = if whole.is_none() { self.open_next()? } else { 0 };
        let start = self.position.clone();
        let mut measure = Measure::default();
        let (items, len_bytes) = match whole {
            Some(items) => {
                self.position.levels.clear();
                measure.copy(&(0..self.end));
                (items, self.end)
            }
            None => match self.pass(&mut measure)? {
                Some(passed) => passed,
                None => return Ok(None),
            },
        };
        let Measure { begun_bytes, copies, is_scattered } = measure;
        let end = copies.last().map_or(self.end, |last| last.end);
        let copies = (!is_scattered).then_some(copies);
        let sizes = Sizes { items, len_bytes, copied_bytes };
        Ok(Some(PartRef { request, limits, start, end, begun_bytes, copies, sizes }))
    }
}

impl Iterator for Parts {
    type Item = Result<PartRef>;

    fn next(&mut self) -> Option<Result<PartRef>> {
        let part = self.next_part();
        if part.is_err() {
            self.position.levels.clear();
        }
        part.transpose()
    }
}

impl PartRef {
    /// The part as a request of its own. A part that needs no header is a slice of the request.
    pub fn bytes(&self) -> Bytes {
        if let Some(range) = self.range() {
            return self.request.slice(range.clone());
        }
        let (request, begun_bytes) = (&self.request[..], &self.begun_bytes[..]);
        let out = Vec::with_capacity(self.sizes.len_bytes);
        let mut write = Write { request, begun_bytes, out };
        let levels = &self.start.levels;
        match &self.copies {
            // All open elements begin before its first copy.
            Some(copies) if begun_bytes.len() == levels.len() => {
                for (number, level) in levels.iter().enumerate() {
                    write.begin(number, level.node.tag_or_none(), &level.header);
                }
                copies.iter().for_each(|range| write.copy(range));
            }
            _ => _ = self.parts(self.limits).pass(&mut write),
        }
        debug_assert_eq!(write.out.len(), self.sizes.len_bytes);
        write.out.into()
    }

    /// The part as a range of the request, if it needs no header.
    fn range(&self) -> Option<&Range<usize>> {
        let [range] = self.copies.as_deref()? else { return None };
        (range.len() == self.sizes.len_bytes).then_some(range)
    }

    /// True if encoding it copies.
    pub fn is_copied(&self) -> bool {
        self.range().is_none()
    }

    /// Length of the headers that all its items share.
    fn shared_header_bytes(&self) -> usize {
        let has_all = |level: &&Level| level.node.has(self.end);
        self.start.levels.iter().take_while(has_all).map(|level| level.header.len()).sum()
    }

    /// The length of the headers that its items share if they are nearly all of it, and long: the
    /// parts of this part would together be far longer, and each hardly shorter.
    pub fn dominant_header_bytes(&self) -> Option<usize> {
        let Sizes { items, len_bytes, .. } = self.sizes;
        let header_bytes = self.shared_header_bytes();
        let is_dominant =
            len_bytes <= len_beside(header_bytes) && is_repeated_much(header_bytes, items as usize);
        (is_dominant && items > 1).then_some(header_bytes)
    }

    /// Cuts it again.
    pub fn parts(&self, limits: SplitLimits) -> Parts {
        let limits = SplitLimits { max_items: limits.max_items.max(1), ..limits };
        let (request, position, end) = (self.request.clone(), self.start.clone(), self.end);
        Parts { request, limits, position, end, whole: None }
    }
}
