//! `key_value_parser`: pairs such as `a=1 b="x y"` become a map.

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use super::parser::Parser;
use super::values::{Budget, Map, excerpt, keep_last};
use crate::operator::Transform;
use crate::record::Record;

#[derive(Clone)]
struct KeyValueParser {
    parser: Parser,
    delimiter: String,
    pair_delimiter: String,
    /// Kept for its capacity.
    pair: String,
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    let parser = Parser::read(fields);
    let delimiter = fields.string("delimiter", "=", "The text between a key and its value.");
    let doc = "The text between pairs, unless in single or double quotes. Default: a space.";
    let pair_delimiter = fields.non_empty_string("pair_delimiter", doc);
    let pair_delimiter = pair_delimiter.unwrap_or_else(|| " ".to_owned());
    if delimiter.is_empty() {
        fields.error_missing("delimiter");
        return None;
    }
    if delimiter == pair_delimiter {
        fields.error_at("delimiter", "and `pair_delimiter` must not be the same");
        return None;
    }
    let pair = String::new();
    Some(Box::new(KeyValueParser { parser: parser?, delimiter, pair_delimiter, pair }))
}

impl Transform for KeyValueParser {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        let KeyValueParser { parser, delimiter, pair_delimiter, pair } = self;
        parser.apply(record, |text| {
            if text.is_empty() {
                return Err("the text is empty".to_owned());
            }
            let (mut map, mut budget) = (Map::new(), Budget::default());
            let mut rest = text;
            while !rest.is_empty() {
                pair.clear();
                rest = read_pair(rest, pair_delimiter, pair)?;
                if pair.is_empty() {
                    continue;
                }
                let split = pair.split_once(delimiter.as_str());
                let no_value = || format!("{} has no `{delimiter}` behind a key", excerpt(pair));
                let (key, value) = split.ok_or_else(no_value)?;
                budget.take()?;
                map.push((key.trim().to_owned(), AnyValue::String(value.trim().to_owned())));
            }
            keep_last(&mut map);
            Ok(AnyValue::Map(map))
        })
    }
}

/// Reads up to the next delimiter outside of quotes, and leaves quotes out unless a backslash is
/// before them. Returns the text behind the delimiter.
fn read_pair<'t>(text: &'t str, delimiter: &str, pair: &mut String) -> Result<&'t str, String> {
    let mut quote = None;
    let mut is_escaped = false;
    for (place, character) in text.char_indices() {
        if quote.is_none()
            && let Some(rest) = text[place..].strip_prefix(delimiter)
        {
            return Ok(rest);
        }
        if !is_escaped {
            if quote.is_none() && matches!(character, '"' | '\'') {
                quote = Some(character);
                continue;
            }
            if quote == Some(character) {
                quote = None;
                continue;
            }
        }
        is_escaped = !is_escaped && character == '\\';
        pair.push(character);
    }
    if quote.is_some() { Err("the text has a quote without its end".to_owned()) } else { Ok("") }
}
