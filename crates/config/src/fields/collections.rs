//! Options with lists and maps of plain values.

use super::scalars::string_of;
use super::{Fields, OptionDoc};
use crate::diagnostics::Diagnostic;
use crate::nearest::did_you_mean;
use crate::secret::Secret;
use crate::source::Span;
use crate::yaml::{Entry, Node, Value};

impl<'a> Fields<'a> {
    /// A list of strings; one string with commas is split, as the Collector does.
    pub fn string_list(&mut self, key: &str, default: &[&str], doc: &str) -> Vec<String> {
        let shown =
            if default.is_empty() { String::new() } else { format!("`[{}]`", default.join(", ")) };
        match self.placed_strings(key, OptionDoc::new("list of strings", shown, doc)) {
            Some(placed) => placed.into_iter().map(|(_, item)| item).collect(),
            None => default.iter().map(|item| (*item).to_owned()).collect(),
        }
    }

    fn placed_strings(&mut self, key: &str, option: OptionDoc) -> Option<Vec<(Span, String)>> {
        let entry = self.take(key, option)?;
        if let Some(text) = entry.value.as_scalar().and_then(|scalar| scalar.as_string()) {
            let items =
                text.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty());
            return Some(items.map(|item| (entry.value.span, item)).collect());
        }
        let items = self.items_of(entry)?.iter().enumerate();
        let read = |(index, item): (usize, &'a Node)| {
            let path = format!("{}[{index}]", self.path_of(key));
            Some((item.span, self.string_at(&path, "a single value", item, false)?))
        };
        Some(items.filter_map(read).collect())
    }

    /// A list whose items are among `names`. Items among `absent`, which only the Collector has,
    /// are left out with a warning; without any item left, the default applies.
    pub fn name_list(
        &mut self,
        key: &str,
        names: &[&str],
        absent: &[&str],
        doc: &str,
    ) -> Vec<String> {
        let shown: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let shown = shown.join(", ");
        let option = OptionDoc::new(format!("list of {shown}"), "", doc);
        let given = self.placed_strings(key, option).unwrap_or_default();
        let (known, other): (Vec<_>, Vec<_>) =
            given.into_iter().partition(|(_, name)| names.contains(&name.as_str()));
        let rest = match known.is_empty() {
            true => "nothing is left of the list, so that the default applies",
            false => "the rest of the list applies",
        };
        let path = self.path_of(key);
        for (span, name) in other {
            if absent.contains(&name.as_str()) {
                let message =
                    format!("`{path}` has `{name}`, which is not in this build of Sluice: {rest}");
                self.push(Diagnostic::warning(span, message));
                continue;
            }
            let hint = did_you_mean(&name, names.iter().copied())
                .unwrap_or_else(|| format!("the values are {shown}"));
            let message = format!("`{path}` has `{name}`, which is not one of its values");
            self.push(Diagnostic::error(span, message).with_hint(hint));
        }
        known.into_iter().map(|(_, name)| name).collect()
    }

    /// A mapping of strings to lists of strings, in the file's order: a pair for each item. One
    /// string with commas is split, as the Collector does.
    pub fn string_lists(&mut self, key: &str, doc: &str) -> Vec<(String, String)> {
        let entry = self.take(key, OptionDoc::new("map of strings or lists of strings", "", doc));
        let Some(entry) = entry else { return Vec::new() };
        let Some(pairs) = entry.value.as_mapping() else {
            return self.pairs_of(entry, false);
        };
        let mut found = Vec::new();
        for Entry { key: name, value, .. } in pairs {
            let path = format!("{}.{name}", self.path_of(key));
            match value.as_list() {
                Some(items) => found.extend(items.iter().filter_map(|item| {
                    Some((name.clone(), self.string_at(&path, "a string", item, false)?))
                })),
                None => {
                    let text = self.string_at(&path, "a string or a list", value, false);
                    let text = text.unwrap_or_default();
                    let items = text.split(',').map(|item| (name.clone(), item.to_owned()));
                    found.extend(items);
                }
            }
        }
        found
    }

    /// A mapping of strings to secrets, for example headers: names are shown, values never.
    pub fn secret_map(&mut self, key: &str, doc: &str) -> Vec<(String, Secret)> {
        let entry = self.take_secret(key, "map of secret strings", doc);
        let pairs = entry.map_or(Vec::new(), |entry| self.pairs_of(entry, true)).into_iter();
        pairs.map(|(name, value)| (name, Secret::new(value))).collect()
    }

    /// A list of strings that are never shown. Not split at commas: a secret may contain them.
    pub fn secret_list(&mut self, key: &str, doc: &str) -> Vec<Secret> {
        let entry = self.take_secret(key, "list of secret strings", doc);
        let items = entry.and_then(|entry| self.items_of(entry)).unwrap_or_default();
        let read = |(index, item)| {
            let path = format!("{}[{index}]", self.path_of(key));
            self.string_at(&path, "a single value", item, true).map(Secret::new)
        };
        items.iter().enumerate().filter_map(read).collect()
    }

    /// A mapping, or a list of `name` and `value` pairs, which newer Collectors write.
    fn pairs_of(&mut self, entry: &Entry, is_secret: bool) -> Vec<(String, String)> {
        let key = &entry.key;
        let pairs: Vec<(&str, &Node)> = match &entry.value.value {
            Value::Mapping(entries) => {
                entries.iter().map(|entry| (entry.key.as_str(), &entry.value)).collect()
            }
            Value::List(items) => {
                items.iter().filter_map(|item| self.name_and_value(key, item)).collect()
            }
            Value::Scalar(scalar) if scalar.is_null() => Vec::new(),
            Value::Scalar(scalar) => {
                let kind = scalar.kind();
                self.error_at(key, &format!("must be a mapping of names to strings, not {kind}"));
                Vec::new()
            }
        };
        let read = |(name, node): (&str, &Node)| {
            let path = format!("{}.{name}", self.path_of(key));
            // Of an expanded `${…}` the text counts, even if it reads as null: `~`, `#x`.
            let is_empty = node.as_scalar().is_some_and(|it| it.is_null() && !it.expanded);
            let value = match is_empty {
                true => String::new(),
                false => self.string_at(&path, "a string", node, is_secret)?,
            };
            Some((name.to_owned(), value))
        };
        pairs.into_iter().filter_map(read).collect()
    }

    fn name_and_value<'n>(&mut self, key: &str, item: &'n Node) -> Option<(&'n str, &'n Node)> {
        let name = item.get("name").and_then(Node::as_scalar).and_then(|scalar| scalar.as_string());
        let pair = name.zip(item.get("value"));
        if pair.is_none() || item.as_mapping().is_some_and(|entries| entries.len() != 2) {
            let path = self.path_of(key);
            let message =
                format!("each item of `{path}` must have a `name` and a `value` and nothing else");
            self.push(Diagnostic::error(item.span, message));
        }
        pair
    }

    pub(super) fn items_of(&mut self, entry: &'a Entry) -> Option<&'a [Node]> {
        let items = entry.value.as_list();
        if items.is_none() && !entry.value.is_null() {
            self.error_at(&entry.key, &format!("must be a list, not {}", entry.value.kind()));
        }
        items
    }

    fn string_at(
        &mut self,
        path: &str,
        wanted: &str,
        node: &Node,
        is_secret: bool,
    ) -> Option<String> {
        match node.as_text() {
            Some(scalar) => self.check_scalar(path, node.span, scalar, is_secret, string_of),
            None => {
                let message = format!("`{path}` must be {wanted}, not {}", node.kind());
                self.push(Diagnostic::error(node.span, message));
                None
            }
        }
    }
}
