//! The request as a tree of borders at which it can be cut.

use std::ops::Range;

use crate::Signal;
use crate::schema::{
    DATA_POINTS, REQUEST_RESOURCES, RESOURCE_X_SCOPES, SCOPE_X_ENTRIES, is_metric_data,
};
use crate::wire::{Field, Fields, Malformed, OCCURRENCES_LIMIT, len_tag, malformed};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Request,
    Resource,
    Scope,
    Metric,
    /// The variant of `Metric.data` that is in force.
    Data,
    Item,
}

/// An element of the tree. Its content is one range of the request, except for the data of a metric
/// that occurs several times on the wire, which is read as one message: protobuf merges repeated
/// occurrences of a singular field.
pub(super) struct Node<'a> {
    bytes: &'a [u8],
    signal: Signal,
    level: Level,
    number: u32,
    /// Tag, length and content; the first occurrence where there are several.
    whole: Range<usize>,
    contents: Vec<Range<usize>>,
}

impl<'a> Node<'a> {
    pub(super) fn request(bytes: &'a [u8], signal: Signal) -> Self {
        let whole = 0..bytes.len();
        let contents = vec![whole.clone()];
        Node { bytes, signal, level: Level::Request, number: 0, whole, contents }
    }

    fn child(&self, level: Level, field: &Field) -> Node<'a> {
        let (whole, contents) = (field.whole(), vec![field.content()]);
        Node { level, number: field.number, whole, contents, ..*self }
    }

    pub(super) fn level(&self) -> Level {
        self.level
    }

    /// Position of the element in the request, with its tag and length. Where it has several
    /// occurrences this is the first of them; such an element is always opened.
    pub(super) fn range(&self) -> Range<usize> {
        self.whole.clone()
    }

    /// Length in bytes with tag and length; out of reach for what has to be opened.
    pub(super) fn len(&self) -> usize {
        if self.contents.len() > 1 { usize::MAX } else { self.whole.len() }
    }

    pub(super) fn tag(&self) -> u8 {
        len_tag(self.number)
    }

    fn child_level(&self, field: &Field) -> Option<Level> {
        let (number, level) = match self.level {
            Level::Request => (REQUEST_RESOURCES, Level::Resource),
            Level::Resource => (RESOURCE_X_SCOPES, Level::Scope),
            Level::Scope if self.signal == Signal::Metrics => (SCOPE_X_ENTRIES, Level::Metric),
            Level::Scope => (SCOPE_X_ENTRIES, Level::Item),
            Level::Metric if is_metric_data(field.number) => (field.number, Level::Data),
            Level::Data => (DATA_POINTS, Level::Item),
            Level::Metric | Level::Item => return None,
        };
        field.is_message(number).then_some(level)
    }

    /// Calls `visit` with each element below this one, in order.
    pub(super) fn children(
        &self,
        visit: &mut dyn FnMut(Node<'a>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        if self.level == Level::Metric {
            return self.data()?.map_or(Ok(()), visit);
        }
        for content in &self.contents {
            let mut fields = Fields::new(self.bytes, content.clone());
            while let Some(field) = fields.next_field()? {
                if let Some(level) = self.child_level(&field) {
                    visit(self.child(level, &field))?;
                }
            }
        }
        Ok(())
    }

    /// The data of a metric: the last variant on the wire, with all its occurrences since another
    /// one was seen.
    fn data(&self) -> Result<Option<Node<'a>>, Malformed> {
        let mut data: Option<Node<'a>> = None;
        let mut fields = Fields::new(self.bytes, self.contents[0].clone());
        while let Some(field) = fields.next_field()? {
            let Some(level) = self.child_level(&field) else { continue };
            match data.as_mut().filter(|node| node.number == field.number) {
                Some(node) if node.contents.len() == OCCURRENCES_LIMIT => {
                    return Err(malformed(field.start, "a singular message occurs too often"));
                }
                Some(node) => node.contents.push(field.content()),
                None => data = Some(self.child(level, &field)),
            }
        }
        Ok(data)
    }

    /// The fields of this element that are not elements themselves, encoded.
    pub(super) fn header(&self) -> Result<Vec<u8>, Malformed> {
        let mut header = Vec::new();
        for content in &self.contents {
            let mut fields = Fields::new(self.bytes, content.clone());
            while let Some(field) = fields.next_field()? {
                if self.child_level(&field).is_none() {
                    header.extend_from_slice(&self.bytes[field.whole()]);
                }
            }
        }
        Ok(header)
    }

    /// Items within this element.
    pub(super) fn items(&self) -> Result<u32, Malformed> {
        if self.level == Level::Item {
            return Ok(1);
        }
        if self.level == Level::Metric {
            return self.data()?.map_or(Ok(0), |data| data.items());
        }
        let mut items = 0;
        for content in &self.contents {
            let mut fields = Fields::new(self.bytes, content.clone());
            while let Some(field) = fields.next_field()? {
                items += match self.child_level(&field) {
                    Some(Level::Item) => 1,
                    Some(level) => self.child(level, &field).items()?,
                    None => 0,
                };
            }
        }
        Ok(items)
    }
}
