//! The request as a tree of borders at which it can be cut.

use std::iter;
use std::ops::Range;

use crate::Signal;
use crate::schema::{METRIC, Message, WireKind};
use crate::wire::{Field, Fields, LEN, OCCURRENCES_LIMIT, Result, len_tag, malformed};

/// An element of the tree. Its content is one range of the request, except for a metric's data that
/// occurs several times on the wire: protobuf merges repeated occurrences of a singular field.
#[derive(Clone)]
pub(super) struct Node {
    message: &'static Message,
    number: u32,
    /// A span, data point or log record, which cannot be cut.
    pub(super) is_item: bool,
    /// Tag, length and content; the first occurrence where there are several: that is opened.
    pub(super) whole: Range<usize>,
    content: Range<usize>,
    /// Contents of the occurrences after the first.
    others: Vec<Range<usize>>,
}

/// The message of an element, and whether it is an item.
type Below = (&'static Message, bool);

impl Node {
    pub(super) fn request(bytes: &[u8], signal: Signal) -> Self {
        let whole = 0..bytes.len();
        let (content, others) = (whole.clone(), Vec::new());
        Node { message: signal.request(), number: 0, is_item: false, whole, content, others }
    }

    fn child((message, is_item): Below, field: &Field) -> Node {
        let (whole, content, others) = (field.whole(), field.content(), Vec::new());
        Node { message, number: field.number, is_item, whole, content, others }
    }

    /// The number of ranges that its content is in.
    fn occurrences(&self) -> usize {
        1 + self.others.len()
    }

    fn occurrence(&self, index: usize) -> Option<&Range<usize>> {
        if index == 0 { Some(&self.content) } else { self.others.get(index - 1) }
    }

    fn contents(&self) -> impl Iterator<Item = Range<usize>> {
        iter::once(self.content.clone()).chain(self.others.iter().cloned())
    }

    /// Length of its content.
    pub(super) fn content_bytes(&self) -> usize {
        self.contents().map(|content| content.len()).sum()
    }

    /// Whether an element that ends here is within this one.
    pub(super) fn has(&self, end: usize) -> bool {
        self.contents().any(|content| content.start < end && end <= content.end)
    }

    /// Its variants of `data` exclude each other.
    fn is_metric(&self) -> bool {
        std::ptr::eq(self.message, &METRIC)
    }

    /// Length in bytes with tag and length; out of reach for an element that has to be opened.
    pub(super) fn len(&self) -> usize {
        if !self.others.is_empty() { usize::MAX } else { self.whole.len() }
    }

    /// Zero for the request.
    pub(super) fn tag_or_none(&self) -> u8 {
        if self.number == 0 { 0 } else { len_tag(self.number) }
    }

    /// The element in a field, if it is one.
    fn below(&self, field: &Field) -> Option<Below> {
        match self.message.wire_kind(field.number) {
            _ if field.wire_type != LEN => None,
            WireKind::Level(message) | WireKind::Data(message) => Some((message, false)),
            WireKind::Item(message) => Some((message, true)),
            _ => None,
        }
    }

    /// The next element below this one, in order, and the number of its items.
    pub(super) fn next_child(&self, bytes: &[u8], at: &mut Place) -> Result<Option<(Node, u32)>> {
        if self.is_metric() {
            let is_first = std::mem::replace(&mut at.occurrence, 1) == 0;
            let data = if is_first { self.data(bytes)? } else { None };
            return data.map(|data| data.items(bytes).map(|items| (data, items))).transpose();
        }
        while let Some(content) = self.occurrence(at.occurrence) {
            let mut fields = Fields::new(bytes, content.start.max(at.position)..content.end);
            while let Some(field) = fields.next_field()? {
                if let Some(below) = self.below(&field) {
                    at.position = field.end;
                    let child = Node::child(below, &field);
                    let items = child.items(bytes)?;
                    return Ok(Some((child, items)));
                }
            }
            *at = Place { occurrence: at.occurrence + 1, position: 0 };
        }
        Ok(None)
    }

    /// The data of a metric: the last variant on the wire, with all occurrences since another one.
    fn data(&self, bytes: &[u8]) -> Result<Option<Node>> {
        let mut data: Option<Node> = None;
        let mut fields = Fields::new(bytes, self.content.clone());
        while let Some(field) = fields.next_field()? {
            let Some(below) = self.below(&field) else { continue };
            match data.as_mut().filter(|node| node.number == field.number) {
                Some(node) if node.occurrences() == OCCURRENCES_LIMIT => {
                    return Err(malformed(field.start, "a singular message occurs too often"));
                }
                Some(node) => node.others.push(field.content()),
                None => data = Some(Node::child(below, &field)),
            }
        }
        Ok(data)
    }

    /// The fields of this element that are not elements themselves, encoded.
    pub(super) fn header(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        let mut header = Vec::new();
        for content in self.contents() {
            let mut fields = Fields::new(bytes, content);
            while let Some(field) = fields.next_field()? {
                if self.below(&field).is_none() {
                    header.extend_from_slice(&bytes[field.whole()]);
                }
            }
        }
        Ok(header)
    }

    /// Items within this element.
    pub(super) fn items(&self, bytes: &[u8]) -> Result<u32> {
        if self.is_item {
            return Ok(1);
        }
        if self.is_metric() {
            return self.data(bytes)?.map_or(Ok(0), |data| data.items(bytes));
        }
        let mut items = 0;
        for content in self.contents() {
            let mut fields = Fields::new(bytes, content);
            while let Some(field) = fields.next_field()? {
                items += match self.below(&field) {
                    Some((_, true)) => 1,
                    Some(below) => Node::child(below, &field).items(bytes)?,
                    None => 0,
                };
            }
        }
        Ok(items)
    }
}

/// A place within an element, from which on its children are still to come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    occurrence: usize,
    /// Nothing before it is left, in this occurrence.
    position: usize,
}
