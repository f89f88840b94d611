//! Options that contain options.

use super::{Fields, Mode, OptionDoc};
use crate::source::Span;
use crate::yaml::{Entry, Node};

/// Longer names of sections are cut in messages.
const NAME_LIMIT_CHARS: usize = 64;

impl<'a> Fields<'a> {
    /// A section whose presence has a meaning: `None` if it is absent, all defaults if it is there
    /// but empty (`grpc:`), as for the Collector.
    pub fn section<T>(
        &mut self,
        key: &str,
        doc: &str,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> Option<T> {
        let is_present = self.is_present(key);
        if is_present || self.is_describing() {
            let section = self.section_or_default(key, doc, read);
            return is_present.then_some(section);
        }
        self.take(key, OptionDoc::new("section", "", doc));
        self.refuse_emptied_within(key, read);
        None
    }

    /// A section that counts as absent if empty (`include:`), as in the Collector without defaults.
    pub fn section_unless_empty<T>(
        &mut self,
        key: &str,
        doc: &str,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> Option<T> {
        if self.find(key).is_some_and(|entry| entry.value.is_null()) {
            self.take(key, OptionDoc::new("section", "", doc));
            return None;
        }
        self.section(key, doc, read)
    }

    /// A section whose defaults apply even if it is absent.
    pub fn section_or_default<T>(
        &mut self,
        key: &str,
        doc: &str,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> T {
        let entry = self.take(key, OptionDoc::new("section", "", doc));
        let node = entry.map(|entry| (&entry.value, entry.key_span));
        self.nested(self.path_of(key), node, read)
    }

    /// A list of sections.
    pub fn sections<T>(
        &mut self,
        key: &str,
        doc: &str,
        read: impl FnMut(&mut Fields<'_>) -> T,
    ) -> Vec<T> {
        self.sections_by(key, "", doc, read)
    }

    /// A list of sections that messages name by their option `name` where they have it:
    /// `scrape_configs[node]`.
    pub fn sections_by<T>(
        &mut self,
        key: &str,
        name: &str,
        doc: &str,
        mut read: impl FnMut(&mut Fields<'_>) -> T,
    ) -> Vec<T> {
        let Some(entry) = self.take(key, OptionDoc::new("list of sections", "", doc)) else {
            if self.is_describing() {
                self.nested(self.path_of(key) + "[]", None, read);
            }
            return Vec::new();
        };
        let items = self.items_of(entry).unwrap_or_default().iter().enumerate();
        let path = self.path_of(key);
        let read_item = |(index, item): (usize, &Node)| {
            let named = item.get(name).and_then(Node::as_scalar).filter(|it| !it.text.is_empty());
            let shown = named.map(|it| it.text.chars().take(NAME_LIMIT_CHARS).collect::<String>());
            let shown = shown.unwrap_or_else(|| index.to_string());
            self.nested(format!("{path}[{shown}]"), Some((item, item.span)), &mut read)
        };
        items.map(read_item).collect()
    }

    /// A mapping of names that the user chooses to sections, in the file's order. `read` also gets
    /// the name (`<name>` when describing).
    pub fn named_sections<T>(
        &mut self,
        key: &str,
        doc: &str,
        mut read: impl FnMut(&str, &mut Fields<'_>) -> T,
    ) -> Vec<T> {
        let entries = self.entries(key, "map of sections", doc);
        let path = self.path_of(key);
        if self.is_describing() {
            self.nested(path + ".<name>", None, |fields| read("<name>", fields));
            return Vec::new();
        }
        let read_entry = |Entry { key, key_span, value }: &Entry| {
            let node = Some((value, *key_span));
            self.nested(format!("{path}.{key}"), node, |fields| read(key, fields))
        };
        entries.iter().map(read_entry).collect()
    }

    /// The node itself, for options that no other method reads. `kind` names the expected type.
    pub fn node(&mut self, key: &str, kind: &str, doc: &str) -> Option<&'a Node> {
        self.take(key, OptionDoc::new(kind, "", doc)).map(|entry| &entry.value)
    }

    /// As [`Fields::node`], for a mapping: its entries. An error if it is anything else but null.
    pub(crate) fn entries(&mut self, key: &str, kind: &str, doc: &str) -> &'a [Entry] {
        let Some(node) = self.node(key, kind, doc) else { return &[] };
        if node.as_mapping().is_none() && !node.is_null() {
            self.error_at(key, &format!("must be a mapping, not {}", node.kind()));
        }
        node.as_mapping().unwrap_or_default()
    }

    /// Reads a section from a node and its position; without a node, its defaults.
    fn nested<T>(
        &mut self,
        path: String,
        node: Option<(&Node, Span)>,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> T {
        match &mut self.mode {
            Mode::Describing(options) => {
                read(&mut Fields { path, mode: Mode::Describing(options) })
            }
            Mode::Reading(reading) => {
                let absent = Node::null(reading.span);
                let (node, span) = node.unwrap_or((&absent, reading.span));
                let around = reading.emptied.clone();
                Fields::read_within(around, &path, node, span, reading.diagnostics, read)
            }
        }
    }
}
