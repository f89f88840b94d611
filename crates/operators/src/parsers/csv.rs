//! `csv_parser`: the fields of a row become a map, by a header.

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use super::parser::Parser;
use super::values::{Budget, Map, VALUES_LIMIT, keep_last, kind_of};
use crate::operator::Transform;
use crate::record::Record;

#[derive(Clone)]
struct CsvParser {
    parser: Parser,
    delimiter: char,
    header_delimiter: char,
    quotes: Quotes,
    /// The attribute that has each record's header.
    header_attribute: Option<String>,
    /// Of the configuration, or of the last record: neighbours have mostly the same.
    header: Header,
}

#[derive(Clone, Default)]
struct Header {
    text: String,
    names: Vec<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Quotes {
    Strict,
    /// A quote may stand within a field.
    Lazy,
    /// Quotes are characters like others.
    Ignored,
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    let parser = Parser::read(fields);
    let doc = "The names of the fields. Either this or `header_attribute` is required.";
    let header = fields.non_empty_string("header", doc);
    let doc = "The attribute of each record that has the names of its fields.";
    let header_attribute = fields.non_empty_string("header_attribute", doc);
    let doc = "The character between fields. Default: a comma.";
    let delimiter = read_delimiter(fields, "delimiter", doc);
    let doc = "The character between the names of the header. Default: `delimiter`.";
    let header_delimiter = read_delimiter(fields, "header_delimiter", doc);
    let doc = "A quote may stand within a field that is not quoted.";
    let is_lazy = fields.boolean("lazy_quotes", false, doc);
    let doc = "Quotes have no meaning: the row is split at each delimiter.";
    let is_ignored = fields.boolean("ignore_quotes", false, doc);
    let quotes = match (is_lazy, is_ignored) {
        (true, true) => {
            fields.error_at("ignore_quotes", "and `lazy_quotes` cannot be given both");
            return None;
        }
        (true, false) => Quotes::Lazy,
        (false, true) => Quotes::Ignored,
        (false, false) => Quotes::Strict,
    };
    let delimiter = delimiter?.unwrap_or(',');
    let header_delimiter = header_delimiter?.unwrap_or(delimiter);
    if quotes != Quotes::Ignored && matches!(delimiter, '"' | '\r' | '\n') {
        fields.error_at("delimiter", "must not be a quote or the end of a line");
        return None;
    }
    match (&header, &header_attribute) {
        (None, None) => fields.error("needs `header` or `header_attribute`"),
        (Some(_), Some(_)) => {
            fields.error_at("header_attribute", "and `header` cannot be given both");
        }
        (Some(header), None) if !header.contains(header_delimiter) => {
            fields.error_at("header", "has no delimiter: it must name two fields or more");
        }
        _ => {
            let header = Header::new(header.unwrap_or_default(), header_delimiter);
            let parser = parser?;
            return Some(Box::new(CsvParser {
                parser,
                delimiter,
                header_delimiter,
                quotes,
                header_attribute,
                header,
            }));
        }
    }
    None
}

/// Nothing if it is wrong.
fn read_delimiter(fields: &mut Fields<'_>, key: &str, doc: &str) -> Option<Option<char>> {
    let one = |text: &str| {
        let mut characters = text.chars();
        match (characters.next(), characters.next()) {
            (first, None) => Ok(first),
            _ => Err("it must have one character".to_owned()),
        }
    };
    let given = fields.is_given(key);
    let found = fields.parsed(key, "a character", None, doc, one);
    if given { found } else { Some(None) }
}

impl Header {
    fn new(text: String, delimiter: char) -> Header {
        let names = text.split(delimiter).map(str::to_owned).collect();
        Header { text, names }
    }
}

impl Transform for CsvParser {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        if let Some(attribute) = &self.header_attribute {
            let found = record.attributes.iter().find(|(key, _)| key == attribute);
            let text = match found.map(|(_, value)| value) {
                Some(AnyValue::String(text)) => text,
                value => {
                    let kind = value.map_or("absent", kind_of);
                    return Err(format!("the attribute `{attribute}` is {kind}, not a header"));
                }
            };
            if *text != self.header.text {
                if text.matches(self.header_delimiter).count() >= VALUES_LIMIT {
                    return Err(format!("the attribute `{attribute}` has too many names"));
                }
                self.header = Header::new(text.clone(), self.header_delimiter);
            }
        }
        let CsvParser { parser, delimiter, quotes, header, .. } = self;
        parser.apply(record, |text| {
            let mut budget = Budget::default();
            let values = match quotes {
                Quotes::Ignored => {
                    let values = text.split(*delimiter);
                    values
                        .map(|value| budget.take().map(|()| value.to_owned()))
                        .collect::<Result<_, _>>()?
                }
                _ => read_row(text, *delimiter, *quotes == Quotes::Lazy, &mut budget)?,
            };
            let (expected, found) = (header.names.len(), values.len());
            if found != expected {
                return Err(format!("the row has {found} fields, the header {expected}"));
            }
            let values = values.into_iter().map(AnyValue::String);
            let mut map: Map = header.names.iter().cloned().zip(values).collect();
            keep_last(&mut map);
            Ok(AnyValue::Map(map))
        })
    }
}

/// The fields of a row as Go's `encoding/csv` reads them. The text is one row: a further line goes
/// on with the last field, and empty lines outside of quotes are left out.
fn read_row(
    text: &str,
    delimiter: char,
    lazy: bool,
    budget: &mut Budget,
) -> Result<Vec<String>, String> {
    let mut fields: Vec<String> = Vec::new();
    let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    while let Some(mut line) = lines.next() {
        if line.is_empty() {
            continue;
        }
        let mut goes_on = !fields.is_empty();
        loop {
            let mut field = String::new();
            let rest = match line.strip_prefix('"') {
                Some(quoted) => read_quoted(quoted, &mut lines, delimiter, lazy, &mut field)?,
                None => {
                    let (plain, rest) = match line.split_once(delimiter) {
                        Some((plain, rest)) => (plain, Some(rest)),
                        None => (line, None),
                    };
                    if !lazy && plain.contains('"') {
                        return Err("the row has a quote within a field".to_owned());
                    }
                    field.push_str(plain);
                    rest
                }
            };
            match fields.last_mut().filter(|_| goes_on) {
                Some(last) => {
                    last.push('\n');
                    last.push_str(&field);
                }
                None => {
                    budget.take()?;
                    fields.push(field);
                }
            }
            goes_on = false;
            match rest {
                Some(rest) => line = rest,
                None => break,
            }
        }
    }
    if fields.is_empty() { Err("the row is empty".to_owned()) } else { Ok(fields) }
}

/// Reads a quoted field behind its first quote, over further lines if need be. Returns the text
/// behind the delimiter, or nothing at the end of a line.
fn read_quoted<'t>(
    quoted: &'t str,
    lines: &mut impl Iterator<Item = &'t str>,
    delimiter: char,
    lazy: bool,
    field: &mut String,
) -> Result<Option<&'t str>, String> {
    let mut line = quoted;
    loop {
        let Some((before, behind)) = line.split_once('"') else {
            field.push_str(line);
            match lines.next() {
                Some(next) => line = next,
                None if lazy => return Ok(None),
                None => return Err("the row has a quote without its end".to_owned()),
            }
            field.push('\n');
            continue;
        };
        field.push_str(before);
        line = behind;
        if let Some(rest) = line.strip_prefix('"') {
            field.push('"');
            line = rest;
        } else if let Some(rest) = line.strip_prefix(delimiter) {
            return Ok(Some(rest));
        } else if line.is_empty() {
            return Ok(None);
        } else if lazy {
            field.push('"');
        } else {
            return Err("the row has text behind the end of a quoted field".to_owned());
        }
    }
}
