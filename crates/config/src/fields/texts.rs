//! Options of Prometheus, whose reader takes any scalar where it wants a string: `regex: true`,
//! `shard: 1`.

use super::Fields;
use super::scalars::Refused;
use crate::diagnostics::Diagnostic;
use crate::yaml::{Entry, Node, Scalar, ScalarValue};

impl<'a> Fields<'a> {
    /// As [`Fields::parsed`], also of a number or a boolean, whose text is parsed. A variable that
    /// is not set counts as absent.
    pub fn text<T>(
        &mut self,
        key: &str,
        kind: &str,
        default: Option<&str>,
        doc: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let read = |scalar: &Scalar| match scalar.is_null() {
            true => Err(Refused::Kind("a text")),
            false => Ok(text_of(scalar)),
        };
        self.parsed_by(read, key, kind, default, doc, parse)
    }

    /// A list of texts.
    pub fn texts(&mut self, key: &str, doc: &str) -> Vec<String> {
        let Some(node) = self.node(key, "list of strings", doc) else { return Vec::new() };
        self.texts_of(key, node)
    }

    /// A mapping of names to texts, in the file's order.
    pub fn text_map(&mut self, key: &str, doc: &str) -> Vec<(String, String)> {
        let entries = self.entries(key, "map of strings", doc);
        let read = |entry: &'a Entry| {
            let text = self.text_in(&format!("{key}.{}", entry.key), &entry.value)?;
            Some((entry.key.clone(), text))
        };
        entries.iter().filter_map(read).collect()
    }

    /// A mapping of names to lists of texts, in the file's order.
    pub fn text_lists(&mut self, key: &str, doc: &str) -> Vec<(String, Vec<String>)> {
        let entries = self.entries(key, "map of lists of strings", doc);
        let read = |entry: &'a Entry| {
            let texts = self.texts_of(&format!("{key}.{}", entry.key), &entry.value);
            (entry.key.clone(), texts)
        };
        entries.iter().map(read).collect()
    }

    fn texts_of(&mut self, key: &str, node: &Node) -> Vec<String> {
        let Some(items) = node.as_list() else {
            if !node.is_null() {
                let path = self.path_of(key);
                let message = format!("`{path}` must be a list, not {}", node.kind());
                self.push(Diagnostic::error(node.span, message));
            }
            return Vec::new();
        };
        let items = items.iter().enumerate();
        items.filter_map(|(at, item)| self.text_in(&format!("{key}[{at}]"), item)).collect()
    }

    fn text_in(&mut self, key: &str, node: &Node) -> Option<String> {
        let text = node.as_text().map(text_of);
        if text.is_none() {
            let path = self.path_of(key);
            let message = format!("`{path}` must be a single value, not {}", node.kind());
            self.push(Diagnostic::error(node.span, message));
        }
        text
    }
}

/// The text of a scalar as it is written, but booleans as `true` and `false`. Of null nothing.
fn text_of(scalar: &Scalar) -> String {
    match scalar.value {
        ScalarValue::Boolean(value) if !scalar.expanded => value.to_string(),
        ScalarValue::Null if !scalar.expanded => String::new(),
        _ => scalar.text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use crate::expand::tests::said;
    use crate::fields::Fields;
    use crate::load::read_text;

    fn read<T>(text: &str, read: impl FnOnce(&mut Fields<'_>) -> T) -> (T, Vec<String>) {
        let (value, diagnostics) = read_text("x", text, read);
        (value, said(&diagnostics))
    }

    /// Guarantee: numbers and booleans are texts; lists and mappings are errors with their place.
    #[test]
    fn any_scalar_is_a_text() {
        let own = |text: &str| Ok(text.to_owned());
        let text = |fields: &mut Fields<'_>| fields.text("regex", "pattern", Some("d"), "", own);
        for (file, expected) in [
            ("regex: True", "true"),
            ("regex: 8080", "8080"),
            ("regex: 1.10", "1.10"),
            ("regex: 'True'", "True"),
            ("regex: ''", ""),
            ("regex:", "d"),
            ("", "d"),
        ] {
            assert_eq!(read(file, text), (Some(expected.to_owned()), Vec::new()), "{file}");
        }
        let (value, said) = read("regex: [a]", text);
        assert_eq!(value, None);
        assert_eq!(said, ["config.yaml:1:8: error: `x.regex` must be a single value, not a list"]);
        let pairs = |fields: &mut Fields<'_>| {
            (fields.text_map("labels", ""), fields.text_lists("params", ""))
        };
        let (value, said) = read("labels: {a: 1, b: [c]}\nparams: {m: [2, x], n: y}", pairs);
        assert_eq!(value.0, [("a".to_owned(), "1".to_owned())]);
        assert_eq!(value.1[0], ("m".to_owned(), vec!["2".to_owned(), "x".to_owned()]));
        let expected = [
            "config.yaml:1:19: error: `x.labels.b` must be a single value, not a list",
            "config.yaml:2:24: error: `x.params.n` must be a list, not a string",
        ];
        assert_eq!(said, expected);
    }

    /// Guarantee: messages name a section of a list by its name, cut if it is long.
    #[test]
    fn sections_of_a_list_may_have_names() {
        let long = "n".repeat(70);
        let file = format!("jobs: [{{name: a, n: x}}, {{n: y}}, {{name: {long}, n: z}}]");
        let (_, said) = read(&file, |fields| {
            fields.sections_by("jobs", "name", "", |fields| {
                fields.optional_string("name", "");
                fields.integer("n", 1, 0..=9, "")
            })
        });
        let shown = "n".repeat(64);
        for (line, path) in said.iter().zip(["a", "1", &shown]) {
            assert!(line.contains(&format!("`x.jobs[{path}].n` must be a whole number")), "{line}");
        }
        assert_eq!(said.len(), 3);
    }
}
