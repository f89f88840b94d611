//! Options that contain options.

use super::{Declaration, Fields, Mode};
use crate::source::Span;
use crate::yaml::{Entry, Node};

impl<'a> Fields<'a> {
    /// A section whose presence has a meaning: `None` if it is absent, all defaults if it is there
    /// but empty (`grpc:`), as for the Collector.
    pub fn section<T>(&mut self, key: &str, doc: &str, read: impl FnOnce(&mut Fields<'_>) -> T) -> Option<T> {
        match self.take(key, Declaration::new("section", "", doc)) {
            Some(entry) => Some(self.read_nested(self.path_of(key), &entry.value, entry.key_span, read)),
            None => {
                self.describe_nested(key, read);
                None
            }
        }
    }

    /// A section whose defaults apply even if it is absent.
    pub fn section_or_default<T>(&mut self, key: &str, doc: &str, read: impl FnOnce(&mut Fields<'_>) -> T) -> T {
        match self.take(key, Declaration::new("section", "", doc)) {
            Some(entry) => self.read_nested(self.path_of(key), &entry.value, entry.key_span, read),
            None => {
                let path = self.path_of(key);
                match &mut self.mode {
                    Mode::Describing(options) => read(&mut Fields { path, mode: Mode::Describing(options) }),
                    Mode::Reading(reading) => Fields::read_entries(path, &[], reading.span, reading.diagnostics, read),
                }
            }
        }
    }

    /// A list of sections.
    pub fn sections<T>(&mut self, key: &str, doc: &str, mut read: impl FnMut(&mut Fields<'_>) -> T) -> Vec<T> {
        let Some(entry) = self.take(key, Declaration::new("list of sections", "", doc)) else {
            self.describe_nested(&format!("{key}[]"), read);
            return Vec::new();
        };
        let items = self.items_of(entry).unwrap_or_default();
        let path = self.path_of(key);
        items
            .iter()
            .enumerate()
            .map(|(index, item)| self.read_nested(format!("{path}[{index}]"), item, item.span, &mut read))
            .collect()
    }

    /// A mapping of names that the user chooses to sections, in the file's order. `read` also gets
    /// the name (`<name>` when describing).
    pub fn named_sections<T>(
        &mut self,
        key: &str,
        doc: &str,
        mut read: impl FnMut(&str, &mut Fields<'_>) -> T,
    ) -> Vec<(String, T)> {
        let Some(entry) = self.take(key, Declaration::new("map of sections", "", doc)) else {
            self.describe_nested(&format!("{key}.<name>"), |fields| read("<name>", fields));
            return Vec::new();
        };
        let path = self.path_of(key);
        let Some(entries) = entry.value.as_mapping() else {
            if !entry.value.is_null() {
                self.error_at(key, &format!("must be a mapping, not {}", entry.value.kind()));
            }
            return Vec::new();
        };
        let mut sections = Vec::new();
        for Entry { key, key_span, value } in entries {
            let section = self.read_nested(format!("{path}.{key}"), value, *key_span, |fields| read(key, fields));
            sections.push((key.clone(), section));
        }
        sections
    }

    /// The node itself, for options of a shape that no other method reads. `kind` names the
    /// expected type.
    pub fn node(&mut self, key: &str, kind: &str, doc: &str) -> Option<&'a Node> {
        self.take(key, Declaration::new(kind, "", doc)).map(|entry| &entry.value)
    }

    /// All entries of this section, for sections whose keys are the user's own. None of them is
    /// reported as unknown.
    pub fn all_entries(&mut self) -> &'a [Entry] {
        let Mode::Reading(reading) = &mut self.mode else { return &[] };
        let entries = reading.entries;
        reading
            .known
            .extend(entries.iter().map(|entry| super::KnownName { name: entry.key.clone(), is_secret: false }));
        entries
    }

    /// Reads a node as a section: for lists whose items are either plain values or sections.
    pub fn read_node<T>(&mut self, path: &str, node: &Node, read: impl FnOnce(&mut Fields<'_>) -> T) -> T {
        self.read_nested(self.path_of(path), node, node.span, read)
    }

    fn read_nested<T>(&mut self, path: String, node: &Node, span: Span, read: impl FnOnce(&mut Fields<'_>) -> T) -> T {
        match &mut self.mode {
            Mode::Reading(reading) => Fields::read(&path, node, span, reading.diagnostics, read),
            Mode::Describing(options) => read(&mut Fields { path, mode: Mode::Describing(options) }),
        }
    }

    fn describe_nested<T>(&mut self, key: &str, read: impl FnOnce(&mut Fields<'_>) -> T) {
        let path = self.path_of(key);
        if let Mode::Describing(options) = &mut self.mode {
            read(&mut Fields { path, mode: Mode::Describing(options) });
        }
    }
}
