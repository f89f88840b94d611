//! `json_array_parser`: an array becomes a list, or with a header a map.

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use super::json_text::Json;
use super::parser::Parser;
use super::values::{Map, keep_last};
use crate::operator::Transform;
use crate::parsers::Numbers;
use crate::record::Record;

#[derive(Clone)]
struct JsonArrayParser {
    parser: Parser,
    header: Option<Vec<String>>,
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    let parser = Parser::read(fields);
    let doc = "Names of the elements, with commas between them: the result is a map. Without \
               names it is a list, which needs a `parse_to` with a key, or `body`.";
    let header = fields.non_empty_string("header", doc);
    let header = header.map(|names| names.split(',').map(str::to_owned).collect());
    Some(Box::new(JsonArrayParser { parser: parser?, header }))
}

impl Transform for JsonArrayParser {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        self.parser.apply(record, |text| {
            let mut json = Json::new(text, Numbers::Integers);
            let values = json.array(element)?;
            json.end()?;
            let Some(header) = &self.header else { return Ok(AnyValue::Array(values)) };
            if header.len() != values.len() {
                let (expected, found) = (header.len(), values.len());
                return Err(format!("the array has {found} elements, the header {expected}"));
            }
            let mut map: Map = header.iter().cloned().zip(values).collect();
            keep_last(&mut map);
            Ok(AnyValue::Map(map))
        })
    }
}

/// Objects are texts, as in the Collector. Numbers with a fraction, which it turns into 0, stay.
fn element(json: &mut Json<'_>) -> Result<AnyValue, String> {
    let (value, text) = json.value_with_text()?;
    match value {
        AnyValue::Map(_) => Ok(AnyValue::String(text.to_owned())),
        AnyValue::Array(_) => Err("the array has an array within it".to_owned()),
        value => Ok(value),
    }
}
