//! A tree as YAML, as a person would write it: in blocks, and quoted only where it must be.

use serde_json::{Map, Value};

/// The document. Its root is a mapping.
pub(super) fn write(document: &Value) -> String {
    let mut out = String::new();
    if let Value::Object(map) = document {
        for (at, (key, value)) in map.iter().enumerate() {
            if at > 0 {
                out.push('\n');
            }
            entry(&mut out, key, value, 0);
        }
    }
    out
}

fn entry(out: &mut String, key: &str, value: &Value, depth: usize) {
    let indentation = " ".repeat(depth);
    out.push_str(&format!("{indentation}{}:", scalar(&Value::String(key.to_owned()))));
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            entries(out, map, depth + 2);
        }
        Value::Array(items) if !items.is_empty() => match flow(items, depth + key.len()) {
            Some(flow) => out.push_str(&format!(" {flow}\n")),
            None => {
                out.push('\n');
                list(out, items, depth + 2);
            }
        },
        value => out.push_str(&format!(" {}\n", scalar(value))),
    }
}

fn entries(out: &mut String, map: &Map<String, Value>, depth: usize) {
    for (key, value) in map {
        entry(out, key, value, depth);
    }
}

fn list(out: &mut String, items: &[Value], depth: usize) {
    let indentation = " ".repeat(depth);
    for item in items {
        out.push_str(&format!("{indentation}- "));
        match item {
            Value::Object(map) if !map.is_empty() => {
                let mut block = String::new();
                entries(&mut block, map, depth + 2);
                out.push_str(block.trim_start());
            }
            item => out.push_str(&format!("{}\n", scalar(item))),
        }
    }
}

/// Columns of a list in one line.
const FLOW_WIDTH: usize = 80;

/// Plain values in one line, if they fit.
fn flow(items: &[Value], column: usize) -> Option<String> {
    let plain = |item: &Value| {
        let text = scalar(item);
        let is_plain = !item.is_object() && !item.is_array() && is_word(&text);
        is_plain.then_some(text)
    };
    let items = items.iter().map(plain).collect::<Option<Vec<_>>>()?.join(", ");
    (column + items.len() <= FLOW_WIDTH).then(|| format!("[{items}]"))
}

fn is_word(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/".contains(&byte);
    !text.is_empty() && text.bytes().all(is_plain) && !text.starts_with('-')
}

fn scalar(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text,
        Value::Array(_) => return "[]".to_owned(),
        Value::Object(_) => return "{}".to_owned(),
        other => return other.to_string(),
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./:${}-".contains(&byte);
    let begins = |byte: &u8| byte.is_ascii_alphabetic() || b"_/$".contains(byte);
    let words = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_plain = text.bytes().all(is_plain)
        && text.as_bytes().first().is_some_and(begins)
        && !text.ends_with(':')
        && !words.contains(&text.to_lowercase().as_str());
    match is_plain || is_duration(text) {
        true => text.clone(),
        // JSON's strings are YAML's.
        false if text.chars().any(char::is_control) => Value::String(text.clone()).to_string(),
        false => format!("'{}'", text.replace('\'', "''")),
    }
}

/// `10s`, `1m30s`: no other value of YAML.
fn is_duration(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_digit() || b"hmnsu.".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_digit())
        && text.ends_with(['s', 'm', 'h'])
        && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Guarantee: texts that YAML would take for something else are quoted, others are not.
    #[test]
    fn texts_are_quoted_where_they_must_be() {
        for (text, expected) in [
            ("http://${env:HOST}:8086", "http://${env:HOST}:8086"),
            ("10s", "10s"),
            ("1e3", "'1e3'"),
            ("true", "'true'"),
            ("", "''"),
            ("it's", "'it''s'"),
            ("a: b", "'a: b'"),
            ("#x", "'#x'"),
            ("a\nb", "\"a\\nb\""),
            ("0.0.0.0:1", "'0.0.0.0:1'"),
            (":8186", "':8186'"),
        ] {
            assert_eq!(scalar(&json!(text)), expected);
        }
    }

    /// Guarantee: the text is read as the tree that it was written from.
    #[test]
    fn the_tree_is_written_in_blocks() {
        let tree = json!({
            "receivers": {"k6": {"include": ["/a/*.json"], "tags": ["method", "status"]}},
            "service": {"list": [{"key": "a b", "value": 1, "in": {"x": []}}, {"key": "c"}]},
        });
        let expected = "receivers:\n  k6:\n    include:\n      - '/a/*.json'\n    \
                        tags: [method, status]\n\nservice:\n  list:\n    - key: 'a b'\n      \
                        value: 1\n      in:\n        x: []\n    - key: c\n";
        assert_eq!(write(&tree), expected);
    }
}
