//! `regex_replace` replaces the matches of a regular expression.

use sluice_config::{Fields, Pattern};
use sluice_otlp::AnyValue;

use crate::field::Field;
use crate::operator::Transform;
use crate::read;
use crate::record::Record;

/// Colours and the like of terminals.
const CONTROL_SEQUENCES: &str = r"\x1B\[[\x30-\x3F]*[\x20-\x2F]*[\x40-\x7E]";

#[derive(Clone)]
struct RegexReplace {
    field: Field,
    pattern: Pattern,
    replacement: String,
}

pub(super) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    let doc = "The string. Without the field, the record stays as it is.";
    let field = read::field(fields, "field", doc);
    let doc = "The regular expression. Either this or `regex_name` is required.";
    let given = fields.parsed("regex", "a regular expression", None, doc, Pattern::new);
    let doc = "A known regular expression: `ansi_control_sequences` matches colours and the like.";
    let named =
        fields.optional_choice("regex_name", &[("ansi_control_sequences", CONTROL_SEQUENCES)], doc);
    let doc = "The text in place of each match. `$1` and `${name}` are groups, `$$` is a `$`.";
    let replacement = fields.string("replace_with", "", doc);
    match (fields.is_given("regex"), fields.is_given("regex_name")) {
        (true, true) => fields.error("cannot have both `regex` and `regex_name`"),
        (false, false) => fields.error("needs either `regex` or `regex_name`"),
        _ => {}
    }
    let pattern = match named {
        Some(text) => Pattern::new(text).ok(),
        None => given,
    };
    let pattern = pattern?;
    let replacement = pattern.template(&replacement);
    Some(Box::new(RegexReplace { field: field?, pattern, replacement }))
}

impl Transform for RegexReplace {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        let replaced = match self.field.get(record) {
            None => return Ok(()),
            Some(AnyValue::String(text)) => {
                self.pattern.regex().replace_all(text, &*self.replacement).into_owned()
            }
            Some(_) => return Err("the field is not a string".to_owned()),
        };
        self.field.set(record, AnyValue::String(replaced))
    }
}
