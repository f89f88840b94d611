//! `json_parser`: an object becomes a map.

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use super::json_text::Json;
use super::parser::Parser;
use crate::operator::Transform;
use crate::parsers::Numbers;
use crate::record::Record;
use crate::step::Step;

#[derive(Clone)]
struct JsonParser {
    parser: Parser,
    numbers: Numbers,
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    let parser = Parser::read(fields);
    let doc = "Whole numbers become integers; otherwise all numbers become doubles.";
    let numbers = match fields.boolean("parse_ints", false, doc) {
        true => Numbers::Integers,
        false => Numbers::Doubles,
    };
    Some(Box::new(JsonParser { parser: parser?, numbers }))
}

impl Transform for JsonParser {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        self.parser.apply(record, |text| {
            let mut json = Json::new(text, self.numbers);
            let map = json.object()?;
            // With `parse_ints` the Collector ignores text behind the object.
            if self.numbers == Numbers::Doubles {
                json.end()?;
            }
            Ok(AnyValue::Map(map))
        })
    }

    fn step(&self) -> Option<Step> {
        self.parser.sections().map(|sections| Step::Json { numbers: self.numbers, sections })
    }
}
