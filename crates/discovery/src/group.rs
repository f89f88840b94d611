//! Groups of targets, as a source finds them: read from JSON and from YAML.

use std::collections::BTreeMap;
use std::sync::Arc;

use memchr::memchr_iter;
use serde::Deserialize;
use sluice_config::source::Source;
use sluice_config::{Diagnostics, Entry, Node, Scalar, ScalarValue, yaml};

use crate::labels::{Labels, Text};

pub(crate) const ADDRESS: &str = "__address__";

/// More items are not read: each may become a target.
const ITEMS_LIMIT: usize = 1_000_000;
/// Groups are lists of lists and of mappings.
const NESTING_LIMIT: usize = 8;
/// Memory of a label besides its texts.
const LABEL_BYTES: usize = 32;
/// Memory of a target besides the labels of its group and its own.
const TARGET_BYTES: usize = 1024;

/// Targets that share labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Stable while the source has the group.
    pub key: Text,
    pub labels: Labels,
    /// Each at least with an address; its labels come before those of the group.
    pub targets: Vec<Labels>,
}

/// A group as Prometheus reads it: servers in Go write null for what is empty, and may have the
/// names of their own fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, alias = "Targets")]
    targets: Option<Vec<Option<String>>>,
    #[serde(default, alias = "Labels")]
    labels: Option<BTreeMap<String, Option<String>>>,
}

impl Group {
    /// A group of addresses.
    pub fn new(key: Text, addresses: impl IntoIterator<Item = Text>, labels: Labels) -> Group {
        let name = Text::from(ADDRESS);
        let target = |address: Text| {
            let mut labels = Labels::with_capacity(1);
            labels.set(&name, address);
            labels
        };
        Group { key, labels, targets: addresses.into_iter().map(target).collect() }
    }

    /// Memory of all its targets, if no text were shared, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let bytes = |labels: &Labels| {
            let each = labels.iter().map(|it| it.name.len() + it.value.len() + LABEL_BYTES);
            each.sum::<usize>()
        };
        let each = bytes(&self.labels) + TARGET_BYTES;
        let common = each.saturating_mul(self.targets.len());
        self.targets.iter().map(bytes).sum::<usize>().saturating_add(common)
    }
}

/// Groups in JSON. `key`: of the group at a position. `label`: one more for each group.
///
/// # Errors
/// The reason, in a line.
pub(crate) fn from_json(
    text: &[u8],
    key: impl Fn(usize) -> Text,
    label: Option<(&Text, &Text)>,
) -> Result<Vec<Group>, String> {
    // Before anything is made of it: in memory an item takes much more than in the text.
    if memchr_iter(b',', text).count() > ITEMS_LIMIT {
        return Err(format!("it has more than {ITEMS_LIMIT} items"));
    }
    let written: Option<Vec<Option<Written>>> =
        serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let group = |(at, written): (usize, Option<Written>)| {
        let written = written.ok_or_else(|| format!("group {at} is null"))?;
        let targets = written.targets.unwrap_or_default().into_iter();
        let targets = targets.map(|target| target.unwrap_or_default().into()).collect();
        let labels = written.labels.unwrap_or_default().into_iter();
        let labels = labels.map(|(name, value)| (name, value.unwrap_or_default())).collect();
        finish(key(at), targets, labels, label)
    };
    written.unwrap_or_default().into_iter().enumerate().map(group).collect()
}

/// As [`from_json`], in YAML.
pub(crate) fn from_yaml(
    text: &str,
    key: impl Fn(usize) -> Text,
    label: Option<(&Text, &Text)>,
) -> Result<Vec<Group>, String> {
    let mut diagnostics = Diagnostics::default();
    let file = diagnostics.sources.add(Source::new("", ""));
    let root = yaml::parse(text, file, NESTING_LIMIT).map_err(|error| {
        let line = error.span.map(|span| format!(" in line {}", span.line));
        format!("{}{}", error.message, line.unwrap_or_default())
    })?;
    let items = match root.as_list() {
        None if root.is_null() => &[],
        None => return Err(format!("it must be a list of groups, not {}", root.kind())),
        Some(items) => items,
    };
    let group = |(at, item): (usize, &Node)| {
        let line = |why: String| format!("{why} in line {}", item.span.line);
        let (targets, labels) = read_group(item).map_err(line)?;
        finish(key(at), targets, labels, label)
    };
    items.iter().enumerate().map(group).collect()
}

type Parts = (Vec<Text>, BTreeMap<String, String>);

/// The targets and the labels of a group, also of one of `static_configs`.
fn read_group(node: &Node) -> Result<Parts, String> {
    let entries = node.as_mapping().ok_or_else(|| format!("a group is {}", node.kind()))?;
    let (mut targets, mut labels) = (Vec::new(), BTreeMap::new());
    for Entry { key, value, .. } in entries {
        match key.as_str() {
            _ if value.is_null() => {}
            "targets" => {
                let items = value.as_list().ok_or("`targets` is not a list")?;
                let text = |item: &Node| item.as_scalar().map(|scalar| Text::from(text_of(scalar)));
                let texts: Option<Vec<Text>> = items.iter().map(text).collect();
                targets = texts.ok_or("`targets` has an item that is no address")?;
            }
            "labels" => {
                let pairs = value.as_mapping().ok_or("`labels` is not a mapping")?;
                for pair in pairs {
                    let scalar = pair.value.as_scalar();
                    let scalar =
                        scalar.ok_or_else(|| format!("the label `{}` has no text", pair.key))?;
                    labels.insert(pair.key.clone(), text_of(scalar).to_owned());
                }
            }
            _ => return Err(format!("a group has `{key}`: only `targets` and `labels` are known")),
        }
    }
    Ok((targets, labels))
}

fn text_of(scalar: &Scalar) -> &str {
    if scalar.value == ScalarValue::Null { "" } else { &scalar.text }
}

fn finish(
    key: Text,
    addresses: Vec<Text>,
    labels: BTreeMap<String, String>,
    label: Option<(&Text, &Text)>,
) -> Result<Group, String> {
    if labels.contains_key("") {
        return Err("a label has no name".to_owned());
    }
    let mut labels: Labels = labels.into_iter().collect();
    if let Some((name, value)) = label {
        labels.set(name, value.clone());
    }
    Ok(Group::new(key, addresses, labels))
}

/// Keys of groups that a source numbers: `PREFIX:0`.
pub(crate) fn numbered(prefix: &str) -> impl Fn(usize) -> Text {
    let prefix: Arc<str> = prefix.into();
    move |at| Text::from(format!("{prefix}:{at}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(groups: Vec<Group>) -> String {
        let show = |group: &Group| {
            let labels = |labels: &Labels| {
                labels
                    .iter()
                    .map(|it| format!("{}={}", it.name, it.value))
                    .collect::<Vec<_>>()
                    .join(",")
            };
            let targets: Vec<_> = group.targets.iter().map(labels).collect();
            format!("{} {{{}}} {}", group.key, labels(&group.labels), targets.join(" "))
        };
        groups.iter().map(show).collect::<Vec<_>>().join("; ")
    }

    /// Guarantee: both forms mean the same, with the label that the source adds.
    #[test]
    fn groups_are_read_from_both_forms() {
        let expected =
            "f:0 {at=f,env=prod,shard=1} __address__=a:1 __address__=b:2; f:1 {at=f} ; f:2 {at=f} ";
        let (at, f) = (Text::from("at"), Text::from("f"));
        let json = r#"[
            {"targets": ["a:1", "b:2"], "labels": {"env": "prod", "shard": "1", "x": ""}},
            {"targets": []},
            {"labels": null, "targets": null}
        ]"#;
        let groups = from_json(json.as_bytes(), numbered("f"), Some((&at, &f)));
        assert_eq!(groups.map(shown).as_deref(), Ok(expected));
        let yaml =
            "- targets: [a:1, 'b:2']\n  labels: {env: prod, shard: 1, x: }\n- targets: []\n- {}\n";
        let groups = from_yaml(yaml, numbered("f"), Some((&at, &f)));
        assert_eq!(groups.map(shown).as_deref(), Ok(expected));
        assert_eq!(from_yaml("", numbered("f"), None), Ok(Vec::new()));
    }

    /// Scenario: a server in Go has an empty list, or no names of its own for JSON. Guarantee: null
    /// is nothing, and capital letters are as good, as in Prometheus.
    #[test]
    fn groups_of_servers_in_go_are_read() {
        let read = |json: &str| from_json(json.as_bytes(), numbered("f"), None).map(shown);
        assert_eq!(read("null").as_deref(), Ok(""));
        let json = r#"[{"Targets": ["a:1", null], "Labels": {"x": "y", "z": null}}]"#;
        assert_eq!(read(json).as_deref(), Ok("f:0 {x=y} __address__=a:1 "));
    }

    #[test]
    fn mistakes_are_named() {
        for (json, reason) in [
            ("", "EOF"),
            ("{}", "expected a sequence"),
            ("[null]", "group 0 is null"),
            (r#"[{"targets": ["a"], "label": {}}]"#, "unknown field `label`"),
            (r#"[{"targets": "a"}]"#, "expected a sequence"),
            (r#"[{"labels": {"a": 1}}]"#, "expected a string"),
            (r#"[{"labels": {"": "1"}}]"#, "a label has no name"),
            (r#"[{"targets": ["a"]"#, "EOF"),
        ] {
            let error = from_json(json.as_bytes(), numbered("f"), None).expect_err(json);
            assert!(error.contains(reason), "{json}: {error}");
        }
        for (yaml, reason) in [
            ("a: b", "must be a list of groups, not a mapping"),
            ("-", "a group is null in line 1"),
            (
                "- {}\n- {target: [a]}",
                "a group has `target`: only `targets` and `labels` are known in line 2",
            ),
            ("- {targets: a}", "`targets` is not a list"),
            ("- {targets: [[a]]}", "has an item that is no address"),
            ("- {labels: [a]}", "`labels` is not a mapping"),
            ("- {labels: {a: [b]}}", "the label `a` has no text"),
            ("- [", "in line"),
        ] {
            let error = from_yaml(yaml, numbered("f"), None).expect_err(yaml);
            assert!(error.contains(reason), "{yaml}: {error}");
        }
    }

    /// Scenario: a text of a few megabytes with more items than memory should have. Guarantee: it
    /// is refused before it is taken apart.
    #[test]
    fn too_many_items_are_refused() {
        let json = format!("[{{\"targets\": [\"\"{}]}}]", ",\"\"".repeat(ITEMS_LIMIT + 1));
        let error = from_json(json.as_bytes(), numbered("f"), None).expect_err("too many");
        assert_eq!(error, "it has more than 1000000 items");
        let yaml = format!("- targets: [a{}]", ",a".repeat(ITEMS_LIMIT));
        assert!(from_yaml(&yaml, numbered("f"), None).is_err());
    }

    #[test]
    fn a_group_weighs_its_labels_once_for_each_target() {
        let labels: Labels = [("env", "prod")].into_iter().collect();
        let group = Group::new("k".into(), ["a:1", "b:2"].map(Text::from), labels);
        let each = (3 + 4 + LABEL_BYTES) + (11 + 3 + LABEL_BYTES) + TARGET_BYTES;
        assert_eq!(group.weight(), 2 * each);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in r#"[\[\]{}":, a\n-]{0,40}|\PC{0,40}"#) {
            let _ = from_json(text.as_bytes(), numbered("f"), None);
            let _ = from_yaml(&text, numbered("f"), None);
        }
    }
}
