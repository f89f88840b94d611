//! Reads and checks relabelling rules, as Prometheus reads them.

use std::num::NonZeroU64;
use std::sync::LazyLock;

use regex::Regex;
use sluice_config::{Fields, Pattern};

use super::template::Template;
use super::{Action, Matcher, Replace, Rule};
use crate::labels::{NameScheme, Text};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Replace,
    Keep,
    Drop,
    KeepEqual,
    DropEqual,
    HashMod,
    LabelMap,
    LabelDrop,
    LabelKeep,
    Lowercase,
    Uppercase,
}

const NAMES: [(&str, Name); 11] = [
    ("replace", Name::Replace),
    ("keep", Name::Keep),
    ("drop", Name::Drop),
    ("keepequal", Name::KeepEqual),
    ("dropequal", Name::DropEqual),
    ("hashmod", Name::HashMod),
    ("labelmap", Name::LabelMap),
    ("labeldrop", Name::LabelDrop),
    ("labelkeep", Name::LabelKeep),
    ("lowercase", Name::Lowercase),
    ("uppercase", Name::Uppercase),
];

const SEPARATOR: &str = ";";
const REGEX: &str = "(.*)";
const REPLACEMENT: &str = "$1";

/// The options of a rule as they are written.
struct Written {
    sources: Vec<String>,
    separator: String,
    regex: Option<(String, Regex)>,
    modulus: Option<u64>,
    target: String,
    replacement: String,
}

/// Reads the rules below `key`. `scheme`: the label names that they may set.
pub fn read(fields: &mut Fields<'_>, key: &str, scheme: NameScheme, doc: &str) -> Vec<Rule> {
    let rules = fields.sections(key, doc, |fields| read_rule(fields, scheme));
    rules.into_iter().flatten().collect()
}

fn read_rule(fields: &mut Fields<'_>, scheme: NameScheme) -> Option<Rule> {
    let doc = "What the rule does with the joined values: `replace` sets the target label to the \
               replacement, if the pattern matches; `keep` and `drop` decide by the pattern, \
               `keepequal` and `dropequal` by the target label's value; `hashmod` sets the target \
               label to the hash of the values modulo `modulus`; `lowercase` and `uppercase` set \
               it to the values in that letter case. With the names of all labels: `labelmap` \
               copies those that match, `labeldrop` removes them, `labelkeep` removes the others.";
    let name = fields.choice("action", Name::Replace, &NAMES, doc);
    let doc = "Labels whose values are joined.";
    let sources = fields.texts("source_labels", doc);
    let doc = "Stands between the values of the source labels.";
    let separator = text(fields, "separator", SEPARATOR, doc);
    let doc = "Regular expression that has to match the whole of the joined values, or the whole \
               name of a label.";
    let parse = |text: &str| Ok((text.to_owned(), anchored(text)?));
    let regex = fields.text("regex", "a regular expression", Some(REGEX), doc, parse);
    let regex = if is_null(fields, "regex") { parse("").ok() } else { regex };
    let doc = "For `hashmod`: the hash is taken modulo this number.";
    let modulus = fields.optional_integer("modulus", 0..=u64::MAX, doc);
    let doc = "Label to set or to compare. For `replace`, groups of the pattern may be in it.";
    let target = text(fields, "target_label", "", doc);
    let doc = "For `replace` the value, for `labelmap` the name to set, with groups of the \
               pattern as `$1` and `${name}`. The Collector reads `$$` in its files as `$`.";
    let replacement = text(fields, "replacement", REPLACEMENT, doc);
    if sources.iter().any(String::is_empty) {
        fields.error_at("source_labels", "has an empty name");
    }
    let written = Written { sources, separator, regex, modulus, target, replacement };
    check_unused(&written, name, fields);
    if !check_target(&written, name, scheme, fields) {
        return None;
    }
    written.rule(name, scheme, fields)
}

/// A text; null is the empty one, as in Prometheus.
fn text(fields: &mut Fields<'_>, key: &str, default: &str, doc: &str) -> String {
    let shown = Some(default).filter(|default| !default.is_empty());
    let text = fields.text(key, "string", shown, doc, |text| Ok(text.to_owned()));
    if is_null(fields, key) { String::new() } else { text.unwrap_or_default() }
}

fn is_null(fields: &Fields<'_>, key: &str) -> bool {
    fields.is_present(key) && !fields.is_given(key)
}

/// The pattern that Prometheus makes of a text, which has to match from start to end.
fn anchored(text: &str) -> Result<Regex, String> {
    Pattern::new(&format!("^(?s:{text})$"))?.into_regex()
}

/// Options that the action does not use: an error where Prometheus has one, else a warning.
fn check_unused(written: &Written, name: Name, fields: &mut Fields<'_>) {
    let used: &[&str] = match name {
        Name::Replace => &["source_labels", "separator", "regex", "target_label", "replacement"],
        Name::Keep | Name::Drop => &["source_labels", "separator", "regex"],
        Name::KeepEqual | Name::DropEqual => &["source_labels", "target_label"],
        Name::HashMod => &["source_labels", "separator", "modulus", "target_label"],
        Name::LabelMap => &["regex", "replacement"],
        Name::LabelDrop | Name::LabelKeep => &["regex"],
        Name::Lowercase | Name::Uppercase => &["source_labels", "separator", "target_label"],
    };
    let changed = [
        ("source_labels", !written.sources.is_empty()),
        ("separator", written.separator != SEPARATOR),
        ("regex", written.regex.as_ref().is_some_and(|(text, _)| text != REGEX)),
        ("modulus", written.modulus.unwrap_or(0) != 0),
        ("target_label", !written.target.is_empty()),
        ("replacement", written.replacement != REPLACEMENT),
    ];
    let shown = NAMES.iter().find(|(_, known)| *known == name).map_or("", |(shown, _)| shown);
    for (key, _) in changed.into_iter().filter(|(key, is)| *is && !used.contains(key)) {
        let is_refused = match name {
            Name::KeepEqual | Name::DropEqual | Name::LabelDrop | Name::LabelKeep => true,
            Name::Lowercase | Name::Uppercase => key == "replacement",
            _ => false,
        };
        if is_refused {
            fields.error_at(key, &format!("is not an option of the action `{shown}`"));
        } else {
            fields.warn_at(key, &format!("has no effect with the action `{shown}`"));
        }
    }
}

/// Whether the rule has what it needs, in names that are valid.
fn check_target(
    written: &Written,
    name: Name,
    scheme: NameScheme,
    fields: &mut Fields<'_>,
) -> bool {
    let (key, text) = match name {
        Name::Keep | Name::Drop | Name::LabelDrop | Name::LabelKeep => return true,
        Name::LabelMap => ("replacement", &written.replacement),
        _ => ("target_label", &written.target),
    };
    if text.is_empty() {
        fields.error_missing(key);
        return false;
    }
    let has_groups = name == Name::LabelMap || name == Name::Replace && text.contains('$');
    let is_valid = match scheme {
        NameScheme::Legacy if has_groups => is_legacy_template(text),
        _ => scheme.is_label_name(text),
    };
    if !is_valid {
        let message = "is not the name of a label: letters, digits and `_`";
        let hint = "set `metric_name_validation_scheme: utf8` for other names";
        fields.error_at_with_hint(key, message, hint);
    }
    is_valid
}

/// Names of the old scheme, with groups anywhere in them.
fn is_legacy_template(text: &str) -> bool {
    static FORM: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let form = r"^(?:(?:[a-zA-Z_]|\$(?:\{\w+\}|\w+))+\w*)+$";
        Pattern::new(form).ok().map(|pattern| pattern.regex().clone())
    });
    FORM.as_ref().is_some_and(|form| form.is_match(text))
}

impl Written {
    fn rule(self, name: Name, scheme: NameScheme, fields: &mut Fields<'_>) -> Option<Rule> {
        let (text, regex) = self.regex?;
        let is_default = text == REGEX;
        let target = Text::from(&*self.target);
        let replacement = Template::new(&self.replacement, &regex);
        let target_template = Template::new(&self.target, &regex);
        let matcher = if is_default { Matcher::All } else { Matcher::Pattern(regex.clone()) };
        let action = match name {
            Name::Replace => {
                Action::Replace(Replace { matcher, target: target_template, replacement, scheme })
            }
            Name::Keep => Action::Keep(matcher),
            Name::Drop => Action::Drop(matcher),
            Name::KeepEqual => Action::KeepEqual(target),
            Name::DropEqual => Action::DropEqual(target),
            Name::HashMod => {
                let modulus = self.modulus.and_then(NonZeroU64::new);
                if modulus.is_none() {
                    fields.error("needs a `modulus` above 0 for the action `hashmod`");
                }
                Action::HashMod { target, modulus: modulus? }
            }
            Name::LabelMap => Action::LabelMap { names: regex, replacement },
            Name::LabelDrop => Action::LabelDrop(regex),
            Name::LabelKeep => Action::LabelKeep(regex),
            Name::Lowercase => Action::Lowercase(target),
            Name::Uppercase => Action::Uppercase(target),
        };
        let sources = self.sources.into_iter().map(Text::from).collect();
        Some(Rule { sources, separator: self.separator, action })
    }
}
