//! Reads a list of actions.

use sluice_config::{Fields, Pattern};
use sluice_otlp::AnyValue;

use super::convert::ConvertedType;
use super::source::{ContextKey, Source};
use super::{Action, Actions, Put, What};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Put(Put),
    Delete,
    Hash,
    Extract,
    Convert,
}

const NAMES: [(&str, Name); 7] = [
    ("insert", Name::Put(Put::Insert)),
    ("update", Name::Put(Put::Update)),
    ("upsert", Name::Put(Put::Upsert)),
    ("delete", Name::Delete),
    ("hash", Name::Hash),
    ("extract", Name::Extract),
    ("convert", Name::Convert),
];

/// Options that only some actions have.
const VALUE_SOURCES: [&str; 4] = ["value", "from_attribute", "from_context", "default_value"];

/// Reads the actions that are listed under `key`; at least one is required.
pub(crate) fn read(fields: &mut Fields<'_>, key: &str, doc: &str) -> Actions {
    let actions = fields.sections(key, doc, read_action);
    if actions.is_empty() {
        fields.error_missing(key);
    }
    Actions(actions.into_iter().flatten().collect())
}

fn read_action(fields: &mut Fields<'_>) -> Option<Action> {
    let doc = "Key of the attribute. Required for all actions except `delete` and `hash` with a \
               `pattern`.";
    let key = fields.string("key", "", doc);
    let name = read_name(fields);
    let source = read_source(fields);
    let doc = "For `extract`: matched against the value. Each group must have a name; it sets the \
               attribute of that name. For `delete` and `hash`: all attributes whose keys match, \
               besides `key`.";
    let pattern = fields.parsed("pattern", "a regular expression", None, doc, Pattern::new);
    let doc = "For `convert`: the new type.";
    let converted_type = fields.optional_choice("converted_type", &ConvertedType::ALL, doc);

    // The options against the action, as the Collector checks them.
    let (shown, name) = name?;
    let takes_pattern_instead = matches!(name, Name::Delete | Name::Hash);
    if key.is_empty() && !takes_pattern_instead {
        fields.error_missing("key");
        return None;
    }
    if key.is_empty() && !fields.is_given("pattern") {
        fields.error("needs a `key` or a `pattern`");
        return None;
    }
    refuse_foreign_options(name, shown, fields);
    let what = match name {
        Name::Put(on) => {
            check_source(&source, fields);
            What::Put(on, source)
        }
        Name::Delete => What::Delete(pattern),
        Name::Hash => What::Hash(pattern),
        Name::Extract => {
            if !fields.is_given("pattern") {
                fields.error_missing("pattern");
            }
            let pattern = pattern?;
            if pattern.group_names().next().is_none() {
                fields.error_at("pattern", "has no named group, as in `(?P<name>…)`");
            } else if pattern.group_names().any(|name| name.is_none()) {
                let message = "has a group without a name: write `(?:…)` or `(?P<name>…)`";
                fields.error_at("pattern", message);
            }
            What::Extract(pattern)
        }
        Name::Convert => {
            if !fields.is_present("converted_type") {
                fields.error_missing("converted_type");
            }
            What::Convert(converted_type?)
        }
    };
    Some(Action { name: shown, key, what })
}

fn read_name(fields: &mut Fields<'_>) -> Option<(&'static str, Name)> {
    let parse = |text: &str| {
        let found = NAMES.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        found.ok_or_else(|| "there is no such action".to_owned())
    };
    let kind = "one of `insert`, `update`, `upsert`, `delete`, `hash`, `extract`, `convert`";
    let doc = "`insert` sets the attribute if it is absent, `update` if it is present, `upsert` in \
               both cases; `delete` removes it; `hash` replaces its value by the SHA-256 of it; \
               `extract` sets other attributes from parts of its value; `convert` changes the type \
               of its value.";
    let name = fields.parsed("action", kind, None, doc, parse);
    if name.is_none() && !fields.is_present("action") {
        fields.error_missing("action");
    }
    name
}

fn read_source(fields: &mut Fields<'_>) -> Source {
    let doc = "For `insert`, `update` and `upsert`: the value, with its type.";
    let value = read_value(fields, "value", doc);
    let doc = "The value comes from this attribute. If it is absent, `default_value` applies; \
               without one, the action does nothing.";
    let from_attribute = fields.non_empty_string("from_attribute", doc);
    let kind = "`client.address` or `metadata.NAME`";
    let doc = "The value comes from the sender: its address, or metadata (headers) of its request, \
               for which the receiver needs `include_metadata`. Several values are joined by `;`. \
               If there is none, `default_value` applies; without one, the action does nothing.";
    let from_context = fields.parsed("from_context", kind, None, doc, ContextKey::parse);
    if from_context == Some(ContextKey::Authenticated) {
        let message = "yields nothing: attributes of an authenticated client (`auth.`) are not in \
                       this build of Sluice";
        fields.warn_at("from_context", message);
    }
    let doc = "The value if `from_context` and `from_attribute` yield none.";
    let default_value = read_value(fields, "default_value", doc);
    Source { value, from_context, from_attribute, default_value }
}

/// A value of any type, encoded.
fn read_value(fields: &mut Fields<'_>, key: &str, doc: &str) -> Option<Vec<u8>> {
    let node = fields.node(key, "string, number, boolean, list or map", doc)?;
    let value = node.any_value();
    if value.is_none() {
        fields.error_at(key, "holds a number that does not fit into 64 bits with a sign");
    }
    value.filter(|value| *value != AnyValue::Empty).map(|value| value.encoded())
}

fn refuse_foreign_options(name: Name, shown: &str, fields: &mut Fields<'_>) {
    let is_put = matches!(name, Name::Put(_));
    let foreign = VALUE_SOURCES.iter().filter(|_| !is_put);
    let foreign = foreign.chain((is_put || name == Name::Convert).then_some(&"pattern"));
    let foreign = foreign.chain((name != Name::Convert).then_some(&"converted_type"));
    for option in foreign {
        if fields.is_given(option) {
            fields.error_at(option, &format!("is not an option of the action `{shown}`"));
        }
    }
}

fn check_source(source: &Source, fields: &mut Fields<'_>) {
    let given = [
        ("value", source.value.is_some()),
        ("from_attribute", source.from_attribute.is_some()),
        ("from_context", fields.is_given("from_context")),
    ];
    let mut given = given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name);
    match (given.next(), given.next()) {
        (Some(first), Some(second)) => {
            fields.error_at(second, &format!("and `{first}` cannot be given both"))
        }
        (None, _) if source.default_value.is_none() => fields
            .error("needs one of `value`, `from_attribute`, `from_context` and `default_value`"),
        _ => {}
    }
}
