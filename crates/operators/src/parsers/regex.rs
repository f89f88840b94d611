//! `regex_parser`: the named groups of a regular expression become a map.

mod groups;
mod sequence;

use sluice_config::{Fields, Pattern};
use sluice_otlp::AnyValue;

pub(crate) use self::groups::Groups;
use super::parser::Parser;
use super::values::{Map, excerpt};
use crate::operator::Transform;
use crate::record::Record;
use crate::step::Step;

#[derive(Clone)]
struct RegexParser {
    parser: Parser,
    pattern: Groups,
    /// Index and name of the groups with a name.
    groups: Vec<(usize, String)>,
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    let parser = Parser::read(fields);
    let doc = "In the syntax of Go (RE2). Each group with a name, `(?P<name>…)`, becomes a key.";
    let pattern = fields.parsed("regex", "a regular expression, required", None, doc, Pattern::new);
    if !fields.is_given("regex") {
        fields.error_missing("regex");
    }
    fields.section_unless_empty("cache", "Results of earlier matches.", |fields| {
        fields.no_effect("size", "matching costs less than a cache");
    });
    let pattern = pattern?;
    let names = (1..).zip(pattern.group_names());
    let groups: Vec<(usize, String)> =
        names.filter_map(|(index, name)| Some((index, name?.to_owned()))).collect();
    if groups.is_empty() {
        fields.error_at("regex", "has no named group, as in `(?P<name>…)`");
        return None;
    }
    let pattern = Groups::new(pattern);
    Some(Box::new(RegexParser { parser: parser?, pattern, groups }))
}

impl Transform for RegexParser {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        let RegexParser { parser, pattern, groups } = self;
        parser.apply(record, |text| {
            if !pattern.find(text) {
                return Err(format!("the regular expression does not match {}", excerpt(text)));
            }
            let mut map = Map::with_capacity(groups.len());
            for (index, name) in groups.iter() {
                let value = pattern.text(*index, text).to_owned();
                map.push((name.clone(), AnyValue::String(value)));
            }
            Ok(AnyValue::Map(map))
        })
    }

    fn step(&self) -> Option<Step> {
        let sections = self.parser.sections()?;
        let (pattern, groups) = (self.pattern.clone(), self.groups.clone());
        Some(Step::Regex { pattern, groups, sections })
    }
}
