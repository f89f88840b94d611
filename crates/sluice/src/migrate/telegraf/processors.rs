//! Processors that work on tags: actions of Sluice's processor `attributes`. The others are named.

use serde_json::{Value, json};

use super::parts::{delete, insert, rename};
use super::source::Section;
use super::values::{self, Place};
use crate::migrate::report::Report;

const OTHERS: &str = "Sluice has no such processor: rename or convert where the metrics come from, \
                      or keep Telegraf for it and let its `outputs.influxdb` write to Sluice's \
                      receiver `influxdb`";

/// Actions in the order of the processors. Names of tags are Telegraf's.
pub(super) fn read(plugins: Vec<(String, Section)>, report: &mut Report) -> Vec<Value> {
    let mut ordered = Vec::new();
    for (kind, mut section) in plugins {
        let order = section.text("order", report).and_then(|(_, order)| order.parse::<i64>().ok());
        ordered.push((order.unwrap_or(0), kind, section));
    }
    ordered.sort_by_key(|(order, ..)| *order);
    let mut actions = Vec::new();
    for (_, kind, mut section) in ordered {
        let before = actions.len();
        match kind.as_str() {
            "rename" => read_renames(&mut section, &mut actions, report),
            "regex" => read_patterns(&mut section, &mut actions, report),
            "override" => read_tags(&mut section, &mut actions, report),
            _ => {
                report.left_out(section.line, &section.name, OTHERS);
                continue;
            }
        }
        if is_filtered(&mut section, report) {
            actions.truncate(before);
            continue;
        }
        section.finish(report);
    }
    actions
}

/// A processor that works on some metrics only is left out whole.
fn is_filtered(section: &mut Section, report: &mut Report) -> bool {
    let mut is_filtered = false;
    for key in ["namepass", "namedrop", "tagpass", "tagdrop", "metricpass"] {
        let line = section.line_of(key);
        section.ignore(&[key]);
        if let Some(line) = line {
            is_filtered = true;
            let text = "the whole processor is left out: `attributes` knows metrics by \
                        `include.metric_names`, which has other patterns; add its actions by hand";
            report.left_out(line, &section.place(key), text);
        }
    }
    is_filtered
}

fn read_renames(section: &mut Section, actions: &mut Vec<Value>, report: &mut Report) {
    for mut replace in section.sections("replace", report) {
        let tag = replace.text("tag", report);
        let dest = replace.text("dest", report);
        for key in ["measurement", "field"] {
            if let Some((line, _)) = replace.take(key) {
                let text = "only tags can be renamed: a measurement is the metric's name, and its \
                            field is told in what it is called in the processor `interval`";
                report.left_out(line, &replace.place(key), text);
            }
        }
        if let (Some((_, tag)), Some((_, dest))) = (tag, dest) {
            actions.extend(rename(&escaped(&tag), &escaped(&dest)));
        }
        replace.finish(report);
    }
}

/// A name without variables.
fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}

fn read_patterns(section: &mut Section, actions: &mut Vec<Value>, report: &mut Report) {
    for mut tags in section.sections("tags", report) {
        let mut text = |key: &str| tags.text(key, report).map(|(_, text)| text);
        let (key, pattern) = (text("key"), text("pattern"));
        let (replacement, result) = (text("replacement"), text("result_key"));
        let extracted = match (&pattern, &replacement, &result) {
            (Some(pattern), Some(replacement), Some(result)) => {
                extraction(pattern, replacement, result)
            }
            _ => None,
        };
        match (key, extracted) {
            (Some(key), Some(pattern)) => {
                let pattern = escaped(&pattern);
                let key = escaped(&key);
                actions.push(json!({"key": key, "pattern": pattern, "action": "extract"}));
            }
            _ => {
                let text = "only a part can be taken into a tag of its own: `pattern` over the \
                            whole value with one group, `replacement = \"${1}\"`, and `result_key` \
                            of letters, digits and `_`";
                report.left_out(tags.line, &tags.name, text);
            }
        }
        tags.ignore(&["append"]);
        tags.finish(report);
    }
    let others = ["fields", "field_rename", "tag_rename", "metric_rename"];
    for key in others {
        if let Some((line, _)) = section.take(key) {
            let text = "a pattern can only take a part of a tag's value";
            report.left_out(line, &section.place(key), text);
        }
    }
}

/// The pattern whose group has the name of the tag that it sets.
fn extraction(pattern: &str, replacement: &str, result: &str) -> Option<String> {
    let is_whole = pattern.starts_with('^') && pattern.ends_with('$');
    let is_name = result.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !result.starts_with(|first: char| first.is_ascii_digit());
    let is_group = ["${1}", "$1"].contains(&replacement);
    let plain = pattern.replace("\\(", "  ").replace("(?:", "   ");
    let mut groups = plain.match_indices('(').filter(|(at, _)| !plain[at + 1..].starts_with('?'));
    let (at, _) = groups.next()?;
    let is_one = groups.next().is_none() && !plain.contains("(?P<") && !plain.contains('[');
    (is_whole && is_name && is_group && is_one)
        .then(|| format!("{}(?P<{result}>{}", &pattern[..at], &pattern[at + 1..]))
}

/// `processors.override` sets tags, whatever they were.
fn read_tags(section: &mut Section, actions: &mut Vec<Value>, report: &mut Report) {
    for (line, key, text) in section.pairs("tags", report) {
        let place = section.place(&format!("tags.{key}"));
        let value = values::text(&text, &Place { line, name: &place }, report);
        let mut action = insert(&key, &value);
        action["action"] = json!("upsert");
        actions.push(action);
    }
    for key in ["name_override", "name_prefix", "name_suffix"] {
        if let Some((line, _)) = section.take(key) {
            report.left_out(line, &section.place(key), "the names of metrics stay");
        }
    }
}

/// Tags that are taken away.
pub(super) fn without(tags: &[String]) -> Vec<Value> {
    tags.iter().map(|tag| delete(&escaped(tag))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    fn actions(text: &str) -> (Vec<Value>, Vec<(usize, String)>) {
        let mut report = Report::default();
        let mut root = source::read(text).unwrap();
        let plugins = root.section("processors", &mut report).unwrap().plugins(&mut report);
        (read(plugins, &mut report), report.left())
    }

    /// Guarantee: tags are renamed, set and taken apart, in the order that Telegraf has.
    #[test]
    fn processors_of_tags_are_actions() {
        let text = "[[processors.regex]]\norder = 2\n[[processors.regex.tags]]\nkey = 'url'\n\
                    pattern = '^http://(.*?)/.*$'\nreplacement = '${1}'\nresult_key = 'host'\n\
                    [[processors.rename]]\norder = 1\n[[processors.rename.replace]]\n\
                    tag = 'data_tags_url'\ndest = 'url'\n[[processors.override]]\norder = 3\n\
                    [processors.override.tags]\nenv = '$ENV'\n";
        let (found, left) = actions(text);
        assert!(left.is_empty(), "{left:?}");
        let expected = [
            json!({"key": "url", "from_attribute": "data_tags_url", "action": "upsert"}),
            json!({"key": "data_tags_url", "action": "delete"}),
            json!({"key": "url", "pattern": "^http://(?P<host>.*?)/.*$$", "action": "extract"}),
            json!({"key": "env", "value": "${env:ENV}", "action": "upsert"}),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn others_are_left_out_whole() {
        for (text, line) in [
            ("[[processors.strings]]\n[[processors.strings.lowercase]]\ntag = 'x'", 1),
            ("[[processors.converter]]\n[processors.converter.tags]\ninteger = ['status']", 1),
            ("[[processors.rename]]\n[[processors.rename.replace]]\nfield='a'\ndest='b'", 3),
            (
                "[[processors.regex]]\n[[processors.regex.tags]]\nkey = 'a'\n\
                 pattern = '^(.)(.)$'\nreplacement = '${2}'\nresult_key = 'b'",
                2,
            ),
            (
                "[[processors.rename]]\nnamepass = ['a']\n[[processors.rename.replace]]\n\
                 tag = 'a'\ndest = 'b'",
                2,
            ),
        ] {
            let (found, left) = actions(text);
            assert!(found.is_empty(), "{text}");
            assert_eq!(left.iter().map(|it| it.0).collect::<Vec<_>>(), [line], "{text}: {left:?}");
        }
    }
}
