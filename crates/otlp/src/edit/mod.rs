//! Changes attributes of resources and items in an encoded request: splices in changes, adapts the
//! lengths around them, copies all else in one go. Without changes it copies nothing.
//!
//! Fields may come in any order, singular messages in several occurrences, unknown fields anywhere.

mod attributes;
mod metrics;
mod splices;
mod views;

use std::ops::Range;

use bytes::Bytes;

use crate::Signal;
use crate::schema::{
    DATA_POINTS, REQUEST_RESOURCES, RESOURCE_X_RESOURCE, RESOURCE_X_SCHEMA_URL, RESOURCE_X_SCOPES,
    SCOPE_X_ENTRIES, SCOPE_X_SCOPE,
};
use crate::wire::{Field, Fields, OCCURRENCES_LIMIT, Result, malformed, write_len_field};
pub use splices::Beyond;
use splices::Splices;

pub use attributes::{Attributes, NewValue};
pub use metrics::{MetricView, Point, PointEditor, PointKind, edit_points_within};
pub use views::View;

/// Field of the attributes in `Resource`.
const RESOURCE_ATTRIBUTES: u32 = 1;

/// Looks at a request from the outside in and changes the attributes of its items. Each of the
/// first three (of which the first gets the attributes of the resource) says whether the items
/// below are of interest; each is called before what it contains, wherever the fields lie.
pub trait ItemEditor {
    fn resource(&mut self, _attributes: &Attributes<'_>) -> bool {
        true
    }

    fn scope(&mut self, _scope: View<'_>) -> bool {
        true
    }

    fn metric(&mut self, _metric: View<'_>) -> bool {
        true
    }

    /// A span, data point or log record with its attributes.
    fn item(&mut self, item: View<'_>, attributes: &mut Attributes<'_>);
}

/// Hands the attributes of every resource to `edit`; a resource that is absent is an empty one.
/// Answers the changed request, or nothing if nothing changed.
///
/// # Errors
/// [`crate::Malformed`] if a part that is read is damaged, as [`crate::scan`] would have found.
pub fn edit_resources(
    request: &Bytes,
    edit: impl FnMut(&mut Attributes<'_>),
) -> Result<Option<Bytes>> {
    edit_resources_within(request, usize::MAX, edit)?.map_err(Beyond::at_the_end_of(request))
}

/// The same with a limit on the memory that it takes: for the result, and for the list of changes.
///
/// # Errors
/// As of [`edit_resources`]. Within: [`Beyond`] the limit.
pub fn edit_resources_within(
    request: &Bytes,
    limit_bytes: usize,
    edit: impl FnMut(&mut Attributes<'_>),
) -> Result<Result<Option<Bytes>, Beyond>> {
    edit_resources_and_schemas(request, "", limit_bytes, edit)
}

/// The same. A resource without the URL of a schema gets `schema_url`, unless that is empty.
///
/// # Errors
/// As of [`edit_resources_within`].
pub fn edit_resources_and_schemas(
    request: &Bytes,
    schema_url: &str,
    limit_bytes: usize,
    mut edit: impl FnMut(&mut Attributes<'_>),
) -> Result<Result<Option<Bytes>, Beyond>> {
    let mut splices = Splices::default();
    let mut attributes = Attributes::default();
    let mut resources = Vec::new();
    let mut fields = Fields::of(request);
    while let Some(field) = fields.next_message(REQUEST_RESOURCES)? {
        let entered = splices.enter();
        attributes.clear();
        occurrences(request, &field, RESOURCE_X_RESOURCE, &mut resources)?;
        for resource in &resources {
            attributes.read(request, resource.content(), RESOURCE_ATTRIBUTES)?;
        }
        edit(&mut attributes);
        splice_resource(&attributes, &resources, field.end, &mut splices);
        if !schema_url.is_empty() && !has_schema_url(request, &field)? {
            splices.replace(field.end..field.end, |out| {
                write_len_field(out, RESOURCE_X_SCHEMA_URL, schema_url.as_bytes());
            });
        }
        splices.leave(&entered, field.len(), &field.content());
        if splices.memory_bytes(request) > limit_bytes {
            return Ok(Err(Beyond));
        }
    }
    Ok(Ok(splices.apply(request)))
}

/// The last occurrence of the URL counts.
fn has_schema_url(request: &[u8], parent: &Field) -> Result<bool> {
    let mut fields = Fields::new(request, parent.content());
    let mut has_one = false;
    while let Some(field) = fields.next_field()? {
        if field.is_message(RESOURCE_X_SCHEMA_URL) {
            has_one = !field.content().is_empty();
        }
    }
    Ok(has_one)
}

/// The occurrences of message `number` within `parent`.
fn occurrences(request: &[u8], parent: &Field, number: u32, found: &mut Vec<Field>) -> Result<()> {
    found.clear();
    let mut fields = Fields::new(request, parent.content());
    while let Some(field) = fields.next_message(number)? {
        if found.len() == OCCURRENCES_LIMIT {
            return Err(malformed(field.start, "a singular message occurs too often"));
        }
        found.push(field);
    }
    Ok(())
}

/// Enters the changes of a resource: at its attributes, and behind the last of them. A missing
/// resource is added at `end`, where the ResourceX ends.
fn splice_resource(
    attributes: &Attributes<'_>,
    resources: &[Field],
    end: usize,
    splices: &mut Splices,
) {
    for (index, resource) in resources.iter().enumerate() {
        let entered = splices.enter();
        attributes.splice(splices, &resource.content(), RESOURCE_ATTRIBUTES);
        if index + 1 == resources.len() {
            attributes.splice_added(splices, resource.end, RESOURCE_ATTRIBUTES);
        }
        splices.leave(&entered, resource.len(), &resource.content());
    }
    if resources.is_empty() && attributes.has_added() {
        let mut added = Vec::new();
        attributes.write_added(RESOURCE_ATTRIBUTES, &mut added);
        splices.replace(end..end, |out| write_len_field(out, RESOURCE_X_RESOURCE, &added));
    }
}

/// Hands every item to `editor`. Answers the changed request, or nothing if nothing changed.
///
/// # Errors
/// As of [`edit_resources`].
pub fn edit_items(
    signal: Signal,
    request: &Bytes,
    editor: &mut dyn ItemEditor,
) -> Result<Option<Bytes>> {
    edit_items_within(signal, request, usize::MAX, editor)?.map_err(Beyond::at_the_end_of(request))
}

/// The same with a limit on the memory that it takes: for the result, and for the list of changes.
///
/// # Errors
/// As of [`edit_resources`]. Within: [`Beyond`] the limit.
pub fn edit_items_within(
    signal: Signal,
    request: &Bytes,
    limit_bytes: usize,
    editor: &mut dyn ItemEditor,
) -> Result<Result<Option<Bytes>, Beyond>> {
    let (splices, attributes, is_beyond) = Default::default();
    let mut walk =
        ItemWalk { signal, request, limit_bytes, editor, splices, attributes, is_beyond };
    let mut fields = Fields::of(request);
    while let Some(field) = fields.next_message(REQUEST_RESOURCES)? {
        let walked = walk.resource(&field);
        if walk.is_beyond {
            return Ok(Err(Beyond));
        }
        walked?;
    }
    Ok(Ok(walk.splices.apply(request)))
}

struct ItemWalk<'a, 'e> {
    signal: Signal,
    request: &'a [u8],
    limit_bytes: usize,
    editor: &'e mut dyn ItemEditor,
    splices: Splices,
    attributes: Attributes<'a>,
    /// The changes take more memory than the limit: the walk ends with an error.
    is_beyond: bool,
}

impl ItemWalk<'_, '_> {
    fn resource(&mut self, parent: &Field) -> Result<()> {
        let mut resource = Attributes::default();
        let mut found = Vec::new();
        occurrences(self.request, parent, RESOURCE_X_RESOURCE, &mut found)?;
        for occurrence in &found {
            resource.read(self.request, occurrence.content(), RESOURCE_ATTRIBUTES)?;
        }
        if self.editor.resource(&resource) {
            self.within(parent, RESOURCE_X_SCOPES, Self::scope)?;
        }
        Ok(())
    }

    fn scope(&mut self, parent: &Field) -> Result<()> {
        let mut found = Vec::new();
        occurrences(self.request, parent, SCOPE_X_SCOPE, &mut found)?;
        let contents: Vec<Range<usize>> = found.iter().map(Field::content).collect();
        if !self.editor.scope(View { request: self.request, contents: &contents }) {
            return Ok(());
        }
        self.within(parent, SCOPE_X_ENTRIES, |walk, entry| match walk.signal {
            Signal::Metrics => walk.metric(entry),
            Signal::Traces => walk.item(entry, 9),
            Signal::Logs => walk.item(entry, 6),
        })
    }

    fn metric(&mut self, parent: &Field) -> Result<()> {
        let contents = [parent.content()];
        if !self.editor.metric(View { request: self.request, contents: &contents }) {
            return Ok(());
        }
        let entered = self.splices.enter();
        let mut fields = Fields::new(self.request, parent.content());
        while let Some(data) = fields.next_field()? {
            let point_attributes = match data.number {
                5 | 7 | 11 => 7,
                9 => 9,
                10 => 1,
                _ => continue,
            };
            if data.is_message(data.number) {
                self.within(&data, DATA_POINTS, |walk, point| walk.item(point, point_attributes))?;
            }
        }
        self.splices.leave(&entered, parent.len(), &parent.content());
        Ok(())
    }

    /// One item, whose attributes are field `number`.
    fn item(&mut self, parent: &Field, number: u32) -> Result<()> {
        let content = parent.content();
        self.attributes.clear();
        self.attributes.read(self.request, content.clone(), number)?;
        let contents = [content.clone()];
        let item = View { request: self.request, contents: &contents };
        self.editor.item(item, &mut self.attributes);
        let entered = self.splices.enter();
        self.attributes.splice(&mut self.splices, &content, number);
        self.attributes.splice_added(&mut self.splices, content.end, number);
        self.splices.leave(&entered, parent.len(), &content);
        if self.splices.memory_bytes(self.request) > self.limit_bytes {
            self.is_beyond = true;
            return Err(Beyond::at(content.end));
        }
        Ok(())
    }

    /// Calls `visit` with each message `number` in `parent`, whose length follows the changes.
    fn within(
        &mut self,
        parent: &Field,
        number: u32,
        visit: impl Fn(&mut Self, &Field) -> Result<()>,
    ) -> Result<()> {
        let entered = self.splices.enter();
        let mut fields = Fields::new(self.request, parent.content());
        while let Some(field) = fields.next_message(number)? {
            visit(self, &field)?;
        }
        self.splices.leave(&entered, parent.len(), &parent.content());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
