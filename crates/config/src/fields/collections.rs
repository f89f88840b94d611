//! Options with lists and maps of plain values.

use super::scalars::string_of;
use super::{Declaration, Fields};
use crate::diagnostics::Diagnostic;
use crate::nearest::nearest;
use crate::secret::Secret;
use crate::source::Span;
use crate::yaml::{Entry, Node, Value};

impl<'a> Fields<'a> {
    /// A list of strings; one string with commas is split, as the Collector does.
    pub fn string_list(&mut self, key: &str, default: &[&str], doc: &str) -> Vec<String> {
        let declaration = Declaration::new("list of strings", shown_list(default), doc);
        match self.placed_strings(key, declaration) {
            Some(placed) => placed.into_iter().map(|(_, item)| item).collect(),
            None => default.iter().map(|item| (*item).to_owned()).collect(),
        }
    }

    fn placed_strings(
        &mut self,
        key: &str,
        declaration: Declaration<'_>,
    ) -> Option<Vec<(Span, String)>> {
        let entry = self.take(key, declaration)?;
        if let Some(text) = entry.value.as_scalar().and_then(|scalar| scalar.as_string()) {
            let items =
                text.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty());
            return Some(items.map(|item| (entry.value.span, item)).collect());
        }
        let items = self.items_of(entry)?.iter().enumerate();
        let read = |(index, item): (usize, &'a Node)| {
            Some((item.span, self.string_item(key, index, item, false)?))
        };
        Some(items.filter_map(read).collect())
    }

    /// A list whose items are among `names`.
    pub fn name_list(&mut self, key: &str, names: &[&str], doc: &str) -> Vec<String> {
        let shown: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let shown = shown.join(", ");
        let given = self
            .placed_strings(key, Declaration::new(format!("list of {shown}"), "", doc))
            .unwrap_or_default();
        for (span, name) in given.iter().filter(|(_, name)| !names.contains(&name.as_str())) {
            let hint = match nearest(name, names.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("the values are {shown}"),
            };
            let message =
                format!("`{}` has `{name}`, which is not one of its values", self.path_of(key));
            self.push(Diagnostic::error(*span, message).with_hint(hint));
        }
        given.into_iter().map(|(_, name)| name).collect()
    }

    /// A mapping of strings to strings, in the file's order.
    pub fn string_map(&mut self, key: &str, doc: &str) -> Vec<(String, String)> {
        self.map_declared(key, Declaration::new("map of strings", "", doc), false)
    }

    /// A mapping of strings to secrets, for example headers: names are shown, values never.
    pub fn secret_map(&mut self, key: &str, doc: &str) -> Vec<(String, Secret)> {
        let map = self.map_declared(key, Declaration::secret("map of secret strings", doc), true);
        map.into_iter().map(|(name, value)| (name, Secret::new(value))).collect()
    }

    /// A list of strings that are never shown. Not split at commas: a secret may contain them.
    pub fn secret_list(&mut self, key: &str, doc: &str) -> Vec<Secret> {
        let Some(entry) = self.take(key, Declaration::secret("list of secret strings", doc)) else {
            return Vec::new();
        };
        let items = self.items_of(entry).unwrap_or_default().iter().enumerate();
        items
            .filter_map(|(index, item)| self.string_item(key, index, item, true))
            .map(Secret::new)
            .collect()
    }

    /// A mapping, or a list of `name` and `value` pairs, which newer Collectors write.
    fn map_declared(
        &mut self,
        key: &str,
        declaration: Declaration<'_>,
        is_secret: bool,
    ) -> Vec<(String, String)> {
        let Some(entry) = self.take(key, declaration) else { return Vec::new() };
        let pairs: Vec<(String, &Node)> = match &entry.value.value {
            Value::Mapping(entries) => {
                entries.iter().map(|entry| (entry.key.clone(), &entry.value)).collect()
            }
            Value::List(items) => {
                items.iter().filter_map(|item| self.name_and_value(key, item)).collect()
            }
            Value::Scalar(scalar) if scalar.is_null() => Vec::new(),
            Value::Scalar(scalar) => {
                self.error_at(
                    key,
                    &format!("must be a mapping of names to strings, not {}", scalar.kind()),
                );
                Vec::new()
            }
        };
        let mut map = Vec::new();
        for (name, node) in pairs {
            let path = format!("{}.{name}", self.path_of(key));
            let value = match node.is_null() {
                true => Some(String::new()),
                false => self.string_at(&path, "a string", node, is_secret),
            };
            map.extend(value.map(|value| (name, value)));
        }
        map
    }

    fn name_and_value<'n>(&mut self, key: &str, item: &'n Node) -> Option<(String, &'n Node)> {
        let name = item.get("name").and_then(Node::as_scalar).and_then(|scalar| scalar.as_string());
        let pair = name.zip(item.get("value"));
        let has_more = item.as_mapping().is_some_and(|entries| entries.len() != 2);
        if pair.is_none() || has_more {
            let message = format!(
                "each item of `{}` must have a `name` and a `value` and nothing else",
                self.path_of(key)
            );
            self.push(Diagnostic::error(item.span, message));
        }
        pair.map(|(name, value)| (name.to_owned(), value))
    }

    pub(super) fn items_of(&mut self, entry: &'a Entry) -> Option<&'a [Node]> {
        if entry.value.is_null() {
            return None;
        }
        let items = entry.value.as_list();
        if items.is_none() {
            let message = format!(
                "`{}` must be a list, not {}",
                self.path_of(&entry.key),
                entry.value.kind()
            );
            self.push(Diagnostic::error(entry.value.span, message));
        }
        items
    }

    fn string_item(
        &mut self,
        key: &str,
        index: usize,
        item: &Node,
        is_secret: bool,
    ) -> Option<String> {
        let path = format!("{}[{index}]", self.path_of(key));
        self.string_at(&path, "a single value", item, is_secret)
    }

    fn string_at(
        &mut self,
        path: &str,
        wanted: &str,
        node: &Node,
        is_secret: bool,
    ) -> Option<String> {
        match node.as_scalar() {
            Some(scalar) => self.check_scalar(path, node.span, scalar, is_secret, string_of),
            None => {
                let message = format!("`{path}` must be {wanted}, not {}", node.kind());
                self.push(Diagnostic::error(node.span, message));
                None
            }
        }
    }
}

fn shown_list(items: &[&str]) -> String {
    if items.is_empty() { String::new() } else { format!("`[{}]`", items.join(", ")) }
}
