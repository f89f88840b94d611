//! The request as a tree of borders at which it can be cut.

use std::ops::Range;

use crate::Signal;
use crate::schema::{METRIC, Message, WireKind};
use crate::wire::{Field, Fields, LEN, OCCURRENCES_LIMIT, Result, len_tag, malformed};

/// An element of the tree. Its content is one range of the request, except for a metric's data that
/// occurs several times on the wire: protobuf merges repeated occurrences of a singular field.
pub(super) struct Node<'a> {
    bytes: &'a [u8],
    message: &'static Message,
    number: u32,
    /// A span, data point or log record, which cannot be cut.
    pub(super) is_item: bool,
    /// Tag, length and content; the first occurrence where there are several: that is opened.
    pub(super) whole: Range<usize>,
    contents: Vec<Range<usize>>,
}

/// The message of an element, and whether it is an item.
type Below = (&'static Message, bool);

impl<'a> Node<'a> {
    pub(super) fn request(bytes: &'a [u8], signal: Signal) -> Self {
        let whole = 0..bytes.len();
        let contents = vec![whole.clone()];
        Node { bytes, message: signal.request(), number: 0, is_item: false, whole, contents }
    }

    fn child(&self, (message, is_item): Below, field: &Field) -> Node<'a> {
        let (whole, contents) = (field.whole(), vec![field.content()]);
        Node { message, number: field.number, is_item, whole, contents, ..*self }
    }

    /// Its variants of `data` exclude each other.
    fn is_metric(&self) -> bool {
        std::ptr::eq(self.message, &METRIC)
    }

    /// Length in bytes with tag and length; out of reach for an element that has to be opened.
    pub(super) fn len(&self) -> usize {
        if self.contents.len() > 1 { usize::MAX } else { self.whole.len() }
    }

    pub(super) fn tag(&self) -> u8 {
        len_tag(self.number)
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

    /// Calls `visit` with each element below this one, in order.
    pub(super) fn children(&self, visit: &mut dyn FnMut(Node<'a>) -> Result<()>) -> Result<()> {
        if self.is_metric() {
            return self.data()?.map_or(Ok(()), visit);
        }
        for content in &self.contents {
            let mut fields = Fields::new(self.bytes, content.clone());
            while let Some(field) = fields.next_field()? {
                if let Some(below) = self.below(&field) {
                    visit(self.child(below, &field))?;
                }
            }
        }
        Ok(())
    }

    /// The data of a metric: the last variant on the wire, with all occurrences since another one.
    fn data(&self) -> Result<Option<Node<'a>>> {
        let mut data: Option<Node<'a>> = None;
        let mut fields = Fields::new(self.bytes, self.contents[0].clone());
        while let Some(field) = fields.next_field()? {
            let Some(below) = self.below(&field) else { continue };
            match data.as_mut().filter(|node| node.number == field.number) {
                Some(node) if node.contents.len() == OCCURRENCES_LIMIT => {
                    return Err(malformed(field.start, "a singular message occurs too often"));
                }
                Some(node) => node.contents.push(field.content()),
                None => data = Some(self.child(below, &field)),
            }
        }
        Ok(data)
    }

    /// The fields of this element that are not elements themselves, encoded.
    pub(super) fn header(&self) -> Result<Vec<u8>> {
        let mut header = Vec::new();
        for content in &self.contents {
            let mut fields = Fields::new(self.bytes, content.clone());
            while let Some(field) = fields.next_field()? {
                if self.below(&field).is_none() {
                    header.extend_from_slice(&self.bytes[field.whole()]);
                }
            }
        }
        Ok(header)
    }

    /// Items within this element.
    pub(super) fn items(&self) -> Result<u32> {
        if self.is_item {
            return Ok(1);
        }
        if self.is_metric() {
            return self.data()?.map_or(Ok(0), |data| data.items());
        }
        let mut items = 0;
        for content in &self.contents {
            let mut fields = Fields::new(self.bytes, content.clone());
            while let Some(field) = fields.next_field()? {
                items += match self.below(&field) {
                    Some((_, true)) => 1,
                    Some(below) => self.child(below, &field).items()?,
                    None => 0,
                };
            }
        }
        Ok(items)
    }
}
