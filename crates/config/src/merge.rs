//! Several configurations into one, as the Collector does: mappings merge deeply, everything else is replaced by what comes later.

use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::yaml::{Entry, Node, Value};

/// Merges `later` into `earlier`. Spans keep saying where each value came from.
pub fn merge(earlier: Node, later: Node, diagnostics: &mut Diagnostics) -> Node {
    merge_at("", earlier, later, diagnostics)
}

fn merge_at(path: &str, earlier: Node, later: Node, diagnostics: &mut Diagnostics) -> Node {
    match (earlier.value, later.value) {
        (Value::Mapping(earlier_entries), Value::Mapping(later_entries)) => {
            let value = Value::Mapping(merge_entries(path, earlier_entries, later_entries, diagnostics));
            Node { value, span: later.span }
        }
        (earlier_value, later_value) => {
            let later = Node { value: later_value, span: later.span };
            if matches!(earlier_value, Value::Mapping(_)) && later.is_null() && !path.is_empty() {
                let message = format!("`{path}` is empty here and removes what an earlier configuration says");
                diagnostics
                    .push(Diagnostic::warning(later.span, message).with_related(earlier.span, "this is removed"));
            }
            // A wholly empty file changes nothing.
            if path.is_empty() && later.is_null() { Node { value: earlier_value, span: earlier.span } } else { later }
        }
    }
}

fn merge_entries(path: &str, mut entries: Vec<Entry>, later: Vec<Entry>, diagnostics: &mut Diagnostics) -> Vec<Entry> {
    for new in later {
        match entries.iter_mut().find(|entry| entry.key == new.key) {
            Some(entry) => {
                let path = if path.is_empty() { new.key } else { format!("{path}.{}", new.key) };
                let earlier = std::mem::replace(&mut entry.value, Node::null(new.key_span));
                entry.value = merge_at(&path, earlier, new.value, diagnostics);
                entry.key_span = new.key_span;
            }
            None => entries.push(new),
        }
    }
    entries
}
