//! Merges configurations as the Collector does: mappings key by key; any other value of the later
//! one replaces the earlier one.

use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::yaml::{Node, Value};

/// Merges `later` into `earlier`. Each value keeps its position.
pub fn merge(earlier: Node, later: Node, diagnostics: &mut Diagnostics) -> Node {
    merge_at("", earlier, later, diagnostics)
}

fn merge_at(path: &str, earlier: Node, later: Node, diagnostics: &mut Diagnostics) -> Node {
    // An empty file changes nothing.
    if path.is_empty() && later.is_null() {
        return earlier;
    }
    match (earlier.value, later.value) {
        (Value::Mapping(mut entries), Value::Mapping(later_entries)) => {
            for new in later_entries {
                let Some(entry) = entries.iter_mut().find(|entry| entry.key == new.key) else {
                    entries.push(new);
                    continue;
                };
                let path = if path.is_empty() { new.key } else { format!("{path}.{}", new.key) };
                let earlier = std::mem::replace(&mut entry.value, Node::null(new.key_span));
                entry.value = merge_at(&path, earlier, new.value, diagnostics);
                entry.key_span = new.key_span;
            }
            Node::new(Value::Mapping(entries), later.span)
        }
        (earlier_value, value) => {
            let later = Node { value, ..later };
            if matches!(earlier_value, Value::Mapping(_)) && later.is_null() {
                let message = format!(
                    "`{path}` is empty here and removes the value of an earlier configuration"
                );
                let warning = Diagnostic::warning(later.span, message);
                diagnostics.push(warning.with_related(earlier.span, "this is removed"));
            }
            later
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand::tests::{Fake, said, shape};
    use crate::load::read_tree;

    fn merged(texts: &[&str]) -> (String, Vec<String>) {
        let locations: Vec<String> =
            (0..texts.len()).map(|index| format!("{index}.yaml")).collect();
        let mut environment = Fake::default();
        for (location, text) in locations.iter().zip(texts) {
            environment = environment.file(location, text);
        }
        let mut diagnostics = Diagnostics::default();
        let tree = read_tree(&locations, &environment, &mut diagnostics);
        (tree.as_ref().map(shape).unwrap_or_default(), said(&diagnostics))
    }

    #[test]
    fn mappings_merge_deeply_and_lists_are_replaced() {
        let (tree, said) =
            merged(&["a: {x: 1, y: [1, 2]}\nb: 1", "a: {y: [3], z: 4}", "b: 5\nc: 6"]);
        assert_eq!(tree, "{a:{x:1,y:[3],z:4},b:5,c:6}");
        assert_eq!(said, Vec::<String>::new());
    }

    #[test]
    fn an_empty_file_changes_nothing() {
        assert_eq!(merged(&["a: 1", "# nothing"]).0, "{a:1}");
        assert_eq!(merged(&["", "a: 1"]).0, "{a:1}");
    }

    /// Scenario: the later file has a key without value. Guarantee: it replaces, as in the
    /// Collector, but not silently.
    #[test]
    fn an_empty_section_removes_with_a_warning() {
        let (tree, said) = merged(&["a: {x: 1}", "a:"]);
        assert_eq!(tree, "{a:null}");
        let expected = "1.yaml:1:2: warning: `a` is empty here and removes the value of an earlier \
                        configuration; this is removed: 0.yaml:1:4";
        assert_eq!(said, [expected]);
    }
}
