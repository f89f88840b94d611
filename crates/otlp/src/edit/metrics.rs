//! Rewrites the points of metrics in an encoded request, and removes them with what they leave
//! empty, as the Collector's `RemoveIf` does.

use std::ops::Range;

use bytes::Bytes;

use super::splices::Splices;
use super::{Beyond, RESOURCE_ATTRIBUTES, View, occurrences};
use crate::Attributes;
use crate::schema::{
    DATA_POINTS, REQUEST_RESOURCES, RESOURCE_X_RESOURCE, RESOURCE_X_SCOPES, SCOPE_X_ENTRIES,
    SCOPE_X_SCOPE,
};
use crate::wire::{Field, Fields, Result, VARINT, write_len_field, write_varint};

const SCOPE_ATTRIBUTES: u32 = 3;
const TEMPORALITY: u32 = 2;
const MONOTONIC: u32 = 3;

/// The kinds of metrics that have a temporality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointKind {
    Sum,
    Histogram,
    Exponential,
}

impl PointKind {
    /// Number of the field with a point's attributes.
    fn attributes(self) -> u32 {
        match self {
            PointKind::Sum => 7,
            PointKind::Histogram => 9,
            PointKind::Exponential => 1,
        }
    }

    fn of_field(number: u32) -> Option<PointKind> {
        match number {
            7 => Some(PointKind::Sum),
            9 => Some(PointKind::Histogram),
            10 => Some(PointKind::Exponential),
            _ => None,
        }
    }
}

/// A metric that has a temporality.
pub struct MetricView<'a> {
    pub name: &'a [u8],
    pub unit: &'a [u8],
    pub kind: PointKind,
    /// 1 is delta, 2 cumulative; enums are open.
    pub temporality: u64,
    /// Only sums may be true.
    pub is_monotonic: bool,
    pub has_points: bool,
}

/// The fate of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    Kept,
    /// By the content that was written.
    Replaced,
    Removed,
}

/// Sees a request from the outside in, and decides on each point in order.
pub trait PointEditor {
    fn resource(&mut self, attributes: &Attributes<'_>);

    fn scope(&mut self, name: &[u8], version: &[u8], attributes: &Attributes<'_>);

    /// The new temporality of the metric; nothing if it and its points stay as they are.
    fn metric(&mut self, metric: &MetricView<'_>) -> Option<u8>;

    /// A point of that metric, by its encoded content; a replacement is written to `out`.
    fn point(
        &mut self,
        content: &[u8],
        attributes: &Attributes<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Point>;
}

/// Hands the points of metrics that have a temporality to `editor`. A metric without points is
/// removed if it was edited, a scope without metrics and a resource without scopes in any case.
///
/// # Errors
/// [`crate::Malformed`] if a part that is read is damaged. Within: [`Beyond`] the limit on the
/// memory of the changes and the result.
pub fn edit_points_within(
    request: &Bytes,
    limit_bytes: usize,
    editor: &mut dyn PointEditor,
) -> Result<Result<Option<Bytes>, Beyond>> {
    let (splices, attributes, out, beyond) = Default::default();
    let mut walk = Walk { request, limit_bytes, editor, splices, attributes, out, beyond };
    let mut fields = Fields::of(request);
    while let Some(field) = fields.next_message(REQUEST_RESOURCES)? {
        let walked = walk.resource(&field);
        if walk.beyond {
            return Ok(Err(Beyond));
        }
        walked?;
    }
    Ok(Ok(walk.splices.apply(request)))
}

struct Walk<'a, 'e> {
    request: &'a [u8],
    limit_bytes: usize,
    editor: &'e mut dyn PointEditor,
    splices: Splices,
    /// Of the point at hand.
    attributes: Attributes<'a>,
    out: Vec<u8>,
    /// The changes take more memory than the limit: the walk ends with an error.
    beyond: bool,
}

impl Walk<'_, '_> {
    fn resource(&mut self, parent: &Field) -> Result<()> {
        let mut found = Vec::new();
        occurrences(self.request, parent, RESOURCE_X_RESOURCE, &mut found)?;
        let mut attributes = Attributes::default();
        for occurrence in &found {
            attributes.read(self.request, occurrence.content(), RESOURCE_ATTRIBUTES)?;
        }
        self.editor.resource(&attributes);
        self.within(parent, RESOURCE_X_SCOPES, Self::scope)?;
        Ok(())
    }

    /// True if the scope stays.
    fn scope(&mut self, parent: &Field) -> Result<bool> {
        let mut found = Vec::new();
        occurrences(self.request, parent, SCOPE_X_SCOPE, &mut found)?;
        let contents: Vec<Range<usize>> = found.iter().map(Field::content).collect();
        let mut attributes = Attributes::default();
        for content in &contents {
            attributes.read(self.request, content.clone(), SCOPE_ATTRIBUTES)?;
        }
        let view = View { request: self.request, contents: &contents };
        self.editor.scope(view.name(), view.version(), &attributes);
        self.within(parent, SCOPE_X_ENTRIES, Self::metric)
    }

    /// Visits each message `number` in `parent`, and removes the whole if none of them stays.
    fn within(
        &mut self,
        parent: &Field,
        number: u32,
        visit: impl Fn(&mut Self, &Field) -> Result<bool>,
    ) -> Result<bool> {
        let entered = self.splices.enter();
        let mut stays = false;
        let mut fields = Fields::new(self.request, parent.content());
        while let Some(field) = fields.next_message(number)? {
            stays |= visit(self, &field)?;
        }
        if stays {
            self.splices.leave(&entered, parent.len(), &parent.content());
        } else {
            self.splices.give_up(&entered);
            self.splices.remove(parent.whole());
        }
        Ok(stays)
    }

    fn metric(&mut self, parent: &Field) -> Result<bool> {
        // Protobuf reads the last variant of the `oneof`, merged with others of its kind.
        let (mut last, mut unit): (Option<u32>, &[u8]) = (None, &[]);
        let mut fields = Fields::new(self.request, parent.content());
        while let Some(field) = fields.next_field()? {
            match field.number {
                3 if field.is_message(3) => unit = &self.request[field.content()],
                number @ (5 | 7 | 9 | 10 | 11) if field.is_message(number) => last = Some(number),
                _ => {}
            }
        }
        let Some((number, kind)) = last.and_then(|it| Some((it, PointKind::of_field(it)?))) else {
            return Ok(true);
        };
        let contents = [parent.content()];
        let name = View { request: self.request, contents: &contents }.name();
        let (temporality, is_monotonic, has_points) = (0, false, false);
        let mut view = MetricView { name, unit, kind, temporality, is_monotonic, has_points };
        let mut fields = Fields::new(self.request, parent.content());
        while let Some(data) = fields.next_message(number)? {
            self.read_data(&data, &mut view)?;
        }
        let Some(temporality) = self.editor.metric(&view) else { return Ok(true) };
        let entered = self.splices.enter();
        let mut stays = false;
        let mut fields = Fields::new(self.request, parent.content());
        while let Some(data) = fields.next_message(number)? {
            stays |= self.data(&data, kind, temporality)?;
        }
        if stays {
            self.splices.leave(&entered, parent.len(), &parent.content());
        } else {
            self.splices.give_up(&entered);
            self.splices.remove(parent.whole());
        }
        Ok(stays)
    }

    fn read_data(&self, data: &Field, view: &mut MetricView<'_>) -> Result<()> {
        let mut fields = Fields::new(self.request, data.content());
        while let Some(field) = fields.next_field()? {
            match (field.number, field.wire_type) {
                (TEMPORALITY, VARINT) => view.temporality = field.varint(self.request),
                (MONOTONIC, VARINT) if view.kind == PointKind::Sum => {
                    view.is_monotonic = field.varint(self.request) != 0;
                }
                _ => view.has_points |= field.is_message(DATA_POINTS),
            }
        }
        Ok(())
    }

    /// True if a point stays.
    fn data(&mut self, data: &Field, kind: PointKind, temporality: u8) -> Result<bool> {
        let entered = self.splices.enter();
        let mut stays = false;
        let mut fields = Fields::new(self.request, data.content());
        while let Some(field) = fields.next_field()? {
            if field.is_message(DATA_POINTS) {
                stays |= self.point(&field, kind)?;
            } else if (field.number, field.wire_type) == (TEMPORALITY, VARINT) {
                self.splices.replace(field.whole(), |out| {
                    write_varint(out, u64::from(TEMPORALITY << 3));
                    write_varint(out, u64::from(temporality));
                });
            }
        }
        self.splices.leave(&entered, data.len(), &data.content());
        Ok(stays)
    }

    fn point(&mut self, field: &Field, kind: PointKind) -> Result<bool> {
        self.out.clear();
        self.attributes.clear();
        self.attributes.read(self.request, field.content(), kind.attributes())?;
        let content = &self.request[field.content()];
        let fate = self.editor.point(content, &self.attributes, &mut self.out)?;
        match fate {
            Point::Kept => return Ok(true),
            Point::Removed => self.splices.remove(field.whole()),
            Point::Replaced => {
                let content = &self.out;
                self.splices.replace(field.whole(), |out| {
                    write_len_field(out, DATA_POINTS, content);
                });
            }
        }
        if self.splices.memory_bytes(self.request) > self.limit_bytes {
            self.beyond = true;
            return Err(Beyond::at(field.end));
        }
        Ok(fate == Point::Replaced)
    }
}
