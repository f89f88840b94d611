//! Options that contain options.

use super::{Declaration, Fields, Mode};
use crate::source::Span;
use crate::yaml::{Entry, Node};

impl<'a> Fields<'a> {
    /// A section whose presence has a meaning: `None` if it is absent, all defaults if it is there
    /// but empty (`grpc:`), as for the Collector.
    pub fn section<T>(
        &mut self,
        key: &str,
        doc: &str,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> Option<T> {
        let entry = self.take(key, Declaration::new("section", "", doc));
        if entry.is_none() && !self.is_describing() {
            return None;
        }
        let node = entry.map(|entry| (&entry.value, entry.key_span));
        let section = self.nested(self.path_of(key), node, read);
        entry.map(|_| section)
    }

    /// A section that counts as absent if it is empty (`include:`), as the Collector's optional
    /// ones without defaults do.
    pub fn section_unless_empty<T>(
        &mut self,
        key: &str,
        doc: &str,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> Option<T> {
        let is_null = matches!(&self.mode, Mode::Reading(reading)
            if reading.find(key).is_some_and(|entry| entry.value.is_null()));
        if is_null {
            self.take(key, Declaration::new("section", "", doc));
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
        let entry = self.take(key, Declaration::new("section", "", doc));
        let node = entry.map(|entry| (&entry.value, entry.key_span));
        self.nested(self.path_of(key), node, read)
    }

    /// A list of sections.
    pub fn sections<T>(
        &mut self,
        key: &str,
        doc: &str,
        mut read: impl FnMut(&mut Fields<'_>) -> T,
    ) -> Vec<T> {
        let Some(entry) = self.take(key, Declaration::new("list of sections", "", doc)) else {
            self.describe_nested(&format!("{key}[]"), read);
            return Vec::new();
        };
        let items = self.items_of(entry).unwrap_or_default();
        let path = self.path_of(key);
        items
            .iter()
            .enumerate()
            .map(|(index, item)| {
                self.nested(format!("{path}[{index}]"), Some((item, item.span)), &mut read)
            })
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
            let node = Some((value, *key_span));
            let section = self.nested(format!("{path}.{key}"), node, |fields| read(key, fields));
            sections.push((key.clone(), section));
        }
        sections
    }

    /// The node itself, for options of a shape that no other method reads. `kind` names the
    /// expected type.
    pub fn node(&mut self, key: &str, kind: &str, doc: &str) -> Option<&'a Node> {
        self.take(key, Declaration::new(kind, "", doc)).map(|entry| &entry.value)
    }

    /// Reads a section from a node and its position; without a node, its defaults.
    fn nested<T>(
        &mut self,
        path: String,
        node: Option<(&Node, Span)>,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> T {
        match (&mut self.mode, node) {
            (Mode::Describing(options), _) => {
                read(&mut Fields { path, mode: Mode::Describing(options) })
            }
            (Mode::Reading(reading), Some((node, span))) => {
                Fields::read(&path, node, span, reading.diagnostics, read)
            }
            (Mode::Reading(reading), None) => {
                Fields::read_entries(path, &[], reading.span, reading.diagnostics, read)
            }
        }
    }

    fn describe_nested<T>(&mut self, key: &str, read: impl FnOnce(&mut Fields<'_>) -> T) {
        let path = self.path_of(key);
        if let Mode::Describing(options) = &mut self.mode {
            read(&mut Fields { path, mode: Mode::Describing(options) });
        }
    }
}
